"""What the line writes its frames into: a phone call's media, or a pacer in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from qwen3tts_pacer.frame import Frame


@dataclass(frozen=True, slots=True)
class Played:
    """What a sink knows of one context after it was interrupted or has ended."""

    position: int
    """Samples of the context's rate that have gone out."""
    dropped: int = 0
    """Frames that had been accepted and will never be sent."""
    first_at: float | None = None
    """When its first frame went out, in seconds of the monotonic clock."""
    first_audible_at: float | None = None
    """When its first frame with sound in it went out."""
    last_at: float | None = None
    """When its last frame went out."""
    starvations: int = 0
    """How often it ran dry in the middle."""
    starved_s: float = 0.0
    """How long it was dry altogether."""
    longest_gap_s: float = 0.0
    """The longest time it was dry."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """What an interruption stopped."""

    at: float
    """When it took effect, in seconds of the monotonic clock."""
    silent_at: float | None = None
    """When the first silent frame after it went out."""
    played: Mapping[int, Played] = field(default_factory=dict)
    """By context, as facts: nothing of these contexts is sent any more."""


class FrameSink(Protocol):
    """Takes encoded frames ahead of time and sends them on an exact clock.

    Contexts are numbers that grow; their frames are written one context after the other.
    """

    def begin(self, context: int, key: str) -> None:
        """A context is about to be written. ``key`` names voice and server, whose past arrivals
        tell how much to wait before its first frame."""

    def write(self, frames: Sequence[Frame]) -> int:
        """Accept as many of ``frames`` as there is room for, from the front; return how many."""

    async def room(self) -> None:
        """Return when another context may begin, and at least one more frame can be accepted."""

    def finish(self, context: int) -> None:
        """No more frames of this context will be written."""

    async def drained(self, context: int) -> Played:
        """Return when the context's last frame has gone out (or was dropped)."""

    def position(self, context: int) -> int:
        """Samples of the context that are at the caller's ear by now."""

    def waiting_s(self, context: int) -> float:
        """How much of the context was accepted and has not gone out yet, seconds."""

    def interrupt(self) -> None:
        """Fall silent with the next frame, at once and without waiting for anything; contexts
        written so far are never heard again."""

    async def interrupted(self) -> Interruption:
        """What the last :meth:`interrupt` stopped, as soon as it is a fact."""
