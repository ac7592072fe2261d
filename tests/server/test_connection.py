"""One connection with a WebSocket that a test holds shut or breaks."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.websockets import WebSocket, WebSocketDisconnect

from qwen3tts_server.dialects.native.connection import NativeConnection
from qwen3tts_server.settings import ServerSettings
from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.messages import MODES
from tests.engine.fake_engine import CHAR_SAMPLES, FakeEngine
from tests.fakes import settle


class FakeSocket:
    """Gives what ``say`` was told, keeps what is sent; ``shut`` lets nothing through."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[str | bytes] = []
        self.closed: tuple[int, str] | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.broken = False

    def say(self, *messages: dict[str, Any] | str | bytes) -> None:
        for message in messages:
            data = json.dumps(message) if isinstance(message, dict) else message
            key = "bytes" if isinstance(data, bytes) else "text"
            self.incoming.put_nowait({"type": "websocket.receive", key: data})

    def leave(self) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})

    async def receive(self) -> dict[str, Any]:
        return await self.incoming.get()

    async def send_text(self, data: str) -> None:
        await self._send(data)

    async def send_bytes(self, data: bytes) -> None:
        await self._send(data)

    async def _send(self, data: str | bytes) -> None:
        await self.open.wait()
        if self.broken:
            raise WebSocketDisconnect(1006)
        self.sent.append(data)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        self.closed = (code, reason)
        self.leave()

    def types(self) -> list[str]:
        return [json.loads(each)["type"] for each in self.sent if isinstance(each, str)]


class Served:
    """A connection under way."""

    def __init__(self, engine: FakeEngine | None = None, **settings: Any) -> None:
        self.socket = FakeSocket()
        self.engine = engine or FakeEngine()
        self.engine.started = True
        self.connection = NativeConnection(
            cast(WebSocket, self.socket), self.engine, ServerSettings(**settings)
        )
        self.task = asyncio.create_task(self.connection.run())

    async def __aenter__(self) -> Served:
        await settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.socket.open.set()
        self.socket.leave()
        async with asyncio.timeout(5):
            await self.task


OPEN = {"type": "context.open", "context_id": "a", "context_no": 1}
HELLO = {"type": "text.append", "context_id": "a", "text": "Hello there."}
END = {"type": "text.end", "context_id": "a"}


async def test_a_client_that_takes_no_answers_is_not_read_until_it_does() -> None:
    async with Served(backlog_bytes=1000) as served:
        served.socket.open.clear()
        served.socket.say(*["{"] * 500)
        await settle(50)
        left = served.socket.incoming.qsize()
        assert 480 < left < 500
        await settle(50)
        assert served.socket.incoming.qsize() == left
        served.socket.open.set()
        while served.socket.types().count("error") < 500:
            await settle()


async def test_a_client_that_sends_much_at_once_lets_others_have_their_turn() -> None:
    async with Served() as served:
        served.socket.say(OPEN, *[{**HELLO, "text": "word " * 200}] * 60)
        turns = 0
        while served.socket.incoming.qsize():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 10


async def test_the_engine_waits_for_a_client_that_takes_no_audio() -> None:
    async with Served(ahead_ms=200) as served:
        served.socket.say(OPEN)
        await settle()
        served.socket.open.clear()
        served.socket.say({**HELLO, "text": "A long sentence that goes on and on and on. "}, END)
        await settle(200)
        assert served.engine.active == 1
        served.socket.open.set()
        while "context.done" not in served.socket.types():
            await settle()
        assert served.engine.finished == 1


async def test_a_client_that_leaves_frees_everything_though_nothing_could_be_written() -> None:
    served = Served(backlog_bytes=100)
    await settle()
    served.socket.say({**OPEN, "voice": "stall"}, HELLO, END)
    await settle()
    served.socket.open.clear()
    served.socket.say(*["{"] * 50)
    await settle()
    served.socket.broken = True
    served.socket.open.set()
    served.socket.leave()
    async with asyncio.timeout(5):
        await served.task
    assert served.engine.active == 0


