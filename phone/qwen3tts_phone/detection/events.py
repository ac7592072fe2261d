"""What can go wrong with listening."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.errors import CallError
from qwen3tts_speech.utterance import Utterance
from qwen3tts_wire.errors import SpeechError


class MissingDetector(CallError):
    """The voice activity detector that was asked for is not installed, or cannot be read."""

    code = "missing_detector"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Times are seconds of the call's monotonic clock (`listening.events`)."""

    text: str = field(default="", repr=False)
    """What was recognised; empty = nothing was, or there is no recogniser."""
    keys: str = field(default="", repr=False)
    """Keys that were pressed during it (or all there is of it), in order."""
    began_at: float
    """The first voiced sample, or the first key."""
    ended_at: float
    """The last voiced sample, or the last key."""
    decided_at: float
    """When the turn was taken to be over."""
    transcribed_at: float
    """When the text was there; ``decided_at`` where there is no recogniser."""
    why: WhyEnded
    barge_in: bool = False
    """Whether it has silenced the agent."""
    interrupted: tuple[Utterance, ...] = ()
    """The utterances that it has stopped."""
    language: str = ""
    """As the recogniser tells; empty = it does not."""
    confidence: float | None = None
    """The recogniser's, 0 to 1."""
    error: SpeechError | None = None
    """What went wrong with the recognition; the call goes on."""
    samples: NDArray[np.int16] = field(
        default_factory=lambda: np.zeros(0, np.int16), repr=False, compare=False
    )
    """The caller's sound from some tenths of a second before ``began_at``, linear, shape [n]."""
    rate_hz: int = 8000
    """Of ``samples``."""
