"""What the page shows of its line: numbers about the sound that goes to it (pure)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

LineState = Literal["connecting", "up", "lost", "ended"]
"""``lost``: nothing has come from the browser for a while, and may come again."""
MOST_MS = 60_000.0
"""A delay that is longer is none: a browser may send any number."""
MOST_COUNT = 1 << 53
"""Larger counts are none: JSON of a browser has no larger whole numbers."""


@dataclass(frozen=True, slots=True)
class FarReport:
    """What the browser says of the sound that it receives, once a second or so.

    Delays in milliseconds; counts since its call began. None = it did not say.
    """

    jitter_buffer_ms: float | None = None
    """How long a sample waits in its jitter buffer."""
    rtt_ms: float | None = None
    """Round trip of the pair of addresses in use."""
    lost: int | None = None
    """Packets of ours that never came."""
    concealed: int | None = None
    """Samples that it made up."""
    received: int | None = None
    """Packets of ours that came."""

    @classmethod
    def checked(
        cls,
        jitter_buffer_ms: float | None = None,
        rtt_ms: float | None = None,
        lost: float | None = None,
        concealed: float | None = None,
        received: float | None = None,
    ) -> FarReport:
        """The same, with what is no delay and no count left out: it comes from outside."""
        return cls(
            _delay(jitter_buffer_ms),
            _delay(rtt_ms),
            _count(lost),
            _count(concealed),
            _count(received),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFigures:
    """One call's line at one moment. Durations in milliseconds, counts since the call began."""

    time: float
    """Seconds of the call's clock."""
    state: LineState
    pacer: str
    """What the pacer does: ``idle``, ``filling``, ``playing``, ``starved``, ``draining``."""
    codec: str
    queued_ms: float
    """Speech that waits here to be sent."""
    frames: int
    """Frames of speech that were sent."""
    skipped: int
    """Places in time that passed unsent because this machine was late."""
    starvations: int
    """How often speech ran dry in its middle."""
    longest_gap_ms: float
    """The longest such gap."""
    first_sound_ms: float | None
    """From the first text of the last thing said to its first audible frame; None = not yet."""
    silent_ms: float
    """Since when nothing has come from the browser; 0 while it does."""
    received: int
    """Packets of the browser that came."""
    lost_in: int
    """Packets of the browser that did not."""
    jitter_in_ms: float
    """How unevenly its packets come (RFC 3550 section 6.4.1)."""
    rtt_ms: float | None = None
    """Round trip, as the browser says it, else as its reports (RTCP) tell it."""
    report: FarReport = field(default_factory=FarReport)
    """What the browser has said last."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, rounded; those of the report under their own names."""
        values = asdict(self)
        report = values.pop("report")
        values["packets_received"] = report.pop("received")
        report.pop("rtt_ms")
        values |= report
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in values.items()
        }


def _delay(value: float | None) -> float | None:
    good = type(value) in (int, float) and math.isfinite(value or 0.0)
    return float(value) if good and value is not None and 0 <= value <= MOST_MS else None


def _count(value: float | None) -> int | None:
    good = type(value) in (int, float) and math.isfinite(value or 0.0)
    return int(value) if good and value is not None and 0 <= value <= MOST_COUNT else None
