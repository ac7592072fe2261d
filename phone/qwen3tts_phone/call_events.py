"""What a call tells whoever follows it. Times are seconds of the monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class CallRinging:
    """The phone at the far end rings."""

    at: float


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """Both ends agree; sound may flow."""

    at: float
    codec: str
    """What we send: PCMU or PCMA."""


@dataclass(frozen=True, slots=True)
class CallHeld:
    """The far end put us on hold: speech waits, nothing of it is lost."""

    at: float


@dataclass(frozen=True, slots=True)
class CallResumed:
    """The far end took us back."""

    at: float


@dataclass(frozen=True, slots=True)
class KeyPressed:
    """A key at the far end (RFC 4733)."""

    at: float
    digit: str
    duration_ms: int


@dataclass(frozen=True, slots=True)
class MediaSilent:
    """Nothing has come from the far end for so long, although it should."""

    at: float
    silent_s: float


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call is over; the last event."""

    at: float
    cause: str
    """In plain words."""


CallEvent = (
    CallRinging | CallAnswered | CallHeld | CallResumed | KeyPressed | MediaSilent | CallEnded
)


@dataclass(frozen=True, slots=True)
class HeardFrame:
    """One frame of what the far end says."""

    samples: NDArray[np.int16]
    """Linear samples at 8 kHz, shape [n]."""
    at: float
    """When it arrived."""
    concealed: bool
    """Made up here in place of a packet that did not come."""
