"""Cutting a stream of samples into frames of equal length."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from qwen3tts_codecs.errors import BadSamples
from qwen3tts_codecs.pcm import Pcm, check_samples


class LastFrame(NamedTuple):
    """The end of a stream, padded by silence."""

    samples: Pcm
    """Shape [frame_samples]."""
    real: int
    """How many of them are the stream's; the rest is silence. At least 1."""


class Framer:
    """Cuts samples, pushed in any portions, into frames of ``frame_samples``."""

    def __init__(self, frame_samples: int) -> None:
        if isinstance(frame_samples, bool) or not isinstance(frame_samples, int):
            raise BadSamples(f"frame_samples is a whole number, not {frame_samples!r}")
        if frame_samples < 1:
            raise BadSamples(f"a frame holds at least one sample, not {frame_samples}")
        self.frame_samples = frame_samples
        self._rest: Pcm = np.zeros(0, np.int16)

    @property
    def waiting(self) -> int:
        """Samples that do not fill a frame yet."""
        return len(self._rest)

    def push(self, pcm: Pcm) -> list[Pcm]:
        """Return the frames that are full now, each of shape [frame_samples]."""
        return list(self.push_block(pcm))

    def push_block(self, pcm: Pcm) -> Pcm:
        """Return the frames that are full now as one array, shape [frames, frame_samples]."""
        check_samples(pcm, "Framer")
        owned = np.concatenate((self._rest, pcm))  # the caller may use its array again
        whole = len(owned) - len(owned) % self.frame_samples
        self._rest = owned[whole:].copy()
        return owned[:whole].reshape(-1, self.frame_samples)

    def flush(self) -> LastFrame | None:
        """End the stream: return what is left, padded to a frame, or None if nothing is."""
        real = len(self._rest)
        if not real:
            return None
        samples = np.zeros(self.frame_samples, np.int16)
        samples[:real] = self._rest
        self._rest = self._rest[:0]
        return LastFrame(samples, real)
