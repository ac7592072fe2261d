"""Events and turns of speech detection, each returned when decided.

Times are seconds of the call's monotonic clock: a sample counts from the arrival of its frame, less
what follows it there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.errors import CallError
from qwen3tts_speech.utterance import Utterance
from qwen3tts_wire.errors import SpeechError


class MissingDetector(CallError):
    """Voice activity detector not installed or unreadable."""

    code = "missing_detector"


WhyEnded = Literal["pause", "detector", "too_long", "call_over", "keys", "typed", "noise"]
"""Reason for the end of a turn: silence of ``pause_ms``; the turn detector; ``max_turn_s``; the end
of the call; keys without speech; typed text (`SpeechDetection.typed`); too short for speech
(``min_speech_ms``).
"""


@dataclass(frozen=True, slots=True)
class OnsetHeard:
    """Onset of the caller's speech: a turn begins."""

    at: float
    """Time of the decision."""
    began_at: float
    """First voiced sample."""


@dataclass(frozen=True, slots=True)
class CallerCutIn:
    """Barge-in: the agent must fall silent now."""

    at: float
    began_at: float
    """First voiced sample of the turn."""


@dataclass(frozen=True, slots=True)
class SpeechPaused:
    """Silence for ``notice_ms``: the turn may be over."""

    at: float
    ended_at: float
    """Last voiced sample."""


@dataclass(frozen=True, slots=True)
class SpeechResumed:
    """Continuation of the turn after `SpeechPaused`."""

    at: float


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """End of a turn; ``why`` = ``noise``: it was none."""

    at: float
    began_at: float
    ended_at: float
    """Last voiced sample."""
    why: WhyEnded
    cut_in: bool
    """True if it has silenced the agent."""
    speech_s: float = 0.0
    """Voiced seconds."""
    rule: str = ""
    """Rule that set the pause, such as ``digits``; empty = the settings' pause."""


@dataclass(frozen=True, slots=True)
class CallerQuiet:
    """Silence of both sides for ``quiet_s``; once each time."""

    at: float
    quiet_s: float


@dataclass(frozen=True, slots=True)
class WordsGuessed:
    """Text of a turn that is paused: its words, should it end now."""

    at: float
    text: str = field(repr=False)
    speech_s: float = 0.0
    """Voiced seconds of the turn so far."""


Verdict = Literal["interruption", "backchannel", "noise"]
"""Meaning of the caller's speech over the agent's: the agent stops; it goes on, for the caller only
confirmed that they listen; it goes on, for there were no words.
"""


@dataclass(frozen=True, slots=True)
class OverlapBegan:
    """Onset of the caller's speech over the agent's: the agent is ducked, and goes on."""

    at: float
    began_at: float
    """First voiced sample of the turn."""


@dataclass(frozen=True, slots=True)
class OverlapEnded:
    """Verdict on an overlap; a second one by ``final_words`` where the first was too lenient."""

    at: float
    began_at: float
    """First voiced sample of the turn."""
    verdict: Verdict
    rule: str
    """Rule that decided: ``voiced_600``, ``key``, ``agent_ended``, ``words``, ``stop_word``, ..."""


ListenEvent = (
    OnsetHeard
    | CallerCutIn
    | SpeechPaused
    | SpeechResumed
    | WordsGuessed
    | OverlapBegan
    | OverlapEnded
    | TurnEnded
    | CallerQuiet
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Turn of the caller."""

    text: str = field(default="", repr=False)
    """Recognised text; empty = none, or there is not a recogniser."""
    keys: str = field(default="", repr=False)
    """Keys pressed during it (or all there is of it), in order."""
    began_at: float
    """First voiced sample, or first key."""
    ended_at: float
    """Last voiced sample, or last key."""
    decided_at: float
    """Time when its end was decided."""
    transcribed_at: float
    """Time when the text was there; ``decided_at`` where there is not a recogniser."""
    why: WhyEnded
    barge_in: bool = False
    """True if it has silenced the agent."""
    interrupted: tuple[Utterance, ...] = ()
    """Utterances that it has stopped."""
    language: str = ""
    """Language by the recogniser; empty = unknown."""
    confidence: float | None = None
    """Confidence of the recogniser, 0 to 1."""
    error: SpeechError | None = None
    """Failure of the recognition; the call goes on."""
    samples: NDArray[np.int16] = field(
        default_factory=lambda: np.zeros(0, np.int16), repr=False, compare=False
    )
    """Caller's audio from some tenths of a second before ``began_at``, linear, shape [n]."""
    rate_hz: int = 8000
    """Rate of ``samples``."""
    rule: str = ""
    """Rule that set the pause, as `TurnEnded.rule`."""
    guess: str = field(default="", repr=False)
    """Last text guessed while the turn was paused, as `WordsGuessed.text`."""
