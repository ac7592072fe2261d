"""Tolerant reading of JSON fields, and reordering of chunks (pure)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from qwen3tts_phone.streams.carriers.adapter import (
    Message,
    StreamAdapter,
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamOddity,
)

MAX_TEXT_CHARS = 1024
MAX_PARAMETERS = 64
DIGITS = frozenset("0123456789*#ABCD")

Object = dict[str, Any]


class JsonAdapter(StreamAdapter):
    def _odd(self, what: str) -> list[StreamEvent]:
        return [StreamOddity(what)]

    def _linear(self, data: bytes, channels: int = 1) -> list[StreamEvent]:
        size = 2 * channels
        odd = self._odd("half a sample") if len(data) % size else []
        kept = data[: len(data) // size * size]
        if channels > 1:
            kept = np.frombuffer(kept, "<i2")[::channels].tobytes()
        return [*odd, StreamAudio(kept)] if kept else [*odd, *self._odd("media without sound")]

    def _key(self, message: Object, *, ticks_per_ms: float = 1.0) -> list[StreamEvent]:
        """DTMF key of ``{dtmf: {digit}}``, ``{digit}`` or ``{dtmf: "5"}``."""
        held = message.get("dtmf")
        inner = held if isinstance(held, dict) else message
        digit = inner.get("digit", held)
        if isinstance(digit, int) and not isinstance(digit, bool):
            digit = str(digit)
        if not isinstance(digit, str) or digit.strip().upper() not in DIGITS:
            return self._odd("a key that no telephone has")
        duration_ms = number(inner, "duration")
        duration_ms = 0.0 if duration_ms is None else min(duration_ms / ticks_per_ms, 60_000.0)
        return [StreamKey(digit.strip().upper(), max(0, int(duration_ms)))]


def object_of(message: Message) -> Object | None:
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def child(of: Object, *names: str) -> Object:
    for name in names:
        found = of.get(name)
        if isinstance(found, dict):
            return found
    return {}


def text(of: Object, *names: str) -> str:
    for name in names:
        found = of.get(name)
        if isinstance(found, str) and found.strip():
            return clean(found)
        if isinstance(found, int) and not isinstance(found, bool) and abs(found) < 1 << 63:
            return str(found)
    return ""


def number(of: Object, *names: str) -> float | None:
    for name in names:
        found = of.get(name)
        if isinstance(found, bool) or not isinstance(found, int | float | str):
            continue
        if isinstance(found, str) and len(found) > 24:
            continue
        try:
            value = float(found)
        except (ValueError, OverflowError):
            continue
        if abs(value) < 1e15:  # neither NaN nor infinity
            return value
    return None


def whole(of: Object, *names: str) -> int | None:
    value = number(of, *names)
    return int(value) if value is not None and value >= 0 and value == int(value) else None


def texts(found: object) -> dict[str, str]:
    """Return custom parameters of an object, or of ``a=1;b=2`` or ``a=1,b=2``."""
    if isinstance(found, str):
        inner = object_of(found) if found.lstrip().startswith("{") else None
        if inner is None:
            divided = (part.partition("=") for part in found.replace(";", ",").split(","))
            inner = {name.strip(): value.strip() for name, is_there, value in divided if is_there}
        found = inner
    if not isinstance(found, Mapping):
        return {}
    out: dict[str, str] = {}
    for name, value in found.items():
        if len(out) == MAX_PARAMETERS:
            break
        if isinstance(name, str) and isinstance(value, str | int | float):
            out[clean(name)] = clean(str(value)) if not isinstance(value, bool) else str(value)
    return out


def clean(found: str) -> str:
    kept = found[:MAX_TEXT_CHARS].strip()
    return kept if kept.isprintable() else "".join(c for c in kept if c.isprintable())


def sound_of(payload: object) -> bytes | None:
    if not isinstance(payload, str):
        return None
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        return None


T = TypeVar("T")

MAX_HELD = 3
"""Later chunks that wait for a missing one: 60 ms in messages of 20 ms."""
MAX_WAIT_S = 0.08
"""Longest wait for a missing chunk where nothing follows."""
MAX_MISSING = 50
"""Longest gap reported: one second of messages of 20 ms."""
MAX_BEHIND = 5
"""Consecutive chunks with past numbers after which the counter counts as restarted."""


@dataclass(frozen=True, slots=True)
class MissingChunks:
    chunks: int


class ReorderBuffer(Generic[T]):
    """Reorder buffer of numbered chunks, which reports gaps.

    Chunks in order do not wait; late ones and duplicates are dropped.
    """

    def __init__(self, *, max_held: int = MAX_HELD, max_wait_s: float = MAX_WAIT_S) -> None:
        self._max_held = max_held
        self._max_wait_s = max_wait_s
        self._next: int | None = None
        self._held: dict[int, T] = {}
        self._since = 0.0
        self._begun = False
        self._behind = 0
        self.dropped = 0

    def push(self, number: int | None, item: T, now: float) -> list[T | MissingChunks]:
        """Add a chunk; return what is in order. ``number`` None: follows the last."""
        if number is None:
            return [*self.drain(), item]
        if self._next is None:
            # Numbers begin at 1, and the first ones may be out of order, too.
            self._next = 1 if 1 < number <= self._max_held + 1 else number
        if number < self._next or number in self._held:
            return self._late(number, item)
        self._behind = 0
        if number > self._next:
            if not self._held:
                self._since = now
            self._held[number] = item
            return self._skip() if len(self._held) > self._max_held else []
        self._next += 1
        self._begun = True
        return [item, *self._following()]

    def tick(self, now: float) -> list[T | MissingChunks]:
        if not self._held or now - self._since < self._max_wait_s:
            return []
        self._since = now
        return self._skip()

    def drain(self) -> list[T | MissingChunks]:
        out: list[T | MissingChunks] = []
        while self._held:
            out += self._skip()
        return out

    def _late(self, number: int, item: T) -> list[T | MissingChunks]:
        self._behind += 1
        if self._behind < MAX_BEHIND:
            self.dropped += 1
            return []
        self._behind = 0
        out = self.drain()
        self._next = number + 1
        return [*out, item]

    def _skip(self) -> list[T | MissingChunks]:
        first = min(self._held)
        missing = first - (self._next or 0)
        out: list[T | MissingChunks] = (
            [MissingChunks(min(missing, MAX_MISSING))] if self._begun else []
        )
        self._next = first
        self._begun = True
        return [*out, *self._following()]

    def _following(self) -> list[T | MissingChunks]:
        out: list[T | MissingChunks] = []
        while self._next in self._held:
            out.append(self._held.pop(self._next))
            self._next += 1
        return out
