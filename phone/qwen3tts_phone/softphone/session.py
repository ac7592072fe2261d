"""Session of a page: requests, call, and waiting messages."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from contextlib import aclosing

from qwen3tts_phone.errors import WrongState
from qwen3tts_phone.softphone import messages as protocol
from qwen3tts_phone.softphone.messages import (
    Caller,
    Calls,
    Heard,
    Line,
    PageMessage,
    ServerMessage,
    Utterance,
)
from qwen3tts_phone.softphone.page_call import PageCall
from qwen3tts_phone.softphone.services import SoftphoneServices
from qwen3tts_phone.softphone.webrtc.report import Report
from qwen3tts_wire.errors import BadRequest, SpeechError
from qwen3tts_wire.fields import DecodeError

MAX_WAITING = 1_000
"""Messages that may wait for a page (backpressure); a slower page is disconnected."""
LATEST = (Caller, Calls, Heard, Line, Utterance)
"""A newer one of these replaces one that still waits."""


class Outbox:
    def __init__(self) -> None:
        self._order: deque[tuple[int, ServerMessage]] = deque()
        self._latest: dict[tuple[str, int], int] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._order)

    def put(self, message: ServerMessage) -> bool:
        self._number += 1
        if isinstance(message, LATEST):
            self._latest[_key(message)] = self._number
        self._order.append((self._number, message))
        if len(self._order) > MAX_WAITING:
            self._tidy()
        return len(self._order) <= MAX_WAITING

    def put_first(self, message: ServerMessage) -> None:
        self._order.appendleft((0, message))

    def take(self) -> ServerMessage | None:
        while self._order:
            number, message = self._order.popleft()
            if self._stands(number, message):
                if isinstance(message, LATEST):
                    self._latest.pop(_key(message), None)
                return message
        return None

    def _stands(self, number: int, message: ServerMessage) -> bool:
        return not isinstance(message, LATEST) or self._latest.get(_key(message)) == number

    def _tidy(self) -> None:
        self._order = deque(each for each in self._order if self._stands(*each))


def _key(message: ServerMessage) -> tuple[str, int]:
    return message.type, message.id if isinstance(message, Heard | Utterance) else 0


logger = logging.getLogger(__name__)


class PageSession:
    """Session of a page; with its call it outlives a lost connection for ``resume_s``.

    Args:
        host: the page's address.
        program: its User-Agent.
        on_over: called once, at the end.
    """

    def __init__(
        self,
        services: SoftphoneServices,
        *,
        host: str = "",
        program: str = "",
        on_over: Callable[[PageSession], None] | None = None,
    ) -> None:
        self.id = secrets.token_urlsafe(16)
        self.outbox = Outbox()
        self.news = asyncio.Event()
        self.closed = False
        """True if it is ending: requests are ignored."""
        self.over = False
        self.connection: object | None = None
        """None = the page is disconnected."""
        self._services = services
        self._host = host
        self._program = program
        self._on_over = on_over
        self._call: PageCall | None = None
        self._ending: list[PageCall] = []
        self._grace: asyncio.Task[None] | None = None
        self._calls: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    # --- its connection

    def attach(self, connection: object, *, resumed: bool = False) -> None:
        self.connection = connection
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        call = self._call
        going_on = call is not None and not call.over
        call_id = call.id if call is not None and going_on else None
        self.outbox.put_first(self._services.welcome(self.id, resumed=resumed, call_id=call_id))
        self.news.set()
        if call is not None and going_on:
            call.repeat()
        if self._calls is None and self._services.gateway is not None:
            self._calls = asyncio.create_task(self._follow_calls(), name="calls for a page")

    def detach(self, connection: object, *, gone: bool) -> None:
        if self.connection is not connection:
            return  # another one has taken over
        self.connection = None
        if gone:
            self.close("it was closed")
        elif not self.closed:
            self._grace = asyncio.create_task(self._wait_for_it(), name="wait for a page")

    def tell(self, message: ServerMessage) -> None:
        if self.over:
            return
        if not self.outbox.put(message) and not self.closed:
            logger.warning("a page does not accept data any more; its session is closed")
            self.close("it did not accept data any more")
        self.news.set()

    # --- requests

    def take(self, message: PageMessage | DecodeError) -> None:
        if self.closed:
            return
        about = message.type or "" if isinstance(message, DecodeError) else message.type
        try:
            if isinstance(message, DecodeError):
                raise message.error
            self._do(message)
        except SpeechError as error:
            self.tell(protocol.Error(error.code, error.message, error.remedy, about))

    def _do(self, message: PageMessage) -> None:
        match message:
            case protocol.Ping(time=time):
                self.tell(protocol.Pong(time, self._services.now_ms))
            case Report():
                if self._call is not None and not self._call.over:
                    self._call.report(message)
            case protocol.Hello():
                raise BadRequest("This page has said hello already.")
            case protocol.Call() | protocol.Dial() | protocol.Listen():
                self._begin(message)
            case protocol.HangUp():
                if self._call is not None:
                    self._call.leave()
            case protocol.Voice():
                self._services.engines.chosen(message.engine)
                if self._call is not None and not self._call.over:
                    self._call.choose_voice(message)
            case protocol.Mute():
                pass  # the page stops its own microphone
            case protocol.TypeEnd(utterance=number):
                if self._call is not None:
                    self._call.type_end(number)
            case protocol.Interrupt():
                if self._call is not None:
                    self._call.interrupt()
            case protocol.Type(utterance=number, text=text):
                self._running().type(number, text)
            case protocol.Say(text=text):
                self._running().say(text)
            case protocol.Key(digit=digit):
                self._running().press(digit)
            case protocol.Talk(on=on):
                self._running().talk(on)

    def _begin(self, message: protocol.Call | protocol.Dial | protocol.Listen) -> None:
        if self._call is not None and not self._call.over:
            if not self._call.ending:
                raise WrongState("This page has a call already.", remedy="Hang up first.")
            self._ending.append(self._call)
        self._ending = [each for each in self._ending if not each.over]
        before = self._ending[-1] if self._ending else None
        self._call = PageCall(self._services, self.tell, host=self._host, program=self._program)
        self._call.begin(message, before)

    def _running(self) -> PageCall:
        if self._call is None or self._call.over:
            raise WrongState("There is no call.", remedy="Call first.")
        return self._call

    # --- the end

    def close(self, reason: str = "") -> None:
        if self.closed:
            return
        self.closed = True
        if self._call is not None:
            self._call.leave(reason)
        self._closing = asyncio.create_task(self._clear_away(), name="end of a page")

    async def ended(self) -> None:
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _clear_away(self) -> None:
        for task in (self._grace, self._calls):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                await asyncio.wait([task])
        for call in (*self._ending, *([self._call] if self._call is not None else [])):
            await call.ended()
        self.over = True
        self.news.set()
        if self._on_over is not None:
            self._on_over(self)

    async def _wait_for_it(self) -> None:
        clock = self._services.clock
        await clock.sleep_until(clock.now() + self._services.settings.resume_s)
        self._grace = None
        self.close("it did not come back")

    async def _follow_calls(self) -> None:
        assert self._services.gateway is not None
        async with aclosing(self._services.gateway.calls.follow()) as lists:
            async for calls in lists:
                self.tell(protocol.Calls(tuple(calls)))
