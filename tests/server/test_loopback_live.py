"""Live text and voices over a real socket on 127.0.0.1."""

from __future__ import annotations

import asyncio

import pytest

from qwen3tts_wire.client import Alignment, Audio, Done, Started
from qwen3tts_wire.errors import BadRequest, ConnectionLost, LimitExceeded
from tests.engine.fake_engine import CHAR_SAMPLES, CloningEngine, FakeEngine, tone
from tests.fakes import settle
from tests.server.test_loopback import all_of, idle, sound, talking

pytestmark = pytest.mark.network


async def test_live_text_is_spoken_word_by_word_while_it_is_written() -> None:
    async with talking(FakeEngine(live=True), pause_flush_ms=0) as (_, _, client):
        context = await client.open(mode="live")
        heard = 0
        for number, word in enumerate(["It", " is", " spoken", " at", " once"]):
            await context.append(word)
            # A word is certain when the next one has begun.
            certain = len("It is spoken at once"[: len(context.text)].rpartition(" ")[0])
            while heard < certain - certain % 2 and number:
                event = await anext(context)
                if isinstance(event, Audio):
                    heard += len(event.pcm) // 2 // CHAR_SAMPLES
        await context.end()
        await all_of(context)
    assert context.done is not None
    assert (context.done.samples, context.done.clauses) == (20 * CHAR_SAMPLES, 1)
    assert [context.text[w.char_start : w.char_end] for w in context.words] == context.text.split()


@pytest.mark.parametrize("mode", ["auto", "clause", "live"])
async def test_every_mode_says_the_same_text(mode: str) -> None:
    text = "Good morning to you, dear **caller**. This is the line."
    async with talking(FakeEngine(live=True)) as (engine, _, client):
        context = await client.open(mode=mode)
        for char in text:
            await context.append(char)
        await context.end()
        events = await all_of(context)
    assert isinstance(events[0], Started)
    assert events[0].mode == mode
    spoken = [
        "Good morning to you, dear caller. This is the line."
        if mode == "live"
        else "Good morning to you,",
        *([] if mode == "live" else ["dear caller.", "This is the line."]),
    ]
    assert sound(events) == b"".join(map(tone, "".join(spoken)))
    lives = [request.more is not None for request in engine.requests]
    assert lives == {"auto": [True, False, False], "clause": [False] * 3, "live": [True]}[mode]
    words = [w for e in events if isinstance(e, Alignment) for w in e.words]
    assert [w.text for w in words] == "".join(f"{each} " for each in spoken).split()
    assert isinstance(events[-1], Done)


async def test_a_pause_in_live_text_lets_its_last_word_be_heard() -> None:
    async with talking(FakeEngine(live=True), pause_flush_ms=20) as (engine, _, client):
        context = await client.open(mode="live")
        await context.append("One moment please")
        while context.received < 17 * CHAR_SAMPLES:
            await anext(context)
        await context.append(" and now it is there")
        await context.end()
        await all_of(context)
    assert context.done is not None
    assert (context.done.clauses, context.done.reason) == (2, "text_end")
    assert len(engine.requests) == 2


async def test_an_engine_that_ran_dry_goes_on_with_what_comes_later() -> None:
    async with talking(FakeEngine(live=True), pause_flush_ms=0) as (engine, _, client):
        context = await client.open(mode="live")
        await context.append("One moment please")
        while not engine.starved:
            await settle()
        engine.dry()
        await idle(engine)
        await context.append(", and now it is there.")
        await context.end()
        events = await all_of(context)
    assert sound(events) == b"".join(map(tone, "One moment pleaseand now it is there."))
    assert context.done is not None
    assert (context.done.clauses, context.done.reason) == (2, "dry")


async def test_a_cancel_frees_an_engine_that_waits_for_text() -> None:
    async with talking(FakeEngine(live=True), pause_flush_ms=0) as (engine, _, client):
        context = await client.open(mode="live")
        await context.append("One moment please")
        while not engine.starved:
            await settle()
        answer = await context.cancel(0)
        assert answer.confirmed
        await idle(engine)
        assert engine.cancelled == 1


async def test_a_voice_is_loaded_and_may_be_asked_for_again() -> None:
    engine = CloningEngine()
    async with talking(engine) as (_, _, client):
        audio = bytes(1_500_000)
        ready = await client.load_voice(audio, "Hello there.")
        assert (ready.voice_id, ready.cached, ready.ref_text) == (
            "voice-1500000",
            False,
            "Hello there.",
        )
        again = await client.load_voice(voice_id=ready.voice_id)
        assert again.cached
    assert engine.loads[0] == (None, audio, "Hello there.", False)


async def test_a_voice_that_cannot_be_loaded_raises_here_and_ends_nothing() -> None:
    async with talking() as (_, _, client):
        with pytest.raises(BadRequest, match="makes no voices"):
            await client.load_voice(b"RIFF")
        with pytest.raises(LimitExceeded, match="larger than"):
            await client.load_voice(bytes(1_600_000))
        context = await client.open()
        await context.append("Hello.")
        await context.end()
        assert sound(await all_of(context))


async def test_a_voice_that_is_waited_for_fails_with_the_connection() -> None:
    engine = CloningEngine()
    engine.gate.clear()
    async with talking(engine) as (_, _, client):
        waiting = asyncio.create_task(client.load_voice(voice_id="a"))
        while not engine.loads:
            await settle()
        await client.close()
        with pytest.raises(ConnectionLost):
            await waiting
        with pytest.raises(ConnectionLost):
            await client.load_voice(voice_id="a")
