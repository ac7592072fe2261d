"""Voice activity: how probable it is that a short piece of sound is speech."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.listening.settings import DetectorName

RATE_HZ: Final = 8000
"""All detectors work at the telephone's rate; the core brings other rates to it."""


class VoiceDetector(Protocol):
    """One stream's; it may keep state from one push to the next."""

    window: int
    """Samples at 8 kHz that one probability is of."""

    def push(self, samples: NDArray[np.int16]) -> list[float]:
        """Take samples at 8 kHz, shape [n], any n.

        Returns the probability of speech, 0 to 1, of each window that is complete by now.
        """

    def reset(self) -> None:
        """What follows has nothing to do with what was before."""


def make_detector(name: DetectorName) -> VoiceDetector:
    """The detector of that name, for one stream. Raises MissingDetector."""
    match name:
        case "silero":
            from qwen3tts_phone.listening.silero import SileroDetector

            return SileroDetector()
        case "webrtc":
            from qwen3tts_phone.listening.webrtc import WebRtcDetector

            return WebRtcDetector()
        case "level":
            from qwen3tts_phone.listening.level import LevelDetector

            return LevelDetector()
    raise ValueError(f"there is no voice activity detector {name!r}")
