"""Voice activity: how probable it is that a short piece of sound is speech."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.detection.events import MissingDetector
from qwen3tts_phone.detection.settings import DetectorName

RATE_HZ: Final = 8000
"""All detectors work at the telephone's rate; the core brings other rates to it."""


class VoiceActivityDetector(Protocol):
    """One stream's; it may keep state from one push to the next."""

    window: int
    """Samples at 8 kHz that one probability is of."""

    def push(self, samples: NDArray[np.int16]) -> list[float]:
        """Take samples at 8 kHz, shape [n], any n.

        Returns the probability of speech, 0 to 1, of each window that is complete by now.
        """

    def reset(self) -> None:
        """What follows has nothing to do with what was before."""


def make_detector(name: DetectorName) -> VoiceActivityDetector:
    """The detector of that name, for one stream. Raises MissingDetector."""
    match name:
        case "silero":
            from qwen3tts_phone.detection.silero import SileroDetector

            return SileroDetector()
        case "webrtc":
            return WebRtcDetector()
        case "level":
            return LevelDetector()
    raise ValueError(f"there is no voice activity detector {name!r}")


WINDOW: Final = 80
FLOOR_S: Final = 1.5
"""The quietest tenth of a second of so long is the line's noise: no one speaks longer without a
pause in it."""
BLOCK: Final = 10
"""Windows of a tenth of a second."""
SPEECH_ABOVE_DB: Final = 9.0
"""So much above the noise it is half probable that somebody speaks."""
LEAST_DBFS: Final = -50.0
"""What is below this is silence on any line."""


class LevelDetector:
    """One stream's (`activity.VoiceDetector`)."""

    window = WINDOW

    def __init__(self) -> None:
        self._held: NDArray[np.int16] = np.zeros(0, np.int16)
        self._blocks: list[float] = []
        self._sum = 0.0
        self._count = 0

    def push(self, samples: NDArray[np.int16]) -> list[float]:
        """Probabilities of each 10 ms that is complete by now."""
        held = np.concatenate((self._held, samples)) if len(self._held) else samples
        count = len(held) // WINDOW
        self._held = held[count * WINDOW :].copy()
        if not count:
            return []
        frames = held[: count * WINDOW].reshape(count, WINDOW).astype(np.float32)
        powers = np.einsum("ij,ij->i", frames, frames) / (WINDOW * 32768.0**2)
        return [self._window(float(power)) for power in powers]

    def reset(self) -> None:
        """Forget the line."""
        self._held = np.zeros(0, np.int16)
        self._blocks.clear()
        self._sum, self._count = 0.0, 0

    def _window(self, power: float) -> float:
        self._sum += power
        self._count += 1
        if self._count == BLOCK:
            self._blocks.append(self._sum / BLOCK)
            self._sum, self._count = 0.0, 0
            if len(self._blocks) > FLOOR_S * 10:
                del self._blocks[0]
        dbfs = 10 * math.log10(power + 1e-12)
        floor = 10 * math.log10(min(self._blocks) + 1e-12) if self._blocks else LEAST_DBFS
        above = dbfs - max(floor + SPEECH_ABOVE_DB, LEAST_DBFS)
        return 1 / (1 + math.exp(-max(-20.0, min(20.0, above / 2))))


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


STEADY_S: Final = 2.0
"""Speech does not keep its level for so long."""
CHANGE_DB: Final = 4.0
"""Between the quietest and the loudest tenth of it."""
STEADY_ABOVE_DB: Final = 1.5
"""What is so much louder is something new."""
STEADY_CHECK_INTERVAL_S: Final = 0.25
"""How often it is looked at."""


class SteadySoundDetector:
    """Levels of successive pieces in; whether each belongs to a steady sound out (pure)."""

    def __init__(self, piece_s: float) -> None:
        self._top: float | None = None
        """The level of the steady sound that there is."""
        count = max(8, round(STEADY_S / piece_s))
        self._levels: deque[float] = deque(maxlen=count)
        self._every = max(1, round(STEADY_CHECK_INTERVAL_S / piece_s))
        self._left = self._every

    def push(self, dbfs: float) -> bool:
        """Take the level of one piece; whether it goes on with two seconds of the same."""
        self._levels.append(dbfs)
        self._left -= 1
        if self._left <= 0:
            self._left = self._every
            levels = self._levels
            if len(levels) == levels.maxlen:
                low, high = np.percentile(np.fromiter(levels, float, len(levels)), (10, 90))
                self._top = float(high) if high - low < CHANGE_DB else None
        return self._top is not None and dbfs < self._top + STEADY_ABOVE_DB
