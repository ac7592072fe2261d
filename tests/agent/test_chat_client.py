from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_agent.chat import client as bridge
from qwen3tts_agent.chat.client import (
    ChatClient,
    ChatMessage,
    ChatSettings,
    ModelRefused,
    ModelUnavailable,
    api_key_from,
    reply_to,
)
from qwen3tts_agent.chat.stream import ChatStream
from qwen3tts_wire.errors import BadRequest, LimitExceeded, ProtocolError, SpeechError
from qwen3tts_wire.sse import SseEvent, SseParser

HELLO = [ChatMessage("user", "Hello?")]
Handler = Callable[[httpx.Request], httpx.Response]


def chunk(content: str, **more: object) -> bytes:
    data = {"choices": [{"delta": {"content": content}, **more}]}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


class Body(httpx.AsyncByteStream):
    """A body in pieces; then it ends, fails, or never ends."""

    def __init__(self, pieces: Sequence[bytes], then: BaseException | None = None) -> None:
        self._pieces = pieces
        self._then = then
        self.hang = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._then is not None:
            raise self._then
        if self.hang:
            await asyncio.Event().wait()


def streaming(*pieces: bytes, then: BaseException | None = None, hang: bool = False) -> Handler:
    body = Body(pieces, then)
    body.hang = hang
    return lambda _: httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=body)


def answering(status: int, text: str, kind: str = "application/json") -> Handler:
    return lambda _: httpx.Response(
        status, headers={"content-type": kind}, stream=Body([text.encode()])
    )


async def spoken(handler: Handler, **options: object) -> tuple[list[str], SpeechError | None]:
    """What came of a reply, and the error after it."""
    settings = ChatSettings("http://model.test/v1", **options)  # type: ignore[arg-type]
    deltas: list[str] = []
    async with ChatClient(settings, transport=httpx.MockTransport(handler)) as client:
        try:
            async for delta in client.reply(HELLO):
                deltas.append(delta)
        except SpeechError as error:
            return deltas, error
    return deltas, None


async def test_words_come_as_the_model_writes_them() -> None:
    asked: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return streaming(chunk("Good "), b": wait\n\n", chunk("morning."), DONE)(request)

    assert await spoken(handler, model="tiny", api_key="sk-1") == (["Good ", "morning."], None)
    assert str(asked[0].url) == "http://model.test/v1/chat/completions"
    assert asked[0].headers["authorization"] == "Bearer sk-1"
    assert json.loads(asked[0].content) == {
        "model": "tiny",
        "stream": True,
        "messages": [{"role": "user", "content": "Hello?"}],
    }


async def test_halves_of_characters_in_two_deltas_are_joined() -> None:
    handler = streaming(chunk("a\ud83d"), chunk("\ude00"), chunk("\ud83d"), DONE)
    assert await spoken(handler) == (["a", "😀", "\ufffd"], None)


async def test_a_stream_without_the_done_line_is_whole_when_the_model_had_finished() -> None:
    assert await spoken(streaming(chunk("Yes.", finish_reason="stop"))) == (["Yes."], None)


async def test_an_answer_that_is_not_streamed_is_said_too() -> None:
    text = json.dumps({"choices": [{"message": {"content": "Yes."}}]})
    assert await spoken(answering(200, text)) == (["Yes."], None)


