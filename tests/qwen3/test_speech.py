from __future__ import annotations

import pytest

from qwen3tts_engine.qwen3.api_speech import Speech, SpeechOptions
from qwen3tts_wire.errors import EngineFailed, UnknownVoice
from tests.engine.fake_engine import CHAR_SAMPLES, FakeEngine
from tests.fakes import settle


@pytest.fixture
async def engine() -> FakeEngine:
    made = FakeEngine()
    await made.start()
    return made


async def rest(speech: Speech) -> int:
    samples = 0
    while (chunk := await speech.next()) is not None:
        samples += chunk.samples
    return samples


async def test_the_next_piece_is_begun_before_the_last_is_read(engine: FakeEngine) -> None:
    speech = Speech(engine, "clause", SpeechOptions(voice="tone", seed=3), ahead=10**6)
    speech.append("Good morning to you. This is the line. ")
    speech.end()
    await settle(100)
    assert [request.text for request in engine.requests] == [
        "Good morning to you.",
        "This is the line.",
    ]
    assert {request.seed for request in engine.requests} == {3}
    assert [request.continued for request in engine.requests] == [False, True]
    assert await rest(speech) == (20 + 17) * CHAR_SAMPLES
    assert speech.closed


async def test_no_more_is_made_than_may_wait(engine: FakeEngine) -> None:
    speech = Speech(engine, "clause", SpeechOptions(voice="tone"), ahead=5 * CHAR_SAMPLES)
    speech.append("Good morning to you. This is the line. ")
    speech.end()
    await settle(100)
    assert len(engine.requests) == 1
    assert await rest(speech) == (20 + 17) * CHAR_SAMPLES


async def test_it_waits_for_text(engine: FakeEngine) -> None:
    speech = Speech(engine, "clause", SpeechOptions(voice="tone"), ahead=10**6)
    await settle()
    assert engine.requests == []
    speech.append("Good morning. ")
    await settle()
    speech.end()
    assert await rest(speech) == 13 * CHAR_SAMPLES


async def test_what_was_made_before_an_error_is_read_before_it(engine: FakeEngine) -> None:
    speech = Speech(engine, "clause", SpeechOptions(voice="fail-late"), ahead=10**6)
    speech.append("Good morning.")
    speech.end()
    assert await speech.next() is not None
    with pytest.raises(EngineFailed):
        await rest(speech)
    await speech.close()


async def test_who_closes_cancels(engine: FakeEngine) -> None:
    speech = Speech(engine, "clause", SpeechOptions(voice="stall"), ahead=10**6)
    speech.append("Good morning.")
    speech.end()
    await speech.next()
    await speech.close()
    assert engine.cancelled == 1
    with pytest.raises(UnknownVoice):
        Speech(engine, "auto", SpeechOptions(voice="nobody"), ahead=1)
