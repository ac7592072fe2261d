"""PCM to encoded frames, each with its fade-out (tail) and fade-in (head).

A stateless format makes all three in one pass. G.722 predicts from the past, so each form has an
encoder with the history of the far end's decoder: one for frames, one for each frame and its tail,
one for silence and each head (the error of the last two is gone within a frame:
tests/codecs/test_forms.py). The first is warmed up by silence: else a decoder plays a sentence that
begins immediately at three times its level for 40 ms (PESQ 3.4 instead of 3.9). Opus frames
overlap, so its decoders fade by themselves.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import numpy as np

from qwen3tts_codecs.payload import MAX_PTIME_MS, Payload
from qwen3tts_codecs.pcm import Framer, Int16Reader, Pcm, PcmBytes
from qwen3tts_codecs.resample import Resampler

FADE_MS = 5
"""Duration of a fade-in or fade-out."""
BEFORE_MS = 20
"""Silence that warms up an encoder with state."""


class Form(NamedTuple):
    """Three payloads of one frame."""

    payload: bytes
    tail: bytes
    head: bytes


class Forms(Protocol):
    """Encoder of one utterance's frames in all forms."""

    @property
    def delay_samples(self) -> int:
        """Delay of the decoded sound behind the samples."""

    def encode(self, block: Pcm) -> list[Form]: ...


class Fades:
    """Fade-outs and fade-ins of samples."""

    def __init__(self, sample_hz: int) -> None:
        fade = sample_hz * FADE_MS // 1000
        # Half a period of a cosine, from just above 0 to just below 1.
        self._rise = 0.5 - 0.5 * np.cos(np.pi * (np.arange(fade) + 0.5) / fade)

    def tails(self, block: Pcm) -> Pcm:
        """Return each frame's end mirrored and faded out; shape of ``block``."""
        fade = len(self._rise)
        tails = np.zeros_like(block)
        tails[:, :fade] = np.rint(block[:, : -fade - 1 : -1] * self._rise[::-1])
        return tails

    def heads(self, block: Pcm) -> Pcm:
        """Return each frame faded in; shape of ``block``."""
        fade = len(self._rise)
        heads = block.copy()
        heads[:, :fade] = np.rint(block[:, :fade] * self._rise)
        return heads


class PlainForms:
    """Forms of a stateless format."""

    delay_samples = 0

    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self._fades = Fades(payload.sample_hz)

    def encode(self, block: Pcm) -> list[Form]:
        count, length = block.shape
        forms = np.stack((block, self._fades.tails(block), self._fades.heads(block)))
        data = self._payload.encode(forms.reshape(-1))
        size = length * self._payload.sample_bytes
        return [
            Form(*(data[at * size : (at + 1) * size] for at in range(index, 3 * count, count)))
            for index in range(count)
        ]


