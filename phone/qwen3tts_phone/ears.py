"""What a call hears: packets to samples, for the recording and for whoever listens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

import numpy as np

from qwen3tts_codecs.opus import OpusSettings
from qwen3tts_codecs.payload import Payload, opus, payload_by_name
from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.call_events import HeardFrame
from qwen3tts_phone.call_facts import MediaFacts
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.hearing import Hearing
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.playout import Playout
from qwen3tts_phone.sdp import Negotiated
from qwen3tts_phone.sdp_codecs import DEFAULT_PTIME_MS
from qwen3tts_phone.tracks import CallTracks

LISTEN_FRAMES = 500
"""Frames kept for a listener that does not keep up (10 s); the oldest go first, and are counted."""
LOUD_PEAK = 64
"""A frame with a sample above this is sound; idle codes and the noise of a quiet line are not."""


def payload_of(name: str, payload_type: int, parameters: str = "") -> Payload:
    """The codec of this name in a description, with the number that was agreed.

    ``parameters``: the far end's fmtp, which says how it wants to be sent to.
    """
    if name.lower() == "opus":
        # RFC 7587 section 6.1: bitrate, FEC and band are the receiver's to choose.
        return opus(payload_type, OpusSettings().for_far_end(parameters))
    payload = payload_by_name(name)
    return payload if payload.payload_type == payload_type else payload.with_type(payload_type)


def warm(names: Iterable[str]) -> None:
    """Load what the codecs need now: no call shall wait for it. Raises CodecMissing."""
    for name in names:
        payload = payload_by_name(name)
        payload.encoder(DEFAULT_PTIME_MS)
        payload.decoder()


class Ears:
    """One call's; frames are taken from its leg and given to all who listen."""

    def __init__(self, leg: MediaLeg, clock: Clock, facts: MediaFacts) -> None:
        self.unheard_frames = 0
        """Frames of the caller that a listener was too slow to take."""
        self.tracks: CallTracks | None = None
        """The recording; None = there is none."""
        self._leg = leg
        self._clock = clock
        self._facts = facts
        self._hearing: Hearing | None = None
        self._ptime_ms = 20
        self._listeners: list[asyncio.Queue[HeardFrame | None]] = []
        self._over = False

    def agree(self, agreed: Negotiated) -> None:
        """What may come from now on."""
        payloads = {agreed.payload_type: payload_of(agreed.payload_name, agreed.payload_type)}
        for each in agreed.also_receive:
            payloads.setdefault(each.payload_type, payload_of(each.name, each.payload_type))
        noise = {13} if agreed.comfort_noise_pt is None else {13, agreed.comfort_noise_pt}
        if self._hearing is None:
            self._hearing = Hearing(payloads, comfort_noise=frozenset(noise))
        else:
            self._hearing.change(payloads)
        self._ptime_ms = agreed.ptime_ms

    async def listen(self) -> None:
        """Take what comes, until the leg is closed."""
        with contextlib.suppress(CallError):
            while True:
                await self._leg.wait_inbound()
                self.take()

    def take(self) -> None:
        """Take what has come."""
        hearing = self._hearing
        for frame in self._leg.read_inbound():
            for heard in hearing.take(frame) if hearing is not None else ():
                self._hear(heard)

    async def audio(self, *, steady: bool = False) -> AsyncIterator[HeardFrame]:
        """Frame by frame until the call ends; for any number of readers.

        As they come; ``steady``: on our clock, one for each packet time, without holes: behind an
        adaptive jitter buffer, for recording, bridging and recognisers that count time by frames.
        """
        queue: asyncio.Queue[HeardFrame | None] = asyncio.Queue()
        self._listeners.append(queue)
        if self._over:
            queue.put_nowait(None)
        try:
            frames = self._steady(queue) if steady else _as_they_come(queue)
            async for frame in frames:
                yield frame
        finally:
            self._listeners.remove(queue)

    def close(self) -> None:
        """Nothing comes any more."""
        self._over = True
        for queue in self._listeners:
            queue.put_nowait(None)

    # --- inside

    def _hear(self, heard: HeardFrame) -> None:
        facts = self._facts
        loud = not (heard.concealed or heard.noise) and len(heard.samples) > 0
        if loud and int(np.abs(heard.samples.astype(np.int32)).max()) > LOUD_PEAK:
            facts.loud_in_s = (facts.loud_in_s or 0.0) + heard.duration_s
        elif facts.loud_in_s is None:
            facts.loud_in_s = 0.0
        if self.tracks is not None:
            self.tracks.heard(heard)
        for queue in self._listeners:
            if queue.qsize() >= LISTEN_FRAMES:
                queue.get_nowait()
                self.unheard_frames += 1
            queue.put_nowait(heard)

    async def _steady(self, queue: asyncio.Queue[HeardFrame | None]) -> AsyncIterator[HeardFrame]:
        first = await queue.get()
        if first is None:
            return
        playout = Playout(first.rate_hz, self._ptime_ms)
        playout.push(first)
        while (deadline := playout.next_deadline) is not None:
            await self._clock.sleep_until(deadline)
            self.take()  # what has come while this process was busy counts by when it came
            while not queue.empty():
                frame = queue.get_nowait()
                if frame is None:
                    for last in playout.end():
                        yield last
                    return
                playout.push(frame)
            for due in playout.due(self._clock.now()):
                yield due


async def _as_they_come(queue: asyncio.Queue[HeardFrame | None]) -> AsyncIterator[HeardFrame]:
    while (frame := await queue.get()) is not None:
        yield frame
