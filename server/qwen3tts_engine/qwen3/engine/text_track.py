"""Text of one generation as tokens, complete or growing. No torch."""

from __future__ import annotations

import unicodedata
from typing import Protocol

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_text.characters import Voiced, voiced
from qwen3tts_text.growing import LiveText, utf8_bytes

LAST_WORD = 8
"""Least room in tokens, so that no word is split."""


class TokenStream(Protocol):
    def push(self, text: str) -> list[tuple[int, int]]: ...

    def end(self) -> list[tuple[int, int]]: ...


class TextTrack:
    """Tokens of a text.

    ``ids[i]`` is a token, ``ends[i]`` the code point behind it in ``text``.
    """

    def __init__(
        self,
        request: SynthesisRequest,
        tokens: TokenStream,
        *,
        most: int | None = None,
        whole: bool = False,
    ) -> None:
        """Start with the request's text.

        Text that may grow is limited to ``most`` tokens; the rest stays in the request's ``more``.
        ``whole``: wait for the end of growing text.
        """
        self._most = most
        self.ids: list[int] = []
        self.ends: list[int] = []
        self.text = ""
        self.ended = False
        """No more tokens come."""
        self.timed_out = False
        """Ended by a timeout of text."""
        self.speakable = False
        """True if it has anything to say."""
        self._offsets: list[int] = []
        self._tokens = tokens
        self.streaming = request.more is not None and request.layout is None and not whole
        """True if it grows while it is spoken, or might have: text that came early is spoken as if
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
        return self._live

    @property
    def ready(self) -> bool:
        return self.speakable and bool(self.ids) and (self.streaming or self.ended)

    @property
    def live(self) -> bool:
        return self._live is not None

    def pull(self) -> bool:
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

    def time_out(self) -> None:
        """End by a timeout of text; later text begins another generation."""
        if self._live is not None:
            self.timed_out = self._live.close()
            self.pull()

    def close(self) -> None:
        if self._live is not None:
            self._live.close()
            self._live.on_change = None

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Return the position of ``text[start:end]`` in the context's original text."""
        if start >= end:
            return (self._offsets[start],) * 2
        return self._offsets[start], min(self._offsets[end - 1] + 1, self._offsets[-1])

    def rest(self, start: int) -> tuple[str, tuple[int, ...]]:
        return self.text[start:], tuple(self._offsets[start:])

    def _take(self, live: LiveText) -> bool:
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
        if self._most is None:
            return None
        uncertain = self.text[self.ends[-1] if self.ends else 0 :]
        return self._most - len(self.ids) - utf8_bytes(uncertain)

    def _add(self, text: str, offsets: tuple[int, ...]) -> None:
        if not self.text:
            # Leading white space is not part of the text.
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
    category = unicodedata.category(char)
    return (category[0] in "LN" or category in ("Sc", "So", "Sm")) and voiced(char) is Voiced.KEPT
