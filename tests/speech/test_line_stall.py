"""A server that answers late, or never, and a voice that is chosen when the connection is there."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_speech.line import ChooseVoice, Speaker, Utterance, VoiceOptions
from qwen3tts_speech.link import SpeechLink
from qwen3tts_speech.watchdog import StallWatchdog
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import ConnectionLost, UnknownVoice
from tests.fakes import FakeClock, settle
from tests.speech.fakes import FakeClient, FakeContext, FakeSink
from tests.speech.test_line import words, writes


class Line:
    """A speaker that waits 4 s for a fake server, which may be there later."""

    def __init__(self, stall_s: float | None = 4.0) -> None:
        self.clients = [FakeClient(), FakeClient()]
        self.connected = asyncio.Event()
        self.connected.set()
        self.away: Exception | None = None
        self.count = 0
        self.sink = FakeSink()
        self.clock = FakeClock()
        self.link = SpeechLink("ws://test", connect=cast(Any, self._connect))
        self.speaker = Speaker(self.link, self.sink, PCMU, clock=self.clock, stall_s=stall_s)

    async def _connect(self, url: str) -> FakeClient:
        await self.connected.wait()
        if self.away is not None:
            raise self.away
        self.count += 1
        return self.clients[self.count - 1]

    async def context(self, number: int = 1, client: int = 1) -> FakeContext:
        await settle(20)
        return self.clients[client - 1].contexts[number - 1]

    async def pass_by(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            await self.clock.advance(0.1)


async def stalls(utterance: Utterance) -> None:
    await settle(20)
    with pytest.raises(ConnectionLost, match="has not answered for 4 s") as caught:
        await utterance.spoken()
    assert caught.value.remedy


async def test_a_server_that_never_answers_a_context_ends_the_utterance_in_time() -> None:
    line = Line()
    utterance = line.speaker.say("Good morning.")
    context = await line.context()
    context.start()
    await line.pass_by(4.0)
    assert line.speaker.speaking
    await line.pass_by(0.2)
    await stalls(utterance)
    assert context.cancelled_at == [None]
    assert utterance.outcome().remaining == "Good morning."
    assert utterance.outcome().record.end_reason == "connection_lost"
    assert not line.speaker.speaking


async def test_after_a_stall_the_next_utterance_goes_on_another_connection() -> None:
    line = Line()
    utterance = line.speaker.say("Good morning.")
    await line.context()
    await line.pass_by(4.2)
    await stalls(utterance)
    line.speaker.say("Again.")
    assert (await line.context(client=2)).text == "Again."
    assert not line.clients[0].closed, "what others say on it may go on"
    line.speaker.interrupt()
    await line.link.close()
    assert all(client.closed for client in line.clients)


async def test_sound_that_ends_in_the_middle_is_played_out_and_the_rest_is_known() -> None:
    line = Line()
    text = "one two three four"
    utterance = line.speaker.say(text)
    context = await line.context()
    context.words = words(text, 100)[:2]
    context.sound(200)
    await settle(20)
    await line.sink.play(5)
    await line.pass_by(10)
    assert line.speaker.speaking, "sound that lies here is no silence"
    await line.sink.play_all()
    await line.pass_by(4.2)
    await line.sink.play_all()
    await stalls(utterance)
    spoken = utterance.outcome()
    assert (spoken.heard, spoken.remaining) == ("one two", " three four")
    assert 1 in line.sink.finished


async def test_sound_that_ends_in_the_middle_goes_on_at_another_address_where_there_is_one() -> (
    None
):
    line = Line()
    line.clients[0].elsewhere = True
    utterance = line.speaker.say("one two three four")
    context = await line.context()
    context.words = words("one two three four", 100)
    context.sound(200)
    await settle(20)
    await line.sink.play_all()
    await line.pass_by(4.2)
    assert line.clients[0].rerouted == [context]
    await line.pass_by(3.5)
    context.sound(200)
    context.done()
    await settle(20)
    await line.sink.play_all()
    await line.pass_by(0.3)
    assert (await utterance.spoken()).remaining == ""
    assert line.clients[0].rerouted == [context]


async def test_a_model_that_pauses_in_a_sentence_is_no_stall_and_a_long_sentence_is_owed() -> None:
    line = Line()
    go_on = asyncio.Event()

    async def model() -> AsyncIterator[str]:
        yield "Let me see, "
        await go_on.wait()
        yield "and so on " * 20
        await asyncio.Event().wait()

    utterance = line.speaker.say(model())
    await line.context()
    await line.pass_by(30)
    assert line.speaker.speaking
    go_on.set()
    await settle(20)
    await line.pass_by(4.2)
    await stalls(utterance)


async def test_a_model_that_pauses_after_what_was_said_of_its_words_is_no_stall() -> None:
    line = Line()
    text = "so and so " * 30

    async def model() -> AsyncIterator[str]:
        yield text
        await asyncio.Event().wait()

    utterance = line.speaker.say(model())
    context = await line.context()
    context.sound(100)
    await settle(20)
    await line.sink.play_all()
    await line.pass_by(10)
    assert line.speaker.speaking, "how much is said is not known without words"
    context.words = words(text, 1)
    await line.pass_by(10)
    assert line.speaker.speaking
    context.words = words(text, 1)[:3]
    await line.pass_by(4.2)
    await line.sink.play_all()
    await stalls(utterance)


async def test_an_utterance_that_waits_for_its_turn_does_not_stall() -> None:
    line = Line()
    first, second = line.speaker.say("One."), line.speaker.say("Two.")
    early = await line.context(1)
    for _ in range(10):
        early.sound(1000)
        await line.pass_by(1)
        await line.sink.play_all()
    assert len(line.speaker.interrupt()) == 2, "it is only its turn then"
    for each in (first, second):
        assert (await each.spoken()).interrupted


async def test_sound_that_is_done_and_still_played_is_no_stall() -> None:
    line = Line()
    utterance = line.speaker.say("A long one.")
    context = await line.context()
    context.sound(2000)
    context.done()
    await settle(20)
    await line.sink.play(98)
    await line.pass_by(10)
    assert line.speaker.speaking
    await line.sink.play_all()
    assert (await utterance.spoken()).position == 48_000


async def test_without_a_bound_a_server_may_think_for_ever() -> None:
    line = Line(stall_s=None)
    utterance = line.speaker.say("Good morning.")
    context = await line.context()
    await line.pass_by(60)
    context.sound(20)
    context.done()
    await settle(20)
    await line.sink.play_all()
    assert (await utterance.spoken()).position == 480


def test_a_bound_that_is_no_time_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="stall_s"):
        Line(stall_s=0.0)


# --- a choice that waits for the connection ---


async def test_the_voice_is_chosen_once_the_connection_is_there_and_the_text_waits_for_it() -> None:
    line = Line()
    line.connected.clear()
    asked: list[SpeechClient] = []
    known = asyncio.Event()

    async def choose(client: SpeechClient) -> VoiceOptions:
        asked.append(client)
        await known.wait()
        return VoiceOptions("anna", "de", {"speed": 1.1})

    chosen: ChooseVoice = choose
    utterance = line.speaker.say(writes("Guten ", "Tag."), chosen)
    await settle(20)
    assert not asked
    assert utterance.text == "Guten Tag."
    line.connected.set()
    await settle(20)
    client = line.clients[0]
    assert asked == [cast(Any, client)]
    assert not client.contexts
    known.set()
    context = await line.context()
    assert client.options == [{"voice": "anna", "language": "de", "speed": 1.1}]
    assert (context.text, context.ended) == ("Guten Tag.", True)
    line.speaker.interrupt()
    assert (await utterance.spoken()).interrupted


async def test_a_choice_that_fails_ends_the_utterance_with_its_error() -> None:
    line = Line()

    async def choose(client: SpeechClient) -> VoiceOptions:
        raise UnknownVoice("no such voice")

    utterance = line.speaker.say("Hello.", choose)
    with pytest.raises(UnknownVoice):
        await utterance.spoken()
    assert utterance.outcome().remaining == "Hello."
    assert not line.clients[0].contexts


async def test_a_choice_that_never_comes_back_is_a_stall() -> None:
    line = Line()

    async def choose(client: SpeechClient) -> VoiceOptions:
        await asyncio.Event().wait()
        raise AssertionError

    utterance = line.speaker.say("Hello.", choose)
    await settle(20)
    await line.pass_by(4.2)
    await stalls(utterance)
    assert utterance.outcome().remaining == "Hello."


async def test_without_a_server_the_text_that_had_come_is_in_what_remains() -> None:
    line = Line()
    line.connected.clear()
    line.away = ConnectionLost("no server there")
    pause = asyncio.Event()

    async def model() -> AsyncIterator[str]:
        yield "One "
        yield "two "
        await pause.wait()
        yield "never taken"

    utterance = line.speaker.say(model())
    await settle(20)
    line.connected.set()
    with pytest.raises(ConnectionLost, match="no server"):
        await utterance.spoken()
    spoken = utterance.outcome()
    assert (spoken.heard, spoken.remaining, spoken.interrupted) == ("", "One two ", False)


async def test_an_interruption_while_the_connection_is_awaited_ends_it_at_once() -> None:
    line = Line()
    line.connected.clear()
    utterance = line.speaker.say("Hello.")
    await settle(20)
    line.speaker.interrupt()
    spoken = await utterance.spoken()
    assert (spoken.interrupted, spoken.remaining) == (True, "Hello.")
    line.connected.set()
    following = line.speaker.say("Again.")
    assert (await line.context()).text == "Again."
    line.speaker.interrupt()
    await following.spoken()


class Looker:
    """Looks ten times a second."""

    def __init__(self, most_s: float | None = 4.0) -> None:
        self.watchdog = StallWatchdog(most_s)
        self.now = 100.0
        self.look()

    def look(self, *, owed: bool = True, sounds: int = 0) -> bool:
        return self.watchdog.expired(self.now, owed=owed, sounds=sounds)

    def spent_within(self, seconds: float, *, owed: bool = True, sounds: int = 0) -> bool:
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            if self.look(owed=owed, sounds=sounds):
                return True
        return False


def test_it_is_spent_when_sound_is_owed_and_none_comes_for_so_long() -> None:
    looker = Looker()
    assert not looker.spent_within(3.9)
    assert looker.spent_within(0.2)


def test_sound_begins_it_anew() -> None:
    looker = Looker()
    assert not looker.spent_within(3.9)
    assert not looker.spent_within(3.9, sounds=480)
    assert looker.spent_within(0.3, sounds=480)


def test_time_in_which_nothing_is_owed_does_not_count() -> None:
    looker = Looker()
    assert not looker.spent_within(100, owed=False)
    assert not looker.spent_within(3.9)
    assert looker.spent_within(0.2)


def test_time_in_which_nobody_looked_hardly_counts() -> None:
    looker = Looker()
    looker.now += 60
    assert not looker.look()
    assert not looker.spent_within(3.7)
    assert looker.spent_within(0.2)


def test_without_a_bound_it_has_no_end() -> None:
    assert not Looker(None).spent_within(600)


@pytest.mark.parametrize("stall_s", [0, -1, math.nan])
def test_what_is_no_time_is_refused(stall_s: float) -> None:
    with pytest.raises(ValueError, match="stall_s"):
        StallWatchdog(stall_s)
