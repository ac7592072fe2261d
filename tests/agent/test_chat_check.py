"""A language model is asked for one token before a call."""

from __future__ import annotations

import asyncio
import json

import pytest

from qwen3tts_agent.chat.check import check_model, measure_model
from qwen3tts_agent.chat.client import ChatSettings, ModelRefused, ModelStalled, ModelUnavailable
from qwen3tts_wire.errors import ProtocolError, SpeechError
from tests.agent.endpoint import Answer, Breaks, ChatEndpoint, Hangs, Raw, says, writes

pytestmark = pytest.mark.network


def refusal(status: int, message: str) -> Answer:
    return Answer(status=status, body=json.dumps({"error": {"message": message}}).encode())


async def checked(endpoint: ChatEndpoint, **options: object) -> SpeechError:
    settings = ChatSettings(endpoint.url, **options)  # type: ignore[arg-type]
    with pytest.raises(SpeechError) as raised:
        await check_model(settings)
    return raised.value


async def test_a_check_asks_for_one_token_as_a_call_asks() -> None:
    async with ChatEndpoint() as endpoint:
        settings = ChatSettings(
            endpoint.url, model="tiny", api_key="sk-1", extra={"temperature": 0, "max_tokens": 90}
        )
        found = await check_model(settings)
        assert (found.model, found.shown, found.streams) == ("tiny", endpoint.url, True)
        assert found.first_token_s is not None
        (asked,) = endpoint.checks
    assert asked.headers["authorization"] == "Bearer sk-1"
    assert (asked.body["model"], asked.body["stream"]) == ("tiny", True)
    assert (asked.body["max_tokens"], asked.body["temperature"]) == (1, 0)
    assert endpoint.lists == 0


async def test_a_model_that_reasons_first_is_ready_without_a_word() -> None:
    async with ChatEndpoint(check=Answer(finish="length")) as endpoint:
        assert (await check_model(ChatSettings(endpoint.url))).first_token_s is None


async def test_a_server_that_does_not_stream_is_noticed() -> None:
    body = json.dumps({"choices": [{"message": {"content": "Yes"}}]}).encode()
    async with ChatEndpoint(check=Answer(body=body)) as endpoint:
        assert not (await check_model(ChatSettings(endpoint.url))).streams


async def test_a_model_that_ignores_the_bound_is_not_read_to_its_end() -> None:
    async with ChatEndpoint(check=Answer([*["many words "] * 40, Hangs()])) as endpoint:
        async with asyncio.timeout(20):
            assert (await check_model(ChatSettings(endpoint.url))).first_token_s is not None


async def test_the_newer_name_of_the_bound_is_tried_where_the_older_is_refused() -> None:
    told = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    async with ChatEndpoint(check=refusal(400, told)) as endpoint:
        found = await check_model(ChatSettings(endpoint.url))
    assert found.first_token_s is None, "it refuses any bound so small, and nothing else"
    assert [each.body.get("max_tokens") for each in endpoint.checks] == [1, None]
    assert endpoint.checks[1].body["max_completion_tokens"] == 1


@pytest.mark.parametrize(
    ("answer", "kind", "says", "remedy"),
    [
        (refusal(401, "bad key"), ModelRefused, "does not accept the key (401): bad key", "key"),
        (refusal(403, "no"), ModelRefused, "does not accept the key (403): no", "--key-env"),
        (refusal(404, "no model"), ModelRefused, "(404): no model", "ends in /v1"),
        (
            Answer(status=404, body=b"<html>", kind="text/html"),
            ModelRefused,
            "has no such path or model (404)",
            "ends in /v1",
        ),
        (
            Answer(body=b"<!doctype html>", kind="text/html"),
            ModelRefused,
            "a web page",
            "ends in /v1",
        ),
        (refusal(429, "quota"), ModelUnavailable, "no more requests now (429): quota", "credit"),
        (refusal(500, "oom"), ModelUnavailable, "overloaded or broken (500): oom", "later"),
        (Answer(["Ye", Breaks()]), ModelUnavailable, "broke off in mid-sentence", "Try again"),
        (Answer(["Ye"], finish=None), ModelUnavailable, "ended in mid-sentence", "Try again"),
        (Answer(finish=None), ModelUnavailable, "is empty", "Try again"),
        (Answer([Raw(b"data: <p>\n\n")]), ProtocolError, "invalid JSON", "OpenAI-compatible"),
    ],
)
async def test_what_would_fail_in_a_call_is_told_with_its_remedy(
    answer: Answer, kind: type[SpeechError], says: str, remedy: str
) -> None:
    async with ChatEndpoint(check=answer) as endpoint:
        error = await checked(endpoint)
    assert type(error) is kind
    assert says in error.message
    assert remedy in error.remedy


async def test_an_unknown_model_is_told_with_the_names_that_there_are() -> None:
    async with ChatEndpoint(check=refusal(404, "model not found")) as endpoint:
        endpoint.models = ("zephyr", "llama3.2", "qwen3")
        error = await checked(endpoint, model="lama3.2")
    assert "Name a model that it has: llama3.2, zephyr, qwen3; not lama3.2." in error.remedy


async def test_a_model_that_hangs_is_told_within_the_limit() -> None:
    async with ChatEndpoint(check=Answer([Hangs()])) as endpoint, asyncio.timeout(20):
        with pytest.raises(ModelStalled, match=r"did not answer within 0\.05 s") as raised:
            await check_model(ChatSettings(endpoint.url, model="big"), limit_s=0.05)
    assert "--check-seconds" in raised.value.remedy
    assert "big" in raised.value.message


async def test_a_model_that_is_not_there_is_told() -> None:
    async with ChatEndpoint() as endpoint:
        url = endpoint.url
    with pytest.raises(ModelUnavailable, match="cannot be reached: Connection refused"):
        await check_model(ChatSettings(url))


async def test_the_times_of_a_reply_are_measured() -> None:
    async with ChatEndpoint(writes("Boil the water, then pour it over the leaves.")) as endpoint:
        found = await measure_model(ChatSettings(endpoint.url))
        assert endpoint.requests[0].body["max_tokens"] == 64
        assert endpoint.lists == 1
    assert found.first_token_s > 0
    assert found.first_clause_s >= 0
    assert found.tokens_per_s is not None


async def test_a_reply_without_text_cannot_be_measured() -> None:
    async with ChatEndpoint(Answer(finish="length")) as endpoint:
        with pytest.raises(ModelStalled, match="no text"):
            await measure_model(ChatSettings(endpoint.url))


async def test_a_whole_reply_at_once_has_no_rate() -> None:
    async with ChatEndpoint(says("Boil water.")) as endpoint:
        assert (await measure_model(ChatSettings(endpoint.url))).tokens_per_s is None


async def test_names_of_models_are_read_from_any_answer() -> None:
    from qwen3tts_agent.chat.client import ChatClient

    async with ChatEndpoint() as endpoint, ChatClient(ChatSettings(endpoint.url)) as client:
        assert await client.models() == ()
        endpoint.models = ("one", "two")
        assert await client.models() == ("one", "two")
        gone = ChatSettings(endpoint.url)
    async with ChatClient(gone) as client:
        assert await client.models() == ()
