"""From an engine's PCM to the frames of a call: resampled, compressed, cut, ready to be paced."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from qwen3tts_codecs.framing import Framer
from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.pcm import Int16Reader, Pcm, PcmBytes
from qwen3tts_codecs.resample import Resampler

FADE_MS: Final = 5
"""How long a frame takes to fade in or out where the stream breaks."""

SILENT_PEAK: Final = 8
"""A frame with no sample above this magnitude is silent: the smallest level of A-law."""


class EncodedFrame(NamedTuple):
    """One slot of the wire, in the three forms that it may be sent in."""

    payload: bytes
    """The frame."""
    tail: bytes
    """What to send in the next slot if nothing follows: this frame's end mirrored and faded out."""
    head: bytes
    """The frame with a fade-in: what to send if silence went before."""
    samples: int
    """Samples of the stream, at its own rate, that this frame brings to the ear."""
    silent: bool
    """True if nothing in it can be heard."""


class FrameEncoder:
    """Turns one utterance's s16le bytes at ``from_hz`` into frames of a payload format.

    Bytes may be cut anywhere. The resampler's delay (3 ms from 24 to 8 kHz) stays in the stream, so
    a frame is ready as soon as its duration of input is. ``samples`` takes it into account: over an
    utterance they sum up to its length. ``flush`` ends the utterance; the encoder is then as new.

    Raises BadSamples, UnsupportedRate, UnsupportedPtime.
    """

    def __init__(self, from_hz: int, payload: Payload, ptime_ms: int = 20) -> None:
        self.payload: Final = payload
        self.ptime_ms: Final = ptime_ms
        self.frame_samples: Final = payload.frame_samples(ptime_ms)
        self._reader = Int16Reader()
        self._resampler = Resampler(from_hz, payload.sample_hz)
        self._framer = Framer(self.frame_samples)
        fade = payload.sample_hz * FADE_MS // 1000
        # Half a period of a cosine, from just above 0 to just below 1.
        self._rise = 0.5 - 0.5 * np.cos(np.pi * (np.arange(fade) + 0.5) / fade)
        self.cut_off = False
        """True if the bytes of the utterance last flushed ended within a sample."""
        self._frames = 0
        self._read = 0  # samples of the stream so far
        self._told = 0  # of them, those that frames have been given for

    @property
    def from_hz(self) -> int:
        """Rate of the samples pushed."""
        return self._resampler.from_hz

    @property
    def delay_s(self) -> float:
        """How far the frames lag behind the input because of the resampler's filter."""
        return self._resampler.delay_s

    def push(self, data: PcmBytes) -> list[EncodedFrame]:
        """Take s16le bytes; return the frames that are full now."""
        pcm = self._reader.push(data)
        self._read += len(pcm)
        return self._encode(self._framer.push_block(self._resampler.push(pcm)))

    def flush(self) -> list[EncodedFrame]:
        """End the utterance: return its last frames, the last one padded by silence.

        Half a sample at the end is no sound and is left out; ``cut_off`` tells that there was one.
        """
        self.cut_off = self._reader.flush() > 0
        frames = self._encode(self._framer.push_block(self._resampler.flush()))
        last = self._framer.flush()
        if last is not None:
            frames += self._encode(last.samples.reshape(1, -1))
        if frames:
            frames[-1] = frames[-1]._replace(samples=frames[-1].samples + self._read - self._told)
        self._frames = self._read = self._told = 0
        return frames

    def reset(self) -> None:
        """Forget the utterance."""
        self._reader.flush()
        self._resampler.reset()
        self._framer.flush()
        self._frames = self._read = self._told = 0

    def _encode(self, block: Pcm) -> list[EncodedFrame]:
        """Encode frames, shape [frames, frame_samples]."""
        count, length = block.shape
        if not count:
            return []
        rise = self._rise
        fade = len(rise)
        forms = np.zeros((3, count, length), np.int16)
        forms[0] = forms[2] = block
        forms[1, :, :fade] = np.rint(block[:, : -fade - 1 : -1] * rise[::-1])
        forms[2, :, :fade] = np.rint(block[:, :fade] * rise)
        data = self.payload.encode(forms.reshape(-1))
        size = length * self.payload.sample_bytes
        # The magnitude of -32768 is 32768 in uint16 alone.
        loud = (np.abs(block).view(np.uint16).max(axis=1) > SILENT_PEAK).tolist()
        frames = []
        for index in range(count):
            payload, tail, head = (
                data[(form * count + index) * size : (form * count + index + 1) * size]
                for form in range(3)
            )
            frames.append(EncodedFrame(payload, tail, head, self._advance(), not loud[index]))
        return frames

    def _advance(self) -> int:
        """Return how many samples of the stream the next frame brings."""
        self._frames += 1
        ended = self._frames * self.frame_samples - self._resampler.delay_samples
        heard = min(max(0, ended * self.from_hz // self.payload.sample_hz), self._read)
        samples, self._told = heard - self._told, heard
        return samples
