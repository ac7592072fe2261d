"""vLLM-Omni's WebSocket: connections kept, cut, given up; readers who take their time."""

from __future__ import annotations

import asyncio

import pytest

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_wire.errors import (
    EngineFailed,
    ServerBusy,
)
from tests.engine.upstream.peers import OmniPeer, Script, Talk, sound_of, upstream
from tests.engine.upstream.speaking import TEXT, change, chunks_of, heard, is_said
from tests.engine.waiting import until

pytestmark = pytest.mark.network


async def test_a_connection_that_died_while_idle_costs_nothing() -> None:
    peer = OmniPeer()
    async with upstream(peer) as engine:
        await heard(engine)
        await peer.stop()
        await peer.start()
        assert is_said(await heard(engine))
        assert len(peer.texts) == 2


async def test_what_comes_while_a_connection_is_idle_is_no_answer() -> None:
    async def too_idle(talk: Talk) -> None:
        await talk.say()
        await talk.tell("error", message="Idle timeout")

    peer = OmniPeer(too_idle)
    async with upstream(peer) as engine:
        await heard(engine)
        await until(lambda: peer.open == 0)
        assert is_said(await heard(engine))
        assert len(peer.headers) == 2


async def test_an_idle_connection_is_left_before_the_server_tires_of_it() -> None:
    peer = OmniPeer()
    async with upstream(peer, idle_s=0.01) as engine:
        await heard(engine)
        await until(lambda: peer.open == 0)
        assert peer.closed_politely >= 1
        assert is_said(await heard(engine))


async def test_a_cancel_ends_the_work_at_once() -> None:
    async def endless(talk: Talk) -> None:
        await talk.start()
        while True:
            await talk.sound(sound_of("a"))

    peer = OmniPeer(endless)
    async with upstream(peer) as engine:
        chunks = engine.synthesize(SynthesisRequest(TEXT, final=True))
        await anext(chunks)
        assert engine.load().busy == 1
        await chunks.aclose()
        assert engine.load().busy == 0
        await until(lambda: peer.open == 0 == peer.speaking)
        assert is_said(await heard(engine))


async def test_a_cancel_before_the_first_sound_ends_the_work_at_once() -> None:
    async def thinking(talk: Talk) -> None:
        await talk.start()
        await talk.gone()

    peer = OmniPeer(thinking)
    async with upstream(peer) as engine:
        task = asyncio.create_task(heard(engine))
        await until(lambda: peer.speaking == 1)
        task.cancel()
        await asyncio.wait({task})
        assert engine.load().busy == 0
        await until(lambda: peer.open == 0)


async def never_speaking(talk: Talk) -> None:
    await talk.start()
    await talk.gone()


async def stopping_in_the_middle(talk: Talk) -> None:
    await talk.start()
    await talk.sound(sound_of("Good"))
    await talk.gone()


@pytest.mark.parametrize(
    ("script", "said"),
    [(never_speaking, "made no sound in 0.05 s"), (stopping_in_the_middle, "no sound for 0.05 s")],
)
async def test_a_server_that_falls_silent_is_given_up(script: Script, said: str) -> None:
    peer = OmniPeer(script)
    async with upstream(peer) as engine:
        change(engine, first_audio_s=0.05 if script is never_speaking else 20.0, stall_s=0.05)
        with pytest.raises(EngineFailed, match=said):
            await heard(engine)
        # To ask again would take as long again.
        assert len(peer.texts) == 1
        await until(lambda: peer.open == 0)


async def test_an_endless_answer_to_a_short_text_is_cut() -> None:
    async def raving(talk: Talk) -> None:
        await talk.start()
        while True:
            await talk.sound(sound_of("abcdefgh" * 10))

    peer = OmniPeer(raving)
    async with upstream(peer) as engine:
        chunks = await chunks_of(engine, "Hi.")
        assert chunks[-1].end == "frame_cap"
        assert sum(chunk.samples for chunk in chunks) < 20 * 24_000
        await until(lambda: peer.open == 0)


