"""Short silences inside a turn, by level alone, in which it can be recognised so far (pure)."""

from __future__ import annotations

import numpy as np

from qwen3tts_phone.recognise.base import Samples

DIP_S = 0.1
"""Silence that makes a dip; most stops inside words are shorter."""
BELOW_DB = 22.0
"""So much fainter than the turn's loudest sound is silence; listening takes the same."""
FALL_DB_S = 6.0
"""The loudest is forgotten so fast: people grow quieter."""
FAINT_DBFS = -60.0


class Dips:
    """One turn's. Takes its sound as it comes."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._loudest = FAINT_DBFS
        self._quiet_s = 0.0
        self._spoken = False

    @property
    def in_dip(self) -> bool:
        """Return whether the caller is silent for DIP_S."""
        return self._quiet_s >= DIP_S - 1e-6

    @property
    def spoken(self) -> bool:
        """Return whether anything was said since `seen`."""
        return self._spoken

    def seen(self) -> None:
        """All sound so far is being recognised."""
        self._spoken = False

    def unseen(self) -> None:
        """It is not."""
        self._spoken = True

    def push(self, samples: Samples) -> None:
        """Take a frame, int16 [n]."""
        if not len(samples):
            return
        seconds = len(samples) / self._rate_hz
        signal = samples.astype(np.float32)
        power = float(signal @ signal) / len(signal)
        dbfs = 10 * float(np.log10(power / 32768.0**2 + 1e-12))
        self._loudest = max(self._loudest - FALL_DB_S * seconds, dbfs, FAINT_DBFS)
        if dbfs < max(self._loudest - BELOW_DB, FAINT_DBFS):
            self._quiet_s += seconds
        else:
            self._quiet_s, self._spoken = 0.0, True
