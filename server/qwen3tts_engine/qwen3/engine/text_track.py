"""The text of one generation as tokens: all there from the start, or growing. No torch."""

from __future__ import annotations

import unicodedata
from typing import Protocol

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_text.characters import Voiced, voiced
from qwen3tts_text.growing import LiveText, utf8_bytes

LAST_WORD = 8
"""Room for fewer tokens is none: a word should not be parted."""


class TokenStream(Protocol):
    """bpe_stream.StreamingTokenizer: tokens as soon as no later text can change them."""

    def push(self, text: str) -> list[tuple[int, int]]:
        """Tokens that are now certain, each with where its text ends."""
        ...

    def end(self) -> list[tuple[int, int]]:
        """The rest."""
        ...


class TextTrack:
    """Text in, tokens out; and which part of the text a token is.

    ``ids[i]`` is a token, ``ends[i]`` the position in ``text`` behind it, in code points.
    """

    def __init__(
        self,
        request: SynthesisRequest,
        tokens: TokenStream,
        *,
        most: int | None = None,
        whole: bool = False,
    ) -> None:
        """Of text that grows, or might have, no more is taken than makes ``most`` tokens; what is
        left lies in the request's ``more`` and begins another generation. ``whole``: text that
        grows is waited for, to its end."""
        self._most = most
        self.ids: list[int] = []
        self.ends: list[int] = []
        self.text = ""
        self.ended = False
        """No more tokens come."""
        self.dried = False
        """It ended because no more text came in time."""
        self.speakable = False
        """Whether there is anything to say in it."""
        self._offsets: list[int] = []
        self._tokens = tokens
        self.streaming = request.more is not None and request.layout is None and not whole
        """Whether it grows while it is spoken, or might have: text that came early is spoken as if
        it had come late."""
        self._live = request.more
        offsets = request.offsets or tuple(range(len(request.text) + 1))
        if self._live is None:
            self._add(request.text, offsets)
        elif request.text:
            self._live.put_first(request.text, offsets)
        self.pull()

    @property
    def source(self) -> LiveText | None:
        """Where more text comes from."""
        return self._live

    @property
    def ready(self) -> bool:
        """Whether it can begin: there is something to say, and all of it unless it grows."""
        return self.speakable and bool(self.ids) and (self.streaming or self.ended)

    @property
    def live(self) -> bool:
        """Whether text may still come."""
        return self._live is not None

    def pull(self) -> bool:
        """Take what has arrived; whether anything changed."""
        if self.ended:
            return False
        before = len(self.ids)
        full = self._live is not None and self._take(self._live)
        if self._live is None or full or self._live.ended:
            self._extend(self._tokens.end())
            self._live = None
            self.ended = True
            return True
        return len(self.ids) > before

    def dry(self) -> None:
        """No text came for too long: what is there is all. What is refused begins another."""
        if self._live is not None:
            self.dried = self._live.close()
            self.pull()

    def leave(self) -> None:
        """Nobody reads any more."""
        if self._live is not None:
            self._live.close()
            self._live.on_change = None

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Where ``text[start:end]`` lies in the context's original text (base.original)."""
        if start >= end:
            return (self._offsets[start],) * 2
        return self._offsets[start], min(self._offsets[end - 1] + 1, self._offsets[-1])

    def rest(self, start: int) -> tuple[str, tuple[int, ...]]:
        """The text from a code point on, and where it stands in the context's original text."""
        return self.text[start:], tuple(self._offsets[start:])

    def _take(self, live: LiveText) -> bool:
        """Take what there is and has room; whether there is no room for more."""
        while self._room is None or self._room >= LAST_WORD:
            parts = live.take(self._room)
            for text, offsets in parts:
                self._add(text, offsets)
            if not parts:
                return False
        live.close()
        return True

    @property
    def _room(self) -> int | None:
        """Tokens for which there is room; what is no certain token yet counts by its bytes."""
        if self._most is None:
            return None
        uncertain = self.text[self.ends[-1] if self.ends else 0 :]
        return self._most - len(self.ids) - utf8_bytes(uncertain)

    def _add(self, text: str, offsets: tuple[int, ...]) -> None:
        if not self.text:
            # What is blank before the first word is no part of what is said.
            blank = len(text) - len(text.lstrip())
            text, offsets = text[blank:], offsets[blank:]
        self._offsets[-1:] = offsets
        self.text += text
        self.speakable = self.speakable or any(map(_is_spoken, text))
        self._extend(self._tokens.push(text) if text else [])

    def _extend(self, tokens: list[tuple[int, int]]) -> None:
        for token, end in tokens:
            self.ids.append(token)
            self.ends.append(end)


def _is_spoken(char: str) -> bool:
    """Letters, digits, other numbers, currency and the like; no punctuation, white space, emoji."""
    category = unicodedata.category(char)
    return (category[0] in "LN" or category in ("Sc", "So", "Sm")) and voiced(char) is Voiced.KEPT