async def test_an_answer_that_goes_on_in_silence_is_cut() -> None:
    async def falling_asleep(talk: Talk) -> None:
        await talk.start()
        await talk.sound()
        while True:
            await talk.sound(bytes(9600))

    peer = OmniPeer(falling_asleep)
    async with upstream(peer) as engine:
        chunks = await chunks_of(engine)
        assert chunks[-1].end == "silence"
        pcm = b"".join(chunk.pcm for chunk in chunks)
        assert 0 < len(pcm) - len(sound_of(TEXT)) <= 2 * 24_000 * 10
        await until(lambda: peer.open == 0)


async def test_a_pause_within_the_speech_is_heard() -> None:
    async def pausing(talk: Talk) -> None:
        await talk.start()
        await talk.sound()
        await talk.sound(bytes(2 * 24_000 * 2))
        await talk.sound()
        await talk.done()
        await talk.over()

    async with upstream(OmniPeer(pausing)) as engine:
        pcm = await heard(engine)
        assert pcm.endswith(sound_of(TEXT))
        assert len(pcm) > 2 * len(sound_of(TEXT)) + 3 * 24_000


async def test_a_slow_reader_has_the_server_done_long_before() -> None:
    peer = OmniPeer()
    async with upstream(peer) as engine:
        chunks = engine.synthesize(SynthesisRequest(TEXT * 20, final=True))
        first = await anext(chunks)
        await until(lambda: peer.speaking == 0 and engine.load().busy == 0)
        rest = [chunk async for chunk in chunks]
        assert is_said(first.pcm + b"".join(chunk.pcm for chunk in rest), TEXT * 20)


async def test_a_slow_readers_buffer_is_bounded_and_stalls_him_alone() -> None:
    sent = 0

    async def endless(talk: Talk) -> None:
        nonlocal sent
        await talk.start()
        while True:
            await talk.socket.send(bytes(range(256)) * 256)
            sent += 65_536

    peer = OmniPeer(endless)
    async with upstream(peer, buffer_bytes=262_144) as engine:
        chunks = engine.synthesize(SynthesisRequest(TEXT, final=True))
        await anext(chunks)
        (ahead,) = engine._under_way
        await until(lambda: ahead.held > 262_144)
        assert is_said(await heard(engine))
        assert ahead.held < 400_000
        await chunks.aclose()


async def test_more_requests_than_connections_wait_for_one() -> None:
    peer = OmniPeer()
    async with upstream(peer, max_connections=2) as engine:
        spoken = await asyncio.gather(*(heard(engine) for _ in range(8)))
        assert all(map(is_said, spoken))
        assert len(peer.headers) <= 3
        assert (engine.load().busy, engine.load().waiting) == (0, 0)


async def test_too_many_who_wait_are_refused() -> None:
    peer = OmniPeer(never_speaking)
    async with upstream(peer, max_connections=1, max_waiting=1) as engine:
        tasks = [asyncio.create_task(heard(engine)) for _ in range(2)]
        await until(lambda: engine.load().waiting == 1 == engine.load().busy)
        with pytest.raises(ServerBusy, match="1 wait"):
            await heard(engine)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert is_said(await heard(engine))


async def test_a_server_that_is_down_for_a_moment_is_waited_for() -> None:
    peer = OmniPeer()
    async with upstream(peer, reconnect_s=20.0) as engine:
        await peer.stop()
        task = asyncio.create_task(heard(engine))
        await until(lambda: engine.load().busy == 1)
        await peer.start()
        assert is_said(await task)


async def test_a_server_that_is_down_is_an_error_that_passes() -> None:
    peer = OmniPeer()
    async with upstream(peer) as engine:
        await peer.stop()
        with pytest.raises(EngineFailed, match="does not answer") as caught:
            await heard(engine)
        assert caught.value.retryable
        await peer.start()
        assert is_said(await heard(engine))
