"""What is typed on a call with an agent: the caller's turn, or words for the agent's voice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from qwen3tts_agent.agent import Agent
from qwen3tts_agent.chat.messages import ChatMessage
from tests.softphone.browser import Chromium
from tests.softphone.served import at_the_page, served

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]


async def test_typed_text_is_the_callers_and_can_be_switched_to_the_agents_voice(
    chromium: Chromium,
) -> None:
    asked: list[str] = []

    async def parrot(messages: Sequence[ChatMessage]) -> AsyncIterator[str]:
        asked.append(messages[-1].content)
        yield "You asked for rye bread."

    agent = Agent(parrot, stt=None, quiet_s=0)
    async with (
        agent,
        served(parts={"agent": agent}) as here,
        at_the_page(chromium, here.url) as person,
    ):
        await person.call()
        box = person.page.get_by_role("textbox", name="Type what you say")
        await box.press_sequentially("Do you have ")
        await box.press_sequentially("rye bread?")
        await box.press("Enter")
        [reply] = await person.spoken()
        assert await box.input_value() == ""
        turn = await person.visit.message("turn")
        assert not person.visit.messages("type", mine=True)
        await person.page.get_by_role("checkbox", name="Type for the agent's voice").check()
        await person.put("And a cake.")
        _, typed = await person.spoken(2)
        captions = await person.captions()
        await person.hang_up()
    assert asked == ["Do you have rye bread?"]
    assert turn["text"] == "Do you have rye bread?"
    assert reply["heard"] == "You asked for rye bread."
    assert typed["heard"] == "And a cake."
    assert [each["who"] for each in captions] == ["caller", "agent", "typed"]


async def test_without_an_agent_what_is_typed_is_spoken_and_there_is_no_switch(
    chromium: Chromium,
) -> None:
    async with served() as here, at_the_page(chromium, here.url) as person:
        await person.call()
        await person.put("Yes.")
        [spoken] = await person.spoken()
        switch = person.page.get_by_role("checkbox", name="Type for the agent's voice")
        assert await switch.count() == 0
        await person.hang_up()
    assert spoken["heard"] == "Yes."
