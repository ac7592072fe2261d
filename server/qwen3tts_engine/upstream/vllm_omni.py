"""Client of vLLM-Omni's WebSocket; connections are reused."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import logging
import ssl
from collections.abc import AsyncGenerator, Callable
from enum import Enum, auto
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.protocol import State as SocketState

from qwen3tts_engine.upstream.backend import ResponseDeadline, SynthesisOrder, with_extra
from qwen3tts_engine.upstream.http import (
    AGAIN,
    bad_certificate,
    garbage,
    of_fields,
    of_status,
    printable,
    unreachable,
)
from qwen3tts_engine.upstream.settings import ServerRoutes, UpstreamSettings
from qwen3tts_engine.upstream.sound import check_rate
from qwen3tts_wire.addresses import DIRECT
from qwen3tts_wire.errors import EngineFailed


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def _frame_log() -> logging.Logger:
    frames = logging.getLogger("qwen3tts_engine.upstream.frames")
    frames.setLevel(max(logging.INFO, logging.getLogger(__name__).getEffectiveLevel()))
    return frames


class OmniConnection:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.configured: dict[str, Any] | None = None
        """The last ``session.config`` sent."""
        self._watch: asyncio.Task[None] | None = None
        self._rested = False
        """True if its rest ended by itself."""

    @property
    def open(self) -> bool:
        return self._socket.state is SocketState.OPEN and not self._rested

    async def send(self, message: dict[str, Any]) -> None:
        await self._socket.send(json.dumps(message))

    async def recv(self) -> str | bytes:
        return await self._socket.recv()

    async def abort(self) -> None:
        await self.wake()
        self._socket.transport.abort()
        await self._socket.wait_closed()

    async def leave(self) -> None:
        await self.wake()
        with contextlib.suppress(ConnectionClosed, TimeoutError, OSError):
            async with asyncio.timeout(1):
                await self.send({"type": "session.close"})
                await self._socket.close(1000)
        await self.abort()

    def rest(self, idle_s: float, gone: asyncio.Queue[OmniConnection]) -> None:
        self._watch = asyncio.create_task(self._rest(idle_s, gone), name="idle upstream")

    async def wake(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.wait({watch})

    async def _rest(self, idle_s: float, gone: asyncio.Queue[OmniConnection]) -> None:
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(idle_s):
                await self._socket.recv()
        self._rested = True
        gone.put_nowait(self)


class OmniConnectionPool:
    def __init__(
        self, url: str, settings: UpstreamSettings, key: str, context: ssl.SSLContext
    ) -> None:
        self._url = url
        self._settings = settings
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._tls = context if url.startswith("wss") else None
        self._idle: list[OmniConnection] = []
        self._gone: asyncio.Queue[OmniConnection] = asyncio.Queue()
        self._sweeper: asyncio.Task[None] | None = None

    async def take(self) -> OmniConnection:
        while self._idle:
            link = self._idle.pop()
            await link.wake()
            if link.open:
                return link
            await link.abort()
        return await self.make()

    async def make(self) -> OmniConnection:
        settings = self._settings
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                socket = await _Connect(
                    self._url,
                    additional_headers=self._headers,
                    ssl=self._tls,
                    # Speech does not shrink.
                    compression=None,
                    max_size=settings.max_message_bytes,
                    max_queue=4,
                    open_timeout=None,
                    close_timeout=1,
                    # An answer would wait behind sound that is not read; ``stall_s`` looks after
                    # servers that are gone.
                    ping_interval=None,
                    logger=_frame_log(),
                    **DIRECT,
                )
        except TimeoutError as error:
            raise unreachable() from error
        except InvalidStatus as error:
            answer = error.response
            kind = answer.headers.get("Content-Type", "")
            after = answer.headers.get("Retry-After")
            raise of_status(answer.status_code, bytes(answer.body or b""), kind, after) from error
        except (InvalidHandshake, EOFError) as error:
            raise garbage("an answer that opens no WebSocket") from error
        except ssl.SSLCertVerificationError as error:
            raise bad_certificate() from error
        except OSError as error:
            raise unreachable() from error
        return OmniConnection(socket)

    async def keep(self, link: OmniConnection) -> None:
        if not link.open or len(self._idle) >= self._settings.max_idle:
            await link.leave()
            return
        self._idle.append(link)
        link.rest(self._settings.idle_s, self._gone)
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="idle upstreams")

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait({self._sweeper})
            self._sweeper = None
        idle, self._idle = self._idle, []
        await asyncio.gather(*(link.leave() for link in idle))

    async def _sweep(self) -> None:
        while True:
            link = await self._gone.get()
            if link in self._idle:
                self._idle.remove(link)
                await link.leave()


Data = str | bytes


class ExchangeState(Enum):
    ASKED = auto()
    """Nothing has come."""
    UNIT = auto()
    """Between ``audio.start`` (or the first sound) and ``audio.done``."""
    BETWEEN = auto()
    """After an ``audio.done``."""
    DONE = auto()
    """After ``session.done``: the connection may be used again."""


_MOVES = {
    (ExchangeState.ASKED, "audio.start"): ExchangeState.UNIT,
    (ExchangeState.ASKED, "sound"): ExchangeState.UNIT,
    # A server that starts a unit with its sound ends one without sound like this.
    (ExchangeState.ASKED, "audio.done"): ExchangeState.BETWEEN,
    (ExchangeState.ASKED, "session.done"): ExchangeState.DONE,
    (ExchangeState.UNIT, "sound"): ExchangeState.UNIT,
    (ExchangeState.UNIT, "audio.done"): ExchangeState.BETWEEN,
    (ExchangeState.BETWEEN, "audio.start"): ExchangeState.UNIT,
    (ExchangeState.BETWEEN, "session.done"): ExchangeState.DONE,
}


class UtteranceExchange:
    """Client's side of one utterance: messages received go through ``receive``. Pure."""

    def __init__(self) -> None:
        self.state = ExchangeState.ASKED
        self.received = 0
        """Bytes of sound so far."""
        self._handlers: dict[str, Callable[[dict[str, Any]], bytes]] = {
            "audio.start": self._start,
            "audio.chunk": self._chunk,
            "audio.done": self._done,
            "session.done": self._over,
            "error": self._error,
        }

    @property
    def done(self) -> bool:
        return self.state is ExchangeState.DONE

    def receive(self, data: Data) -> bytes:
        if isinstance(data, bytes):
            return self._sound(data)
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise garbage("a message that is no JSON") from None
        if not isinstance(message, dict):
            raise garbage("a message that is no JSON object")
        kind = message.get("type")
        handler = self._handlers.get(kind) if isinstance(kind, str) else None
        # What is not known is for other clients, or other versions.
        return b"" if handler is None else handler(message)

    def closed(self, code: int | None, reason: str = "") -> None:
        if self.done:
            return
        # Servers of early 2026 end the connection after the last unit, properly.
        if self.state is ExchangeState.BETWEEN and code in (1000, 1005):
            self.state = ExchangeState.DONE
            return
        said = printable(reason)
        shown = f" ({code} {said})".replace(" )", ")") if code not in (None, 1005, 1006) else ""
        what = "in the middle of the speech" if self.received else "before any sound"
        raise EngineFailed(f"The upstream server hung up {what}{shown}.", remedy=AGAIN)

    def _move(self, event: str) -> None:
        following = _MOVES.get((self.state, event))
        if following is None:
            raise garbage(f"{event} out of order")
        self.state = following

    def _sound(self, data: bytes) -> bytes:
        self._move("sound")
        self.received += len(data)
        return data

    def _start(self, message: dict[str, Any]) -> bytes:
        form = message.get("format", "pcm")
        if form != "pcm":
            raise garbage(f"{printable(form)[:20] or 'something'}, not pcm as asked")
        check_rate(message.get("sample_rate", 24_000), message.get("channels", 1))
        self._move("audio.start")
        return b""

    def _chunk(self, message: dict[str, Any]) -> bytes:
        audio = message.get("audio_b64") or ""
        if "sample_rate" in message:
            check_rate(message["sample_rate"])
        try:
            return self._sound(base64.b64decode(audio, validate=True)) if audio else b""
        except (binascii.Error, ValueError, TypeError):
            raise garbage("sound that is no base64") from None

    def _done(self, message: dict[str, Any]) -> bytes:
        self._move("audio.done")
        if message.get("error"):
            raise EngineFailed("The upstream server failed to say the text.", remedy=AGAIN)
        return b""

    def _over(self, _: dict[str, Any]) -> bytes:
        self._move("session.done")
        return b""

    def _error(self, message: dict[str, Any]) -> bytes:
        error = of_fields(message)
        if self.received and not isinstance(error, EngineFailed):
            # With half a sentence said, it is no longer the request that is wrong.
            error = EngineFailed(error.message, remedy=AGAIN)
        raise error


