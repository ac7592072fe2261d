"""What every engine must do that takes text while it speaks, beside test_engine_contract.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from qwen3tts_engine.base import Engine, PcmChunk, SynthesisRequest
from qwen3tts_text.growing import LiveText
from tests.engine import test_engine_contract as contract
from tests.engine.fake_engine import FakeEngine

tiny_checkpoint = contract.tiny_checkpoint
TEXT = contract.TEXT
WORDS = contract.WORDS
OPTIONS = {
    *("instructions", "sampling", "seed", "initial_codec_chunk_frames"),
    *("lead", "speed", "layout"),
}


@pytest.fixture(params=["fake", "qwen3"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    made: Engine = FakeEngine(live=True) if request.param == "fake" else contract.qwen3(request)
    await made.start()
    yield made
    await made.close()


def live_request(text: str) -> tuple[SynthesisRequest, LiveText]:
    more = LiveText()
    return SynthesisRequest(text, offsets=tuple(range(len(text) + 1)), more=more), more


def push(more: LiveText, text: str, at: int) -> bool:
    return more.push(text, range(at, at + len(text) + 1))


def words(chunks: list[PcmChunk]) -> list[str]:
    told = [word for chunk in chunks for word in chunk.words]
    return [TEXT[word.char_start : word.char_end].strip(".,") for word in told]


async def test_it_says_how_its_voices_take_text_and_what_it_knows(engine: Engine) -> None:
    assert engine.options <= OPTIONS
    for voice in (None, *(each.id for each in engine.voices())):
        assert "clause" in engine.modes(voice)
    assert "live" in engine.modes(None)


async def test_text_that_comes_in_words_is_said_whole_and_told_where_it_lies(
    engine: Engine,
) -> None:
    request, more = live_request("Good morning,")
    at = len(request.text)
    chunks = []
    async with asyncio.timeout(60), aclosing(engine.synthesize(request)) as speech:
        async for chunk in speech:
            chunks.append(chunk)
            if at < len(TEXT):
                assert push(more, TEXT[at : at + 3], at)
                at += 3
                if at >= len(TEXT):
                    more.end()
    assert words(chunks) == WORDS
    assert chunks[-1].end is not None
    assert more.ended


async def test_text_that_has_ended_before_is_said_whole(engine: Engine) -> None:
    request, more = live_request(TEXT[:10])
    push(more, TEXT[10:], 10)
    more.end()
    async with asyncio.timeout(60):
        chunks = [chunk async for chunk in engine.synthesize(request)]
    assert words(chunks) == WORDS


async def test_one_that_waits_for_text_can_be_cancelled_and_holds_back_no_other(
    engine: Engine,
) -> None:
    request, more = live_request("Good morning, this is")
    waiting = engine.synthesize(request)
    await anext(waiting)
    async with asyncio.timeout(60):
        others = [SynthesisRequest(TEXT) for _ in range(2)]
        for other in others:
            assert words([chunk async for chunk in engine.synthesize(other)]) == WORDS
    await waiting.aclose()
    push(more, " too late", 21)
    more.end()


async def test_an_end_that_comes_alone_is_the_end(engine: Engine) -> None:
    request, more = live_request("Good morning, this is")
    speech = engine.synthesize(request)
    chunks = [await anext(speech)]
    more.end()
    async with asyncio.timeout(60):
        chunks += [chunk async for chunk in speech]
    assert words(chunks) == WORDS[:4]
