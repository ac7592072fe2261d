"""Ids from a text that is still growing: the whole text's, however it was split. No torch.

A token is given out as soon as no later text can change it:

- the text is normalized, and its last character held while a mark may join it (PlainText);
- of the pieces that BPE never merges across, the last is held, since it may grow, and blanks at the
  end, since they may join what follows;
- of a held word the tokens that stay whatever it grows by are given out all the same
  (``Tokenizer.settled``): text without blanks, as Chinese, is not held up to the next comma.

Held are at most PIECE characters and one with its marks, or BLANKS blanks: a bound on what waits,
and on the work for each push. As a rule it is the last word, or one to three Chinese characters.
"""

from __future__ import annotations

from typing import Protocol

from qwen3tts_engine.qwen3.plain_text import PlainText

PIECE = 1000
"""Characters; a longer piece (a word without an end) is cut there, so that work and memory per
character have a bound. No other text is tokenized differently for it."""
CONTEXT = 2
"""Characters of a piece in hand that are kept after their tokens are out: with them the cutter sees
that the rest goes on and is no beginning."""


BLOCK = 1024
"""Code points that are cut into pieces at a time; the cutter is slower than linear."""


class Merger(Protocol):
    """What a stream needs of a Tokenizer; ends count the characters of the piece."""

    def cut(self, text: str) -> list[tuple[int, int]]:
        """Start and end of the pieces that BPE never merges across."""
        ...

    def merge(self, piece: str) -> list[tuple[int, int]]:
        """Ids of a piece with their ends."""
        ...

    def settled(self, piece: str) -> list[tuple[int, int]]:
        """Those of its first ids that stay whatever it grows by."""
        ...


class StreamingTokenizer:
    """Reads a text piecemeal; the tokens of all calls together are the whole text's."""

    def __init__(self, tokenizer: Merger) -> None:
        self._tokenizer = tokenizer
        self._text = PlainText()
        self._context = ""
        self._spent = 0
        """Characters of the piece in hand whose tokens are out, since its start or its last cut."""
        self._used = 0
        """Characters whose tokens are out, of what the normalized text holds."""

    def push(self, text: str) -> list[tuple[int, int]]:
        """Read more; the tokens that are now certain.

        Each comes with the number of code points of all text pushed up to its end.

        Raises:
            BadText: half a surrogate pair stands alone; says where.
        """
        given = []
        for at in range(0, len(text), BLOCK):
            self._text.push(text[at : at + BLOCK])
            given += self._give(self._text.tail)
        return given

    def end(self) -> list[tuple[int, int]]:
        """Nothing more comes: the tokens that were held.

        Raises:
            BadText: half a surrogate pair was the last thing pushed.
        """
        self._text.end()
        return self._give(None)

    def _give(self, tail: str | None) -> list[tuple[int, int]]:
        """Tokens that are certain before ``tail``; None: the text has ended."""
        done = self._text.chars
        if not done:
            return []
        view = self._context + done + (tail or "")
        pieces = self._tokenizer.cut(view)
        closed = len(pieces) if tail is None else self._closed(pieces, view, len(tail))
        given: list[tuple[int, int]] = []
        at = len(self._context)
        for _, end in pieces[:closed]:
            given += self._tokens(view[at:end])
            at, self._context, self._spent = end, "", 0
        if closed < len(pieces):
            final = min(pieces[closed][1], len(view) - len(tail or ""))
            held = view[at:final]
            if not held.isspace():
                given += self._begin(held)
        self._text.take(self._used)
        self._used = 0
        return given

    def _closed(self, pieces: list[tuple[int, int]], view: str, tail: int) -> int:
        """How many pieces cannot change any more."""
        closed = len(pieces) - 1
        # Blanks at the end, cut as they are, may be cut otherwise before what follows.
        if view[slice(*pieces[closed])].isspace():
            while closed and view[slice(*pieces[closed - 1])].isspace():
                closed -= 1
        while closed and pieces[closed - 1][1] > len(view) - tail:
            closed -= 1
        return closed

    def _begin(self, held: str) -> list[tuple[int, int]]:
        """What is certain of a piece that may grow."""
        given, whole = [], held
        while len(held) > PIECE - self._spent:
            cut = PIECE - self._spent
            given += self._tokens(held[:cut])
            held, self._spent = held[cut:], 0
        settled = self._tokenizer.settled(held) if _is_word(held) else []
        if settled:
            given += self._out(settled)
            self._spent = (self._spent + settled[-1][1]) % PIECE
            held = held[settled[-1][1] :]
        out = self._context + whole[: len(whole) - len(held)]
        # Line feeds may end a piece of signs: those are no sign that it goes on.
        self._context = (out.rstrip("\r\n") or out)[-CONTEXT:]
        return given

    def _tokens(self, rest: str) -> list[tuple[int, int]]:
        """Tokens of the rest of a piece, cut where it is too long."""
        given: list[tuple[int, int]] = []
        while rest:
            cut = PIECE - self._spent
            given += self._out(self._tokenizer.merge(rest[:cut]))
            rest, self._spent = rest[cut:], 0
        return given

    def _out(self, tokens: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Tokens with their ends in the text given; their characters are used up."""
        ends, at = self._text.ends, self._used
        self._used += tokens[-1][1]
        return [(token, ends[at + end - 1]) for token, end in tokens]


def _is_word(held: str) -> bool:
    """Whether it is letters, but for the sign or blank that may come first."""
    return held[1:].isalpha() and (len(held) > 1 or held.isalpha())
