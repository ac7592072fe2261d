"""What happens at the same time in one conversation: stops, two turns, other plugins, failures."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from mr_qwen3tts.settings import Settings
from qwen3tts_wire.errors import EngineFailed
from qwen3tts_wire.events import Cancelled
from tests.fakes import settle
from tests.plugin.caller import TEXT, Caller, choose, speaking_caller

SETTINGS = Settings()
CANCEL = "cancel_current_turn"


class SlowLine(Caller):
    """A line that takes a while to say whether it wants sound."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.Event()

        async def halted(context: Any) -> bool:
            await self.answer.wait()
            return False

        self.conversation._halted = halted


def shown(caller: Caller, cmd_id: str, words: str, task: Any = None) -> asyncio.Task[None]:
    """A partial that nobody waits for."""
    return asyncio.create_task(
        caller.conversation.partial(cmd_id, words, caller.context, choose, SETTINGS, task)
    )


async def test_a_stop_that_comes_while_the_line_is_asked_is_a_stop() -> None:
    caller = SlowLine()
    partial = shown(caller, "a", "Good morning. How are")
    said = caller.speak(None, "One moment please.")
    await settle()
    assert not caller.conversation.stop("on_interrupt"), "nothing is said yet"
    caller.answer.set()
    await partial
    assert await said
    assert await caller.speak("a", TEXT)
    assert not caller.client.contexts


async def test_two_turns_that_begin_at_once_leave_nothing_behind() -> None:
    caller = SlowLine()
    forever = asyncio.get_running_loop().create_future()

    async def model(cmd_id: str, words: str) -> None:
        await shown(caller, cmd_id, words, asyncio.current_task())
        await forever

    turns = [asyncio.create_task(model(name, f"This is {name} now. And")) for name in "ab"]
    await settle()
    caller.answer.set()
    await settle(40)
    assert caller.texts == ["This is b now. "]
    for turn in turns:
        turn.cancel()
    await settle(40)
    assert not caller.conversation.busy


@pytest.mark.parametrize("way", ["on_interrupt", "cancelled"])
async def test_a_stopped_command_returns_though_the_server_does_not_answer_the_cancel(
    way: str,
) -> None:
    caller, speaking = await speaking_caller()
    answer: asyncio.Future[Cancelled] = asyncio.get_running_loop().create_future()
    [context] = caller.client.contexts
    context.cancel = lambda played=None: answer  # type: ignore[method-assign]
    if way == "cancelled":
        speaking.cancel()
    else:
        caller.conversation.stop(way)
    await settle()
    assert speaking.done()
    answer.set_result(Cancelled(0, 0, "", "", marks={}))
    await settle(20)
    assert not caller.conversation.busy


async def test_a_late_cancel_of_a_command_that_was_stopped_leaves_the_next_one_alone() -> None:
    caller = Caller()
    old = caller.speak("a", TEXT)
    await settle(20)
    caller.conversation.stop("on_interrupt")
    new = caller.speak("b", "It is fine now.")
    old.cancel()
    context = await caller.server(2)
    assert not context.cancelled_at
    context.done()
    await settle(20)
    assert await new
    assert caller.ended[-1] == ("It is fine now.", "said")


async def test_a_failure_before_a_pause_ends_what_came_after_the_pause_too() -> None:
    caller = Caller()
    await caller.partial("a", "Good morning. How are")
    await caller.clock.advance(10.1)
    await caller.partial("a", "Good morning. How are you today? Very")
    first, second = caller.client.contexts
    assert (first.ended, second.ended) == (True, False)
    first.fail(EngineFailed("It broke."))
    await settle(20)
    assert (first.ended, second.ended) == (True, True)
    assert await caller.speak("a", TEXT)
    second.done()
    await settle(20)
    assert not caller.conversation.busy


async def test_words_that_come_after_the_server_has_ended_a_text_are_said_by_another() -> None:
    caller = Caller()
    await caller.partial("a", "Good morning. How are")
    (await caller.server()).done()
    await settle(20)
    speaking = caller.speak("a", TEXT)
    context = await caller.server(2)
    assert caller.texts == ["Good morning. How ", "are you today?"]
    context.done()
    assert await speaking


@pytest.mark.parametrize("shown_first", [True, False])
async def test_a_turn_that_the_host_does_not_end_though_it_was_interrupted_stays_silent(
    shown_first: bool,
) -> None:
    caller = Caller()
    task = asyncio.current_task()
    data = caller.context.data
    data[CANCEL] = False  # so a turn begins
    if shown_first:
        await caller.partial("a", "Good morning. How are", task)
    data[CANCEL] = True
    caller.conversation.interrupt(caller.context)
    del data[CANCEL]  # so it goes on at the model's next token
    before = list(caller.texts)
    await caller.partial("a", TEXT + " And", task)
    assert await caller.speak("a", TEXT + " And so on.", task)
    await caller.partial("b", "It goes on. And", task)
    assert await caller.speak("b", "It goes on. And on.", task)
    assert caller.texts == before
    data[CANCEL] = False
    await caller.partial("c", "It is fine now. And", task)
    assert caller.texts[-1] == "It is fine now. "
    await caller.conversation.close()


