"""WebSockets to one server, kept between utterances; each carries one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.protocol import State as SocketState

from qwen3tts_engine.upstream.faults import garbage, of_status
from qwen3tts_engine.upstream.http import bad_certificate, unreachable
from qwen3tts_engine.upstream.settings import UpstreamSettings
from qwen3tts_wire.dialling import DIRECT


class _Connect(connect):
    """Goes where it was told: a redirect could carry the key elsewhere."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def _frame_log() -> logging.Logger:
    """Where the library writes; never what is said, which it would write while debugging."""
    frames = logging.getLogger("qwen3tts_engine.upstream.frames")
    frames.setLevel(max(logging.INFO, logging.getLogger(__name__).getEffectiveLevel()))
    return frames


class Link:
    """One connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.configured: dict[str, Any] | None = None
        """The last ``session.config`` sent."""
        self._watch: asyncio.Task[None] | None = None
        self._rested = False
        """Whether its rest ended by itself."""

    @property
    def open(self) -> bool:
        """Whether it can still be used, as far as is known."""
        return self._socket.state is SocketState.OPEN and not self._rested

    async def send(self, message: dict[str, Any]) -> None:
        """Send JSON."""
        await self._socket.send(json.dumps(message))

    async def recv(self) -> str | bytes:
        """The next message."""
        return await self._socket.recv()

    async def abort(self) -> None:
        """End it at once: a server that reads nothing while it speaks learns it by this alone."""
        await self.wake()
        self._socket.transport.abort()
        await self._socket.wait_closed()

    async def leave(self) -> None:
        """Say goodbye; for a connection that is idle."""
        await self.wake()
        with contextlib.suppress(ConnectionClosed, TimeoutError, OSError):
            async with asyncio.timeout(1):
                await self.send({"type": "session.close"})
                await self._socket.close(1000)
        await self.abort()

    def rest(self, idle_s: float, gone: asyncio.Queue[Link]) -> None:
        """Be idle for at most so long. Whatever comes meanwhile (that it was idle too long, say) is
        no answer to the next request: the connection is put into ``gone`` then."""
        self._watch = asyncio.create_task(self._rest(idle_s, gone), name="idle upstream")

    async def wake(self) -> None:
        """Be idle no more."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.wait({watch})

    async def _rest(self, idle_s: float, gone: asyncio.Queue[Link]) -> None:
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(idle_s):
                await self._socket.recv()
        self._rested = True
        gone.put_nowait(self)


class Links:
    """The connections that are idle, the latest used first."""

    def __init__(
        self, url: str, settings: UpstreamSettings, key: str, context: ssl.SSLContext
    ) -> None:
        self._url = url
        self._settings = settings
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._tls = context if url.startswith("wss") else None
        self._idle: list[Link] = []
        self._gone: asyncio.Queue[Link] = asyncio.Queue()
        self._sweeper: asyncio.Task[None] | None = None

    async def take(self) -> Link:
        """A connection: one that is idle, or a new one.

        Raises:
            Unreachable: nothing answers there.
            SpeechError: what answers takes no connection, or is no such server.
        """
        while self._idle:
            link = self._idle.pop()
            await link.wake()
            if link.open:
                return link
            await link.abort()
        return await self.make()

    async def make(self) -> Link:
        """A new connection; raises what ``take`` raises."""
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
                    # An answer would wait behind sound that nobody takes; ``stall_s`` looks after
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
        return Link(socket)

    async def keep(self, link: Link) -> None:
        """It may be used again."""
        if not link.open or len(self._idle) >= self._settings.max_idle:
            await link.leave()
            return
        self._idle.append(link)
        link.rest(self._settings.idle_s, self._gone)
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="idle upstreams")

    async def close(self) -> None:
        """End all that are idle."""
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
