"""Qwen2's byte-level BPE, for whole and for streaming text. No torch."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Protocol

import tokenizers
from tokenizers import models, pre_tokenizers

from qwen3tts_engine.qwen3.model.config_fields import REMEDY, BadCheckpoint, JsonFields
from qwen3tts_wire.errors import BadText

MARKS = 30
"""Most combining marks on a character (UAX 15, section 13: Stream-Safe Text Format); others are
dropped."""
BLANKS = 64
"""Most consecutive white space; the rest is dropped."""


class TextNormalizer:
    """Incremental NFC normalizer.

    ``chars`` and ``ends`` hold final characters not yet taken; ``ends[i]`` counts input code
    points. The last character is held while a combining mark may follow.
    """

    def __init__(self) -> None:
        self.chars = ""
        self.ends: list[int] = []
        self._read = 0
        self._high = ""
        self._atom = ""
        self._atom_ends: list[int] = []
        self._blanks = 0

    @property
    def tail(self) -> str:
        return unicodedata.normalize("NFC", self._atom)

    def push(self, text: str) -> None:
        for char in text:
            self._read += 1
            if self._high or "\ud800" <= char <= "\udfff":
                char = self._pair(char)
                if not char:
                    continue
            self._blanks = self._blanks + 1 if char.isspace() else 0
            if self._blanks > BLANKS or not self._joins(char):
                continue
            if self._atom and _begins(char):
                self._finish_atom()
            self._atom += char
            self._atom_ends.append(self._read)

    def end(self) -> None:
        if self._high:
            self._refuse(self._read - 1)
        self._finish_atom()

    def take(self, count: int) -> None:
        self.chars = self.chars[count:]
        del self.ends[:count]

    def _pair(self, char: str) -> str:
        if not self._high:
            if char >= "\udc00":
                self._refuse(self._read - 1)
            self._high = char
            return ""
        if not "\udc00" <= char <= "\udfff":
            self._refuse(self._read - 2)
        pair, self._high = self._high + char, ""
        return pair.encode("utf-16-le", "surrogatepass").decode("utf-16-le")

    def _refuse(self, position: int) -> None:
        raise BadText(
            f"The text holds half a surrogate pair at code point {position}.",
            remedy="Send whole characters, as UTF-8.",
        )

    def _joins(self, char: str) -> bool:
        return len(self._atom) <= MARKS or _begins(char)

    def _finish_atom(self) -> None:
        whole = self.tail
        self.chars += whole
        if len(whole) == len(self._atom):
            self.ends += self._atom_ends
        else:
            self.ends += self._atom_ends[-1:] * len(whole)
        self._atom, self._atom_ends = "", []


# A boundary: no mark, NFC_Quick_Check not Maybe; characters unknown to this Python count as marks.
def _begins(char: str) -> bool:
    if char < "\u0300":
        return True
    kind = unicodedata.category(char)
    if kind[0] == "M" or kind == "Cn":
        return False
    return not (
        "\u1160" <= char <= "\u11ff"
        or "\ud7b0" <= char <= "\ud7ff"
        or _KIRAT[0] <= char <= _KIRAT[1]
    )


_KIRAT = "\U00016d60", "\U00016d6f"


PIECE = 1000
"""Characters of a pre-token; longer ones (a word without end) are cut, which bounds work and memory
per character."""
CONTEXT = 2
"""Characters kept after their tokens are given, so that the pre-tokenizer sees a continuation."""


BLOCK = 1024
"""Code points pre-tokenized together; the pre-tokenizer is slower than linear."""


class BpeMerger(Protocol):
    """Tokenizer interface of a stream; ends count the pre-token's characters."""

    def cut(self, text: str) -> list[tuple[int, int]]: ...

    def merge(self, piece: str) -> list[tuple[int, int]]: ...

    def settled(self, piece: str) -> list[tuple[int, int]]: ...


class StreamingTokenizer:
    """Incremental tokenizer, equal to that of the whole text."""

    def __init__(self, tokenizer: BpeMerger) -> None:
        self._tokenizer = tokenizer
        self._text = TextNormalizer()
        self._context = ""
        self._spent = 0
        """Characters of the current pre-token already given, since its start or last cut."""
        self._used = 0
        """Characters of the normalized text already given."""

    def push(self, text: str) -> list[tuple[int, int]]:
        """Append text; return tokens now certain, with code points pushed up to each.

        BadText for an unpaired surrogate.
        """
        given = []
        for at in range(0, len(text), BLOCK):
            self._text.push(text[at : at + BLOCK])
            given += self._give(self._text.tail)
        return given

    def end(self) -> list[tuple[int, int]]:
        self._text.end()
        return self._give(None)

    def _give(self, tail: str | None) -> list[tuple[int, int]]:
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
        closed = len(pieces) - 1
        # Trailing white space may be split otherwise before what follows.
        if view[slice(*pieces[closed])].isspace():
            while closed and view[slice(*pieces[closed - 1])].isspace():
                closed -= 1
        while closed and pieces[closed - 1][1] > len(view) - tail:
            closed -= 1
        return closed

    def _begin(self, held: str) -> list[tuple[int, int]]:
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
        # Line feeds may end a pre-token of punctuation: not part of the context.
        self._context = (out.rstrip("\r\n") or out)[-CONTEXT:]
        return given

    def _tokens(self, rest: str) -> list[tuple[int, int]]:
        given: list[tuple[int, int]] = []
        while rest:
            cut = PIECE - self._spent
            given += self._out(self._tokenizer.merge(rest[:cut]))
            rest, self._spent = rest[cut:], 0
        return given

    def _out(self, tokens: list[tuple[int, int]]) -> list[tuple[int, int]]:
        ends, at = self._text.ends, self._used
        self._used += tokens[-1][1]
        return [(token, ends[at + end - 1]) for token, end in tokens]