@pytest.mark.parametrize(
    ("status", "body", "kind", "error", "says"),
    [
        (401, '{"error":{"message":"bad key"}}', "application/json", ModelRefused, "bad key"),
        (403, "", "text/plain", ModelRefused, "does not accept the key"),
        (404, "<html>", "text/html", ModelRefused, "ends in /v1"),
        (400, '{"detail":"no"}', "application/json", ModelRefused, "(400): no"),
        (307, "", "text/plain", ModelRefused, "redirects"),
        (429, "", "text/plain", ModelUnavailable, "takes no more requests now (429)"),
        (503, '{"error":"loading\\u001b[2J"}', "application/json", ModelUnavailable, "loading?[2J"),
        (200, "<!doctype html>", "text/html; charset=utf-8", ModelRefused, "a web page"),
        (200, "{", "application/json", ProtocolError, "invalid JSON"),
        (200, "{}", "application/json", ProtocolError, "holds no text"),
    ],
)
async def test_a_refusal_is_told_with_its_remedy(
    status: int, body: str, kind: str, error: type[SpeechError], says: str
) -> None:
    deltas, raised = await spoken(answering(status, body, kind))
    assert deltas == []
    assert type(raised) is error
    assert says in str(raised)


@pytest.mark.parametrize(
    ("handler", "error", "says"),
    [
        (streaming(chunk("Half ")), ModelUnavailable, "ended in mid-sentence"),
        (
            streaming(chunk("Half "), then=httpx.RemoteProtocolError("peer closed")),
            ModelUnavailable,
            "in mid-sentence, after 5 characters: peer closed",
        ),
        (
            streaming(chunk("Half ") + b'data: {"error":{"message":"out of memory"}}\n\n'),
            ModelUnavailable,
            "out of memory",
        ),
        (streaming(chunk("Half ") + b"data: <html>\n\n"), ProtocolError, "invalid JSON"),
        (streaming(chunk("Half "), b"data: " + b"x" * 2_000_000), LimitExceeded, "longer than"),
    ],
)
async def test_what_came_before_a_failure_is_spoken_then_the_error_follows(
    handler: Handler, error: type[SpeechError], says: str
) -> None:
    deltas, raised = await spoken(handler)
    assert deltas == ["Half "]
    assert type(raised) is error
    assert says in str(raised)


@pytest.mark.parametrize("first", [(), (chunk("Half "),)])
async def test_a_model_that_falls_silent_is_not_waited_for_for_ever(
    first: tuple[bytes, ...],
) -> None:
    deltas, raised = await spoken(streaming(*first, hang=True), stall_s=0.01)
    assert len(deltas) == len(first)
    assert isinstance(raised, ModelUnavailable)
    assert "silent for 0.01 s" in raised.message


