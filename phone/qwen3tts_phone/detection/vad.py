"""Voice activity detection (VAD): speech probability of short pieces of audio."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.detection.events import MissingDetector
from qwen3tts_phone.detection.settings import DetectorName

RATE_HZ: Final = 8000
"""Rate of all detectors; the core converts others."""


class VoiceActivityDetector(Protocol):
    """Detector of one stream; may be stateful."""

    window: int
    """Samples at 8 kHz of one probability."""

    def push(self, samples: NDArray[np.int16]) -> list[float]:
        """Return the probability of speech, 0 to 1, of each complete window.

        ``samples``: at 8 kHz, shape [n].
        """

    def reset(self) -> None: ...


def make_detector(name: DetectorName) -> VoiceActivityDetector:
    """Make a stream's detector by name. Raises MissingDetector."""
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
"""Span whose quietest 0.1 s is the line's noise: speech lasts no longer without a pause."""
BLOCK: Final = 10
"""Windows of 0.1 s."""
SPEECH_ABOVE_DB: Final = 9.0
"""Level above the noise with a probability of 0.5."""
LEAST_DBFS: Final = -50.0
"""Level below which any line is silent."""


class LevelDetector:
    """VAD by level above the line's noise: any sound counts as speech."""

    window = WINDOW

    def __init__(self) -> None:
        self._held: NDArray[np.int16] = np.zeros(0, np.int16)
        self._blocks: list[float] = []
        self._sum = 0.0
        self._count = 0

    def push(self, samples: NDArray[np.int16]) -> list[float]:
        held = np.concatenate((self._held, samples)) if len(self._held) else samples
        count = len(held) // WINDOW
        self._held = held[count * WINDOW :].copy()
        if not count:
            return []
        frames = held[: count * WINDOW].reshape(count, WINDOW).astype(np.float32)
        powers = np.einsum("ij,ij->i", frames, frames) / (WINDOW * 32768.0**2)
        return [self._window(float(power)) for power in powers]

    def reset(self) -> None:
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
    """WebRTC's VAD (package ``webrtcvad-wheels``: MIT, its C code BSD); 1.0 or 0.0.

    Fast (10 ms, 2 us) and lenient: keys, music and coughs pass. Not thread-safe.
    """

    window = WINDOW

    def __init__(self, mode: int = MODE) -> None:
        """Raises MissingDetector where it is not installed."""
        self._mode = mode
        self._vad = _new(mode)
        self._held = b""

    def push(self, samples: NDArray[np.int16]) -> list[float]:
        data = self._held + samples.astype("<i2").tobytes()
        size = 2 * WINDOW
        whole = len(data) - len(data) % size
        self._held = data[whole:]
        hears = self._vad.is_speech
        return [float(hears(data[at : at + size], 8000)) for at in range(0, whole, size)]

    def reset(self) -> None:
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
"""Time for which speech does not keep its level."""
CHANGE_DB: Final = 4.0
"""Range of levels, between the 10th and the 90th percentile, of a steady sound."""
STEADY_ABOVE_DB: Final = 1.5
"""Level above a steady sound that is a new one."""
STEADY_CHECK_INTERVAL_S: Final = 0.25


class SteadySoundDetector:
    """Detector of steady sound: hum, a fan, an endless tone (pure)."""

    def __init__(self, piece_s: float) -> None:
        self._top: float | None = None
        """Level of the present steady sound."""
        count = max(8, round(STEADY_S / piece_s))
        self._levels: deque[float] = deque(maxlen=count)
        self._every = max(1, round(STEADY_CHECK_INTERVAL_S / piece_s))
        self._left = self._every

    def push(self, dbfs: float) -> bool:
        self._levels.append(dbfs)
        self._left -= 1
        if self._left <= 0:
            self._left = self._every
            levels = self._levels
            if len(levels) == levels.maxlen:
                low, high = np.percentile(np.fromiter(levels, float, len(levels)), (10, 90))
                self._top = float(high) if high - low < CHANGE_DB else None
        return self._top is not None and dbfs < self._top + STEADY_ABOVE_DB