def _is_word(held: str) -> bool:
    return held[1:].isalpha() and (len(held) > 1 or held.isalpha())


PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
"""Pre-tokenizer of Qwen2; in no file of the checkpoint.

transformers 4.57.3 replaces it by another model family's for a local folder with a vocabulary of
this size, which splits ``iPhone``. Qwen names this one for the Qwen3 series (QwenLM/Qwen3-VL, issue
1998).
"""


def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Return the splitter by PATTERN, and ``vocab.json``'s byte alphabet."""
    return pre_tokenizers.Sequence(
        [
            _cutter(),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _cutter() -> pre_tokenizers.Split:
    return pre_tokenizers.Split(tokenizers.Regex(PATTERN), behavior="isolated")


def _byte_alphabet() -> list[str]:
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = iter(range(0x100, 0x200))
    return [chr(byte) if byte in seen else chr(next(unseen)) for byte in range(256)]


ALPHABET = _byte_alphabet()
_TABLE = str.maketrans({chr(byte): char for byte, char in enumerate(ALPHABET)})


MERGED_SHARE = 0.9
"""Least merges per token of several bytes. It is 1 in a complete file; one truncated at the end of
a line has fewer."""


class Tokenizer:
    """Text vocabulary; special tokens in a text are ordinary text."""

    def __init__(self, folder: Path) -> None:
        """Read ``vocab.json``, ``merges.txt`` and ``config.json``; BadCheckpoint if damaged."""
        names = JsonFields.read(folder / "vocab.json")
        vocab = {name: names.integer(name, 0) for name in names}
        for char in ALPHABET:
            names.integer(char, 0)
        file = folder / "merges.txt"
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
            pairs = [_pair(line) for line in lines if line and not line.startswith("#version")]
            self._model = models.BPE(vocab, pairs)
        except FileNotFoundError:
            raise BadCheckpoint(f"{file} is missing.", remedy=REMEDY) from None
        # The library raises bare exceptions for merges that the vocabulary does not hold.
        except Exception as error:
            raise BadCheckpoint(f"{file} is damaged: {error}.", remedy=REMEDY) from None
        merged = len(vocab) - len(ALPHABET)
        if len(pairs) < MERGED_SHARE * merged:
            raise BadCheckpoint(
                f"{file} is damaged: it has {len(pairs)} merges for the {merged} tokens of"
                " vocab.json that need one.",
                remedy=REMEDY,
            )
        self._cutter = _cutter()
        self._sorted = sorted(vocab)
        self._longest = max(map(len, vocab))
        self.vocab_size = max(vocab.values()) + 1
        """Largest id of ordinary text, plus one."""
        top = JsonFields.read(folder / "config.json")
        start, end = top.integer("im_start_token_id", 0), top.integer("im_end_token_id", 0)
        self._start, self._end, self._newline = start, end, names.integer(ALPHABET[10], 0)

    def encode(self, text: str) -> list[int]:
        return [token for token, _ in self.encode_with_offsets(text)]

    def encode_with_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return ids with code points of ``text`` up to their end."""
        stream = StreamingTokenizer(self)
        return stream.push(text) + stream.end()

    def encode_instructions(self, text: str) -> list[int]:
        """Return a user turn: ``<|im_start|>user``, the text, ``<|im_end|>``."""
        # The text follows the line feed directly; leading white space merges with it.
        return [self._start, *self.encode(f"user\n{text}"), self._end, self._newline]

    def cut(self, text: str) -> list[tuple[int, int]]:
        return [span for _, span in self._cutter.pre_tokenize_str(text)]

    def merge(self, piece: str) -> list[tuple[int, int]]:
        # The character that each byte belongs to, from 1.
        ends = [at for at, char in enumerate(piece, 1) for _ in range(len(char.encode()))]
        return [(token, ends[end - 1]) for token, end in self._tokens(_mapped(piece))]

    def settled(self, piece: str) -> list[tuple[int, int]]:
        """Return leading tokens of ``merge`` that no continuation can change.

        BPE never merges across a border between two of its tokens; after any continuation the last
        border within the piece is its end or precedes the beginning of some longer token. Tokens
        common to all these cases are settled.
        """
        mapped = _mapped(piece)
        common = self._tokens(mapped)
        for start in range(max(0, len(mapped) - self._longest + 1), len(mapped)):
            if self._begins_a_longer_token(mapped[start:]):
                other = self._tokens(mapped[:start])
                pairs = zip(common, other, strict=False)
                common = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
        whole = set(accumulate(len(char.encode()) for char in piece))
        while common and common[-1][1] not in whole:
            common.pop()
        return self.merge(piece)[: len(common)]

    def _tokens(self, mapped: str) -> list[tuple[int, int]]:
        tokens = self._model.tokenize(mapped)
        ends = accumulate(len(token.value) for token in tokens)
        return [(token.id, end) for token, end in zip(tokens, ends, strict=True)]

    def _begins_a_longer_token(self, mapped: str) -> bool:
        at = bisect_right(self._sorted, mapped)
        return at < len(self._sorted) and self._sorted[at].startswith(mapped)


def _mapped(text: str) -> str:
    return text.encode().decode("latin-1").translate(_TABLE)


def _pair(line: str) -> tuple[str, str]:
    first, _, second = line.partition(" ")
    return first, second
