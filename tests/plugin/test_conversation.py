from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mr_qwen3tts.conversation import Conversation
from mr_qwen3tts.reply import MAX_CHARS, Reply
from mr_qwen3tts.settings import Settings
from qwen3tts_codecs.payload import PCMU
from qwen3tts_speech.line import Speaker, Utterance, VoiceOptions
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import ConnectionLost, EngineFailed, SpeechError
from tests.fakes import FakeClock, settle
from tests.speech.fakes import FakeClient, FakeContext, FakeSink

SETTINGS = Settings()
TEXT = "Good morning. How are you today?"


class Sink(FakeSink):
    """Takes sound again after an interruption."""

    def begin(self, context: int, key: str) -> None:
        super().begin(context, key)
        self._silent = False


async def choose(client: SpeechClient) -> VoiceOptions:
    return VoiceOptions(voice="en")


class Caller:
    """A conversation between a scripted host and a fake server."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.sink = Sink()
        self.clock = FakeClock()
        self.halted = False
        self.counts: list[str] = []
        self.held: list[bool] = []
        self.waits = 0
        self.ended: list[tuple[str, str]] = []
        self.context = SimpleNamespace(log_id="call", data={})

        async def connect(url: str) -> FakeClient:
            return self.client

        speaker = Speaker(
            SpeechLink("ws://test", connect=cast(Any, connect)), self.sink, PCMU, clock=self.clock
        )

        async def halted(context: Any) -> bool:
            return self.halted

        def ended(reply: Reply, utterance: Utterance, error: SpeechError | None) -> None:
            outcome = utterance.outcome()
            how = error.code if error else "interrupted" if outcome.interrupted else "said"
            self.ended.append((utterance.text, how))

        self.conversation = Conversation(
            "call",
            clock=self.clock,
            speaker=lambda: speaker,
            halted=halted,
            ended=ended,
            count=self.counts.append,
            hold_open=self.held.append,
            waiting=self._count_wait,
        )

    def _count_wait(self) -> None:
        self.waits += 1

    async def partial(self, cmd_id: str, words: str, task: Any = None) -> None:
        await self.conversation.partial(cmd_id, words, self.context, choose, SETTINGS, task)
        await settle(20)

    def speak(self, cmd_id: str | None, words: str, task: Any = None) -> asyncio.Task[bool]:
        return asyncio.create_task(
            self.conversation.speak(cmd_id, words, self.context, choose, SETTINGS, task)
        )

    async def server(self, number: int = 1) -> FakeContext:
        await settle(20)
        return self.client.contexts[number - 1]

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.client.contexts]

    async def say(self, cmd_id: str, words: str) -> None:
        """A whole reply, from its first partial to its end."""
        await self.partial(cmd_id, words)
        speaking = self.speak(cmd_id, words)
        context = await self.server(len(self.client.contexts))
        context.sound(40)
        context.done()
        await settle(20)
        await self.sink.play_all()
        assert await speaking
        await settle(20)


async def test_words_are_with_the_server_while_the_model_writes() -> None:
    caller = Caller()
    await caller.partial("a", "Good")
    assert not caller.client.contexts, "it may become 'Goodness'"
    await caller.partial("a", "Good morning.")
    assert caller.texts == ["Good "]
    await caller.partial("a", "Good morning. How are")
    assert caller.texts == ["Good morning. How "]
    context = await caller.server()
    assert not context.ended
    speaking = caller.speak("a", TEXT)
    await settle(20)
    assert caller.texts == [TEXT]
    assert (await caller.server()).ended
    context.sound(40)
    context.done()
    await settle(20)
    await caller.sink.play_all()
    assert await speaking
    await settle(20)
    assert caller.ended == [(TEXT, "said")]
    assert not caller.conversation.busy


async def test_a_command_without_partials_is_said() -> None:
    caller = Caller()
    speaking = caller.speak(None, TEXT)
    context = await caller.server()
    assert (context.text, context.ended) == (TEXT, True)
    context.done()
    assert await speaking


async def test_a_command_returns_when_only_a_little_is_not_heard_yet() -> None:
    caller = Caller()
    speaking = caller.speak("a", TEXT)
    context = await caller.server()
    context.sound(1000)
    context.done()
    await settle(20)
    await caller.sink.play(30)
    await caller.clock.advance(2.0)
    assert not speaking.done()
    await caller.sink.play(6)
    await caller.clock.advance(0.1)
    assert speaking.done()
    assert caller.conversation.speaking


async def test_stale_partials_of_a_finished_command_are_ignored() -> None:
    caller = Caller()
    await caller.say("a", TEXT)
    await caller.partial("a", TEXT + " And more")
    assert caller.texts == [TEXT]
    assert "stale_partials" in caller.counts


async def test_a_second_command_follows_and_both_are_said_once() -> None:
    caller = Caller()
    await caller.partial("a", "One two.")
    first = caller.speak("a", "One two.")
    one = await caller.server()
    one.sound(200)
    one.done()
    await settle(20)
    assert first.done(), "a fifth of a second is left: the model may go on"
    await caller.partial("b", "Three four.")
    second = caller.speak("b", "Three four.")
    two = await caller.server(2)
    two.sound(200)
    two.done()
    await settle(20)
    await caller.sink.play_all()
    await second
    await settle(20)
    assert caller.ended == [("One two.", "said"), ("Three four.", "said")]
    assert [frame.context for frame in caller.sink.frames] == [1] * 11 + [2] * 11


async def stopped_clean(caller: Caller) -> None:
    """Nothing more is handed over, the server knows, and the next reply is as new."""
    count = len(caller.sink.frames)
    for context in caller.client.contexts:
        assert context.cancelled_at
        context.sound(500)
    await caller.clock.advance(0.1)
    assert len(caller.sink.frames) <= count
    assert [how for _, how in caller.ended] == ["interrupted"] * len(caller.client.contexts)
    caller.ended.clear()
    caller.context.data.clear()
    await caller.say("next", "It is fine now.")
    assert caller.ended == [("It is fine now.", "said")]


async def speaking_caller() -> tuple[Caller, asyncio.Task[bool]]:
    caller = Caller()
    speaking = caller.speak("a", TEXT)
    context = await caller.server()
    context.sound(2000)
    await settle(20)
    await caller.sink.play(10)
    return caller, speaking


async def test_on_interrupt_stops_it() -> None:
    caller, speaking = await speaking_caller()
    assert caller.conversation.stop("on_interrupt")
    await settle(20)
    assert speaking.done()
    await stopped_clean(caller)


async def test_a_cancelled_command_stops_it_and_stays_cancelled() -> None:
    caller, speaking = await speaking_caller()
    speaking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await speaking
    await settle(20)
    await stopped_clean(caller)


async def test_the_hosts_flag_stops_it_also_after_the_command_has_returned() -> None:
    caller = Caller()
    speaking = caller.speak("a", TEXT)
    context = await caller.server()
    context.sound(280)
    context.done()
    await settle(20)
    assert await speaking
    caller.context.data["cancel_current_turn"] = True
    await caller.clock.advance(0.02)
    assert caller.sink.log[-1] == "interrupt"
    assert not caller.conversation.speaking


@pytest.mark.parametrize("flag", ["cancel_current_turn", "finished_conversation"])
async def test_the_hosts_flags_stop_what_is_still_written(flag: str) -> None:
    caller = Caller()
    await caller.partial("a", "Good morning. How are")
    caller.context.data[flag] = True
    await caller.clock.advance(0.02)
    await settle(20)
    await stopped_clean(caller)


async def test_a_turn_that_ends_the_talk_does_not_cut_its_last_words() -> None:
    caller = Caller()
    speaking = caller.speak("a", TEXT)
    context = await caller.server()
    context.sound(280)
    context.done()
    await settle(20)
    assert await speaking
    caller.context.data["finished_conversation"] = True
    await caller.clock.advance(0.1)
    await caller.sink.play_all()
    await settle(20)
    assert caller.ended == [(TEXT, "said")]


async def test_a_turn_cancelled_in_mid_text_is_silent_when_its_task_is() -> None:
    caller = Caller()
    turn = asyncio.create_task(asyncio.sleep(0))
    forever = asyncio.get_running_loop().create_future()

    async def model() -> None:
        await caller.partial("a", "Good morning. How are", asyncio.current_task())
        await forever

    turn = asyncio.create_task(model())
    await settle(40)
    turn.cancel()
    await settle(20)
    await stopped_clean(caller)


async def test_a_turn_that_breaks_off_says_what_it_had_given() -> None:
    caller = Caller()

    async def model() -> None:
        await caller.partial("a", "Good morning. How are", asyncio.current_task())

    await asyncio.create_task(model())
    await settle(20)
    context = await caller.server()
    assert (context.text, context.ended) == ("Good morning. How are", True)
    context.sound(40)
    context.done()
    await settle(20)
    await caller.sink.play_all()
    await settle(20)
    assert not caller.conversation.busy


async def test_another_commands_partial_stops_one_whose_command_never_ran() -> None:
    caller = Caller()
    await caller.partial("a", "Good morning. How are")
    await caller.partial("b", "It is fine now.")
    (first, second) = caller.client.contexts
    assert first.cancelled_at
    assert not second.cancelled_at
    await caller.conversation.other("look_up", None, None)
    await settle(20)
    assert second.cancelled_at


async def test_a_text_that_the_host_could_not_read_is_gone_on_with_when_the_model_repeats_it() -> (
    None
):
    caller = Caller()
    task = asyncio.current_task()
    await caller.partial("a", "Good morning. How are", task)
    await caller.partial("b", "Good morning. How", task)
    await caller.partial("b", "Good morning. How are you today? Very", task)
    speaking = caller.speak("b", "Good morning. How are you today? Very well.", task)
    await settle(20)
    assert caller.texts == ["Good morning. How ", "are you today? Very well."]
    for context in caller.client.contexts:
        assert not context.cancelled_at
        context.done()
    assert await speaking


async def test_a_text_that_the_host_shows_again_for_the_next_command_is_not_said_again() -> None:
    caller = Caller()
    task = asyncio.current_task()
    await caller.partial("a", TEXT, task)
    speaking = caller.speak("a", TEXT, task)
    (await caller.server()).sound(200)
    (await caller.server()).done()
    assert await speaking
    await caller.partial("b", TEXT, task)
    await caller.conversation.other("look_up", task, None)
    assert caller.texts == [TEXT]
    await caller.sink.play_all()
    await settle(20)
    assert caller.ended == [(TEXT, "said")]


async def test_a_command_stopped_in_its_partials_says_nothing_later() -> None:
    caller = Caller()
    await caller.partial("a", "Good morning. How are")
    caller.conversation.stop("on_interrupt")
    await caller.partial("a", "Good morning. How are you")
    assert await caller.speak("a", TEXT)
    assert caller.texts == ["Good morning. How "]


async def test_nothing_is_begun_while_the_line_wants_no_sound() -> None:
    caller = Caller()
    caller.halted = True
    await caller.partial("a", "Good morning. How are")
    caller.halted = False
    await caller.partial("a", "Good morning. How are you")
    assert await caller.speak("a", TEXT)
    assert not caller.client.contexts
    assert caller.counts[0] == "halted"


async def test_a_command_waits_for_the_sound_before_it() -> None:
    caller = Caller()
    speaking = caller.speak("a", TEXT)
    context = await caller.server()
    context.sound(280)
    context.done()
    await settle(20)
    assert await speaking
    hangup = asyncio.create_task(caller.conversation.other("hangup", None, 30.0))
    await caller.clock.advance(1.0)
    assert not hangup.done()
    await caller.sink.play_all()
    await settle(20)
    assert hangup.done()


async def test_a_command_does_not_wait_for_ever() -> None:
    caller = Caller()
    caller.speak("a", TEXT)
    await caller.server()
    hangup = asyncio.create_task(caller.conversation.other("hangup", None, 30.0))
    await caller.clock.advance(30.1)
    assert hangup.done()
    assert "barrier_timeouts" in caller.counts
    await caller.conversation.other("hangup", None, 30.0)  # its next partial: at once
    await caller.conversation.close()


async def test_another_plugins_words_queue_behind_the_models() -> None:
    caller = Caller()
    await caller.partial("a", "Good morning. How are")
    said = caller.speak(None, "One moment please.")
    await settle(20)
    assert caller.texts == ["Good morning. How ", "One moment please."]
    speaking = caller.speak("a", TEXT)
    await settle(20)
    assert caller.texts[2:] == ["are you today?"]
    for context in caller.client.contexts:
        context.done()
    assert await said
    assert await speaking


@pytest.mark.parametrize("words", ["", "  \n ", "**", "<b></b>"])
async def test_a_text_without_words_says_so_and_opens_nothing(words: str) -> None:
    caller = Caller()
    assert not await caller.speak("a", words)
    assert not caller.client.contexts
    assert not caller.conversation.busy


async def test_a_failure_ends_the_command_and_the_next_one_is_clean() -> None:
    caller = Caller()
    speaking = caller.speak("a", TEXT)
    (await caller.server()).fail(EngineFailed("It broke."))
    assert await speaking
    await settle(20)
    assert caller.ended == [(TEXT, "engine_failed")]
    caller.ended.clear()
    await caller.say("b", TEXT)
    assert caller.ended == [(TEXT, "said")]


async def test_after_a_failure_in_mid_text_the_rest_does_not_begin_in_the_middle() -> None:
    caller = Caller()
    await caller.partial("a", "Good morning. How are")
    (await caller.server()).fail(EngineFailed("It broke."))
    await settle(20)
    await caller.partial("a", "Good morning. How are you today? Very")
    assert await caller.speak("a", TEXT)
    assert len(caller.client.contexts) == 1
    assert not caller.conversation.busy


async def test_partials_that_stop_coming_let_go_and_what_comes_later_follows() -> None:
    caller = Caller()
    await caller.partial("a", "Good morning. How are")
    await caller.clock.advance(10.1)
    first = await caller.server()
    assert (first.text, first.ended) == ("Good morning. How ", True)
    speaking = caller.speak("a", TEXT)
    second = await caller.server(2)
    assert second.text == "are you today?"
    first.done()
    second.done()
    assert await speaking


async def test_a_text_longer_than_a_context_holds_is_said_in_several() -> None:
    caller = Caller()
    text = "It is a long story, and it goes on. " * 3000
    speaking = caller.speak("a", text)
    await settle(60)
    assert "".join(caller.texts) == text
    assert all(len(each) <= MAX_CHARS for each in caller.texts)
    assert all(each.rstrip().endswith(".") for each in caller.texts)
    for context in caller.client.contexts:
        context.done()
    assert await speaking


async def test_the_response_stays_open_while_more_may_follow() -> None:
    caller = Caller()
    await caller.partial("a", "Good morning. How are")
    assert caller.held[-1]
    speaking = caller.speak("a", TEXT)
    await settle(20)
    assert caller.held[-1]
    (await caller.server()).done()
    await speaking
    assert not caller.held[-1]


async def test_it_can_be_closed_in_the_middle() -> None:
    caller, speaking = await speaking_caller()
    await caller.conversation.close()
    await settle(20)
    assert speaking.done()
    assert not caller.conversation.busy


def lost() -> ConnectionLost:
    return ConnectionLost("The speech server has not answered for 4 s.")


async def test_words_that_a_server_lets_lie_are_said_on_another_connection_once() -> None:
    caller = Caller()
    await caller.partial("a", "Good morning. How are")
    (await caller.server()).fail(lost())
    await settle(30)
    speaking = caller.speak("a", TEXT)
    second = await caller.server(2)
    assert (second.text, second.ended) == (TEXT, True)
    assert not speaking.done()
    second.fail(lost())
    assert await speaking
    await settle(20)
    assert len(caller.client.contexts) == 2
    assert [how for _, how in caller.ended] == ["connection_lost"] * 2
    assert caller.counts.count("retries") == 1
    assert not caller.conversation.busy


async def test_words_of_which_something_was_heard_are_not_said_again() -> None:
    caller = Caller()
    speaking = caller.speak("a", TEXT)
    context = await caller.server()
    context.sound(100)
    await settle(20)
    context.fail(lost())
    await settle(20)
    await caller.sink.play_all()
    assert await speaking
    assert len(caller.client.contexts) == 1


async def test_a_stop_while_a_server_lets_the_words_lie_is_the_end_of_them() -> None:
    caller = Caller()
    speaking = caller.speak("a", TEXT)
    context = await caller.server()
    caller.conversation.stop("on_interrupt")
    context.fail(lost())
    await settle(20)
    assert await speaking
    assert len(caller.client.contexts) == 1


async def test_a_long_wait_for_the_first_sound_is_told_once() -> None:
    caller = Caller()
    caller.speak("a", TEXT)
    context = await caller.server()
    await caller.clock.advance(1.1)
    assert caller.waits == 0
    await caller.clock.advance(2.0)
    assert caller.waits == 1
    context.sound(40)
    await settle(20)
    await caller.clock.advance(2.0)
    assert caller.waits == 1
    await caller.conversation.close()


async def test_sound_in_time_leaves_nobody_waiting() -> None:
    caller = Caller()
    caller.speak("a", TEXT)
    context = await caller.server()
    await caller.clock.advance(1.0)
    context.sound(40)
    await settle(20)
    await caller.sink.play_all()
    await caller.clock.advance(3.0)
    assert caller.waits == 0
    await caller.conversation.close()


async def test_after_a_cancelled_turn_another_plugin_may_speak() -> None:
    caller = Caller()
    caller.context.data["cancel_current_turn"] = True
    speaking = caller.speak(None, TEXT)
    context = await caller.server()
    context.sound(40)
    context.done()
    await caller.clock.advance(0.1)
    await caller.sink.play_all()
    assert await speaking
    await settle(20)
    assert caller.ended == [(TEXT, "said")]


async def test_a_very_long_text_lets_others_have_their_turn_and_can_be_stopped_meanwhile() -> None:
    caller = Caller()
    speaking = caller.speak("a", "_word_ " * 20_000)
    await settle(5)
    caller.conversation.stop("on_interrupt")
    assert await speaking
    await settle(20)
    assert sum(map(len, caller.texts)) < 100_000
    assert not caller.conversation.busy
