"""Chunks of sound with numbers, brought into their order; and what never came (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

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
