"""The client against servers that do what a test tells them, on 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import websockets
from websockets.asyncio.server import ServerConnection, serve

from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import (
    BadRequest,
    ConnectionLost,
    EngineFailed,
    EngineUnavailable,
    LimitExceeded,
    ProtocolError,
    ServerBusy,
    SpeechError,
)
from qwen3tts_wire.events import Audio, Cancelled, Done, Started
from qwen3tts_wire.fields import encode
from qwen3tts_wire.formats import FORMATS, AudioFrame
from qwen3tts_wire.messages import (
    PROTOCOL,
    AlignmentInfo,
    ContextDone,
    ContextStarted,
    ErrorInfo,
    ServerDraining,
    WordInfo,
)
from tests.fakes import settle
from tests.wire.pair import GREETING

pytestmark = pytest.mark.network

Handler = Callable[[ServerConnection], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(handler: Handler, subprotocol: str | None = PROTOCOL) -> AsyncIterator[str]:
    names = None if subprotocol is None else [websockets.Subprotocol(subprotocol)]
    async with serve(handler, "127.0.0.1", 0, subprotocols=names) as running:
        port = running.sockets[0].getsockname()[1]
        yield f"ws://127.0.0.1:{port}/v1/speech"


class Script:
    """A server that greets, answers pings, and records all other messages."""

    def __init__(self) -> None:
        self.socket: ServerConnection | None = None
        self.got: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.close_code: int | None = None

    async def __call__(self, connection: ServerConnection) -> None:
        self.socket = connection
        await connection.send(encode(GREETING))
        with contextlib.suppress(websockets.ConnectionClosedError):
            await self.converse(connection)
        self.close_code = connection.close_code
        self.gone.set()

    async def converse(self, connection: ServerConnection) -> None:
        async for data in connection:
            fields = json.loads(data)
            if fields["type"] == "ping":
                now = fields["client_time_ms"] + 5000
                pong = {**fields, "type": "pong", "received_ms": now, "sent_ms": now}
                await connection.send(json.dumps(pong))
            else:
                await self.got.put(fields)

    async def expect(self, kind: str) -> dict[str, Any]:
        """The next message, which is to be of that type."""
        async with asyncio.timeout(5):
            fields = await self.got.get()
        assert fields["type"] == kind
        return fields

    async def send(self, message: Any) -> None:
        assert self.socket is not None
        data = message if isinstance(message, (str, bytes)) else encode(message)
        await self.socket.send(data)

    def vanish(self) -> None:
        """As when the process is killed: no close frame."""
        assert self.socket is not None
        self.socket.transport.abort()


@contextlib.asynccontextmanager
async def talking() -> AsyncIterator[tuple[Script, SpeechClient]]:
    script = Script()
    async with server(script) as url, await SpeechClient.connect(url) as client:
        yield script, client


# --- connecting ---


async def test_the_greeting_and_the_clock_are_known_once_connected() -> None:
    async with talking() as (_, client):
        assert client.session == GREETING
        assert client.clock_offset_s == pytest.approx(5.0, abs=0.5)
        assert 0 <= client.rtt_s < 1
        assert not client.closed


async def test_nobody_there_is_a_lost_connection_that_says_how_to_start_one() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(ConnectionLost, match="mr-qwen3tts serve") as caught:
            await SpeechClient.connect(f"ws://127.0.0.1:{port}/v1/speech")
    assert str(port) in str(caught.value)


async def test_somebody_who_never_answers_is_a_lost_connection_after_the_time_given() -> None:
    async def silent(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async with server(silent) as url:
        with pytest.raises(ConnectionLost, match=r"within 0\.1 s"):
            await SpeechClient.connect(url, open_timeout=0.1)


async def test_a_server_of_another_kind_is_a_protocol_error() -> None:
    async def echo(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async with server(echo, subprotocol=None) as url:
        with pytest.raises(ProtocolError, match="does not speak"):
            await SpeechClient.connect(url)


async def test_something_that_is_no_websocket_is_a_protocol_error() -> None:
    async def smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(smtp, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(ProtocolError, match="not a WebSocket server"):
            await SpeechClient.connect(f"ws://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "127.0.0.1:1", "", "ws:///x", "ws://127.0.0.1:99999/", "ws://[::1"]
)
async def test_what_is_no_address_is_a_bad_request(url: str) -> None:
    with pytest.raises(BadRequest):
        await SpeechClient.connect(url)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (1013, "full", ServerBusy),
        (1002, "no", ProtocolError),
        (1012, "stopping", ConnectionLost),
        (1011, "broke", ConnectionLost),
    ],
)
async def test_a_close_instead_of_a_greeting_is_told_apart_by_its_code(
    code: int, reason: str, kind: type[SpeechError]
) -> None:
    async def close(connection: ServerConnection) -> None:
        await connection.close(code, reason)

    async with server(close) as url:
        with pytest.raises(kind, match=f"{code} {reason}"):
            await SpeechClient.connect(url)


async def test_a_server_of_another_version_is_a_protocol_error() -> None:
    async def other(connection: ServerConnection) -> None:
        await connection.send(encode(GREETING).replace("speech.v1", "speech.v9"))
        await connection.wait_closed()

    async with server(other) as url:
        with pytest.raises(ProtocolError, match="v9"):
            await SpeechClient.connect(url)


# --- speaking ---


async def test_events_come_in_order_and_the_iteration_ends_with_done() -> None:
    async with talking() as (script, client):
        context = await client.open(context_id="a", voice="v")
        await context.append("Hi.")
        await context.end()
        assert (await script.expect("context.open"))["voice"] == "v"
        await script.expect("text.append")
        await script.expect("text.end")
        await script.send(ContextStarted("a", 1, "clause", FORMATS[0]))
        await script.send(AlignmentInfo("a", (WordInfo("Hi.", 0, 2, 0, 3),)))
        await script.send(AudioFrame(1, 0, b"\1\2\3\4", 1).to_bytes())
        await script.send(ContextDone("a", 2, 3, 1))
        events = [event async for event in context]
        assert [type(e).__name__ for e in events] == ["Started", "Alignment", "Audio", "Done"]
        assert context.heard(2).text_heard == "Hi."
        assert context.received == 2


async def test_an_error_ends_only_its_context() -> None:
    async with talking() as (script, client):
        bad = await client.open(context_id="bad")
        good = await client.open(context_id="good")
        await script.expect("context.open")
        await script.expect("context.open")
        await script.send(AudioFrame(1, 0, b"\1\2").to_bytes())
        await script.send(ErrorInfo("engine_failed", "Broke.", "Again.", "bad", ends="context"))
        await script.send(ContextStarted("good", 2, "clause", FORMATS[0]))
        assert isinstance(await anext(good), Started)
        assert isinstance(await anext(bad), Audio)
        with pytest.raises(EngineFailed, match=r"Broke\. Again\."):
            await anext(bad)
        with pytest.raises(StopAsyncIteration):
            await anext(bad)
        with pytest.raises(EngineFailed):
            await bad.append("more")
        await good.append("more")
        assert (await bad.cancel(0)).confirmed is False


async def test_a_server_that_vanishes_ends_every_context_with_a_lost_connection() -> None:
    async with talking() as (script, client):
        one = await client.open(context_id="one")
        two = await client.open(context_id="two")
        await one.append("Hello there. And more.")
        for kind in ("context.open", "context.open", "text.append"):
            await script.expect(kind)
        await script.send(AlignmentInfo("one", (WordInfo("Hello", 0, 2, 0, 5),)))
        await script.send(AudioFrame(1, 0, b"\1\2\3\4").to_bytes())
        await anext(one)
        script.vanish()
        assert isinstance(await anext(one), Audio)
        for context in (one, two):
            with pytest.raises(ConnectionLost, match="lost") as caught:
                await anext(context)
            assert caught.value.context_id == context.context_id
        assert one.text == "Hello there. And more."
        assert one.heard(2).text_remaining == " there. And more."
        assert client.closed
        with pytest.raises(ConnectionLost):
            await client.open()
        with pytest.raises(ConnectionLost):
            await one.append("more")
        cut = await one.cancel(2)
        assert (cut.text_heard, cut.confirmed) == ("Hello", False)


async def test_a_cancel_that_the_server_never_answers_is_worked_out_here() -> None:
    async with talking() as (script, client):
        context = await client.open(context_id="a")
        await context.append("Hello.")
        answer = context.cancel(0)
        for kind in ("context.open", "text.append", "context.cancel"):
            await script.expect(kind)
        script.vanish()
        assert await answer == Cancelled(0, 0, "", "Hello.", 0, False)


async def test_a_cancel_is_sent_even_if_nobody_awaits_it_and_drops_audio_at_once() -> None:
    async with talking() as (script, client):
        context = await client.open(context_id="a")
        await script.expect("context.open")
        await script.send(AudioFrame(1, 0, b"\1\2").to_bytes())
        await anext(context)
        await script.send(AudioFrame(1, 1, b"\1\2").to_bytes())
        context.cancel(1)
        assert (await script.expect("context.cancel"))["played"] == 1
        await script.send(AudioFrame(1, 2, b"\1\2").to_bytes())
        assert [event async for event in context] == []
        assert context.cancel() is context.cancel(5)


async def test_credit_is_given_back_as_audio_is_taken() -> None:
    async with talking() as (script, client):
        context = await client.open(context_id="a", window_ms=40.0)
        await script.expect("context.open")
        for i in range(2):
            await script.send(AudioFrame(1, 480 * i, bytes(960)).to_bytes())
        await anext(context)
        assert (await script.expect("audio.credit"))["window_ms"] == 20.0
        await anext(context)
        assert (await script.expect("audio.credit"))["window_ms"] == 20.0


async def test_a_context_that_is_not_read_does_not_hold_up_another() -> None:
    async with talking() as (script, client):
        await client.open(context_id="stalled", window_ms=1000.0)
        lively = await client.open(context_id="lively", window_ms=1000.0)
        for _ in range(2):
            await script.expect("context.open")
        await script.send(AudioFrame(1, 0, bytes(48_000)).to_bytes())
        for i in range(40):
            await script.send(AudioFrame(2, 2400 * i, bytes(4800)).to_bytes())
            assert isinstance(await anext(lively), Audio)


async def test_audio_beyond_the_credit_ends_the_context_and_stops_the_server() -> None:
    async with talking() as (script, client):
        context = await client.open(context_id="a", window_ms=20.0)
        await script.expect("context.open")
        await script.send(AudioFrame(1, 0, bytes(96_000)).to_bytes())
        with pytest.raises(ProtocolError, match="more audio"):
            await anext(context)
        await script.expect("context.cancel")
        assert not client.closed


@pytest.mark.parametrize("data", ["{", b"short", '{"type":"pong"}'])
async def test_nonsense_from_the_server_ends_the_connection_with_1002(data: str | bytes) -> None:
    async with talking() as (script, client):
        context = await client.open()
        await script.send(data)
        with pytest.raises(ProtocolError):
            await anext(context)
        async with asyncio.timeout(5):
            await script.gone.wait()
        assert script.close_code == 1002


async def test_a_server_that_drains_takes_no_new_context_and_the_open_one_goes_on() -> None:
    async with talking() as (script, client):
        context = await client.open(context_id="a")
        await script.expect("context.open")
        await script.send(ServerDraining(1000.0))
        await script.send(ContextStarted("a", 1, "clause", FORMATS[0]))
        assert isinstance(await anext(context), Started)
        assert client.draining.is_set()
        with pytest.raises(ServerBusy):
            await client.open()
        await context.append("still")


async def test_closing_ends_what_is_still_read_with_code_1000() -> None:
    script = Script()
    async with server(script) as url:
        client = await SpeechClient.connect(url)
        context = await client.open()
        await client.close()
        with pytest.raises(ConnectionLost, match="This side"):
            await anext(context)
        await client.close()
        async with asyncio.timeout(5):
            await script.gone.wait()
        assert script.close_code == 1000


async def test_text_of_the_context_is_what_was_sent_with_halves_joined() -> None:
    async with talking() as (_, client):
        context = await client.open()
        for delta in ("Hi ", "\ud83d", "\ude00", "\ud83d"):
            await context.append(delta)
        await context.end()
        assert context.text == "Hi \U0001f600\ufffd"


async def test_text_beyond_the_bound_is_refused_and_the_context_goes_on() -> None:
    async with talking() as (script, client):
        context = await client.open()
        with pytest.raises(LimitExceeded, match="100000"):
            await context.append("x" * 100_001)
        await context.append("fits")
        await script.expect("context.open")
        assert (await script.expect("text.append"))["text"] == "fits"
        assert context.text == "fits"


async def test_append_waits_while_the_server_does_not_read() -> None:
    ready = asyncio.Event()

    async def deaf(connection: ServerConnection) -> None:
        await connection.send(encode(GREETING))
        ping = json.loads(await connection.recv())
        pong = {**ping, "type": "pong", "received_ms": 0, "sent_ms": 0}
        await connection.send(json.dumps(pong))
        connection.transport.pause_reading()
        await ready.wait()
        connection.transport.abort()

    async with server(deaf) as url:
        client = await SpeechClient.connect(url)

        async def flood() -> None:
            while True:
                context = await client.open()
                await context.append("x" * 99_000)

        async with asyncio.timeout(5):
            flooding = asyncio.ensure_future(flood())
            while client._connection.room.is_set():
                await settle()
            ready.set()
            with pytest.raises(ConnectionLost):
                await flooding
        await client.close()


async def test_contexts_that_are_done_are_forgotten_in_the_end() -> None:
    async with talking() as (script, client):
        first = None
        for no in range(1, 80):
            context = await client.open(context_id=f"k{no}")
            first = first or context
            await context.end()
            await script.expect("context.open")
            await script.expect("text.end")
            await script.send(ContextDone(f"k{no}", 0, 0, 0))
            assert isinstance(await anext(context), Done)
        assert first is not None
        assert (await first.cancel(0)).confirmed is False
        assert script.got.empty()


async def test_a_cancel_of_a_context_that_the_server_has_forgotten_is_worked_out_here() -> None:
    async with talking() as (script, client):
        context = await client.open(context_id="a")
        await context.append("Hello.")
        await context.end()
        for kind in ("context.open", "text.append", "text.end"):
            await script.expect(kind)
        await script.send(AlignmentInfo("a", (WordInfo("Hello.", 0, 10, 0, 6),)))
        await script.send(AudioFrame(1, 0, bytes(20)).to_bytes())
        await script.send(ContextDone("a", 10, 6, 1))
        async for _ in context:
            pass
        answer = context.cancel(10)
        await script.expect("context.cancel")
        await script.send(ErrorInfo("bad_request", "Not known.", context_id="a"))
        assert await answer == Cancelled(10, 10, "Hello.", "", 10, False)


async def test_an_error_that_ends_nothing_ends_nothing() -> None:
    async with talking() as (script, client):
        context = await client.open(context_id="a")
        await script.expect("context.open")
        await script.send(ErrorInfo("bad_request", "No.", context_id="a"))
        await script.send(ContextStarted("a", 1, "clause", FORMATS[0]))
        assert isinstance(await anext(context), Started)


async def test_an_error_that_ends_the_connection_ends_every_context() -> None:
    async with talking() as (script, client):
        context = await client.open()
        await script.send(ErrorInfo("engine_unavailable", "Gone.", ends="connection"))
        with pytest.raises(EngineUnavailable, match="Gone"):
            await anext(context)
        assert client.closed


async def test_flushes_and_reports_are_sent_and_a_report_serves_a_later_cancel() -> None:
    async with talking() as (script, client):
        context = await client.open(context_id="a")
        await context.flush()
        await context.report(5, "starved")
        for kind in ("context.open", "text.flush"):
            await script.expect(kind)
        report = await script.expect("playout.report")
        assert (report["played"], report["state"]) == (5, "starved")
        answer = context.cancel()
        await context.report(6)
        script.vanish()
        assert (await answer).played == 6


async def test_a_position_before_the_start_is_the_start() -> None:
    async with talking() as (script, client):
        context = await client.open(context_id="a")
        await context.report(-3)
        await script.expect("context.open")
        assert (await script.expect("playout.report"))["played"] == 0
        context.cancel(-1)
        assert (await script.expect("context.cancel"))["played"] == 0


async def test_what_is_no_position_is_refused_and_stops_nothing() -> None:
    async with talking() as (_, client):
        context = await client.open(context_id="a")
        for wrong in ("x", None, float("nan")):
            with pytest.raises(BadRequest, match="number of samples"):
                await context.report(wrong)  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="number of samples"):
            context.cancel("x")  # type: ignore[arg-type]
        assert not context.cancelling
        with pytest.raises(BadRequest, match="state"):
            await context.report(1, "dancing")


async def test_a_fault_of_our_own_ends_every_context_and_leaves_a_trace(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    async with talking() as (script, client):
        context = await client.open(context_id="a")
        monkeypatch.setattr(client.protocol, "receive_data", broken)
        await script.send(ErrorInfo("bad_request", "No."))
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionLost, match="client broke"):
                await anext(context)
            await script.gone.wait()
        assert script.close_code == 1011
    assert "ZeroDivisionError" in caplog.text


async def test_what_is_said_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with talking() as (script, client):
            context = await client.open()
            await context.append("Confidential words.")
            await script.expect("context.open")
            await script.expect("text.append")
    theirs = [each for each in caplog.records if not each.name.startswith("websockets.server")]
    assert not [each for each in theirs if "Confidential" in each.getMessage()]


async def test_the_socket_sends_small_messages_at_once() -> None:
    async with talking() as (_, client):
        sock = client._connection.socket.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert client._connection.socket.protocol.extensions == []


# --- whether it is connected ---


async def test_a_client_tells_that_it_is_connected_idle_and_when_it_is_away() -> None:
    async with talking() as (script, client):
        assert (client.connected, client.idle) == (True, True)
        await client.ready()
        away = asyncio.create_task(client.away())
        context = await client.open(context_id="a")
        await script.expect("context.open")
        assert (client.idle, away.done()) == (False, False)
        script.vanish()
        await away
        assert (client.connected, client.idle) == (False, True)
        with pytest.raises(ConnectionLost):
            await client.ready()
        with pytest.raises(ConnectionLost):
            await anext(context)
        await client.away()


async def test_a_client_is_away_when_its_server_asks_to_leave_and_idle_when_all_is_said() -> None:
    async with talking() as (script, client):
        context = await client.open(context_id="a")
        await context.end()
        opened = await script.expect("context.open")
        await script.send(ServerDraining(1000))
        await client.away()
        assert [client.connected, client.idle, client.closed] == [False, False, False]
        with pytest.raises(ServerBusy):
            await client.ready()
        await script.send(ContextStarted("a", opened["context_no"], "clause", FORMATS[0], "v"))
        await script.send(ContextDone("a", 0, 0, 0))
        assert [type(event) async for event in context] == [Started, Done]
        assert client.idle


async def test_a_voice_that_is_being_loaded_is_under_way() -> None:
    async with talking() as (script, client):
        load = asyncio.create_task(client.load_voice(voice_id="anna"))
        await script.expect("voice.load")
        assert not client.idle
        load.cancel()
        await asyncio.wait([load])
        assert client.idle
