"""Tolerant reading of carriers' messages: JSON fields, and numbered chunks in order."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from qwen3tts_phone.streams.adapter import (
    Message,
    StreamAdapter,
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamOddity,
)

MOST_CHARS = 1024
"""Longest text of a far end that is kept; more of it is cut."""
MOST_PARAMETERS = 64
DIGITS = frozenset("0123456789*#ABCD")

Object = dict[str, Any]


class JsonAdapter(StreamAdapter):
    """An adapter whose messages are JSON objects, at least those that are no sound."""

    def _odd(self, what: str) -> list[StreamEvent]:
        """The far end sent what it should not have."""
        return [StreamOddity(what)]

    def _linear(self, data: bytes, channels: int = 1) -> list[StreamEvent]:
        """A binary message of 16-bit samples; the caller is the first of its channels."""
        size = 2 * channels
        odd = self._odd("half a sample") if len(data) % size else []
        kept = data[: len(data) // size * size]
        if channels > 1:
            kept = np.frombuffer(kept, "<i2")[::channels].tobytes()
        return [*odd, StreamAudio(kept)] if kept else [*odd, *self._odd("media without sound")]

    def _key(self, message: Object, *, ticks_per_ms: float = 1.0) -> list[StreamEvent]:
        """A key that was pressed: ``{dtmf: {digit}}``, ``{digit}`` or ``{dtmf: "5"}``."""
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
    """The JSON object in a message; None for anything else."""
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def child(of: Object, *names: str) -> Object:
    """The first object that stands there under one of these names; empty if there is none."""
    for name in names:
        found = of.get(name)
        if isinstance(found, dict):
            return found
    return {}


def text(of: Object, *names: str) -> str:
    """The first text or number that stands there under one of these names, as text; or empty."""
    for name in names:
        found = of.get(name)
        if isinstance(found, str) and found.strip():
            return clean(found)
        if isinstance(found, int) and not isinstance(found, bool) and abs(found) < 1 << 63:
            return str(found)
    return ""


def number(of: Object, *names: str) -> float | None:
    """The first number that stands there, also as text, under one of these names; or None."""
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
    """The same where only a whole number that is not negative will do."""
    value = number(of, *names)
    return int(value) if value is not None and value >= 0 and value == int(value) else None


def texts(found: object) -> dict[str, str]:
    """What a far end hands over beside: an object, or text such as ``a=1;b=2`` or ``a=1,b=2``."""
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
        if len(out) == MOST_PARAMETERS:
            break
        if isinstance(name, str) and isinstance(value, str | int | float):
            out[clean(name)] = clean(str(value)) if not isinstance(value, bool) else str(value)
    return out


def clean(found: str) -> str:
    """A far end's text: bounded, and without what cannot be printed."""
    kept = found[:MOST_CHARS].strip()
    return kept if kept.isprintable() else "".join(c for c in kept if c.isprintable())


def sound_of(payload: object) -> bytes | None:
    """The bytes of base64 text; None for what is none."""
    if not isinstance(payload, str):
        return None
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        return None


T = TypeVar("T")

MOST_HELD = 3
"""So many later chunks wait for one that is missing: 60 ms of sound in messages of 20 ms."""
PATIENCE_S = 0.08
"""No longer than this, where nothing follows."""
MOST_MISSED = 50
"""A gap is not told as longer than this: one second of messages of 20 ms."""
MOST_BEHIND = 5
"""So many chunks in a row with numbers of the past: the counting has begun anew."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Chunks that never came."""

    chunks: int


class ChunkOrder(Generic[T]):
    """Chunks in, the same in the order of their numbers out, with what is missing between them.

    In order, nothing waits. A chunk that comes after its place has been given up is dropped, as is
    one that comes twice.
    """

    def __init__(self, *, most_held: int = MOST_HELD, patience_s: float = PATIENCE_S) -> None:
        self._most_held = most_held
        self._patience_s = patience_s
        self._next: int | None = None
        self._held: dict[int, T] = {}
        self._since = 0.0
        self._begun = False
        self._behind = 0
        self.dropped = 0
        """Chunks that came too late, or twice."""

    def push(self, number: int | None, item: T, now: float) -> list[T | Missed]:
        """Take a chunk; what is to be heard now. ``number`` None: it has none and follows."""
        if number is None:
            return [*self.drain(), item]
        if self._next is None:
            # Numbers begin at 1; that the very first ones are mixed up is as likely as later.
            self._next = 1 if 1 < number <= self._most_held + 1 else number
        if number < self._next or number in self._held:
            return self._late(number, item)
        self._behind = 0
        if number > self._next:
            if not self._held:
                self._since = now
            self._held[number] = item
            return self._skip() if len(self._held) > self._most_held else []
        self._next += 1
        self._begun = True
        return [item, *self._following()]

    def tick(self, now: float) -> list[T | Missed]:
        """What is to be heard now though something before it is missing."""
        if not self._held or now - self._since < self._patience_s:
            return []
        self._since = now
        return self._skip()

    def drain(self) -> list[T | Missed]:
        """All that is held: nothing more will come."""
        out: list[T | Missed] = []
        while self._held:
            out += self._skip()
        return out

    def _late(self, number: int, item: T) -> list[T | Missed]:
        self._behind += 1
        if self._behind < MOST_BEHIND:
            self.dropped += 1
            return []
        self._behind = 0
        out = self.drain()
        self._next = number + 1
        return [*out, item]

    def _skip(self) -> list[T | Missed]:
        """Give up what is missing before the first one held."""
        first = min(self._held)
        missing = first - (self._next or 0)
        out: list[T | Missed] = [Missed(min(missing, MOST_MISSED))] if self._begun else []
        self._next = first
        self._begun = True
        return [*out, *self._following()]

    def _following(self) -> list[T | Missed]:
        out: list[T | Missed] = []
        while self._next in self._held:
            out.append(self._held.pop(self._next))
            self._next += 1
        return out
