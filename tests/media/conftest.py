from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.types import LegSpec
from tests.media.peer import PATIENCE_S, Peer


@pytest.fixture
async def process() -> AsyncIterator[MediaProcess]:
    async with await MediaProcess.start() as process:
        yield process


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.hang_up()


@pytest.fixture
async def leg(process: MediaProcess, peer: Peer) -> MediaLeg:
    """A leg that is started towards the peer, and the peer towards it."""
    async with asyncio.timeout(PATIENCE_S):
        leg = await process.open(LegSpec(pinned_s=0.0, ring_slots=512))
        peer.dial(leg)
        await leg.start(peer.media())
    return leg


@pytest.fixture
async def metronome(process: MediaProcess) -> AsyncIterator[Peer]:
    """A peer that hears another, silent call of the process: a packet of it is a slot of time."""
    peer = Peer()
    leg = await process.open()
    await leg.start(peer.media())
    await peer.hear()
    yield peer
    peer.hang_up()
