from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_speech.latency import Mark
from qwen3tts_speech.line import Speaker
from qwen3tts_speech.link import SpeechLink
from qwen3tts_speech.sink import Interruption
from qwen3tts_wire.errors import BadText, ConnectionLost, EngineFailed
from qwen3tts_wire.heard import Word
from tests.fakes import FakeClock, settle
from tests.speech.fakes import FakeClient, FakeContext, FakeSink


class Line:
    """A speaker between a fake connection and a fake sink."""

    def __init__(self, **sink: Any) -> None:
        self.client = FakeClient()
        self.sink = FakeSink(**sink)
        self.clock = FakeClock()

        async def connect(url: str) -> FakeClient:
            return self.client

        link = SpeechLink("ws://test", connect=cast(Any, connect))
        self.speaker = Speaker(link, self.sink, PCMU, clock=self.clock)

    async def context(self, number: int = 1) -> FakeContext:
        await settle(20)
        return self.client.contexts[number - 1]


async def writes(*deltas: str, error: Exception | None = None) -> AsyncIterator[str]:
    for delta in deltas:
        yield delta
    if error is not None:
        raise error


def words(text: str, ms: int) -> list[Word]:
    """Each word lasts so many ms."""
    found, at = [], 0
    for index, word in enumerate(text.split()):
        at = text.index(word, at)
        found.append(Word(word, index * 24 * ms, (index + 1) * 24 * ms, at, at + len(word)))
    return found


async def test_sound_becomes_frames_whose_positions_tile_the_utterance() -> None:
    line = Line()
    utterance = line.speaker.say(writes("Good ", "", "morning."))
    context = await line.context()
    context.start()
    context.sound(55)
    context.sound(45)
    context.done()
    await settle(20)
    assert context.text == "Good morning."
    assert context.ended
    assert [(frame.start, frame.end) for frame in line.sink.frames] == [
        (0, 408),
        (408, 888),
        (888, 1368),
        (1368, 1848),
        (1848, 2328),
        (2328, 2400),
    ]
    await line.sink.play_all()
    spoken = await utterance.spoken()
    assert (spoken.position, spoken.interrupted) == (2400, False)
    assert spoken.record.end_reason == "text_end"
    assert not line.speaker.speaking


async def test_utterances_follow_each_other_though_the_later_ones_sound_comes_first() -> None:
    line = Line()
    first, second = line.speaker.say("One."), line.speaker.say("Two.")
    early, late = await line.context(2), await line.context(1)
    assert early.text == "Two.", "its text is sent immediately"
    early.sound(40)
    early.done()
    await settle(20)
    assert not line.sink.frames
    late.sound(40)
    late.done()
    await settle(20)
    assert [frame.context for frame in line.sink.frames] == [1, 1, 1, 2, 2, 2]
    await line.sink.play_all()
    await first.spoken()
    await second.spoken()


async def test_a_failure_in_the_middle_does_not_let_a_later_utterance_overtake() -> None:
    line = Line()
    utterances = [line.speaker.say(text) for text in ("One.", "Two.", "Three.")]
    contexts = [await line.context(number) for number in (1, 2, 3)]
    contexts[1].fail(EngineFailed("broken"))
    contexts[2].sound(40)
    contexts[2].done()
    await settle(20)
    assert not line.sink.frames
    contexts[0].sound(40)
    contexts[0].done()
    await settle(20)
    await line.sink.play_all()
    await utterances[0].spoken()
    with pytest.raises(EngineFailed):
        await utterances[1].spoken()
    await utterances[2].spoken()
    assert [frame.context for frame in line.sink.frames] == [1, 1, 1, 3, 3, 3]


async def test_an_interruption_silences_the_sink_first_and_tells_what_was_heard() -> None:
    line = Line()
    text = "one two three four five"
    utterance = line.speaker.say(text)
    context = await line.context()
    context.words = words(text, 100)
    context.sound(300)
    await settle(20)
    await line.sink.play(11)
    stopped = line.speaker.interrupt()
    assert line.sink.log[-1] == "interrupt"
    assert stopped == [utterance]
    context.sound(300)
    spoken = await utterance.spoken()
    assert spoken.interrupted
    assert spoken.heard == "one two"
    assert spoken.remaining == " three four five"
    assert context.cancelled_at == [spoken.position]
    assert not line.sink.frames[11:], "late audio is never handed over"
    assert {Mark.INTERRUPTED, Mark.SILENT} <= set(spoken.record.marks)
    assert spoken.record.end_reason == "interrupted"


async def test_a_text_that_is_stopped_before_anything_has_begun_is_all_remaining() -> None:
    line = Line()
    utterance = line.speaker.say("Good morning.")
    line.speaker.interrupt()
    spoken = await utterance.spoken()
    assert (spoken.heard, spoken.remaining) == ("", "Good morning.")


