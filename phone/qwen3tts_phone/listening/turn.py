"""One turn of the caller: what was said, when, and why it was taken to be over."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.listening.events import WhyEnded
from qwen3tts_speech.utterance import Utterance
from qwen3tts_wire.errors import SpeechError


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
