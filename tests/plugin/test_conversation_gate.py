"""A caller who cuts in holds what is being said; it goes on, or is dropped."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes import settle
from tests.plugin.caller import TEXT, Caller
from tests.speech.test_line import words


async def cut_in() -> tuple[Caller, asyncio.Task[bool]]:
    """A caller who has heard *Good morning.* of the whole text, and cuts in."""
    caller = Caller()
    speaking = caller.speak("a", TEXT)
    context = await caller.server()
    context.words = words(TEXT, 100)
    context.sound(2000)
    await settle(20)
    await caller.sink.play(20)
    caller.conversation.hold(cut_in=True)
    await settle(20)
    await caller.clock.advance(1.0)
    return caller, speaking


async def said(caller: Caller, speaking: asyncio.Task[bool]) -> None:
    """The command returns within the time that its sound takes."""
    for _ in range(100):
        if speaking.done():
            break
        await caller.clock.advance(0.05)
    assert speaking.done()
    assert await speaking


async def test_it_goes_on_with_the_first_word_that_was_not_heard() -> None:
    caller, speaking = await cut_in()
    assert not speaking.done(), "what follows in the turn, such as hangup, waits"
    assert caller.conversation.speaking
    caller.conversation.go_on()
    second = await caller.server(2)
    heard = caller.conversation.heard_text()
    assert heard
    assert heard + second.text == TEXT
    second.sound(40)
    second.done()
    await settle(20)
    await caller.sink.play_all()
    await said(caller, speaking)
    await caller.sink.play_all()
    await settle(20)
    assert caller.conversation.cut_chars() is None, "all of it was heard"
    assert not caller.conversation.busy


async def test_words_drop_it_and_what_was_heard_is_known() -> None:
    caller, speaking = await cut_in()
    caller.conversation.stop("the caller has cut in")
    await settle(20)
    assert speaking.done()
    chars = caller.conversation.cut_chars()
    assert chars is not None
    assert 0 < chars < len(TEXT)
    caller.conversation.go_on()
    await settle(20)
    assert len(caller.client.contexts) == 1
    await caller.say("next", "It is fine now.")


async def test_a_text_that_grew_meanwhile_is_said_whole() -> None:
    caller = Caller()
    await caller.partial("a", "Good morning. How are")
    caller.conversation.hold(cut_in=True)
    await settle(20)
    await caller.partial("a", "Good morning. How are you ")
    assert len(caller.client.contexts) == 1
    speaking = caller.speak("a", TEXT)
    await settle(20)
    assert caller.texts == ["Good morning. How "]
    caller.conversation.go_on()
    await settle(30)
    assert "".join(caller.texts[1:]) == TEXT
    for context in caller.client.contexts[1:]:
        context.sound(40)
        context.done()
        await settle(20)
        await caller.sink.play_all()
    await said(caller, speaking)


async def test_nothing_is_begun_while_the_caller_speaks() -> None:
    caller = Caller()
    caller.conversation.hold(cut_in=False)
    await caller.partial("a", "Good morning. How are")
    speaking = caller.speak("a", TEXT)
    await settle(20)
    assert not caller.client.contexts
    caller.conversation.go_on()
    context = await caller.server()
    assert context.text == TEXT
    context.done()
    await said(caller, speaking)


async def test_what_was_begun_goes_on_while_the_caller_only_mumbles() -> None:
    caller = Caller()
    await caller.partial("a", "Good morning. How are")
    caller.conversation.hold(cut_in=False)
    await caller.partial("a", "Good morning. How are you ")
    assert caller.texts == ["Good morning. How are "]
    await caller.conversation.close()


async def test_a_turn_that_is_cancelled_while_it_waits_is_silent() -> None:
    caller = Caller()
    caller.conversation.hold(cut_in=False)
    speaking = caller.speak("a", TEXT)
    await settle(20)
    speaking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await speaking
    caller.conversation.go_on()
    await settle(20)
    assert not caller.client.contexts


async def test_what_had_not_been_begun_behind_it_follows() -> None:
    caller, speaking = await cut_in()
    second = caller.speak(None, "One moment please.")
    await settle(20)
    assert len(caller.client.contexts) == 1
    caller.conversation.go_on()
    await settle(30)
    assert caller.texts[-1] == "One moment please."
    for context in caller.client.contexts[1:]:
        context.sound(40)
        context.done()
    await settle(20)
    await caller.sink.play_all()
    await said(caller, speaking)
    await said(caller, second)
