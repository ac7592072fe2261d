"""What happens at the same time in the plugin: calls that are forgotten, settings that change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mr_qwen3tts.settings import Settings
from qwen3tts_speech.link import SpeechLink
from tests.fakes import settle
from tests.plugin.test_plugin import TEXT, World, context, problems


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    closing = asyncio.create_task(made.plugin.shutdown())
    await made.clock.advance(1.0)
    await closing


async def test_a_caller_who_speaks_again_is_not_forgotten_meanwhile(world: World) -> None:
    for number, name in enumerate(["first", "second"], 1):
        speaking = world.speak(TEXT, context(name))
        await world.answer(number)
        assert speaking.done()
    await world.clock.advance(601)
    first = world.plugin.conversations["first"]
    closed = asyncio.Event()
    close = first.close

    async def slow() -> None:
        await closed.wait()
        await close()

    first.close = slow  # type: ignore[method-assign]
    third, second = world.speak(TEXT, context("third")), world.speak(TEXT, context("second"))
    await settle(30)
    closed.set()
    await settle(30)
    assert [bool(each.cancelled_at) for each in world.client.contexts[2:]] == [False, False]
    await world.answer(3)
    await world.answer(4)
    assert third.done()
    assert second.done()
    assert [each.outcome for each in world.plugin.records.last] == ["said"] * 4
    assert "first" not in world.plugin.conversations


async def test_another_address_of_the_server_counts_for_the_next_words_of_a_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def link(settings: Settings) -> Any:
        class Here(SpeechLink):
            state = SimpleNamespace(using_fallback=False)

            async def client(self) -> Any:
                asked.append(settings.url)
                return world.client

        return Here(settings.url)

    monkeypatch.setattr(world.plugin.links, "of", link)
    for number, port in enumerate([1001, 1002], 1):
        speaking = world.speak(TEXT, context(MR_QWEN3TTS_URL=f"ws://here:{port}/v1/speech"))
        await world.answer(number)
        assert speaking.done()
    assert asked == ["ws://here:1001/v1/speech", "ws://here:1002/v1/speech"]


async def test_a_draft_that_is_interrupted_before_its_first_word_is_not_said(world: World) -> None:
    here = context()
    here.data["cancel_current_turn"] = True
    await world.plugin.interrupt(here)
    del here.data["cancel_current_turn"]  # as the host does at the model's next token
    await world.partial(here, "Good morning. How")
    speaking = world.speak(TEXT, here)
    await settle(30)
    assert speaking.done()
    assert not world.client.contexts
    here.data["cancel_current_turn"] = False  # another turn
    await world.partial(here, "Good morning. How", cmd_id="b")
    assert len(world.client.contexts) == 1


async def test_an_interruption_that_breaks_keeps_no_other_plugin_from_hearing_of_it(
    world: World,
) -> None:
    here = context()
    await world.partial(here, "Good morning. How")

    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    world.plugin.conversations["call"].interrupt = broken  # type: ignore[method-assign, assignment]
    await world.plugin.interrupt(here)
    assert {each["what"] for each in problems(world)} == {"interrupt"}


async def test_what_is_said_without_a_session_can_be_stopped(world: World) -> None:
    for nobody in (None, context(None)):
        speaking = world.speak(TEXT, nobody)
        await settle(40)
        await world.plugin.interrupt(nobody)
        await settle(20)
        assert speaking.done()
        assert world.client.contexts[-1].cancelled_at
    assert len(world.plugin.conversations) == 1


async def test_only_the_words_of_a_turn_are_cut_and_once(world: World) -> None:
    here = context()
    assert world.plugin.cut_short(here) is None
    await world.partial(here, TEXT)
    speaking = world.speak(TEXT, here)
    await settle(30)
    assert world.plugin.cut_short(here) == 0
    assert world.plugin.cut_short(here) is None
    await settle(30)
    assert speaking.done()


async def test_calls_of_two_agents_in_one_session_use_their_own_settings(world: World) -> None:
    fast, slow = context(MR_QWEN3TTS_RETURN_AHEAD_MS="0"), context()
    wishes: list[Settings] = []

    async def options(client: object, request: object, settings: Settings) -> Any:
        wishes.append(settings)
        return await made(client, request, settings)

    made = cast(Any, world.plugin.voices.options)
    world.plugin.voices.options = options  # type: ignore[method-assign]
    for number, each in enumerate([fast, slow], 1):
        speaking = world.speak(TEXT, each)
        await world.answer(number)
        assert speaking.done()
    assert [each.return_ahead_ms for each in wishes] == [0, 1500]
    assert len(world.plugin.conversations) == 1
