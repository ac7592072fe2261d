"""What listening tells, in order, the moment it is decided.

All times are seconds of the call's monotonic clock, on the axis of arrival: a sample counts from
when the frame that it came in has arrived, less what follows it in that frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WhyEnded = Literal["pause", "detector", "too_long", "call_over", "keys", "typed", "noise"]
"""Why a turn ended: silence of ``pause_ms``; the turn detector said so; ``max_turn_s``; the call is
over; keys were pressed and nothing said; it was typed, not said (`Listening.typed`); it was too
short to be speech (``min_speech_ms``)."""


@dataclass(frozen=True, slots=True)
class OnsetHeard:
    """The caller begins to speak: a turn begins."""

    at: float
    """When it was decided."""
    began_at: float
    """Its first voiced sample."""


@dataclass(frozen=True, slots=True)
class CallerCutIn:
    """The caller speaks while the agent does: the agent is to fall silent now."""

    at: float
    began_at: float
    """The first voiced sample of the turn."""


@dataclass(frozen=True, slots=True)
class SpeechPaused:
    """The caller has been silent for ``notice_ms``: the turn may be over."""

    at: float
    ended_at: float
    """The last voiced sample."""


@dataclass(frozen=True, slots=True)
class SpeechResumed:
    """The caller goes on with the same turn after a `SpeechPaused`."""

    at: float


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn is over. ``why`` = ``noise``: it was none; nobody need work on it."""

    at: float
    began_at: float
    ended_at: float
    """The last voiced sample."""
    why: WhyEnded
    cut_in: bool
    """Whether it has silenced the agent."""
    speech_s: float = 0.0
    """How much of it was voiced."""


@dataclass(frozen=True, slots=True)
class CallerQuiet:
    """Neither the caller nor the agent has said anything for ``quiet_s``; told once each time."""

    at: float
    quiet_s: float


ListenEvent = OnsetHeard | CallerCutIn | SpeechPaused | SpeechResumed | TurnEnded | CallerQuiet
