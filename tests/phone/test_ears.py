"""Who listens to a call hears what has come, however busy this process is."""

from __future__ import annotations

import asyncio
from typing import cast

import numpy as np

from qwen3tts_codecs.g711 import encode_ulaw
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.audio.inbound import InboundAudio, LegReceiver
from qwen3tts_phone.facts import MediaFacts
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.sdp.session import Negotiated
from tests.fakes import FakeClock, settle

AGREED = Negotiated("192.0.2.1", 4000, 0, "PCMU", 20, None, True, True)
LOUD = encode_ulaw(np.full(160, 8000, np.int16))


class FakeLeg:
    """A leg with frames that wait to be read."""

    def __init__(self) -> None:
        self.waiting: list[InboundFrame] = []

    def read_inbound(self) -> list[InboundFrame]:
        read, self.waiting = self.waiting, []
        return read


async def test_steady_sound_has_all_that_came_in_time_whoever_was_busy() -> None:
    leg, clock = FakeLeg(), FakeClock()
    ears = InboundAudio(clock, MediaFacts())
    feed = LegReceiver(cast(MediaLeg, leg), ears)
    feed.agree(AGREED)
    heard: list[int] = []

    async def listen() -> None:
        async for frame in ears(steady=True):
            heard.append(int(np.abs(frame.samples).max()))

    listening = asyncio.create_task(listen())
    await settle()
    for number in range(50):
        at = clock.now()
        leg.waiting.append(InboundFrame(LOUD, 0, 160 * number, at, number, False, False))
        if number == 0:
            feed.take()  # nobody takes anything after that
        await clock.advance(0.02)
    ears.close()
    await clock.advance(0.1)
    await listening
    assert len(heard) >= 50
    assert min(heard[8:50]) > 7000
