"""What the far end says, as samples: packets decoded, holes filled, comfort noise made."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.coder import Decoder
from qwen3tts_codecs.errors import CodecError
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.call_events import HeardFrame
from qwen3tts_phone.comfort import ComfortNoise, parse_comfort_noise
from qwen3tts_phone.conceal import Concealer

Samples = NDArray[np.int16]

COMFORT_NOISE = 13
"""Payload type of RFC 3389 at a clock of 8 kHz."""
USUAL_S = 0.02
"""A frame's length until one has come."""
MOST_SAMPLES = 5760
"""Of a frame: 120 ms at 48 kHz, the longest of Opus (RFC 6716 section 2.1.4)."""


class Hearing:
    """Turns a leg's inbound frames into samples (pure); one object for one call.

    Nothing is held back: what `take` returns may be acted upon at once, for a caller who cuts in
    must not wait for a buffer. Who wants a steady flow has a `Playout` behind it.
    """

    def __init__(
        self,
        payloads: Mapping[int, Payload],
        *,
        comfort_noise: frozenset[int] = frozenset({COMFORT_NOISE}),
    ) -> None:
        self._payloads = dict(payloads)
        self._comfort_noise = comfort_noise
        self._payload: Payload | None = None
        self._decoder: Decoder | None = None
        self._concealer: Concealer | None = None
        self._frame_s = USUAL_S
        self._noise = ComfortNoise()
        self.undecodable = 0
        """Packets that were no frame of their format; they were concealed."""
        self.concealed_s = 0.0
        """Sound that was made up, seconds."""

    def change(self, payloads: Mapping[int, Payload]) -> None:
        """Other formats were agreed in mid-call; what was heard last is remembered.

        Those before stay known: packets of them are on their way (RFC 3264 section 8.3.2).
        """
        self._payloads |= payloads

    def take(self, frame: InboundFrame) -> list[HeardFrame]:
        """Return what is heard with this frame, in order; [] for what is no sound.

        Raises CodecMissing when the format's library is not installed.
        """
        if frame.payload_type in self._comfort_noise and not frame.concealed:
            return self._comfort(frame)
        payload = self._payloads.get(frame.payload_type)
        if payload is None:
            return []
        concealer = self._use(payload)
        samples = None if frame.concealed else self._decode(frame.payload)
        concealed = samples is None
        if samples is None:
            samples = concealer.fill(round(self._frame_s * payload.sample_hz))
            self.concealed_s += self._frame_s
        elif len(samples):
            self._frame_s = len(samples) / payload.sample_hz
            samples = concealer.hear(samples)
        else:
            return []
        return [_heard(frame, samples, payload, concealed=concealed)]

    def _use(self, payload: Payload) -> Concealer:
        """Be ready for this format."""
        concealer = self._concealer
        if concealer is None:
            concealer = Concealer(payload.sample_hz)
        elif concealer.rate_hz != payload.sample_hz:
            concealer = concealer.at_rate(payload.sample_hz)
        if payload != self._payload or self._decoder is None:
            self._payload, self._decoder = payload, payload.decoder()
        self._concealer = concealer
        return concealer

    def _decode(self, data: bytes) -> Samples | None:
        assert self._decoder is not None
        try:
            return self._decoder.decode(data)[:MOST_SAMPLES]
        except CodecError:
            self.undecodable += 1
            return None

    def _comfort(self, frame: InboundFrame) -> list[HeardFrame]:
        """One frame of the far end's silence, at the rate of what was heard last."""
        silence = parse_comfort_noise(frame.payload)
        if silence is None:
            return []
        payload = self._payload or next(iter(self._payloads.values()), None)
        if payload is None:
            return []
        self._noise.sound(silence)
        noise = self._noise.make(round(self._frame_s * payload.sample_hz))
        samples = np.clip(np.rint(noise), -32768, 32767).astype(np.int16)
        if self._concealer is not None and self._concealer.rate_hz == payload.sample_hz:
            samples = self._concealer.hear(samples)
        return [_heard(frame, samples, payload, noise=True)]


def _heard(
    frame: InboundFrame,
    samples: Samples,
    payload: Payload,
    *,
    concealed: bool = False,
    noise: bool = False,
) -> HeardFrame:
    return HeardFrame(
        samples,
        frame.at,
        concealed,
        payload.sample_hz,
        frame.timestamp,
        payload.clock_hz,
        noise,
    )
