"""Server-sent events parser (WHATWG HTML, section 9.2.6), without I/O."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from qwen3tts_wire.errors import LimitExceeded

MAX_EVENT_CHARS = 1 << 20
"""Event bound, longest line included."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """An event with data."""

    event: str
    """Type, by default ``message``."""
    data: str


class SseParser:
    """Incremental parser; lines end with CR, LF or both.

    Broken UTF-8 is replaced, as the standard asks; an unterminated event is dropped.
    """

    def __init__(self, max_event_chars: int = MAX_EVENT_CHARS) -> None:
        self._max = max_event_chars
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._line: list[str] = []
        self._data: list[str] = []
        self._event = ""
        self._chars = 0
        self._after_cr = False

    def push(self, data: bytes) -> list[SseEvent]:
        """Return the complete events; LimitExceeded above ``max_event_chars``."""
        text = self._decoder.decode(data)
        if not text:
            return []
        if self._after_cr and text[0] == "\n":
            text = text[1:]
            self._after_cr = False
        if text:
            self._after_cr = text[-1] == "\r"
        *ended, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        events = []
        for line in ended:
            self._grow(line)
            whole = "".join(self._line)
            self._line.clear()
            if event := self._take(whole):
                events.append(event)
        if rest:
            self._grow(rest)
        return events

    def _grow(self, part: str) -> None:
        self._line.append(part)
        self._chars += len(part)
        if self._chars > self._max:
            raise LimitExceeded(f"One event is longer than {self._max} characters.")

    def _take(self, line: str) -> SseEvent | None:
        if not line:
            event, data = self._event or "message", self._data
            self._event, self._data, self._chars = "", [], 0
            return SseEvent(event, "\n".join(data)) if data else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif not name and not self._data:
            self._chars = 0  # comments keep the connection alive and may go on for ever
        return None
