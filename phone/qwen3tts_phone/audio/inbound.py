"""Inbound audio of a call: decoding, concealment, taps and readers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.errors import CodecError
from qwen3tts_codecs.payload import Decoder, Payload
from qwen3tts_codecs.table import agreed_payload, payload_by_name
from qwen3tts_pacer.clock import Clock
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.audio.concealment import ComfortNoise, Concealer, parse_comfort_noise
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.audio.playout import Playout
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.facts import MediaFacts
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.sdp.negotiation import DEFAULT_PTIME_MS
from qwen3tts_phone.sdp.session import Negotiated

MAX_QUEUED_FRAMES = 500
"""Frames queued for a slow reader (10 s); the oldest are dropped and counted."""
LOUD_PEAK = 64
"""A frame with a sample above this is sound; idle codes and the noise of a quiet line are not."""

Tap = Callable[[HeardFrame], None]
"""Called with each frame; it must not block."""


COMFORT_NOISE = 13
"""Payload type of RFC 3389 at a clock of 8 kHz."""
DEFAULT_FRAME_S = 0.02
"""A frame's length until one has come."""
MAX_FRAME_SAMPLES = 5760
"""Longest frame: 120 ms of Opus at 48 kHz (RFC 6716 section 2.1.4)."""


class InboundAudio:
    """Inbound audio of a call, fanned out to taps and readers."""

    def __init__(self, clock: Clock, facts: MediaFacts) -> None:
        self.unheard_frames = 0
        """Frames dropped because a reader was too slow."""
        self.ptime_ms = 20
        """Length of a frame of the steady sound."""
        self.fetch: Callable[[], None] = _nothing
        """Receives what has arrived at the line."""
        self._clock = clock
        self._facts = facts
        self._taps: list[Tap] = []
        self._listeners: list[asyncio.Queue[HeardFrame | None]] = []
        self._over = False

    def take(self, heard: HeardFrame) -> None:
        facts = self._facts
        loud = not (heard.concealed or heard.noise) and len(heard.samples) > 0
        if loud and int(np.abs(heard.samples.astype(np.int32)).max()) > LOUD_PEAK:
            facts.loud_in_s = (facts.loud_in_s or 0.0) + heard.duration_s
        elif facts.loud_in_s is None:
            facts.loud_in_s = 0.0
        for tap in list(self._taps):
            tap(heard)
        for queue in self._listeners:
            if queue.qsize() >= MAX_QUEUED_FRAMES:
                queue.get_nowait()
                self.unheard_frames += 1
            queue.put_nowait(heard)

    def tap(self, tap: Tap) -> None:
        """Give ``tap`` every frame from now on, synchronously."""
        self._taps.append(tap)

    def untap(self, tap: Tap) -> None:
        if tap in self._taps:
            self._taps.remove(tap)

    def __aiter__(self) -> AsyncIterator[HeardFrame]:
        return self()

    async def __call__(self, *, steady: bool = False) -> AsyncGenerator[HeardFrame, None]:
        """Yield frames on arrival until the call ends; for any number of readers.

        ``steady``: one a packet time of our clock, gapless, behind an adaptive jitter buffer.
        """
        queue: asyncio.Queue[HeardFrame | None] = asyncio.Queue()
        self._listeners.append(queue)
        if self._over:
            queue.put_nowait(None)
        try:
            frames = self._steady(queue) if steady else _on_arrival(queue)
            async for frame in frames:
                yield frame
        finally:
            self._listeners.remove(queue)

    def close(self) -> None:
        self._over = True
        for queue in self._listeners:
            queue.put_nowait(None)

    # --- inside

    async def _steady(self, queue: asyncio.Queue[HeardFrame | None]) -> AsyncIterator[HeardFrame]:
        first = await queue.get()
        if first is None:
            return
        playout = Playout(first.rate_hz, self.ptime_ms)
        playout.push(first)
        while (deadline := playout.next_deadline) is not None:
            await self._clock.sleep_until(deadline)
            self.fetch()  # what has come while this process was busy counts by when it came
            while not queue.empty():
                frame = queue.get_nowait()
                if frame is None:
                    for last in playout.end():
                        yield last
                    return
                playout.push(frame)
            for due in playout.due(self._clock.now()):
                yield due


async def _on_arrival(queue: asyncio.Queue[HeardFrame | None]) -> AsyncIterator[HeardFrame]:
    while (frame := await queue.get()) is not None:
        yield frame


def _nothing() -> None: ...


Samples = NDArray[np.int16]


class AudioDecoder:
    """Decoder of inbound packets, with concealment and comfort noise (pure).

    It adds no delay, so that barge-in is detected on arrival; `Playout` is the jitter buffer.
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
        self._frame_s = DEFAULT_FRAME_S
        self._noise = ComfortNoise()
        self.undecodable = 0
        """Packets that could not be decoded, and were concealed."""
        self.concealed_s = 0.0
        """Concealed sound, seconds."""

    def change(self, payloads: Mapping[int, Payload]) -> None:
        self._payloads |= payloads

    def take(self, frame: InboundFrame) -> list[HeardFrame]:
        """Return the frames of a packet; [] for one without audio.

        Raises CodecMissing without the format's library.
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
            samples = concealer.accept(samples)
        else:
            return []
        return [_inbound_frame(frame, samples, payload, concealed=concealed)]

    def _use(self, payload: Payload) -> Concealer:
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
            return self._decoder.decode(data)[:MAX_FRAME_SAMPLES]
        except CodecError:
            self.undecodable += 1
            return None

    def _comfort(self, frame: InboundFrame) -> list[HeardFrame]:
        silence = parse_comfort_noise(frame.payload)
        if silence is None:
            return []
        payload = self._payload or next(iter(self._payloads.values()), None)
        if payload is None:
            return []
        self._noise.configure(silence)
        noise = self._noise.generate(round(self._frame_s * payload.sample_hz))
        samples = np.clip(np.rint(noise), -32768, 32767).astype(np.int16)
        if self._concealer is not None and self._concealer.rate_hz == payload.sample_hz:
            samples = self._concealer.accept(samples)
        return [_inbound_frame(frame, samples, payload, noise=True)]


def _inbound_frame(
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


def preload_codecs(names: Iterable[str]) -> None:
    for name in names:
        payload = payload_by_name(name)
        payload.encoder(DEFAULT_PTIME_MS)
        payload.decoder()


class LegReceiver:
    def __init__(self, leg: MediaLeg, inbound: InboundAudio) -> None:
        self._leg = leg
        self._inbound = inbound
        self._decoder: AudioDecoder | None = None
        inbound.fetch = self.take

    def agree(self, agreed: Negotiated) -> None:
        payloads = {agreed.payload_type: agreed_payload(agreed.payload_name, agreed.payload_type)}
        for each in agreed.also_receive:
            payloads.setdefault(each.payload_type, agreed_payload(each.name, each.payload_type))
        noise = {13} if agreed.comfort_noise_pt is None else {13, agreed.comfort_noise_pt}
        if self._decoder is None:
            self._decoder = AudioDecoder(payloads, comfort_noise=frozenset(noise))
        else:
            self._decoder.change(payloads)
        self._inbound.ptime_ms = agreed.ptime_ms

    async def listen(self) -> None:
        with contextlib.suppress(CallError):
            while True:
                await self._leg.wait_inbound()
                self.take()

    def take(self) -> None:
        decoder = self._decoder
        for frame in self._leg.read_inbound():
            for heard in decoder.take(frame) if decoder is not None else ():
                self._inbound.take(heard)
