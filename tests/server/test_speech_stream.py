"""An utterance for a client of another protocol."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import pytest

from qwen3tts_server.service import Service
from qwen3tts_server.settings import ServerSettings
from qwen3tts_server.speech_stream import SpeechStream
from qwen3tts_server.utterance import AlignedWords, AudioPiece, Utterance
from qwen3tts_wire.errors import BadRequest, EngineFailed, ServerBusy, SpeechError, UnknownVoice
from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.messages import ContextOpen, PlayoutReport
from tests.engine.fake_engine import CHAR_SAMPLES, FakeEngine, tone

PCM = AudioFormat()


class Noted:
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def opened(self, utterance: Utterance) -> None:
        self.told.append("opened")

    def reported(self, utterance: Utterance, report: PlayoutReport, now: float) -> None:
        self.told.append("reported")

    def ended(self, utterance: Utterance, outcome: str, now: float) -> None:
        self.told.append(f"ended {outcome}")

    def errored(self, code: str) -> None:
        self.told.append(f"errored {code}")


def speaking(
    engine: FakeEngine, noted: Noted | None = None, *, ahead_ms: float = 1000.0, **order: Any
) -> SpeechStream:
    opened = ContextOpen(context_id="a", context_no=1, **order)
    return SpeechStream(engine, opened, ServerSettings(ahead_ms=ahead_ms), noted)


async def started(engine: FakeEngine) -> FakeEngine:
    await engine.start()
    return engine


async def sound_of(each: SpeechStream) -> bytes:
    return b"".join([item.data async for item in each if isinstance(item, AudioPiece)])


async def collect(each: SpeechStream, into: list[AlignedWords | AudioPiece]) -> None:
    async for item in each:
        into.append(item)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_all_text_becomes_sound_and_words() -> None:
    engine, noted = await started(FakeEngine()), Noted()
    async with speaking(engine, noted) as said:
        said.append("abc de. ")
        said.append("fg")
        said.end()
        items = [item async for item in said]
    words = [word.text for item in items if isinstance(item, AlignedWords) for word in item.words]
    assert words == ["abc", "de.", "fg"]
    data = b"".join(item.data for item in items if isinstance(item, AudioPiece))
    assert data.startswith(tone("a") + tone("b") + tone("c"))
    assert len(data) == 2 * said.utterance.sent == 2 * said.utterance.generated
    assert noted.told == ["opened", "ended done"]


async def test_sound_comes_while_text_is_still_to_come() -> None:
    engine = await started(FakeEngine())
    async with speaking(engine) as said:
        said.append("abc. ")
        said.flush()
        first = await anext(said)
        assert isinstance(first, AlignedWords | AudioPiece)
        said.append("de")
        said.end()
        assert await sound_of(said)


@pytest.mark.parametrize(
    ("voice", "error"),
    [("fail", EngineFailed), ("fail-late", EngineFailed), ("crash", EngineFailed)],
)
async def test_what_breaks_in_the_engine_is_raised_after_its_sound(
    voice: str, error: type[SpeechError]
) -> None:
    engine, noted = await started(FakeEngine()), Noted()
    said = speaking(engine, noted, voice=voice)
    said.append("abcdefgh")
    said.end()
    data: list[AlignedWords | AudioPiece] = []
    with pytest.raises(error):
        await collect(said, data)
    await said.aclose()
    assert bool(data) == (voice != "fail")
    assert noted.told == ["opened", "errored engine_failed", "ended engine_failed"]


async def test_what_cannot_be_is_refused_before_anything_is_made() -> None:
    engine = await started(FakeEngine())
    with pytest.raises(UnknownVoice):
        speaking(engine, voice="unlisted")
    with pytest.raises(BadRequest):
        speaking(engine, format=AudioFormat("mulaw", 44100))


async def test_leaving_it_frees_the_engine_at_once() -> None:
    engine, noted = await started(FakeEngine()), Noted()
    async with speaking(engine, noted, voice="stall") as said:
        said.append("abcdefgh")
        said.end()
        await anext(said)
        assert engine.active == 1
    assert engine.active == 0
    assert noted.told == ["opened", "ended gone"]
    await said.aclose()
    assert [item async for item in said] == []


async def test_a_cancel_ends_the_iterator_and_the_engine() -> None:
    engine, noted = await started(FakeEngine()), Noted()
    async with speaking(engine, noted, voice="stall") as said:
        said.append("abcdefgh")
        said.end()
        reader = asyncio.create_task(sound_of(said))
        await settle()
        said.cancel()
        said.cancel()
        await settle()
        assert engine.active == 0
        await reader
    assert noted.told == ["opened", "ended cancelled"]


async def test_an_error_from_outside_is_raised_next() -> None:
    engine, noted = await started(FakeEngine()), Noted()
    said = speaking(engine, noted, voice="stall")
    said.append("abcdefgh")
    said.end()
    await anext(said)
    said.fail(ServerBusy("The server stops."))
    said.fail(ServerBusy("Again."))
    with pytest.raises(ServerBusy):
        await anext(said)
    await said.aclose()
    assert engine.active == 0
    assert noted.told == ["opened", "errored server_busy", "ended server_busy"]


async def test_the_engine_waits_for_a_slow_reader_and_goes_on() -> None:
    engine = await started(FakeEngine())
    text = "abcdefghij" * 20
    async with speaking(engine, ahead_ms=300) as said:
        said.append(text)
        said.end()
        await settle()
        held = said.utterance.generated
        assert held < 20 * CHAR_SAMPLES
        await settle()
        assert said.utterance.generated == held
        data = await sound_of(said)
    assert len(array("h", data)) == len(text) * CHAR_SAMPLES


async def test_a_drain_ends_what_is_still_said_at_its_deadline() -> None:
    service = Service(FakeEngine(), ServerSettings())
    await service.start()
    opened = ContextOpen(context_id="a", context_no=1, voice="stall")

    async def serve() -> None:
        with service.serving("test"):
            async with service.speaking(opened, "test") as said:
                said.append("abcdefgh")
                said.end()
                await sound_of(said)

    serving = asyncio.create_task(serve())
    await settle()
    assert service.connections == 1
    await service.drain(0.01)
    with pytest.raises(ServerBusy):
        await serving
    with pytest.raises(ServerBusy), service.serving("test"):
        pass
    await service.close()
