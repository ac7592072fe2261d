"""WebSocket connection of a page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from aiohttp import WSCloseCode, WSMsgType, web

from qwen3tts_phone.softphone import messages as protocol
from qwen3tts_phone.softphone.messages import Hello, encoded, read_page
from qwen3tts_wire.errors import BadRequest, SpeechError
from qwen3tts_wire.fields import DecodeError

if TYPE_CHECKING:
    from qwen3tts_phone.softphone.session import PageSession

logger = logging.getLogger(__name__)

BAD_TOKEN, NO_HELLO, TAKEN_OVER, SESSION_OVER = 4401, 4408, 4409, 4410
"""Private close codes (RFC 6455 section 7.4.2)."""
LEAVING_CODES = (WSCloseCode.OK, WSCloseCode.GOING_AWAY, 0)
"""Close codes of a page that is closed or left; 0 = no code."""
ENDED = (WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)
SEND_S = 10.0
"""Longest backpressure of a page."""
CLOSE_S = 2.0


class SoftphoneSessions(Protocol):
    def admit(self, token: str, address: str) -> None: ...

    async def refresh(self) -> None: ...

    def session(self, resume: str | None, address: str, program: str) -> tuple[PageSession, bool]:
        """Return a resumed (True) or new session (False); raises ServerBusy."""


class PageConnection:
    def __init__(
        self, sessions: SoftphoneSessions, address: str, program: str, hello_s: float
    ) -> None:
        self._sessions = sessions
        self._address = address
        self._program = program
        self._hello_s = hello_s
        self.socket: web.WebSocketResponse
        self.abort: Callable[[], None] = _nothing
        self.admitted: Callable[[], None] = _nothing
        self._resumed = False
        self._closed: asyncio.Event | None = None

    async def serve(self, socket: web.WebSocketResponse) -> None:
        self.socket = socket
        try:
            session = await self._greeted()
        except SpeechError as error:
            code = {"bad_token": BAD_TOKEN, "slow_down": BAD_TOKEN}.get(error.code, 1013)
            if isinstance(error, BadRequest):
                code = int(WSCloseCode.POLICY_VIOLATION)
            await self._refuse(error, code)
            return
        except TimeoutError:
            await self._close(NO_HELLO)
            return
        if session is None:
            return
        old = session.connection
        session.attach(self, resumed=self._resumed)
        beside = [asyncio.create_task(self._write(session), name="to a page")]
        if isinstance(old, PageConnection):
            beside.append(asyncio.create_task(old.take_over(), name="end of a page's connection"))
        gone = False
        try:
            gone = await self._read(session)
        finally:
            if self._closed is not None:  # the connection goes when this returns
                await self._closed.wait()
            session.detach(self, gone=gone)
            beside[0].cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self._close(int(WSCloseCode.OK))

    async def take_over(self) -> None:
        await self._close(TAKEN_OVER)

    async def leave(self) -> None:
        await self._close(int(WSCloseCode.GOING_AWAY))

    async def _greeted(self) -> PageSession | None:
        async with asyncio.timeout(self._hello_s):
            message = await self.socket.receive()
        if message.type is not WSMsgType.TEXT:
            return None
        hello = read_page(message.data)
        if isinstance(hello, DecodeError):
            raise hello.error
        if not isinstance(hello, Hello):
            raise BadRequest("The first message is hello.")
        self._sessions.admit(hello.token, self._address)
        self.admitted()
        await self._sessions.refresh()
        session, self._resumed = self._sessions.session(hello.resume, self._address, self._program)
        return session

    async def _read(self, session: PageSession) -> bool:
        while True:
            message = await self.socket.receive()
            if message.type is WSMsgType.CLOSE:
                return message.data in LEAVING_CODES
            if message.type in ENDED:
                return False
            if message.type is WSMsgType.TEXT:
                session.take(read_page(message.data))
            elif message.type is WSMsgType.BINARY:
                session.take(DecodeError(BadRequest("Messages are text.")))

    async def _write(self, session: PageSession) -> None:
        while not self.socket.closed and session.connection is self:
            message = session.outbox.take()
            if message is not None:
                try:
                    async with asyncio.timeout(SEND_S):
                        await self.socket.send_str(encoded(message))
                except (ConnectionError, RuntimeError):
                    return  # reported by reading
                except TimeoutError:
                    self.abort()
                    return
            elif session.over:
                await self._close(SESSION_OVER)
                return
            else:
                session.news.clear()
                await session.news.wait()

    async def _refuse(self, error: SpeechError, code: int) -> None:
        told = protocol.Error(error.code, error.message, error.remedy, "hello", fatal=True)
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.socket.send_str(encoded(told))
        except (TimeoutError, ConnectionError, RuntimeError):
            pass
        await self._close(code)

    async def _close(self, code: int) -> None:
        if self._closed is not None:
            await self._closed.wait()
            return
        self._closed = asyncio.Event()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.socket.close(code=code)
        except TimeoutError:
            self.abort()
        except (ConnectionError, RuntimeError):
            pass
        finally:
            self._closed.set()


def _nothing() -> None: ...