class Trickle(httpx.AsyncByteStream):
    """A body without end, a byte each time the loop turns."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("status", "says"), [(200, "silent for 0.01 s"), (500, "overloaded or broken (500)")]
)
async def test_a_body_that_trickles_is_not_waited_for_for_ever(
    status: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "REFUSAL_S", 0.01)
    monkeypatch.setattr(bridge, "MAX_ERROR_BYTES", 1 << 40)
    monkeypatch.setattr(bridge, "MAX_ANSWER_BYTES", 1 << 40)

    def handler(_: httpx.Request) -> httpx.Response:
        kind = {"content-type": "application/json"}
        return httpx.Response(status, headers=kind, stream=Trickle())

    async with asyncio.timeout(20):
        _, raised = await spoken(handler, stall_s=0.01)
    assert isinstance(raised, ModelUnavailable)
    assert says in raised.message


async def test_a_refusal_whose_reason_breaks_off_is_a_refusal() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(401, stream=Body([b'{"er'], httpx.ReadError("reset")))

    _, raised = await spoken(handler)
    assert isinstance(raised, ModelRefused)


async def test_a_model_that_does_not_run_is_told_so() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused", request=request)

    _, raised = await spoken(handler)
    assert isinstance(raised, ModelUnavailable)
    assert "cannot be reached: Connection refused" in raised.message


async def test_an_empty_answer_is_told() -> None:
    _, raised = await spoken(streaming())
    assert raised is not None
    assert "is empty" in raised.message


async def test_a_reply_is_bounded() -> None:
    deltas, raised = await spoken(streaming(chunk("a" * 60), chunk("b" * 60)), max_chars=100)
    assert deltas == ["a" * 60, "b" * 40], "what fits is said"
    assert isinstance(raised, LimitExceeded)


async def test_a_compressed_stream_is_refused() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-encoding": "br"}, stream=Body([b"x"]))

    _, raised = await spoken(handler)
    assert isinstance(raised, ProtocolError)


@pytest.mark.parametrize("url", ["", "model.test/v1", "ftp://model.test", "http://", "http://[::"])
def test_an_address_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="language model's address"):
        ChatSettings(url)


def test_secrets_are_not_shown() -> None:
    settings = ChatSettings("https://me:secret@model.test:8443/v1?key=hidden", api_key="sk-1")
    assert settings.shown == "https://model.test:8443/v1"
    assert "sk-1" not in repr(settings)
    assert "sk-1" not in repr(ChatClient(settings))


def test_the_key_comes_from_the_environment_trimmed() -> None:
    assert api_key_from("KEY", {"KEY": " sk-1\n"}) == "sk-1"
    assert api_key_from("KEY", {}) == ""
    with pytest.raises(BadRequest, match="key"):
        ChatSettings("http://model.test/v1", api_key="sk\n1")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_events_are_parsed_by_the_standard_whatever_ends_their_lines(end: str) -> None:
    text = end.join(["\ufeff: hi", "event: word", "data:a", "data: b", "id: 7", "", "data", "", ""])
    events = SseParser().push(text.encode())
    assert events == [SseEvent("word", "a\nb"), SseEvent("message", "")]


def events_of(parts: Sequence[bytes]) -> list[SseEvent]:
    parser = SseParser()
    return [event for part in parts for event in parser.push(part)]


lines = st.lists(
    st.sampled_from([b"data: a", b"data:\xe4\xb8\x96", b"event: e", b": c", b"", b"x", b"data"])
    | st.binary(max_size=10),
    max_size=20,
)


@given(lines, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, 200), max_size=8))
def test_events_are_the_same_however_the_bytes_were_cut(
    parts: list[bytes], end: bytes, cuts: list[int]
) -> None:
    data = end.join(parts)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    cut_up = [data[a:b] for a, b in pairwise(edges)]
    assert events_of(cut_up) == events_of([data])


def test_comments_may_go_on_for_ever_and_an_event_may_not() -> None:
    parser = SseParser(max_event_chars=100)
    for _ in range(50):
        assert parser.push(b": still here\n") == []
    with pytest.raises(LimitExceeded):
        parser.push(b"data: more\n" * 50)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "delta", "content", "error", "message", "finish_reason"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(st.lists(json_values.map(json.dumps).map(str.encode) | st.binary(max_size=30), max_size=6))
def test_no_stream_breaks_the_bridge_but_with_a_typed_error(datas: list[bytes]) -> None:
    stream = ChatStream()
    for data in datas:
        for delta in stream.push(b"data: " + data + b"\n\n"):
            assert not isinstance(delta, str) or delta
    with suppress(ModelUnavailable):
        stream.finish()


@pytest.mark.network
async def test_a_server_that_vanishes_in_mid_sentence_is_told_after_what_it_said() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = chunk("Half a ")
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        words = reply_to(ChatSettings(f"http://127.0.0.1:{port}/v1"), prompt="Hello?")
        assert await anext(words) == "Half a "
        with pytest.raises(ModelUnavailable, match="broke off in mid-sentence, after 7"):
            await anext(words)
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        await anext(reply_to(ChatSettings(f"http://127.0.0.1:{port}/v1"), prompt="Hello?"))


async def test_a_server_that_says_nothing_is_told_in_one_sentence() -> None:
    def hang_up(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("Server disconnected without sending a response.")

    client = ChatClient(
        ChatSettings("http://model.test/v1"), transport=httpx.MockTransport(hang_up)
    )
    with pytest.raises(ModelUnavailable, match=r"before its first word: .*[^.]\.$") as told:
        await anext(client.reply([ChatMessage("user", "Hello?")]))
    assert ".." not in told.value.message