async def test_what_another_plugin_says_does_not_count_as_the_turns_words() -> None:
    caller = Caller()
    speaking = caller.speak("a", TEXT, asyncio.current_task())
    context = await caller.server()
    context.sound(200)
    context.done()
    await settle(20)
    assert await speaking
    await caller.sink.play_all()
    await settle(20)
    heard = caller.conversation.heard_chars()
    said = caller.speak(None, "One moment please.")
    await settle(20)
    assert caller.conversation.heard_chars() == heard
    await caller.conversation.close()
    assert await said


async def test_words_of_other_plugins_said_at_once_are_each_said_once_and_in_order() -> None:
    caller = Caller()
    texts = [f"This is message {number}." for number in range(20)]
    said = [caller.speak(None, text) for text in texts]
    await settle(20)
    assert caller.texts == texts
    for context in reversed(caller.client.contexts):
        context.sound(20)
        context.done()
    await settle(100)
    await caller.sink.play_all()
    await caller.clock.advance(0.1)
    assert all(await asyncio.gather(*said))
    assert [frame.context for frame in caller.sink.frames] == sorted(
        frame.context for frame in caller.sink.frames
    )
    assert caller.ended == [(text, "said") for text in texts]
    assert not caller.conversation.busy


async def test_what_is_kept_of_a_long_call_is_bounded() -> None:
    caller = Caller()
    for number in range(200):

        async def model(cmd_id: str) -> None:
            task = asyncio.current_task()
            await caller.partial(cmd_id, TEXT, task)
            speaking = caller.speak(cmd_id, TEXT, task)
            await settle(10)
            caller.client.contexts[-1].done()
            assert await speaking

        await asyncio.create_task(model(f"cmd {number}"))
        await settle(10)
    gc.collect()
    conversation = caller.conversation
    assert not conversation.busy
    assert len(conversation._over) <= 64
    assert len(conversation._turn) == 1
    assert not conversation._following
    assert not conversation._live
    assert len(conversation._tasks) <= 1


async def test_how_much_was_heard_of_a_turn_that_was_cut_short_is_told_once() -> None:
    caller = Caller()
    assert caller.conversation.cut_chars() is None
    speaking = caller.speak("a", TEXT, asyncio.current_task())
    context = await caller.server()
    context.sound(2000)
    await settle(20)
    await caller.sink.play(10)
    assert caller.conversation.cut_chars() is None, "it goes on"
    [speaker] = caller.conversation._speakers
    speaker.interrupt()  # as the end of a call of our own does it
    assert caller.conversation.cut_chars() == 0
    caller.conversation.stop("the caller has cut in")
    assert caller.conversation.cut_chars() is None
    assert await speaking


async def test_a_command_that_is_cancelled_while_it_waits_for_the_sound_stops_it() -> None:
    caller, speaking = await speaking_caller()
    hangup = asyncio.create_task(caller.conversation.other("hangup", None, 30.0))
    await settle()
    hangup.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hangup
    await settle()
    assert speaking.done()
    assert caller.client.contexts[0].cancelled_at


async def test_a_stop_lets_the_command_run_that_waits_for_the_sound() -> None:
    caller, speaking = await speaking_caller()
    hangup = asyncio.create_task(caller.conversation.other("hangup", None, 30.0))
    await settle()
    caller.conversation.stop("on_interrupt")
    await settle()
    assert hangup.done()
    assert speaking.done()
    assert "barrier_timeouts" not in caller.counts


async def test_what_a_command_that_ends_the_task_left_unsaid_stays_unsaid() -> None:
    caller = Caller()
    task = asyncio.current_task()
    speaking = caller.speak("a", TEXT, task)
    context = await caller.server()
    context.sound(280)
    context.done()
    assert await speaking
    caller.context.data["finished_conversation"] = True  # as `task_result` does
    await caller.conversation.other("look_up", task, None)
    await caller.partial("b", "It goes on. And", task)
    assert await caller.speak("b", "It goes on. And on.", task)
    await caller.sink.play_all()
    await settle(20)
    assert caller.ended == [(TEXT, "said")], "and its last words are not cut"
    caller.context.data["finished_conversation"] = False  # another turn
    await caller.partial("c", "It is fine now. And", task)
    assert caller.texts[-1] == "It is fine now. "
    await caller.conversation.close()