async def test_an_interruption_stops_all_that_waits_and_the_next_reply_is_clean() -> None:
    line = Line()
    utterances = [line.speaker.say("One."), line.speaker.say("Two.")]
    await line.context()
    assert line.speaker.interrupt() == utterances
    for each in utterances:
        assert (await each.spoken()).interrupted
    line.sink._silent = False
    reply = line.speaker.say("Three.")
    context = await line.context(3)
    context.sound(20)
    context.done()
    await settle(20)
    await line.sink.play_all()
    assert not (await reply.spoken()).interrupted


async def test_an_interruption_right_after_the_word_to_speak_ends_it_like_any_other() -> None:
    line = Line()
    utterance = line.speaker.say("Never mind.")
    assert line.speaker.interrupt() == [utterance]
    spoken = await utterance.spoken()
    assert spoken.interrupted
    assert (spoken.heard, spoken.record.end_reason) == ("", "interrupted")
    assert not line.speaker.speaking

    following = line.speaker.say("But this.")
    context = await line.context()
    context.start()
    context.sound(20)
    context.done()
    await settle(20)
    await line.sink.play_all()
    assert not (await following.spoken()).interrupted, "nothing that was stopped holds it up"


async def test_a_second_interruption_leaves_the_first_ones_findings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Line()
    utterance = line.speaker.say(writes("Good ", "morning."))
    context = await line.context()
    context.start()
    context.sound(40)
    await settle(20)
    known = asyncio.Event()
    facts = line.sink.interrupted

    async def interrupted() -> Interruption:
        await known.wait()
        return await facts()

    monkeypatch.setattr(line.sink, "interrupted", interrupted)
    line.speaker.interrupt()
    await settle()
    line.speaker.interrupt()
    await settle()
    known.set()
    assert (await utterance.spoken()).interrupted
    assert context.cancelled_at == [0]


async def test_a_source_that_does_not_let_itself_be_stopped_holds_no_call_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("qwen3tts_speech.line.SETTLE_S", 0.0)
    let_go = asyncio.Event()

    async def stubborn() -> AsyncIterator[str]:
        try:
            yield "Good "
            await asyncio.Event().wait()
        finally:
            await let_go.wait()

    line = Line()
    utterance = line.speaker.say(stubborn())
    await line.context()
    await line.speaker.close()
    assert "does not end when it is stopped" in caplog.text
    let_go.set()
    assert (await utterance.spoken()).interrupted


async def test_an_interruption_of_silence_does_nothing() -> None:
    line = Line()
    assert line.speaker.interrupt() == []
    await line.speaker.close()


async def test_when_the_source_of_the_words_fails_what_it_gave_is_said_and_then_it_is_raised() -> (
    None
):
    line = Line()
    utterance = line.speaker.say(writes("All is well", error=BadText("byte 7")))
    context = await line.context()
    assert context.ended
    context.sound(20)
    context.done()
    await settle(20)
    await line.sink.play_all()
    with pytest.raises(BadText, match="byte 7"):
        await utterance.spoken()
    assert line.sink.frames
    assert utterance.record.end_reason == "bad_text"


async def test_any_error_of_the_source_reaches_the_caller_as_itself() -> None:
    line = Line()
    utterance = line.speaker.say(writes("Well", error=ZeroDivisionError()))
    context = await line.context()
    context.done()
    with pytest.raises(ZeroDivisionError):
        await utterance.spoken()
    with pytest.raises(ZeroDivisionError):
        await line.speaker.say(writes(error=ZeroDivisionError())).spoken()


async def test_when_the_server_vanishes_what_came_is_played_and_the_rest_is_known() -> None:
    line = Line()
    text = "one two three"
    utterance = line.speaker.say(text)
    context = await line.context()
    context.words = words(text, 100)
    context.sound(200)
    await settle(20)
    line.client.closed = True
    context.fail(ConnectionLost("the server is gone"))
    await settle(20)
    assert 1 in line.sink.finished
    await line.sink.play_all()
    with pytest.raises(ConnectionLost, match="gone"):
        await utterance.spoken()
    assert utterance.outcome().heard == "one two"
    assert utterance.outcome().remaining == " three"
    assert utterance.record.end_reason == "connection_lost"


async def test_no_words_open_no_context() -> None:
    line = Line()
    spoken = await line.speaker.say(writes("", "")).spoken()
    assert spoken.record.end_reason == "no_text"
    assert not line.client.contexts


@pytest.mark.parametrize("nothing", ["", "  \n"])
async def test_an_empty_string_is_refused_at_once(nothing: str) -> None:
    with pytest.raises(BadText, match="empty"):
        Line().speaker.say(nothing)


@pytest.mark.parametrize("thing", [None, 7, ["a", "b"], b"bytes"])
async def test_what_is_no_text_is_refused_by_its_type(thing: Any) -> None:
    with pytest.raises(BadText, match=type(thing).__name__):
        Line().speaker.say(thing)


