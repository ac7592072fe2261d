"""The three forms in which a frame may be sent: as it is, what follows it alone, and faded in.

A format without memory has all three in one pass. G.722 describes a frame by what went before, so
each form needs an encoder that has heard what the far end's decoder will have heard then: one goes
through the frames, one hears each frame and its end, one hears silence and each beginning. The
second and the third are a little off, for they have heard the ends and beginnings before, too;
within a frame that is forgotten (tests/codecs/test_forms.py measures it). The first has heard
silence before an utterance, as the far end has: from a new one a decoder makes, of a sentence that
begins at once, a blast of three times its level for 40 ms (PESQ 3.4 in place of 3.9). Opus needs
none of this: its frames overlap, so a decoder fades out into silence and in again by itself.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.pcm import Pcm

FADE_MS = 5
"""How long a frame takes to fade in or out where the stream breaks."""
BEFORE_MS = 20
"""So much silence a format with memory has heard before an utterance."""


class Form(NamedTuple):
    """One frame's three payloads."""

    payload: bytes
    tail: bytes
    head: bytes


class Forms(Protocol):
    """Frames of one utterance to payloads, in order."""

    @property
    def delay_samples(self) -> int:
        """How far a decoder's sound lies behind the samples."""

    def encode(self, block: Pcm) -> list[Form]:
        """Take frames, shape [frames, frame_samples]."""


class Fades:
    """The tails and heads of a rate, as samples."""

    def __init__(self, sample_hz: int) -> None:
        fade = sample_hz * FADE_MS // 1000
        # Half a period of a cosine, from just above 0 to just below 1.
        self._rise = 0.5 - 0.5 * np.cos(np.pi * (np.arange(fade) + 0.5) / fade)

    def tails(self, block: Pcm) -> Pcm:
        """Each frame's end mirrored and faded out; shape of ``block``."""
        fade = len(self._rise)
        tails = np.zeros_like(block)
        tails[:, :fade] = np.rint(block[:, : -fade - 1 : -1] * self._rise[::-1])
        return tails

    def heads(self, block: Pcm) -> Pcm:
        """Each frame faded in; shape of ``block``."""
        fade = len(self._rise)
        heads = block.copy()
        heads[:, :fade] = np.rint(block[:, :fade] * self._rise)
        return heads


class PlainForms:
    """Of a format without memory."""

    delay_samples = 0

    def __init__(self, payload: Payload) -> None:
        self._payload = payload
        self._fades = Fades(payload.sample_hz)

    def encode(self, block: Pcm) -> list[Form]:
        """All forms of all frames in one pass."""
        count, length = block.shape
        forms = np.stack((block, self._fades.tails(block), self._fades.heads(block)))
        data = self._payload.encode(forms.reshape(-1))
        size = length * self._payload.sample_bytes
        return [
            Form(*(data[at * size : (at + 1) * size] for at in range(index, 3 * count, count)))
            for index in range(count)
        ]


class ChainedForms:
    """Of a format with memory."""

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
        """Frame by frame."""
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
    """Of a format whose decoders fade by themselves."""

    def __init__(self, payload: Payload, ptime_ms: int) -> None:
        self._encoder = payload.encoder(ptime_ms)
        self._silence = payload.silent_frame(ptime_ms)
        self.delay_samples = self._encoder.delay_samples

    def encode(self, block: Pcm) -> list[Form]:
        """Frame by frame."""
        forms = []
        for frame in block:
            data = self._encoder.encode(frame)
            forms.append(Form(data, self._silence, data))
        return forms


def forms_of(payload: Payload, ptime_ms: int) -> Forms:
    """Return what encodes one utterance."""
    if not payload.stateful:
        return PlainForms(payload)
    if payload.overlapped:
        return OverlappedForms(payload, ptime_ms)
    return ChainedForms(payload, ptime_ms)
