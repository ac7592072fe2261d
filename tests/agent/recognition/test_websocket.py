from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from qwen3tts_agent.recognition.kinds import check_recogniser, recogniser_named
from qwen3tts_agent.recognition.settings import SocketSettings
from qwen3tts_agent.recognition.socket_protocol import SUBPROTOCOL
from qwen3tts_agent.recognition.websocket import SocketRecogniser, SocketRecognition
from qwen3tts_phone.detection.recogniser import (
    Recogniser,
    RecogniserReport,
    RecogniserUnavailable,
    RecognitionFailed,
    RecognitionTimeout,
    Transcript,
)
from tests.agent.recognition.sounds import RATE, Talk, tone
from tests.fakes import FakeClock, settle

pytestmark = pytest.mark.network

BOUND_S = 20.0
"""A test that takes longer has failed."""

Behaviour = Callable[["Peer", ServerConnection], Awaitable[None]]


class Peer:
    """Scripted recogniser's server that remembers what it was sent."""

    def __init__(self) -> None:
        self.calls: list[list[dict[str, Any] | bytes]] = []
        self.came = asyncio.Event()
        self.behaviour: Behaviour = understand
        self.url = ""
        self.status = 101
        self.keys: list[str | None] = []

    async def call(self, socket: ServerConnection) -> None:
        self.calls.append([])
        await self.behaviour(self, socket)

    async def next(self, socket: ServerConnection) -> dict[str, Any] | bytes:
        message = await socket.recv()
        self.calls[-1].append(message if isinstance(message, bytes) else json.loads(message))
        self.came.set()
        return self.calls[-1][-1]

    async def until(self, socket: ServerConnection, kind: str) -> dict[str, Any]:
        while True:
            message = await self.next(socket)
            if isinstance(message, dict) and message["type"] == kind:
                return message

    async def say(self, socket: ServerConnection, kind: str, **fields: Any) -> None:
        await socket.send(json.dumps({"type": kind, **fields}))

    def check(self, socket: ServerConnection, request: Request) -> Response | None:
        self.keys.append(request.headers.get("Authorization"))
        return None if self.status == 101 else socket.respond(self.status, "no\n")

    def samples(self, call: int = -1) -> int:
        return sum(len(each) // 2 for each in self.calls[call] if isinstance(each, bytes))

    def kinds(self, call: int = -1) -> list[str]:
        return [each["type"] for each in self.calls[call] if isinstance(each, dict)]


async def understand(peer: Peer, socket: ServerConnection) -> None:
    """Says how many samples each turn had."""
    await peer.until(socket, "start")
    await peer.say(socket, "ready")
    while True:
        end = await peer.until(socket, "turn.end")
        text = f"{peer.samples()} samples"
        await peer.say(socket, "final", turn=end["turn"], text=text, language="en", confidence=0.5)


@asynccontextmanager
async def peer(behaviour: Behaviour = understand) -> AsyncIterator[Peer]:
    it = Peer()
    it.behaviour = behaviour
    async with (
        asyncio.timeout(BOUND_S),
        serve(it.call, "127.0.0.1", 0, process_request=it.check, close_timeout=0.2) as server,
    ):
        it.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/asr?token=hidden"
        yield it


@asynccontextmanager
async def call(
    url: str, *, clock: FakeClock | None = None, **settings: Any
) -> AsyncIterator[SocketRecognition]:
    recogniser = SocketRecogniser(SocketSettings(url, **settings), clock=clock)
    recognition = await recogniser.open()
    try:
        yield recognition
    finally:
        await recogniser.close()


async def test_a_turn_is_sent_and_its_text_comes_back() -> None:
    async with peer() as there, call(there.url) as recognition:
        while not recognition.connections:
            await settle()
        last = Talk(recognition).turn(tone(1.0))
        recognition.pause(last)
        text = await recognition.end_turn(last)
        assert text == Transcript(f"{there.samples()} samples", "en", 0.5)
        assert there.samples() == pytest.approx(1.7 * RATE, abs=400)
        assert there.kinds() == ["start", "turn.begin", "turn.pause", "turn.end"]


async def test_what_is_understood_so_far_is_told() -> None:
    async def chatty(there: Peer, socket: ServerConnection) -> None:
        await there.until(socket, "start")
        await there.say(socket, "ready")
        begin = await there.until(socket, "turn.begin")
        await there.say(socket, "partial", turn=begin["turn"], text="good")
        await there.say(socket, "unheard-of", turn=begin["turn"])
        await there.say(socket, "partial", turn=begin["turn"], text="good mor")
        await there.until(socket, "turn.end")
        await there.say(socket, "final", turn=begin["turn"], text="good morning")

    heard: list[str] = []
    last_partial = asyncio.Event()

    def partial(transcript: Transcript) -> None:
        heard.append(transcript.text)
        if len(heard) == 2:
            last_partial.set()
        raise RuntimeError("the listener's own fault")

    async with peer(chatty) as there:
        recogniser = SocketRecogniser(SocketSettings(there.url))
        recognition = await recogniser.open(partial)
        last = Talk(recognition).turn(tone(1.0))
        await last_partial.wait()
        assert (await recognition.end_turn(last)).text == "good morning"
        assert heard == ["good", "good mor"]
        await recogniser.close()


async def test_a_lost_connection_is_made_again_and_the_turn_is_not_lost() -> None:
    async def breaks_once(there: Peer, socket: ServerConnection) -> None:
        if len(there.calls) == 1:
            await there.until(socket, "start")
            await there.say(socket, "ready")
            await there.until(socket, "turn.end")
            socket.transport.abort()
        else:
            await understand(there, socket)

    async with peer(breaks_once) as there, call(there.url) as recognition:
        last = Talk(recognition).turn(tone(1.0))
        text = await recognition.end_turn(last)
        assert text.text == f"{there.samples()} samples"
        assert there.samples() == pytest.approx(1.6 * RATE, abs=400)
        assert recognition.connections == 2
        assert recognition.failure is None


async def test_a_server_that_comes_late_still_hears_the_turn() -> None:
    async def later(there: Peer, socket: ServerConnection) -> None:
        if len(there.calls) <= 2:
            await socket.close(1013)
        else:
            await understand(there, socket)

    async with peer(later) as there, call(there.url) as recognition:
        last = Talk(recognition).turn(tone(0.5))
        assert (await recognition.end_turn(last)).text.endswith("samples")


async def test_a_server_that_does_not_answer_costs_the_turn_not_the_call() -> None:
    async def silent_once(there: Peer, socket: ServerConnection) -> None:
        await there.until(socket, "start")
        await there.say(socket, "ready")
        await there.until(socket, "turn.end")
        cancelled = await there.until(socket, "turn.cancel")
        await there.say(socket, "final", turn=cancelled["turn"], text="too late")
        end = await there.until(socket, "turn.end")
        await there.say(socket, "final", turn=end["turn"], text="in time")

    async with peer(silent_once) as there, call(there.url, answer_timeout_s=1.0) as recognition:
        talk = Talk(recognition)
        with pytest.raises(RecognitionTimeout, match=r"did not answer within 1 s") as caught:
            await recognition.end_turn(talk.turn(tone(0.5)))
        assert "hidden" not in str(caught.value)
        assert (await recognition.end_turn(talk.turn(tone(0.5)))).text == "in time"


async def test_a_turn_that_the_server_cannot_do() -> None:
    async def unable(there: Peer, socket: ServerConnection) -> None:
        await there.until(socket, "start")
        await there.say(socket, "ready")
        end = await there.until(socket, "turn.end")
        await there.say(socket, "error", turn=end["turn"], message="out of memory")
        end = await there.until(socket, "turn.end")
        await there.say(socket, "final", turn=end["turn"], text="fine")

    async with peer(unable) as there, call(there.url) as recognition:
        talk = Talk(recognition)
        with pytest.raises(RecognitionFailed, match="out of memory"):
            await recognition.end_turn(talk.turn(tone(0.5)))
        assert (await recognition.end_turn(talk.turn(tone(0.5)))).text == "fine"


@pytest.mark.parametrize("nonsense", ["no json", b"\1\2", '{"type":"final","turn":1}'])
async def test_a_server_that_talks_nonsense_is_left_and_tried_again(nonsense: str | bytes) -> None:
    async def mad(there: Peer, socket: ServerConnection) -> None:
        if len(there.calls) == 2:
            await understand(there, socket)
        await there.until(socket, "start")
        await there.say(socket, "ready")
        await there.until(socket, "turn.begin")
        await socket.send(nonsense)
        await socket.wait_closed()
        assert socket.close_code == 1002

    async with peer(mad) as there, call(there.url) as recognition:
        assert (await recognition.end_turn(Talk(recognition).turn(tone(0.5)))).text
        assert recognition.connections == 2


async def test_a_server_that_breaks_over_every_turn_is_not_tried_for_ever() -> None:
    async def breaks(there: Peer, socket: ServerConnection) -> None:
        await there.until(socket, "start")
        await there.say(socket, "ready")
        await there.until(socket, "turn.end")
        await there.say(socket, "error", message="I give up")

    async with peer(breaks) as there, call(there.url) as recognition:
        with pytest.raises(RecognitionFailed, match="3 connections"):
            await recognition.end_turn(Talk(recognition).turn(tone(0.2)))


async def test_a_server_that_takes_nothing_is_left() -> None:
    async def deaf(there: Peer, socket: ServerConnection) -> None:
        if len(there.calls) > 1:
            await understand(there, socket)
        await there.until(socket, "start")
        await there.say(socket, "ready")
        socket.transport.pause_reading()
        await socket.wait_closed()

    async with peer(deaf) as there, call(there.url, behind_s=0.5) as recognition:
        talk = Talk(recognition)
        while not recognition.connections:
            await settle()
        recognition.begin_turn(talk.at)
        while recognition.failure is None:
            talk.say(tone(0.2))  # the system's own buffers take some of it
            await settle()
        assert "more slowly" in str(recognition.failure)
        recognition.begin_turn(talk.at)
        talk.say(tone(0.2))
        assert (await recognition.end_turn(talk.at)).text.endswith("samples")


@pytest.mark.parametrize(
    ("status", "kind", "match"),
    [
        (401, RecogniserUnavailable, "asks for a key"),
        (404, RecogniserUnavailable, "HTTP 404"),
        (503, RecognitionFailed, "overloaded"),
    ],
)
async def test_a_server_that_refuses(status: int, kind: type[Exception], match: str) -> None:
    async with peer() as there:
        there.status = status
        recogniser = SocketRecogniser(SocketSettings(there.url))
        with pytest.raises(kind, match=match) as caught:
            await recogniser.warm()
        assert "hidden" not in str(caught.value)


async def test_a_refusal_for_good_is_said_at_once() -> None:
    async with peer() as there, call(there.url, clock=FakeClock()) as recognition:
        there.status = 401
        talk = Talk(recognition)
        with pytest.raises(RecogniserUnavailable, match="asks for a key"):
            await recognition.end_turn(talk.turn(tone(0.5)))
        with pytest.raises(RecogniserUnavailable, match="asks for a key"):
            await recognition.end_turn(talk.turn(tone(0.5)))


async def test_a_server_that_never_gets_ready() -> None:
    async def slow(there: Peer, socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with peer(slow) as there:
        recogniser = SocketRecogniser(SocketSettings(there.url, open_timeout_s=0.3))
        with pytest.raises(RecognitionFailed, match="was not ready"):
            await recogniser.warm()


async def test_a_server_that_says_why_it_takes_nobody() -> None:
    async def full(there: Peer, socket: ServerConnection) -> None:
        await there.say(socket, "error", message="all lines are taken")

    async with peer(full) as there:
        with pytest.raises(RecognitionFailed, match="all lines are taken"):
            await SocketRecogniser(SocketSettings(there.url)).warm()


async def test_nobody_listens_there() -> None:
    async with peer() as there:
        url = there.url
    recogniser = SocketRecogniser(SocketSettings(url))
    with pytest.raises(RecognitionFailed, match="cannot be reached") as caught:
        await recogniser.warm()
    assert "whether its server runs" in caught.value.remedy


async def test_what_answers_is_no_websocket() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
        writer.close()

    async with asyncio.timeout(BOUND_S):
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(RecogniserUnavailable, match="not a WebSocket"):
                await SocketRecogniser(SocketSettings(url)).warm()


async def test_connecting_again_waits_longer_each_time() -> None:
    clock = FakeClock()
    async with peer() as there:
        url = there.url
    async with asyncio.timeout(BOUND_S), call(url, clock=clock):
        waits = []
        for _ in range(7):
            while not clock._sleepers:
                await settle()
            deadline = clock._sleepers[0][0]
            waits.append(round(deadline - clock.now(), 3))
            await clock.advance(deadline - clock.now())
    assert waits == [0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


async def test_the_key_goes_along_and_is_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("QWEN3TTS_STT_KEY", "from-the-environment")
    async with peer() as there:
        await SocketRecogniser(SocketSettings(there.url)).warm()
        settings = SocketSettings(there.url, api_key="from-the-settings")
        async with call(there.url, api_key="from-the-settings") as recognition:
            await recognition.end_turn(Talk(recognition).turn(tone(0.5)))
    assert there.keys == ["Bearer from-the-environment", "Bearer from-the-settings"]
    ours = [each.getMessage() for each in caplog.records if "server" not in each.name]
    shown = repr(settings) + "".join(ours)
    assert not any(word in shown for word in ("from-the", "hidden", "samples"))


async def test_the_end_of_the_call_is_the_end_of_the_connection() -> None:
    gone = asyncio.Event()

    async def silent(there: Peer, socket: ServerConnection) -> None:
        await there.until(socket, "start")
        await there.say(socket, "ready")
        await there.until(socket, "turn.end")
        await socket.wait_closed()
        gone.set()

    async with peer(silent) as there:
        recogniser: Recogniser = recogniser_named(there.url)
        recognition = await recogniser.open()
        text = asyncio.ensure_future(recognition.end_turn(Talk(recognition).turn(tone(0.5))))
        while not there.calls or "turn.end" not in there.kinds():
            there.came.clear()
            await there.came.wait()
        await recognition.close()
        with pytest.raises(RecognitionFailed, match="over before"):
            await text
        await gone.wait()
        await recogniser.close()
        with pytest.raises(RecognitionFailed, match="is closed"):
            await recogniser.open()


async def test_a_turn_that_nobody_waits_for_is_cancelled_there() -> None:
    async with peer(_never) as there, call(there.url) as recognition:
        text = asyncio.ensure_future(recognition.end_turn(Talk(recognition).turn(tone(0.5))))
        while not there.calls or "turn.end" not in there.kinds():
            there.came.clear()
            await there.came.wait()
        text.cancel()
        await settle()
        while "turn.cancel" not in there.kinds():
            there.came.clear()
            await there.came.wait()


async def _never(there: Peer, socket: ServerConnection) -> None:
    await there.until(socket, "start")
    await socket.send('{"type":"ready"}')
    await there.until(socket, "never")


async def test_the_protocols_name_is_offered() -> None:
    offered = []

    async def look(there: Peer, socket: ServerConnection) -> None:
        assert socket.request is not None
        offered.append(socket.request.headers.get("Sec-WebSocket-Protocol"))
        await understand(there, socket)

    async with peer(look) as there:
        await SocketRecogniser(SocketSettings(there.url)).warm()
    assert offered == [SUBPROTOCOL]


async def test_a_check_says_where_the_sound_would_go() -> None:
    async with peer() as there:
        report = await check_recogniser(there.url, languages=("de",))
    shown = there.url.partition("?")[0]
    assert report == RecogniserReport(kind="ws", language="de", address=shown)


async def test_a_check_raises_as_a_call_would_fail() -> None:
    with pytest.raises(RecognitionFailed, match="cannot be reached"):
        await check_recogniser("ws://127.0.0.1:1/asr")
