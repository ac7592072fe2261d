from __future__ import annotations

import asyncio

import pytest

from tests.fakes import settle
from tests.plugin.caller import (
    TEXT,
    Caller,
    lost,
    nearly_heard_caller,
    speaking_caller,
    stopped_clean,
)
from tests.speech.test_line import words


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
    caller = await nearly_heard_caller()
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
    caller = await nearly_heard_caller()
    caller.context.data["finished_conversation"] = True
    await caller.clock.advance(0.1)
    await caller.sink.play_all()
    await settle(20)
    assert caller.ended == [(TEXT, "said")]


async def test_a_turn_cancelled_in_mid_text_is_silent_when_its_task_is() -> None:
    caller = Caller()
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


async def test_it_can_be_closed_in_the_middle() -> None:
    caller, speaking = await speaking_caller()
    await caller.conversation.close()
    await settle(20)
    assert speaking.done()
    assert not caller.conversation.busy


async def test_a_stop_while_a_server_lets_the_words_lie_is_the_end_of_them() -> None:
    caller = Caller()
    speaking = caller.speak("a", TEXT)
    context = await caller.server()
    caller.conversation.stop("on_interrupt")
    context.fail(lost())
    await settle(20)
    assert await speaking
    assert len(caller.client.contexts) == 1


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


async def two_sentences() -> Caller:
    """One whose first sentence is being said, while the second one waits behind it."""
    caller = Caller()
    for number, text in ((1, "One two."), (2, "Three four.")):
        caller.speak(str(number), text, asyncio.current_task())
        context = await caller.server(number)
        context.words = words(text, 100)
        context.sound(200)
        context.done()
        await settle(20)
    await caller.sink.play(6)
    return caller


async def test_a_stop_drops_the_sentence_and_the_one_behind_it_and_tells_both_as_one() -> None:
    caller = await two_sentences()
    assert caller.conversation.stop("on_interrupt")
    await settle(20)
    last = caller.conversation.last
    assert last is not None
    assert (last.heard, last.remaining) == ("One", " two.Three four.")
    assert last.interrupted
    assert caller.conversation.heard_text() == "One"


async def test_the_callers_answer_stops_what_is_left_of_a_turn_that_is_over_and_no_other() -> None:
    async def turn(caller: Caller) -> None:
        speaking = caller.speak("a", TEXT, asyncio.current_task())
        context = await caller.server()
        context.sound(280)
        context.done()
        await settle(20)
        await speaking

    caller = Caller()
    assert not caller.conversation.answered()
    host = asyncio.create_task(turn(caller))
    await settle(5)
    assert not caller.conversation.answered(), "the host is in the turn"
    await host
    assert caller.conversation.speaking
    assert caller.conversation.answered()
    assert not caller.conversation.speaking
