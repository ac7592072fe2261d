from __future__ import annotations

import asyncio

import pytest

from mr_qwen3tts.reply import MAX_CHARS
from qwen3tts_wire.errors import EngineFailed
from tests.fakes import settle
from tests.plugin.caller import TEXT, Caller, lost, nearly_heard_caller


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
    assert not second.done(), "all that is unheard counts, also of the command before it"
    await caller.sink.play_all()
    await caller.clock.advance(0.1)
    await second
    await settle(20)
    assert caller.ended == [("One two.", "said"), ("Three four.", "said")]
    assert [frame.context for frame in caller.sink.frames] == [1] * 11 + [2] * 11


async def test_a_command_waits_for_the_sound_before_it() -> None:
    caller = await nearly_heard_caller()
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
