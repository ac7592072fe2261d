from __future__ import annotations

import asyncio

import pytest
from aiortc.mediastreams import MediaStreamError

from qwen3tts_phone.softphone.webrtc.peer import MAX_WAITING_PACKETS, PacketTrack


async def test_a_packet_is_handed_out_as_it_is_at_its_place() -> None:
    track = PacketTrack(160, 8000)
    track.put(b"one", 0)
    track.put(b"two", 1)
    track.put(b"five", 3)
    packets = [await track.recv() for _ in range(3)]
    assert [bytes(packet) for packet in packets] == [b"one", b"two", b"five"]
    assert [packet.pts for packet in packets] == [0, 160, 640]
    assert packets[0].time_base.denominator == 8000


async def test_who_waits_gets_the_next_one() -> None:
    track = PacketTrack(960, 48_000)
    waiting = asyncio.ensure_future(track.recv())
    await asyncio.sleep(0)
    track.put(b"now", 0)
    assert bytes(await waiting) == b"now"


async def test_a_sender_that_is_too_slow_loses_the_oldest() -> None:
    track = PacketTrack(160, 8000)
    for number in range(MAX_WAITING_PACKETS + 3):
        track.put(bytes([number]), 1)
    assert track.overrun == 3
    assert bytes(await track.recv()) == bytes([3])


async def test_its_end_wakes_who_waits() -> None:
    track = PacketTrack(160, 8000)
    waiting = asyncio.ensure_future(track.recv())
    await asyncio.sleep(0)
    track.stop()
    with pytest.raises(MediaStreamError):
        await waiting
    track.put(b"late", 1)
    with pytest.raises(MediaStreamError):
        await track.recv()
