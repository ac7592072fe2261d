"""Telling the other side that the call is recorded: when, and with what sound (pure).

Whether a notice is needed, and which, is a question of the law where both sides are; the settings
say which one is given. Recording begins only when the first notice has been heard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.record_settings import RecordSettings

BEEP_HZ: Final = 1400.0
BEEP_S: Final = 0.2
"""A beep of 1400 Hz and 0.2 s each 15 s is what telephone recorders in North America use."""
BEEP_DBFS: Final = -20.0
EDGE_S: Final = 0.005
"""Raised-cosine edges: no clicks."""
PATIENCE_S: Final = 5.0
"""So long a repeated beep waits for the end of what is being said."""


def beep(rate_hz: int = 8000) -> NDArray[np.int16]:
    """The notice's tone, shape [n] at ``rate_hz``; it begins and ends in silence."""
    count = round(BEEP_S * rate_hz)
    wave = np.sin(2 * np.pi * BEEP_HZ * np.arange(count) / rate_hz)
    edge = round(EDGE_S * rate_hz)
    rise = 0.5 - 0.5 * np.cos(np.pi * np.arange(edge) / edge)
    wave[:edge] *= rise
    wave[-edge:] *= rise[::-1]
    scaled = wave * 32767 * 10 ** (BEEP_DBFS / 20) * np.sqrt(2)
    samples: NDArray[np.int16] = np.rint(scaled).astype(np.int16)
    return samples


@dataclass(frozen=True, slots=True)
class Notice:
    """What the other side hears before recording begins."""

    text: str | None
    """Spoken first; None = nothing is said."""
    tone: bool
    """Whether the beep follows."""

    def __bool__(self) -> bool:
        return self.tone or self.text is not None


class ConsentPlan:
    """One call's notices."""

    def __init__(self, settings: RecordSettings) -> None:
        self._every_s = settings.consent_every_s
        self._next: float | None = None
        spoken = settings.consent == "announcement"
        self.before_recording = Notice(
            settings.consent_text if spoken else None, settings.consent != "none"
        )
        """What comes first; false where nothing is to be heard."""

    def began(self, now: float) -> None:
        """The first notice has been heard, and recording begins."""
        self._next = now + self._every_s if self._every_s else None

    @property
    def next_at(self) -> float | None:
        """When the beep is due again; None = never."""
        return self._next

    def due(self, now: float, *, speaking: bool) -> bool:
        """Whether to beep now; True once each time.

        While something is being said it waits for the end of it, up to `PATIENCE_S`; the count
        goes on from when it was due.
        """
        if self._next is None or now < self._next:
            return False
        if speaking and now < self._next + PATIENCE_S:
            return False
        while self._next <= now:
            self._next += self._every_s
        return True