class VllmOmni:
    """Whole-text requests; without a cancel, the connection is cut."""

    # Its sound can be streamed at its usual speed only.
    options = frozenset({"instructions", "seed", "initial_codec_chunk_frames"})

    def __init__(
        self, address: ServerRoutes, settings: UpstreamSettings, key: str, context: ssl.SSLContext
    ) -> None:
        self._settings = settings
        self._extra = settings.extra_fields()
        self.links = OmniConnectionPool(address.speech, settings, key, context)
        """Connections between requests."""

    async def probe(self) -> None:
        await self.links.keep(await self.links.make())

    async def close(self) -> None:
        await self.links.close()

    def config(self, order: SynthesisOrder) -> dict[str, Any]:
        fields = {
            "type": "session.config",
            "model": self._settings.model or None,
            "response_format": "pcm",
            "stream_audio": True,
            "split_granularity": "none",
            **order.fields(),
        }
        return with_extra(fields, self._extra)

    async def speak(self, order: SynthesisOrder) -> AsyncGenerator[bytes, None]:
        link = await self.links.take()
        exchange = UtteranceExchange()
        patience = ResponseDeadline(self._settings.first_audio_s, self._settings.stall_s)
        try:
            async with patience.limit():
                await self._ask(link, order)
            while not exchange.done:
                async with patience.limit():
                    data = await link.recv()
                sound = exchange.receive(data)
                if sound:
                    yield sound
                    patience.sounded()
        except TimeoutError as error:
            raise patience.over() from error
        except ConnectionClosed as error:
            self._closed(exchange, error)
        finally:
            if exchange.done and link.open:
                await self.links.keep(link)
            else:
                await link.abort()

    async def _ask(self, link: OmniConnection, order: SynthesisOrder) -> None:
        config = self.config(order)
        if link.configured != config:
            await link.send(config)
            link.configured = config
        await link.send({"type": "input.text", "text": order.text})
        await link.send({"type": "input.done"})

    def _closed(self, exchange: UtteranceExchange, error: ConnectionClosed) -> None:
        if error.rcvd is None and error.sent is not None and error.sent.code in (1002, 1007, 1009):
            most = self._settings.max_message_bytes
            what = (
                f"a message of more than {most} bytes" if error.sent.code == 1009 else "no frames"
            )
            raise garbage(what) from error
        code = None if error.rcvd is None else error.rcvd.code
        exchange.closed(code, "" if error.rcvd is None else error.rcvd.reason)
