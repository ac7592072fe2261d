from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from qwen3tts_agent.chat.client import ChatClient
from qwen3tts_agent.chat.messages import ChatMessage
from qwen3tts_agent.chat.settings import ChatSettings
from qwen3tts_agent.chat.source import source_of
from qwen3tts_wire.errors import BadRequest, BadText

HELLO = [ChatMessage("user", "Hello?")]


async def test_a_generator_function_is_a_source_and_is_closed_when_it_is_left() -> None:
    closed: list[bool] = []

    async def writes(messages: Sequence[ChatMessage]) -> AsyncIterator[str]:
        try:
            yield messages[0].content
            yield "more"
        finally:
            closed.append(True)

    stream = source_of(writes).stream(HELLO)
    assert await anext(stream) == "Hello?"
    await stream.aclose()
    assert closed == [True]


async def test_halves_of_characters_are_joined() -> None:
    async def writes(messages: Sequence[ChatMessage]) -> AsyncIterator[str]:
        for delta in ("a\ud83d", "\ude00", "\ud83d"):
            yield delta

    assert [event async for event in source_of(writes).stream(HELLO)] == ["a", "😀", "\ufffd"]


async def test_a_function_that_gives_the_whole_text_is_one_too() -> None:
    async def answers(messages: Sequence[ChatMessage]) -> str:
        return "Fine."

    assert [event async for event in source_of(answers).stream(HELLO)] == ["Fine."]


def test_a_generator_function_that_is_not_asynchronous_is_none() -> None:
    def writes(messages: Sequence[ChatMessage]) -> Iterator[str]:
        yield "Fine."

    with pytest.raises(BadRequest, match="async def"):
        source_of(writes)


@pytest.mark.parametrize("given", [None, 5, b"Fine."])
async def test_what_is_no_text_is_told_by_name(given: object) -> None:
    async def writes(messages: Sequence[ChatMessage]) -> AsyncIterator[object]:
        yield given

    async def answers(messages: Sequence[ChatMessage]) -> object:
        return given

    for function in (writes, answers):
        with pytest.raises(BadText, match=f"gave a {type(given).__name__}"):
            [event async for event in source_of(function).stream(HELLO)]


async def test_a_function_that_is_not_asynchronous_is_told() -> None:
    with pytest.raises(BadText, match="is not asynchronous"):
        [event async for event in source_of(lambda _: "Fine.").stream(HELLO)]


def test_a_client_is_a_source_and_a_class_is_none() -> None:
    client = ChatClient(ChatSettings("http://model.test/v1"))
    assert source_of(client) is client
    with pytest.raises(BadRequest, match="is not a language model"):
        source_of(ChatSettings)


def test_fields_of_the_request_that_follow_from_the_call_cannot_be_set() -> None:
    assert ChatSettings("http://model.test/v1", extra={"temperature": 0}).extra
    with pytest.raises(BadRequest, match="messages, stream cannot be set"):
        ChatSettings("http://model.test/v1", extra={"stream": False, "messages": []})