async def test_a_delta_that_is_no_text_ends_the_words_after_what_was_good() -> None:
    line = Line()
    utterance = line.speaker.say(writes("Good", cast(Any, 5), "bad"))
    context = await line.context()
    assert context.text == "Good"
    context.done()
    with pytest.raises(BadText, match="int"):
        await utterance.spoken()


async def test_a_full_sink_holds_the_line_up_and_loses_nothing() -> None:
    line = Line(capacity=3)
    utterance = line.speaker.say("A long one.")
    context = await line.context()
    context.sound(200)
    context.done()
    for _ in range(5):
        await settle(20)
        await line.sink.play(3)
    spoken = await utterance.spoken()
    assert spoken.position == 4800
    assert [frame.start for frame in line.sink.frames] == sorted(
        frame.start for frame in line.sink.frames
    )
    assert len(line.sink.frames) == 11


async def test_what_had_gone_out_to_its_end_is_heard_whatever_an_interruption_says_of_it() -> None:
    line = Line()
    utterance = line.speaker.say("one two")
    context = await line.context()
    context.start()
    context.words = words("one two", 100)
    context.sound(200)
    context.done()
    await settle(20)
    await line.sink.play_all()

    async def nothing() -> Interruption:
        return Interruption(0.0)  # it was stopped in the step in which it ended

    line.sink.interrupted = nothing  # type: ignore[method-assign]
    line.speaker.interrupt()
    spoken = await utterance.spoken()
    assert (spoken.heard, spoken.position) == ("one two", 4800)


async def test_an_utterance_that_is_stopped_twice_counts_as_one_interruption() -> None:
    line = Line()
    line.speaker.say("one two")
    (await line.context()).start()
    line.speaker.interrupt()
    line.speaker.interrupt()
    await line.speaker.close()
    assert line.speaker.interrupted == 1


async def test_the_server_is_told_what_was_played() -> None:
    line = Line()
    utterance = line.speaker.say("A long one.")
    context = await line.context()
    context.sound(200)
    await settle(20)
    await line.sink.play(5)
    await line.clock.advance(0.1)
    await line.clock.advance(0.1)
    await line.sink.play(5)
    await line.clock.advance(0.1)
    assert context.reports == [2328, 4728]
    context.done()
    await settle(20)
    await line.sink.play_all()
    await utterance.spoken()


async def test_sound_that_waits_here_is_reported_as_held_once_and_then_as_going_on() -> None:
    line = Line()
    utterance = line.speaker.say("Good morning.")
    context = await line.context()
    context.sound(400)
    await settle(20)
    await line.sink.play(10)
    for _ in range(4):
        await line.clock.advance(0.1)
    await line.sink.play(5)
    await line.clock.advance(0.1)
    context.done()
    await settle(20)
    await line.sink.play_all()
    await utterance.spoken()
    assert context.states == ["playing", "held", "playing"]
    assert context.reports[0] == context.reports[1] < context.reports[2]


async def test_an_utterance_that_waits_for_its_turn_is_held_and_one_without_sound_starves() -> None:
    line = Line()
    first, second = line.speaker.say("One."), line.speaker.say("Two.")
    early, late = await line.context(2), await line.context(1)
    early.sound(400)
    late.sound(40)
    await settle(20)
    await line.sink.play_all()
    for _ in range(3):
        await line.clock.advance(0.1)
    assert (early.reports, early.states) == ([0], ["held"])
    assert late.states == ["playing", "starved"]
    late.done()
    early.done()
    await settle(20)
    await line.sink.play_all()
    await first.spoken()
    await settle(20)
    await line.sink.play_all()
    await second.spoken()


async def test_a_link_connects_once_and_again_when_the_server_was_gone() -> None:
    clients: list[FakeClient] = []

    async def connect(url: str) -> FakeClient:
        clients.append(FakeClient())
        return clients[-1]

    link = SpeechLink("ws://test", connect=cast(Any, connect))
    await asyncio.gather(link.warm(), link.warm())
    assert len(clients) == 1
    clients[0].closed = True
    await link.warm()
    assert len(clients) == 2
    clients[1].draining.set()
    await link.warm()
    assert len(clients) == 3
    assert [client.closed for client in clients] == [True, False, False], "it may finish"
    await link.close()
    assert all(client.closed for client in clients)
    with pytest.raises(ConnectionLost, match="closed"):
        await link.client()


@pytest.mark.parametrize("reason", ["text_end", "regenerated", "silence", "frame_cap"])
async def test_why_the_generation_ended_is_in_the_record_of_the_utterance(reason: str) -> None:
    line = Line()
    utterance = line.speaker.say("Good morning.")
    context = await line.context()
    context.start()
    context.sound(20)
    context.done(reason=reason)
    await settle(20)
    await line.sink.play_all()
    spoken = await utterance.spoken()
    assert (spoken.record.end_reason, spoken.record.generation_end) == ("text_end", reason)
