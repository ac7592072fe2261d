"""What the scheduler is told at the start, and what it says at each turn. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from qwen3tts_engine.schedule_row import CODE_RING

Job = Hashable
"""One generation, by any name."""


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """How slots, frames and chunks are given out.

    Raises:
        ValueError: a value is out of its range.
    """

    slots: int = 64
    """Jobs that run at once."""
    max_waiting: int = 64
    """Jobs that may wait for a slot; as many again as there are slots for contexts that already
    speak, so that their next clause is not refused."""
    lead_ms: float = 800.0
    """Audio ahead of its listener with which a row rests, where the context names none."""
    rest_ms: float = 160.0
    """A row that rests must go on once its lead has fallen by so much; it goes on earlier with
    others. Two frames: enough for rows of all phases to find together."""
    hurry_ms: float = 120.0
    """A row with less audio ahead gets its frames as fast as they can be made; one with more
    climbs to its lead four times as fast as it is heard, together with others, so that the device
    is free for new calls in between."""
    margin_ms: float = 200.0
    """Audio that stays with the listener while frames gather for a larger chunk."""
    ramp: tuple[int, ...] = (1, 2, 4, 8)
    """Sizes of the chunks in frames, rising; the last is the steady one."""
    initial_codec_chunk_frames: int | Literal["load"] | None = None
    """Frames in a request's first chunk: a number, by load (powers of two below the steady chunk
    by active rows over slots), or None: as few as the deadline needs."""
    max_joins: int = 8
    """Most prefills in a plan: rows that speak get their frame in between."""
    max_rows: int | None = None
    """Most rows in a step; None: all."""
    max_decode_frames: int = 128
    """Most frames decoded in a plan: what a new call's first frame may have to wait for."""
    ring: int = CODE_RING
    """Frames of codes that a slot holds."""
    unreported: int = 2
    """Most frames of a row that may be in work when ``stepped`` has not told of them: an engine
    that runs one step ahead has launched two."""

    def __post_init__(self) -> None:
        for name in ("slots", "max_joins", "max_decode_frames"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be 1 or more")
        for name in ("max_waiting", "lead_ms", "rest_ms", "hurry_ms", "margin_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be 0 or more")
        if not self.ramp or self.ramp[0] < 1 or list(self.ramp) != sorted(set(self.ramp)):
            raise ValueError(f"ramp={self.ramp} must rise, from 1 or more")
        if self.ring - self.unreported < 2 * self.ramp[-1]:
            raise ValueError(f"ring={self.ring} must hold two chunks of {self.ramp[-1]} frames")
        if self.max_rows is not None and self.max_rows < 1:
            raise ValueError(f"max_rows={self.max_rows} must be 1 or more")
        initial = self.initial_codec_chunk_frames
        if isinstance(initial, int) and initial < 1:
            raise ValueError(f"initial_codec_chunk_frames={initial} must be 1 or more")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, in this order. All tuples have the most urgent first."""

    joins: tuple[Job, ...] = ()
    """Jobs to give a slot and prefill."""
    decodes: tuple[tuple[Job, int], ...] = ()
    """Jobs and how many of their next frames to decode; all of these were stepped before. A job
    stands here once at most."""
    steps: tuple[Job, ...] = ()
    """Jobs to make one frame each, those that join in this plan too."""

    def __bool__(self) -> bool:
        return bool(self.joins or self.decodes or self.steps)