async def test_a_fault_of_our_own_closes_with_1011_and_leaves_a_trace(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served()
    await settle()

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a fault of our own")

    monkeypatch.setattr(served.connection._session, "receive", broken)
    served.socket.say("{}")
    async with asyncio.timeout(5):
        await served.task
    assert served.socket.closed == (1011, "the server broke")
    assert "a fault of our own" in caplog.text


async def test_a_cancelled_server_task_ends_the_connection_and_its_speech() -> None:
    served = Served()
    served.socket.say({**OPEN, "voice": "stall"}, HELLO, END)
    while not served.engine.active:
        await settle()
    served.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await served.task
    assert served.engine.active == 0


WORDS = ("Hello there. ", "and so ", "it goes on, ", "**Yes!** ", "wo", "rd. ", "Dr. ", "\n- one")
CONTEXTS = [str(no) for no in range(len(MODES))]
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*["append"] * 7, "flush", "end", "cancel", "dry", "cap", "wait", "wait"]),
        st.integers(0, 7),
    ),
    min_size=10,
    max_size=40,
)


class Call:
    """A context in each mode on one connection."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.text = dict.fromkeys(CONTEXTS, "")
        self.open = set(CONTEXTS)
        for no, mode in enumerate(MODES):
            options = {"mode": mode, "pause_flush_ms": 0, "window_ms": 60_000}
            self.say("context.open", str(no), context_no=no + 1, **options)

    def say(self, kind: str, context_id: str, **fields: Any) -> None:
        self.served.socket.say({"type": kind, "context_id": context_id, **fields})

    async def step(self, name: str, value: int) -> None:
        engine, name_of = self.served.engine, CONTEXTS[value % len(CONTEXTS)]
        if name == "dry":
            engine.dry()
        elif name == "wait":
            await settle(value)
        elif name == "cap":
            engine.cap_chars = 20 if value == 0 else None
        elif name_of in self.open:
            if name == "append":
                self.text[name_of] += WORDS[value]
                self.say("text.append", name_of, text=WORDS[value])
            elif name == "flush":
                self.say("text.flush", name_of)
            else:
                self.open.discard(name_of)
                self.say("text.end" if name == "end" else "context.cancel", name_of)

    async def finish(self) -> None:
        """End what is open, and wait until everything is over."""
        for context_id in sorted(self.open):
            self.say("text.end", context_id)
        async with asyncio.timeout(10):
            while self.over() != len(CONTEXTS):
                await settle()

    def over(self) -> int:
        types = self.served.socket.types()
        return types.count("context.done") + types.count("context.cancelled")


async def play(steps: list[tuple[str, int]]) -> None:
    """Take the steps, then look at all that came."""
    async with Served(FakeEngine(live=True, capacity=2)) as served:
        call = Call(served)
        for name, value in steps:
            await call.step(name, value)
        await call.finish()
        assert served.engine.active == 0
    over: set[str] = set()
    samples = dict.fromkeys(CONTEXTS, 0)
    words: dict[str, list[dict[str, Any]]] = {each: [] for each in CONTEXTS}
    for data in served.socket.sent:
        if isinstance(data, bytes):
            frame = AudioFrame.from_bytes(data)
            context_id = str(frame.context_no - 1)
            assert frame.offset == samples[context_id]
            samples[context_id] += len(frame.data) // 2
            assert context_id not in over
            continue
        message = json.loads(data)
        if (context_id := message.get("context_id")) is None:
            continue
        assert message["type"] != "error"
        assert context_id not in over
        text = call.text[context_id]
        if message["type"] == "alignment":
            words[context_id] += message["words"]
        elif message["type"] == "context.cancelled":
            over.add(context_id)
            assert message["text_heard"] + message["text_remaining"] == text
        elif message["type"] == "context.done":
            over.add(context_id)
            if message["reason"] != "frame_cap":
                said = "".join(word["text"] for word in words[context_id])
                assert [c for c in said if c.isalpha()] == [c for c in text if c.isalpha()]
                assert samples[context_id] >= sum(map(str.isalpha, text)) * CHAR_SAMPLES
    for each in words.values():
        places = [word["char_start"] for word in each]
        assert places == sorted(places)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_no_sound_comes_after_a_cancel_and_all_text_is_said_once(
    steps: list[tuple[str, int]],
) -> None:
    asyncio.run(play(steps))
