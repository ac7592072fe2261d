from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_phone.softphone import messages as protocol
from qwen3tts_phone.softphone.messages import ServerMessage
from qwen3tts_phone.softphone.page_speech import INTERVAL_S, Caption, Captions, TypedText, stages
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.line import Speaker
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import BadRequest, EngineFailed, LimitExceeded
from qwen3tts_wire.heard import Word
from tests.fakes import FakeClock, settle
from tests.speech.fakes import FakeClient, FakeContext, FakeSink


class Captioned:
    """A speaker whose captions are kept."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.sink = FakeSink()
        self.clock = FakeClock()
        self.told: list[ServerMessage] = []

        async def connect(url: str) -> FakeClient:
            return self.client

        link = SpeechLink("ws://test", connect=cast(Any, connect))
        self.speaker = Speaker(link, self.sink, PCMU, clock=self.clock)
        self.captions = Captions(self.told.append, self.clock)
        self.captions.follow(self.speaker)

    async def context(self) -> FakeContext:
        await settle(20)
        return self.client.contexts[-1]

    async def step(self) -> list[ServerMessage]:
        """Return the messages of the next tenth of a second."""
        self.told.clear()
        await self.clock.advance(INTERVAL_S)
        await settle(20)
        return list(self.told)


@pytest.fixture
async def captioned() -> AsyncIterator[Captioned]:
    made = Captioned()
    yield made
    await made.speaker.close()
    await made.captions.close()


async def test_captions_tell_the_text_then_the_words_then_how_far_it_is(
    captioned: Captioned,
) -> None:
    captioned.speaker.say("Good morning.")
    context = await captioned.context()
    context.start()
    assert [type(each) for each in await captioned.step()] == []
    assert captioned.told == []
    context.words = [Word("Good", 0, 2400, 0, 4), Word("morning.", 2400, 4800, 5, 13)]
    context.sound(200)
    told = await captioned.step()
    assert told == [
        protocol.Words(1, ((0, 4, 0, 2400), (5, 13, 2400, 4800)), 24_000),
        protocol.Heard(1, 0, captioned.clock.now() * 1000),
    ]
    await captioned.sink.play(5)
    told = await captioned.step()
    assert [each.position for each in told if isinstance(each, protocol.Heard)] == [2328]
    assert await captioned.step() == []  # nothing is new
    context.done()
    await captioned.step()
    await captioned.sink.play_all()
    last = (await captioned.step())[-1]
    assert isinstance(last, protocol.Spoken)
    assert (last.heard, last.remaining, last.interrupted) == ("Good morning.", "", False)


async def test_an_interruption_tells_what_was_heard_and_what_was_not(captioned: Captioned) -> None:
    captioned.speaker.say("Good morning.")
    context = await captioned.context()
    context.start()
    context.words = [Word("Good", 0, 2400, 0, 4), Word("morning.", 2400, 4800, 5, 13)]
    context.sound(200)
    await captioned.step()
    await captioned.sink.play(6)
    captioned.speaker.interrupt()
    last = (await captioned.step())[-1]
    assert isinstance(last, protocol.Spoken)
    assert last.interrupted
    assert last.heard + last.remaining == "Good morning."
    assert last.heard.strip() == "Good"


async def test_typed_words_bear_the_pages_number_and_grow(captioned: Captioned) -> None:
    words = TypedText(7, 100)
    words.put("Good ")
    captioned.captions.add(captioned.speaker.say(words), 7)
    await settle(20)
    assert captioned.told == [protocol.Utterance(1, "typed", "Good ", 7)]
    words.put("morning.")
    await settle(20)
    assert await captioned.step() == [protocol.Utterance(1, "typed", "Good morning.", 7)]
    words.end()


async def test_what_fails_is_told_with_what_helps(captioned: Captioned) -> None:
    captioned.speaker.say("Good morning.")
    context = await captioned.context()
    context.start()
    context.fail(EngineFailed("The engine broke.", remedy="Look at its log."))
    last = (await captioned.step())[-1]
    assert isinstance(last, protocol.Spoken)
    assert (last.error, last.remedy) == ("The engine broke.", "Look at its log.")


async def test_a_defect_in_what_gives_the_words_is_logged_without_them(
    captioned: Captioned, caplog: pytest.LogCaptureFixture
) -> None:
    said = "-".join(("what", "was", "said"))  # a traceback shows the lines of the code

    async def broken() -> AsyncIterator[str]:
        yield "Good "
        raise RuntimeError(said)

    captioned.speaker.say(broken())
    context = await captioned.context()
    context.start()
    context.done()
    last = (await captioned.step())[-1]
    assert isinstance(last, protocol.Spoken)
    assert last.error == "Internal error."
    assert "RuntimeError" in caplog.text
    assert said not in caplog.text


async def test_a_page_that_comes_back_is_told_all_of_it_again(captioned: Captioned) -> None:
    captioned.speaker.say("Good morning.")
    context = await captioned.context()
    context.words = [Word("Good", 0, 2400, 0, 4)]
    context.start()
    context.sound(100)
    await captioned.step()
    captioned.told.clear()
    captioned.captions.repeat()
    assert [each.type for each in captioned.told] == ["utterance", "words", "heard"]


async def test_nothing_runs_while_nothing_is_said(captioned: Captioned) -> None:
    assert await captioned.step() == []
    assert captioned.captions._steps is None
    await captioned.captions.close()
    captioned.speaker.say("Good morning.")
    assert await captioned.step() == []


def test_words_that_another_server_says_again_are_told_again() -> None:
    caption = Caption(1, "agent")
    words = [Word("a", 0, 10, 0, 1), Word("b", 10, 20, 2, 3)]
    caption.updates("a b", words, 5, 0.0)
    told = caption.updates("a b", words[:1], 5, 0.0)
    assert told == [protocol.Words(1, ((0, 1, 0, 10),), 24_000)]


def test_stages_count_from_the_first_mark() -> None:
    record = UtteranceRecord()
    assert stages(record) == {}
    record.mark(Mark.TEXT_IN, 10.0)
    record.mark(Mark.RECEIVED, 10.0505)
    assert stages(record) == {"text_in": 0.0, "received": 50.5}


async def all_of(words: TypedText) -> list[str]:
    return [text async for text in words]


async def test_words_come_as_they_are_typed_and_end_when_told() -> None:
    words = TypedText(1, 100)
    reading = asyncio.create_task(all_of(words))
    words.put("Good ")
    await settle()
    words.put("morn")
    words.put("ing.")
    await settle()
    assert not reading.done()
    words.end()
    words.end()
    assert await reading == ["Good ", "morning."]


async def test_what_was_typed_before_anybody_reads_is_not_lost() -> None:
    words = TypedText(1, 100)
    words.put("Good ")
    words.put("morning.")
    words.end()
    assert await all_of(words) == ["Good morning."]


def test_too_much_is_refused_and_nothing_of_it_taken() -> None:
    words = TypedText(1, 10)
    words.put("12345678")
    with pytest.raises(LimitExceeded, match="at most 10"):
        words.put("901")
    words.put("90")
    assert words.take() == "1234567890"


def test_what_has_ended_takes_no_more() -> None:
    words = TypedText(1, 10)
    words.end()
    with pytest.raises(BadRequest):
        words.put("a")
