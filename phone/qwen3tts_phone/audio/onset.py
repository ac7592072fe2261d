"""Energy gate for speech onset: enough for barge-in on a quiet line.

It measures loudness, not speech: a cough or a loud line opens it too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FULL_SCALE = 32768.0


@dataclass(frozen=True, slots=True)
class OnsetSettings:
    level_dbfs: float = -40.0
    """Frames at or above this root mean square are sound, in dB of full scale."""
    onset_ms: int = 60
    """Sound of this length opens the gate; a click is shorter."""
    hangover_ms: int = 400
    """Quiet of this length closes it; a pause between words is shorter."""

    def __post_init__(self) -> None:
        if not -90.0 <= self.level_dbfs <= 0.0:
            raise ValueError(f"level_dbfs={self.level_dbfs} is not between -90 and 0")
        if self.onset_ms <= 0 or self.hangover_ms <= 0:
            raise ValueError("onset_ms and hangover_ms must be positive")


class OnsetGate:
    """Energy gate with hangover over the caller's frames (pure)."""

    def __init__(self, settings: OnsetSettings | None = None, *, rate_hz: int = 8000) -> None:
        self._settings = settings or OnsetSettings()
        self._rate_hz = rate_hz
        self._loud_ms = 0.0
        self._quiet_ms = 0.0
        self.open = False
        """Whether the caller is speaking."""

    def push(self, samples: NDArray[np.int16], rate_hz: int | None = None) -> bool:
        """Take one frame of linear samples, shape [n]; return True when speech begins with it.

        ``rate_hz``: rate of these samples; None = that of the gate.
        """
        if not len(samples):
            return False
        duration_ms = 1000 * len(samples) / (rate_hz or self._rate_hz)
        if _dbfs(samples) >= self._settings.level_dbfs:
            self._loud_ms += duration_ms
            self._quiet_ms = 0.0
            if not self.open and self._loud_ms >= self._settings.onset_ms:
                self.open = True
                return True
        else:
            self._loud_ms = 0.0
            self._quiet_ms += duration_ms
            if self._quiet_ms >= self._settings.hangover_ms:
                self.open = False
        return False

    def close(self) -> None:
        self._loud_ms = 0.0
        self.open = False


def _dbfs(samples: NDArray[np.int16]) -> float:
    power = float(np.mean(samples.astype(np.float64) ** 2))
    return 10 * float(np.log10(power / FULL_SCALE**2)) if power > 0 else -200.0