class ChainedForms:
    """Forms of a predictive format."""

    def __init__(self, payload: Payload, ptime_ms: int) -> None:
        make = payload.make_encoder
        assert make is not None
        length = payload.frame_samples(ptime_ms)
        self._fades = Fades(payload.sample_hz)
        self._main = make(length)
        # A frame and its end, silence and a beginning: two frames in one call.
        self._ends = make(2 * length)
        self._beginnings = make(2 * length)
        self._silence = np.zeros(length, np.int16)
        for _ in range(-(-BEFORE_MS // ptime_ms)):
            self._main.encode(self._silence)
        self.delay_samples = self._main.delay_samples

    def encode(self, block: Pcm) -> list[Form]:
        forms = []
        for frame, tail, head in zip(
            block, self._fades.tails(block), self._fades.heads(block), strict=True
        ):
            end = self._ends.encode(np.concatenate((frame, tail)))
            beginning = self._beginnings.encode(np.concatenate((self._silence, head)))
            forms.append(
                Form(
                    self._main.encode(frame), end[len(end) // 2 :], beginning[len(beginning) // 2 :]
                )
            )
        return forms


class OverlappedForms:
    """Forms of a format whose decoders fade by themselves."""

    def __init__(self, payload: Payload, ptime_ms: int) -> None:
        self._encoder = payload.encoder(ptime_ms)
        self._silence = payload.silent_frame(ptime_ms)
        self.delay_samples = self._encoder.delay_samples

    def encode(self, block: Pcm) -> list[Form]:
        forms = []
        for frame in block:
            data = self._encoder.encode(frame)
            forms.append(Form(data, self._silence, data))
        return forms


def forms_of(payload: Payload, ptime_ms: int) -> Forms:
    if not payload.stateful:
        return PlainForms(payload)
    if payload.overlapped:
        return OverlappedForms(payload, ptime_ms)
    return ChainedForms(payload, ptime_ms)


SILENT_PEAK: Final = 8
"""Peak up to which a frame is silent: the smallest level of A-law."""

PAST_MS: Final = MAX_PTIME_MS + 20
"""Input before a change of the format that `FrameEncoder.resume` needs."""


class EncodedFrame(NamedTuple):
    """Frame for the wire, in its three forms."""

    payload: bytes
    tail: bytes
    """Fade-out for the next slot, if nothing follows."""
    head: bytes
    """The frame faded in, for after silence."""
    samples: int
    """Samples of the stream, at its own rate, that this frame plays."""
    silent: bool


class FrameEncoder:
    """Encoder of one utterance's s16le bytes at ``from_hz`` into frames.

    The resampler's delay (3 ms from 24 to 8 kHz) and the look-ahead of Opus (6.5 ms) stay in the
    stream, so a frame is ready as soon as its duration of input is. `EncodedFrame.samples` sum up
    to the utterance. `flush` ends it and resets the encoder.

    Raises BadSamples, UnsupportedRate, UnsupportedPtime, CodecMissing.
    """

    def __init__(self, from_hz: int, payload: Payload, ptime_ms: int = 20) -> None:
        self.ptime_ms = ptime_ms
        self._reader = Int16Reader()
        self.cut_off = False
        """True if the utterance last flushed ended within a sample."""
        self._from_hz = from_hz
        self._read = 0  # samples of the stream so far
        self._told = 0  # of them, those that frames have been given for
        self._begun_at: int | None = None  # the sample of `resume`; None = there was none
        self._frames = 0  # since then
        self._warming = 0  # frames that are only for the encoder to hear
        self._skip = 0  # resampled samples before the first frame; negative = silence
        self._use(payload, ptime_ms)

    @property
    def from_hz(self) -> int:
        return self._from_hz

    @property
    def delay_s(self) -> float:
        """Delay behind the input, seconds: filter and look-ahead."""
        return self._delay / self.payload.sample_hz

    def push(self, data: PcmBytes) -> list[EncodedFrame]:
        pcm = self._reader.push(data)
        self._read += len(pcm)
        return self._encode(self._framed(self._resampler.push(pcm)))

    def flush(self) -> list[EncodedFrame]:
        self.cut_off = self._reader.flush() > 0
        rest = self._resampler.flush()
        if self._read and self._forms.delay_samples:
            # What the codec has heard and not yet given comes out with a little silence.
            rest = np.concatenate((rest, np.zeros(self._forms.delay_samples, np.int16)))
        frames = self._encode(self._framed(rest))
        last = self._framer.flush()
        if last is not None:
            frames += self._encode(last.samples.reshape(1, -1))
        if frames:
            frames[-1] = frames[-1]._replace(samples=frames[-1].samples + self._read - self._told)
        self._renew()
        return frames

    def reset(self) -> None:
        self._reader.flush()
        self._resampler.reset()
        self._framer.flush()
        self._renew()

    def resume(self, payload: Payload, ptime_ms: int, at: int, past: Pcm) -> None:
        """Continue in another format from sample ``at`` of the utterance on.

        ``past`` are the `PAST_MS` of samples before it, or as many as there are: the new encoder is
        warmed up by a frame of them. Raises as the constructor; nothing has changed then.
        """
        self._use(payload, ptime_ms)
        self._reader.flush()
        self._read = self._told = at
        self._frames = self._warming = self._skip = 0
        self._begun_at = None
        if at:
            self._begun_at, self._warming = at, 1
            # Output k of the resampler shows the input at k - delay.
            before = len(past) * payload.sample_hz // self._from_hz
            self._skip = before + self._delay - self.frame_samples
            self._encode(self._framed(self._resampler.push(past)))

    # --- inside

    def _use(self, payload: Payload, ptime_ms: int) -> None:
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
        if self._forms.delay_samples:
            self._forms = forms_of(self.payload, self.ptime_ms)
        self._read = self._told = self._frames = self._warming = self._skip = 0
        self._begun_at = None

    def _framed(self, samples: Pcm) -> Pcm:
        if self._skip > 0:
            cut = min(self._skip, len(samples))
            self._skip -= cut
            samples = samples[cut:]
        elif self._skip < 0:
            samples = np.concatenate((np.zeros(-self._skip, np.int16), samples))
            self._skip = 0
        return self._framer.push_block(samples)

    def _encode(self, block: Pcm) -> list[EncodedFrame]:
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
        self._frames += 1
        ended = self._frames * self.frame_samples
        if self._begun_at is None:
            ended -= self._delay
        heard = (self._begun_at or 0) + ended * self._from_hz // self.payload.sample_hz
        heard = min(max(0, heard), self._read)
        samples, self._told = heard - self._told, heard
        return samples
