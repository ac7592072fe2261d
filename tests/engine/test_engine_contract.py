"""What every engine must do. An engine joins by a line in ENGINES."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_engine.base import SAMPLE_RATE, Engine, PcmChunk, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings
from qwen3tts_engine.piper.engine import PiperEngine, PiperSettings
from qwen3tts_engine.starter.engine import StarterEngine, StarterSettings
from qwen3tts_wire.errors import BadRequest, EngineFailed, EngineUnavailable, UnknownVoice
from qwen3tts_wire.heard import Word
from tests.conftest import require_package
from tests.engine.fake_engine import FakeEngine
from tests.engine.piper.tiny_vits import LOW, write_voice
from tests.engine.upstream.peers import OmniPeer, Peered, RestPeer


def qwen3(request: pytest.FixtureRequest) -> Engine:
    """Of a tiny checkpoint, which speaks and ends by itself, though without intelligible words."""
    require_package("torch", "pip install 'mr_qwen3tts[qwen3]'")
    from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
    from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings

    folder: Path = request.getfixturevalue("tiny_checkpoint")
    return Qwen3Engine(Qwen3Settings(str(folder), positions=4096))


def piper(request: pytest.FixtureRequest) -> Engine:
    """Of a tiny voice at 16 kHz, which speaks noise in the time of words."""
    folder: Path = request.getfixturevalue("tiny_voice")
    return PiperEngine(PiperSettings(voices=(str(folder),), workers=1))


@pytest.fixture(scope="session")
def tiny_voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("piper")
    write_voice(folder, LOW)
    return folder


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tiny_models.checkpoint import make_tiny

    return make_tiny(tmp_path_factory.mktemp("tiny"))["custom_voice"]


ENGINES: dict[str, Callable[[pytest.FixtureRequest], Engine]] = {
    "fake": lambda _: FakeEngine(),
    "embedded": lambda _: EmbeddedEngine(EmbeddedSettings(workers=2)),
    "piper": piper,
    "qwen3": qwen3,
    "starters": lambda _: StarterEngine(
        FakeEngine(), StarterSettings(phrases=(TEXT, "Good morning,"), remember=True)
    ),
    "upstream_ws": lambda _: Peered(OmniPeer()),
    "upstream_http": lambda _: Peered(RestPeer()),
}
TEXT = "Good morning, this is the line. It works today."
WORDS = ["Good", "morning", "this", "is", "the", "line", "It", "works", "today"]


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.network) if name.startswith("upstream") else name
        for name in ENGINES
    ]
)
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    made = ENGINES[request.param](request)
    await made.start()
    yield made
    await made.close()


async def spoken(engine: Engine, text: str, **fields: Any) -> list[PcmChunk]:
    request = SynthesisRequest(text, **fields)
    return [chunk async for chunk in engine.synthesize(request)]


def words_of(chunks: list[PcmChunk]) -> list[Word]:
    return [word for chunk in chunks for word in chunk.words]


async def test_it_says_what_it_is(engine: Engine) -> None:
    assert engine.name
    assert engine.model
    assert engine.sample_rate == SAMPLE_RATE


async def test_starting_twice_is_starting_once(engine: Engine) -> None:
    await engine.start()
    assert words_of(await spoken(engine, TEXT))


async def test_it_can_be_started_again_after_its_close(engine: Engine) -> None:
    await engine.close()
    await engine.close()
    await engine.start()
    assert words_of(await spoken(engine, TEXT))


async def test_it_refuses_to_speak_before_its_start(engine: Engine) -> None:
    await engine.close()
    with pytest.raises(EngineUnavailable) as caught:
        await spoken(engine, TEXT)
    assert caught.value.remedy


async def test_every_voice_on_offer_may_be_chosen(engine: Engine) -> None:
    voices = engine.voices()
    assert voices
    assert len({voice.id for voice in voices}) == len(voices)
    for voice in voices:
        engine.check(voice.id, None)
        engine.check(voice.id, voice.language)
        engine.check(None, voice.language)


async def test_the_sound_is_whole_samples_and_not_silence(engine: Engine) -> None:
    chunks = await spoken(engine, TEXT)
    assert all(len(chunk.pcm) % 2 == 0 for chunk in chunks)
    sound = b"".join(chunk.pcm for chunk in chunks)
    assert len(sound) > SAMPLE_RATE
    assert any(sound)


async def test_every_word_is_told_once_in_order_without_overlap(engine: Engine) -> None:
    words = words_of(await spoken(engine, TEXT))
    assert [word.text.strip(".,") for word in words] == WORDS
    assert all(word.start < word.end for word in words)
    assert all(one.end <= next_.start for one, next_ in itertools.pairwise(words))


async def test_a_word_is_told_with_its_last_sample_and_not_before(engine: Engine) -> None:
    given = 0
    async with aclosing(engine.synthesize(SynthesisRequest(TEXT))) as chunks:
        async for chunk in chunks:
            given += chunk.samples
            assert all(word.end <= given for word in chunk.words)


async def test_words_lie_where_they_lie_in_the_text(engine: Engine) -> None:
    for word in words_of(await spoken(engine, TEXT)):
        assert TEXT[word.char_start : word.char_end] == word.text


async def test_words_lie_where_they_lie_in_the_original_text(engine: Engine) -> None:
    original = "..**Good** _morning_, this"
    text = "Good morning, this"
    offsets = (*range(4, 8), 10, *range(12, 19), *range(20, 27))
    words = words_of(await spoken(engine, text, offsets=offsets))
    found = [original[word.char_start : word.char_end].strip(",_") for word in words]
    assert found == ["Good", "morning", "this"]


@pytest.mark.parametrize("text", ["", " ", "\n", "...", "?!", " \u2013 "])
async def test_a_text_with_nothing_to_say_ends_without_sound(engine: Engine, text: str) -> None:
    assert await spoken(engine, text) == []


async def test_an_unknown_voice_is_refused_with_a_remedy(engine: Engine) -> None:
    with pytest.raises(UnknownVoice) as caught:
        engine.check("no such voice", None)
    assert caught.value.remedy
    with pytest.raises(UnknownVoice):
        await spoken(engine, TEXT, voice="no such voice")


async def test_an_unknown_language_is_refused(engine: Engine) -> None:
    with pytest.raises(UnknownVoice):
        engine.check(None, "qq")
    with pytest.raises(UnknownVoice):
        await spoken(engine, TEXT, language="qq")


@pytest.mark.parametrize("speed", [0.0, 0.49, 2.51, -1.0, float("nan"), float("inf")])
def test_a_speed_out_of_range_is_no_request(speed: float) -> None:
    with pytest.raises(BadRequest, match="out of range"):
        SynthesisRequest("x", speed=speed)


@pytest.mark.parametrize("frames", [0, -1, 101])
def test_a_first_chunk_out_of_range_is_no_request(frames: int) -> None:
    with pytest.raises(BadRequest, match="out of range"):
        SynthesisRequest("x", initial_codec_chunk_frames=frames)


def test_offsets_that_do_not_fit_the_text_are_no_request() -> None:
    with pytest.raises(ValueError, match="2 offsets for a text of 2"):
        SynthesisRequest("ab", offsets=(0, 1))


async def test_a_cancelled_request_gives_no_more_and_disturbs_no_other(engine: Engine) -> None:
    other = engine.synthesize(SynthesisRequest(TEXT))
    first = [await anext(other)]
    cancelled = engine.synthesize(SynthesisRequest(TEXT))
    await anext(cancelled)
    await cancelled.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(cancelled)
    first += [chunk async for chunk in other]
    assert len(words_of(first)) == len(WORDS)


async def test_a_request_that_was_never_read_costs_nothing(engine: Engine) -> None:
    unread = engine.synthesize(SynthesisRequest(TEXT))
    assert len(words_of(await spoken(engine, TEXT))) == len(WORDS)
    await unread.aclose()


async def test_a_reader_who_stalls_holds_back_no_other(engine: Engine) -> None:
    stalled = [engine.synthesize(SynthesisRequest(TEXT)) for _ in range(8)]
    for chunks in stalled:
        await anext(chunks)
    async with asyncio.timeout(60):
        assert len(words_of(await spoken(engine, TEXT))) == len(WORDS)
    for chunks in stalled:
        rest = [chunk async for chunk in chunks]
        assert words_of(rest)[-1].text.strip(".") == "today"


async def test_many_at_once_are_each_said_whole(engine: Engine) -> None:
    texts = [f"{TEXT} Number {number}." for number in range(1, 25)]
    async with asyncio.timeout(120):
        all_chunks = await asyncio.gather(*(spoken(engine, text) for text in texts))
    for text, chunks in zip(texts, all_chunks, strict=True):
        words = [word.text.strip(".,") for word in words_of(chunks)]
        assert words == [word.strip(".,") for word in text.split()]


async def test_its_close_ends_what_is_under_way_with_an_error(engine: Engine) -> None:
    chunks = engine.synthesize(SynthesisRequest(f"{TEXT} " * 20))
    await anext(chunks)
    await engine.close()
    with pytest.raises(EngineFailed):
        [_ async for _ in chunks]
