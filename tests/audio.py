"""Listening with numbers: is what the other side recorded the sentence that the engine spoke?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import correlate, firwin, resample_poly

from tests.conftest import require_package

Samples = NDArray[np.int16]
FRAME = 160
"""20 ms at 8 kHz."""
JOINT = FRAME - 24
"""Where the wire's frames meet in a recording that is aligned with its reference: the line's filter
delays by 3 ms, and the alignment takes these off the front."""


def reference_8k(pcm_24k: Samples) -> Samples:
    """24 to 8 kHz, offline, by a long linear-phase filter that is none of ours."""
    down = resample_poly(pcm_24k.astype(np.float64), 1, 3, window=("kaiser", 8.0))
    clipped: Samples = np.clip(np.rint(down), -32768, 32767).astype(np.int16)
    return clipped


def lag_of(reference: Samples, recorded: Samples) -> int:
    """Where in ``recorded`` the reference begins, in samples."""
    product = correlate(recorded.astype(np.float64), reference.astype(np.float64), mode="valid")
    return int(np.argmax(product))


def aligned(reference: Samples, recorded: Samples) -> Samples:
    """The part of ``recorded`` that is the reference, shape of the reference."""
    padded = np.concatenate([recorded, np.zeros(len(reference), np.int16)])
    start = lag_of(reference, padded)
    return padded[start : start + len(reference)]


def quality(reference: Samples, heard: Samples) -> float:
    """PESQ, narrow band (ITU-T P.862), of two aligned recordings at 8 kHz."""
    pesq = require_package("pesq", "it needs a C compiler: apt-get install gcc libc6-dev")
    return float(pesq.pesq(8000, reference, heard, "nb"))


@dataclass(frozen=True)
class Comparison:
    """A recording beside what should be in it."""

    frames: int
    """20 ms frames with speech in the reference."""
    missing: int
    """Of these, those that the recording does not hold at their place (below 5 dB; one that is only
    faded in, after the machine was late by a whole packet, has 8 to 9 dB)."""
    worst_snr_db: float
    """The worst of these frames' signal-to-noise ratio."""
    joint_step: float
    """95th percentile of the steps at the frames' joints over that elsewhere; 1 = no clicks."""


def _telephone_band(samples: Samples) -> NDArray[np.float64]:
    """Up to 3.3 kHz, where no two good resamplers differ."""
    return np.convolve(samples.astype(np.float64), firwin(201, 3300, fs=8000), mode="same")


def compare(reference: Samples, heard: Samples, phase: int = JOINT) -> Comparison:
    """Frame by frame; ``phase`` is the first sample of ``heard`` that begins a wire's frame."""
    wanted, got = _telephone_band(reference), _telephone_band(heard)
    count = len(wanted) // FRAME
    want = wanted[: count * FRAME].reshape(count, FRAME)
    error = want - got[: count * FRAME].reshape(count, FRAME)
    power = (want**2).mean(axis=1)
    loud = power > 100.0**2
    snr = 10 * np.log10(power[loud] / np.maximum((error[loud] ** 2).mean(axis=1), 1e-9))
    step = np.abs(np.diff(heard.astype(np.float64)))
    at_joint = np.zeros(len(step), dtype=bool)
    at_joint[(np.arange(phase, len(step) + 1, FRAME) - 1).clip(0)] = True
    loud_step = np.repeat(loud, FRAME)[: len(step)]
    joints = step[: len(loud_step)][at_joint[: len(loud_step)] & loud_step]
    others = step[: len(loud_step)][~at_joint[: len(loud_step)] & loud_step]
    return Comparison(
        frames=int(loud.sum()),
        missing=int((snr < 5.0).sum()),
        worst_snr_db=float(snr.min()),
        joint_step=float(np.percentile(joints, 95) / np.percentile(others, 95)),
    )
