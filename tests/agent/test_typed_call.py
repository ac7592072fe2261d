"""A call without sound: an agent talks with somebody who types and reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from qwen3tts_agent import Agent, ChatMessage, tool
from qwen3tts_agent.conversation import Conversation
from qwen3tts_agent.typed_call import TypedCall
from qwen3tts_phone.errors import WrongState
from tests.agent.endpoint import Answer as Reply
from tests.agent.endpoint import ChatEndpoint, Uses, says

WITHIN_S = 20


class Chat:
    """A call with an agent on it, and what was shown."""

    def __init__(self, agent: Agent) -> None:
        self.shown = ""
        self.said: list[str] = []
        self.changed = asyncio.Event()
        self.call = TypedCall(self._show, on_said=self._said)
        self.talking = asyncio.create_task(agent.talk(self.call))

    def _show(self, text: str) -> None:
        self.shown += text
        self.changed.set()

    def _said(self, text: str) -> None:
        self.said.append(text)
        self.changed.set()

    async def until(self, count: int) -> str:
        """Wait until so many utterances have ended; the last one."""
        while len(self.said) < count:
            self.changed.clear()
            await self.changed.wait()
        return self.said[-1]

    async def leave(self) -> Conversation:
        await self.call.leave()
        return await self.talking


@asynccontextmanager
async def chatting(agent: Agent) -> AsyncIterator[Chat]:
    async with asyncio.timeout(WITHIN_S), agent:
        chat = Chat(agent)
        await chat.call.heard()
        yield chat
        await chat.leave()


async def test_what_is_typed_is_a_turn_and_what_was_shown_is_heard() -> None:
    asked: list[list[ChatMessage]] = []

    async def parrot(messages: Sequence[ChatMessage]) -> AsyncIterator[str]:
        asked.append(list(messages))
        yield "You said: "
        yield messages[-1].content

    async with chatting(Agent(parrot, stt=None, greeting="Hello!")) as chat:
        assert await chat.until(1) == "Hello!"
        chat.call.type("  one ")
        assert await chat.until(2) == "You said: one"
        chat.call.type("two")
        await chat.until(3)
        conversation = await chat.leave()
    assert [(each.role, each.content) for each in asked[1]][-4:] == [
        *(("assistant", "Hello!"), ("user", "one")),
        *(("assistant", "You said: one"), ("user", "two")),
    ]
    assert conversation.ended == "the caller has left"
    assert [turn.why for turn in conversation.turns] == ["", "typed", "typed"]
    assert chat.shown == "Hello!You said: oneYou said: two"


async def test_an_interruption_keeps_what_was_shown_and_nothing_else() -> None:
    more = asyncio.Event()
    shown = asyncio.Event()

    async def slow(messages: Sequence[ChatMessage]) -> AsyncIterator[str]:
        if messages[-1].content != "go on":
            yield "The first half"
            shown.set()
            await more.wait()
            yield " and the second."
        else:
            yield str([each.content for each in messages])

    async with chatting(Agent(slow, stt=None)) as chat:
        chat.call.type("tell me")
        await shown.wait()
        while "half" not in chat.shown:
            chat.changed.clear()
            await chat.changed.wait()
        assert chat.call.interrupt()
        assert not chat.call.speaking
        chat.call.type("go on")
        assert await chat.until(2) == "['tell me', 'The first half', 'go on']"
        assert "second" not in chat.shown


async def test_typing_interrupts_and_tools_and_the_budget_are_those_of_a_call() -> None:
    @tool
    async def price(bread: str) -> str:
        """What a bread costs."""
        return f"{bread}: 4.20"

    answers = (Reply([Uses("price", {"bread": "rye"})]), says("It costs 4.20."), says("Bye."))
    async with (
        ChatEndpoint(*answers) as endpoint,
        chatting(
            Agent(endpoint.url, stt=None, tools=[price], requests_call=3, used_up="No more.")
        ) as chat,
    ):
        chat.call.type("How much is rye bread?")
        assert await chat.until(1) == "It costs 4.20."
        chat.call.type("Thank you.")
        assert await chat.until(2) == "Bye."
        chat.call.type("One more thing.")
        assert await chat.until(3) == "No more."
        await chat.talking
        assert chat.call.over
        assert endpoint.requests[1].messages[-1]["content"] == "rye: 4.20"
        with pytest.raises(WrongState):
            chat.call.type("Hello?")
