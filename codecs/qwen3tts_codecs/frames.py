"""From an engine's PCM to the frames of a call: resampled, compressed, cut, ready to be paced."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import numpy as np

from qwen3tts_codecs.forms import Forms, forms_of
from qwen3tts_codecs.framing import Framer
from qwen3tts_codecs.payload import MAX_PTIME_MS, Payload
from qwen3tts_codecs.pcm import Int16Reader, Pcm, PcmBytes
from qwen3tts_codecs.resample import Resampler

SILENT_PEAK: Final = 8
"""A frame with no sample above this magnitude is silent: the smallest level of A-law."""

KEPT_MS: Final = MAX_PTIME_MS + 20
"""So much of the input behind the last frame is remembered for `FrameEncoder.switch`."""


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
    a frame is ready as soon as its duration of input is; so does the look-ahead of Opus (6.5 ms).
    ``samples`` takes both into account: over an utterance they sum up to its length. ``flush`` ends
    the utterance; the encoder is then as new.

    Raises BadSamples, UnsupportedRate, UnsupportedPtime; CodecMissing for G.722 and Opus without
    their library.
    """

    def __init__(self, from_hz: int, payload: Payload, ptime_ms: int = 20) -> None:
        self.ptime_ms = ptime_ms
        self._reader = Int16Reader()
        self.cut_off = False
        """True if the bytes of the utterance last flushed ended within a sample."""
        self._from_hz = from_hz
        self._read = 0  # samples of the stream so far
        self._told = 0  # of them, those that frames have been given for
        self._begun_at: int | None = None  # the sample a switch came at; None = there was none
        self._frames = 0  # since then
        self._warming = 0  # frames that are only for the encoder to hear
        self._kept: deque[Pcm] = deque()  # the input's end, from sample ``_kept_from`` on
        self._kept_from = 0
        self._nothing: Final = np.zeros(0, np.int16)
        self._use(payload, ptime_ms)

    @property
    def from_hz(self) -> int:
        """Rate of the samples pushed."""
        return self._from_hz

    @property
    def delay_s(self) -> float:
        """How far the frames' sound lags behind the input: filter, and look-ahead of the codec."""
        return self._delay / self.payload.sample_hz

    def push(self, data: PcmBytes) -> list[EncodedFrame]:
        """Take s16le bytes; return the frames that are full now."""
        pcm = self._reader.push(data)
        self._read += len(pcm)
        self._kept.append(pcm)
        frames = self._encode(self._framer.push_block(self._resampler.push(pcm)))
        self._forget()
        return frames

    def flush(self) -> list[EncodedFrame]:
        """End the utterance: return its last frames, the last one padded by silence.

        Half a sample at the end is no sound and is left out; ``cut_off`` tells that there was one.
        """
        self.cut_off = self._reader.flush() > 0
        rest = self._resampler.flush()
        if self._read and self._forms.delay_samples:
            # What the codec has heard and not yet given comes out with a little silence.
            rest = np.concatenate((rest, np.zeros(self._forms.delay_samples, np.int16)))
        frames = self._encode(self._framer.push_block(rest))
        last = self._framer.flush()
        if last is not None:
            frames += self._encode(last.samples.reshape(1, -1))
        if frames:
            frames[-1] = frames[-1]._replace(samples=frames[-1].samples + self._read - self._told)
        self._renew()
        return frames

    def reset(self) -> None:
        """Forget the utterance."""
        self._reader.flush()
        self._resampler.reset()
        self._framer.flush()
        self._renew()

    def switch(self, payload: Payload, ptime_ms: int | None = None) -> list[EncodedFrame]:
        """Go on in another format with the sample after those that frames were given for.

        ``ptime_ms`` is the new length of frames; None = as before. Return the frames that are full
        now. The new encoder hears a frame of what went before, so that it does not begin in
        silence. Raises as the constructor; nothing has changed then.
        """
        begun = self._told > 0
        self._use(payload, self.ptime_ms if ptime_ms is None else ptime_ms)
        samples = self._resampler.push(np.concatenate([*self._kept, self._nothing]))
        self._frames = 0
        if begun:
            # Output k of the resampler shows the input at k - delay.
            before = self._told - self._kept_from
            first = before * payload.sample_hz // self._from_hz + self._delay
            samples = np.concatenate((np.zeros(self.frame_samples, np.int16), samples))[first:]
            self._begun_at, self._warming = self._told, 1
        return self._encode(self._framer.push_block(samples))

    # --- inside

    def _use(self, payload: Payload, ptime_ms: int) -> None:
        """Begin a run of frames of one format."""
        frame_samples = payload.frame_samples(ptime_ms)
        resampler = Resampler(self._from_hz, payload.sample_hz)
        self._forms: Forms = forms_of(payload, ptime_ms)
        self.payload = payload
        self.ptime_ms = ptime_ms
        self.frame_samples = frame_samples
        self._resampler = resampler
        self._framer = Framer(frame_samples)
        self._delay = resampler.delay_samples + self._forms.delay_samples

    def _renew(self) -> None:
        """Forget the utterance that is over, and begin the next."""
        if self._forms.delay_samples:
            self._forms = forms_of(self.payload, self.ptime_ms)
        self._read = self._told = self._frames = self._warming = self._kept_from = 0
        self._begun_at = None
        self._kept.clear()

    def _forget(self) -> None:
        """Drop what no switch would need of the input that is kept."""
        least = self._told - self._from_hz * KEPT_MS // 1000
        while self._kept and self._kept_from + len(self._kept[0]) <= least:
            self._kept_from += len(self._kept.popleft())

    def _encode(self, block: Pcm) -> list[EncodedFrame]:
        """Encode frames, shape [frames, frame_samples]."""
        if not len(block):
            return []
        forms = self._forms.encode(block)
        # The magnitude of -32768 is 32768 in uint16 alone.
        loud = (np.abs(block).view(np.uint16).max(axis=1) > SILENT_PEAK).tolist()
        warming, self._warming = self._warming, 0
        return [
            EncodedFrame(*form, self._advance(), not heard)
            for form, heard in list(zip(forms, loud, strict=True))[warming:]
        ]

    def _advance(self) -> int:
        """Return how many samples of the stream the next frame brings."""
        self._frames += 1
        ended = self._frames * self.frame_samples
        if self._begun_at is None:
            ended -= self._delay
        heard = (self._begun_at or 0) + ended * self._from_hz // self.payload.sample_hz
        heard = min(max(0, heard), self._read)
        samples, self._told = heard - self._told, heard
        return samples
