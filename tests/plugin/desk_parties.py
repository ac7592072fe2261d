"""Who takes part in the desk's tests: a host that writes down, a person with a phone, a desk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mr_qwen3tts.calls.calls import PluginCalls
from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_speech.link import SpeechLink

NO_SERVER = "ws://127.0.0.1:1/v1/speech"
"""Nothing is said in most tests, so nobody connects there."""


@dataclass(frozen=True)
class Wishes:
    """The settings that a desk asks for."""

    sip_listen: str | None = "127.0.0.1:0"
    sip_advertised: str | None = None
    sip_rtp_ports: tuple[int, int] = (0, 0)
    sip_server: str | None = None
    sip_user: str | None = None
    sip_password: str | None = None
    sip_agent: str | None = "clerk"
    sip_allow: tuple[str, ...] = ()
    sip_transfers: str = "refuse"
    sip_answer_s: float = 120.0
    sip_max_calls: int = 20
    sip_unavailable_file: str | None = None
    sip_call_budget: tuple[int, int, int, int] = (60, 2000, 20_000, 500_000)
    sip_process_budget: tuple[int, int, int, int] = (600, 0, 200_000, 0)
    sip_too_many: str | None = "One moment."
    sip_used_up: str | None = "That is all."
    sip_audio_in_pipeline: bool = False
    sip_stt: str | None = None
    sip_stt_languages: tuple[str, ...] = ()
    sip_pause_ms: int = 600
    sip_overlap: str = "stop"
    sip_smart_turn: str | None = None
    stall_ms: int = 4000


@dataclass(eq=False)
class Session:
    """The host's ChatContext."""

    log_id: str
    username: str = "system"
    agent_name: str = "clerk"


@dataclass
class WritingHost:
    """A host that writes down what the desk asks of it."""

    turn: Callable[[str, str], Awaitable[None]] | None = None
    """What an agent does with a message; nothing by itself."""
    broken: set[str] = field(default_factory=set)
    """Services that fail."""
    heard: int | None = None
    """What ``interrupt`` says was heard."""
    said: str = ""
    """What the agent has said last."""
    sessions: dict[str, Session] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(service, log_id), in order."""
    messages: asyncio.Queue[tuple[str, str]] = field(default_factory=asyncio.Queue)
    shown: list[str] = field(default_factory=list)
    truncated: list[int] = field(default_factory=list)
    frames: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    problems: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    """Messages whose turn was cut."""
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def init_chat_session(self, user: str, agent: str, log_id: str) -> Session:
        self._ask("init_chat_session", log_id)
        session = self.sessions[log_id] = Session(log_id, user, agent)
        return session

    async def send_message_to_agent(self, log_id: str, message: str, context: Any) -> None:
        assert context.log_id == log_id
        self._ask("send_message_to_agent", log_id)
        self.messages.put_nowait((log_id, message))
        try:
            if self.turn is not None:
                await self.turn(log_id, message)
        except asyncio.CancelledError:
            self.cancelled.append(message)
            raise

    async def cancel_and_wait(self, log_id: str, context: Any) -> None:
        self._ask("cancel_and_wait", log_id)

    async def backend_user_message(self, message: str, context: Any) -> None:
        self.shown.append(message)

    async def interrupt(self, log_id: str, context: Any) -> int | None:
        self._ask("interrupt", log_id)
        return self.heard

    def hold(self, context: Any, *, cut_in: bool) -> None:
        self._ask("cut_in" if cut_in else "hush", context.log_id)

    def go_on(self, context: Any) -> None:
        self._ask("go_on", context.log_id)

    def heard_text(self, context: Any) -> str:
        return self.said

    async def truncate_last_assistant_speech(self, chars: int, context: Any) -> None:
        self.truncated.append(chars)

    async def sip_audio_in(self, data: dict[str, Any], context: Any) -> None:
        self.frames.put_nowait({**data, "log_id": context.log_id})
        self._ask("sip_audio_in", context.log_id)

    def problem(self, what: str, error: BaseException | str, log_id: str = "") -> None:
        self.problems.append(str(error))

    async def message(self) -> tuple[str, str]:
        """The next message to an agent: session and text."""
        async with asyncio.timeout(10):
            return await self.messages.get()

    async def service(self, name: str, *, times: int = 1) -> None:
        """Return when a service has been asked for so often."""
        async with asyncio.timeout(10):
            while [each for each, _ in self.asked].count(name) < times:
                self._asked.clear()
                await self._asked.wait()

    def _ask(self, service: str, log_id: str) -> None:
        self.asked.append((service, log_id))
        self._asked.set()
        if service in self.broken:
            raise RuntimeError(f"{service} is broken")


@asynccontextmanager
async def desk(
    host: WritingHost,
    wishes: Wishes | None = None,
    *,
    clock: Clock | None = None,
    url: str = NO_SERVER,
) -> AsyncIterator[PluginCalls]:
    """A desk, its phone up or about to be."""
    link = SpeechLink(url)
    settings = wishes or Wishes()
    there = PluginCalls(host, lambda context: link, lambda context: settings, clock=clock)
    there.start()
    try:
        yield there
    finally:
        await there.close()
        await link.close()


@asynccontextmanager
async def person(**settings: Any) -> AsyncIterator[Phone]:
    """Somebody with a phone, and no voice but his own."""
    link = SpeechLink(NO_SERVER)
    async with Phone(PhoneSettings(**settings), link=link) as phone:
        yield phone
    await link.close()


async def rung(phone: Phone) -> PhoneCall:
    """The next call that comes in there, not answered yet."""
    async with asyncio.timeout(10):
        return await anext(phone.incoming())


async def reached(phone: Phone, uri: str) -> PhoneCall:
    """Call an address; the call once it was answered."""
    call = await phone.dial(uri)
    async with asyncio.timeout(10):
        await call.answered()
    return call


async def until_ended(call: PhoneCall) -> str:
    """Wait for the end of a call; why it ended."""
    async with asyncio.timeout(10):
        return await call.ended()
