"""The model's connection is there before a turn is decided, and opening it changes nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from qwen3tts_agent.chat import client as chat_connection
from qwen3tts_agent.chat.client import ChatClient
from qwen3tts_agent.chat.messages import ChatMessage
from qwen3tts_agent.chat.settings import ChatSettings
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_phone.detection.events import SpeechPaused
from tests.agent.endpoint import Answer, ChatEndpoint, Waits, says
from tests.agent.parts import begin, until
from tests.agent.test_chat_client import DONE, chunk, streaming
from tests.fakes import settle

HELLO = [ChatMessage("user", "Hello?")]
QUIET = AgentSettings(quiet_s=0)


async def reply(client: ChatClient) -> str:
    return "".join([delta async for delta in client.reply(HELLO)])


async def prepared(client: ChatClient) -> None:
    """Until the connection has been opened, or could not be."""
    client.prepare()
    await until(lambda: client._connection._opening is None)


@asynccontextmanager
async def keeping(*, late: bool) -> AsyncIterator[tuple[str, list[str]]]:
    """A model that keeps its connections; each request, after the number of its connection.

    ``late``: the end of the stream comes in a packet of its own, after the last word.
    """
    asked: list[str] = []
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        number = count
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = head.partition("content-length: ")[2].partition("\r\n")[0]
                await reader.readexactly(int(size or 0))
                asked.append(f"{number} {head.partition(' ')[0]}")
                body = chunk("Hello.") + DONE
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(body), body)
                )
                await writer.drain()
                for _ in range(20 if late else 0):
                    await asyncio.sleep(0)
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", asked


@pytest.mark.network
async def test_a_request_goes_out_on_the_connection_that_was_opened_ahead_of_it() -> None:
    async with (
        ChatEndpoint(says("Hello.")) as endpoint,
        ChatClient(ChatSettings(endpoint.url, api_key="sk-1")) as client,
    ):
        await prepared(client)
        assert (endpoint.connections, endpoint.lists, endpoint.requests) == (1, 1, [])
        assert await reply(client) == "Hello."
        assert (endpoint.connections, endpoint.lists, len(endpoint.requests)) == (1, 1, 1)


@pytest.mark.network
@pytest.mark.parametrize("late", [False, True])
async def test_a_connection_is_kept_from_one_reply_to_the_next(late: bool) -> None:
    async with keeping(late=late) as (url, asked), ChatClient(ChatSettings(url)) as client:
        for _ in range(3):
            assert await reply(client) == "Hello."
            await until(lambda: client._connection._idle_since is not None)
            client.prepare()
        assert asked == ["1 post"] * 3


@pytest.mark.network
async def test_one_that_was_just_used_is_not_asked_for_again_and_one_that_rested_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ChatEndpoint() as endpoint, ChatClient(ChatSettings(endpoint.url)) as client:
        await prepared(client)
        await prepared(client)
        client.prepare()
        client.prepare()
        assert endpoint.lists == 1
        monkeypatch.setattr(chat_connection, "IDLE_S", 0.0)
        client.prepare()
        client.prepare()  # it is being asked for
        await until(lambda: client._connection._opening is None)
        assert (endpoint.lists, endpoint.connections) == (2, 1)


@pytest.mark.network
async def test_while_a_reply_is_written_another_connection_is_made_ready() -> None:
    free = asyncio.Event()
    answers = [Answer(["Well, ", Waits(free)]), says("Hello.")]
    async with ChatEndpoint(*answers) as endpoint, ChatClient(ChatSettings(endpoint.url)) as client:
        await prepared(client)
        words = client.reply(HELLO)
        assert await anext(words) == "Well, "
        await prepared(client)  # the caller cuts in
        await words.aclose()
        assert await reply(client) == "Hello."
        assert (endpoint.connections, len(endpoint.requests)) == (2, 2)


@pytest.mark.network
async def test_a_request_does_not_wait_for_a_list_that_does_not_come() -> None:
    async with ChatEndpoint(says("Hello.")) as endpoint:
        endpoint.hold_lists = asyncio.Event()
        async with ChatClient(ChatSettings(endpoint.url)) as client:
            client.prepare()
            await endpoint.listed()
            assert await reply(client) == "Hello."
            assert client._connection._opening is not None
        assert client._connection._opening is None  # closing gives it up


def break_off(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("reset", request=request)


def refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def fault(request: httpx.Request) -> httpx.Response:
    raise RuntimeError("whatever")


class Endless(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 16)


@pytest.mark.parametrize(
    "listed",
    [
        break_off,
        refuse,
        fault,
        lambda _: httpx.Response(401, text="no"),
        lambda _: httpx.Response(404, text="<html>"),
        lambda _: httpx.Response(301, headers={"location": "http://elsewhere.test/"}),
        lambda _: httpx.Response(200, stream=Endless()),
    ],
)
async def test_whatever_becomes_of_it_the_request_is_made_as_ever(
    listed: object, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[str, str]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, str(request.url)))
        assert callable(listed)
        return (
            listed(request) if request.method == "GET" else streaming(chunk("Hi."), DONE)(request)
        )

    settings = ChatSettings("http://model.test/v1/", api_key="sk-1")
    with caplog.at_level(logging.INFO):
        async with ChatClient(settings, transport=httpx.MockTransport(handler)) as client:
            await prepared(client)
            assert await reply(client) == "Hi."
    assert asked == [
        ("GET", "http://model.test/v1/models"),
        ("POST", "http://model.test/v1/chat/completions"),
    ]
    assert not [each for each in caplog.records if each.name.startswith("qwen3tts")]


async def test_a_model_that_is_not_there_is_not_tried_again_at_once() -> None:
    tries = 0

    def handler(request: httpx.Request) -> httpx.Response:
        nonlocal tries
        tries += 1
        return refuse(request)

    settings = ChatSettings("http://model.test/v1")
    async with ChatClient(settings, transport=httpx.MockTransport(handler)) as client:
        for _ in range(5):
            await prepared(client)
    assert tries == 1


async def test_it_can_be_switched_off() -> None:
    settings = ChatSettings("http://model.test/v1", connect_ahead=False)
    async with ChatClient(settings, transport=httpx.MockTransport(fault)) as client:
        client.prepare()
        assert client._connection._opening is None
    client.prepare()  # harmless after the end


@pytest.mark.network
async def test_a_call_opens_it_as_it_begins_and_again_while_the_caller_speaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ChatEndpoint(says("Fine.")) as endpoint:
        session = await begin(ChatSettings(endpoint.url), settings=QUIET)
        await endpoint.listed(1)
        assert endpoint.requests == []
        await settle(60)
        monkeypatch.setattr(chat_connection, "IDLE_S", 0.0)
        session.call.onset()
        await endpoint.listed(2)
        await settle(60)
        session.call.listening.tell(SpeechPaused(0.0, 0.0))
        await endpoint.listed(3)
        session.call.decided()
        session.call.words("How are you?")
        assert (await session.turns.of(1)).heard == "Fine."
        assert len(endpoint.requests) == 1
        await session.end()


@pytest.mark.network
async def test_a_call_that_may_not_opens_nothing_ahead() -> None:
    async with ChatEndpoint(says("Fine.")) as endpoint:
        session = await begin(ChatSettings(endpoint.url, connect_ahead=False), settings=QUIET)
        await session.call.says("How are you?")
        assert (await session.turns.of(1)).heard == "Fine."
        assert endpoint.lists == 0
        await session.end()


class Eager:
    """A source of the program's that wants to know when it is needed."""

    def __init__(self) -> None:
        self.prepared = 0

    def prepare(self) -> None:
        self.prepared += 1
        raise RuntimeError("not today")

    async def stream(
        self, messages: object, tools: object = (), *, must_speak: bool = False
    ) -> AsyncIterator[str]:
        yield "Fine."

    async def close(self) -> None: ...


async def test_a_source_of_the_programs_is_told_too_and_its_failure_ends_nothing() -> None:
    source = Eager()
    session = await begin(source, settings=QUIET)
    assert source.prepared == 1
    await session.call.says("How are you?")
    assert source.prepared == 2
    assert (await session.turns.of(1)).heard == "Fine."
    await session.end()
