"""WebRTC's voice activity detector (package ``webrtcvad-wheels``: MIT, its C code BSD).

It models six bands between 80 Hz and 4 kHz as speech and noise (Gaussian mixtures that follow the
line). Quick (10 ms, 2 us) and hard of hearing for what is no speech: keys, music and coughs pass.
An object is one stream's and not to be shared by threads: its state has no lock.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.listening.errors import MissingDetector

WINDOW: Final = 80
MODE: Final = 3
"""The strictest of 0 to 3."""


class WebRtcDetector:
    """One stream's (`activity.VoiceDetector`); it says yes or no: 1.0 or 0.0."""

    window = WINDOW

    def __init__(self, mode: int = MODE) -> None:
        """Raises MissingDetector where it is not installed."""
        self._mode = mode
        self._vad = _new(mode)
        self._held = b""

    def push(self, samples: NDArray[np.int16]) -> list[float]:
        """1.0 or 0.0 for each 10 ms that is complete by now."""
        data = self._held + samples.astype("<i2").tobytes()
        size = 2 * WINDOW
        whole = len(data) - len(data) % size
        self._held = data[whole:]
        hears = self._vad.is_speech
        return [float(hears(data[at : at + size], 8000)) for at in range(0, whole, size)]

    def reset(self) -> None:
        """Forget the line."""
        self._vad = _new(self._mode)
        self._held = b""


def _new(mode: int) -> Any:
    try:
        import webrtcvad
    except ImportError:
        raise MissingDetector(
            "WebRTC's voice activity detector is not installed.",
            remedy="Install the extra 'phone' (or webrtcvad-wheels), or listen with "
            "detector='level'.",
        ) from None
    return webrtcvad.Vad(mode)
