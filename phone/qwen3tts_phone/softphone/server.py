"""The softphone: a page for the browser, and the server behind it.

>>> async with Softphone(engines=(EngineSettings("ws://127.0.0.1:8765/v1/speech"),)) as softphone:
...     print(softphone.url)                       # open it: one button calls the voice
...     await asyncio.Event().wait()
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.errors import PortBusy
from qwen3tts_phone.limits import ConnectionLimiter, PendingLimits
from qwen3tts_phone.softphone.access import AllowedHosts, ProxyHeaders, TokenCheck, new_token
from qwen3tts_phone.softphone.certificate import (
    Certificate,
    MissingWebPackages,
    self_signed_certificate,
    user_certificate,
)
from qwen3tts_phone.softphone.gateway import Gateway
from qwen3tts_phone.softphone.services import CallAgent, SoftphoneServices
from qwen3tts_phone.softphone.settings import EngineSettings, SoftphoneSettings, is_loopback
from qwen3tts_phone.softphone.webrtc.call import WebCall
from qwen3tts_speech.record_sinks import RecordSink
from qwen3tts_wire.process import heap, raise_descriptor_limit

if TYPE_CHECKING:
    from qwen3tts_phone.phone import Phone
    from qwen3tts_phone.softphone.gateway import CallSource
    from qwen3tts_phone.softphone.session import PageSession


__all__ = ["EngineSettings", "Softphone", "SoftphoneSettings"]

IDLE_S = 30.0
"""A connection is closed this long without a whole request, or after its acceptance without a
token."""
FILES_A_CALL = 16
MAX_PENDING = 64
"""Connections without a token; one more closes the oldest of the address with most."""
MAX_PENDING_PER_ADDRESS = 32
CLOSE_S = 2.0
ALL = ("0.0.0.0", "::", "")
ELSEWHERE = ("192.0.2.1", "2001:db8::1")


class Softphone:
    """Server of the page; an async context manager, whose end ends all calls.

    Args:
        settings: its settings; ``changes`` are fields of them.
        phone: dials SIP addresses for pages; its calls can be monitored.
        further: other sources of calls to be monitored, such as `Streams`.
        agent: talks on the pages' calls; None = they say what is typed.
        sink: gets each utterance's record, beside ``settings.latency_log``.

    Entering it raises MissingWebPackages, PortBusy, BadCertificate, ConnectionLost (no speech
    server), UnknownVoice, BadRequest (an unknown option) or OSError (a log or folder that cannot be
    written).
    """

    def __init__(
        self,
        settings: SoftphoneSettings | None = None,
        *,
        phone: Phone | None = None,
        further: Sequence[CallSource] = (),
        agent: CallAgent | None = None,
        sink: RecordSink | None = None,
        clock: Clock | None = None,
        **changes: Any,
    ) -> None:
        self.settings = replace(settings or SoftphoneSettings(), **changes)
        self.clock: Clock = clock or LoopClock()
        self.token = self.settings.token or new_token()
        self.port = 0
        self.certificate: Certificate | None = None
        """None = plain HTTP."""
        gateway = (
            Gateway(phone, further, clock=self.clock) if phone is not None or further else None
        )
        self._services = SoftphoneServices(self.settings, self.clock, agent, gateway, sink)
        self._sessions: dict[str, PageSession] = {}
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"Softphone({self.settings.host}:{self.port})"

    async def __aenter__(self) -> Self:
        try:
            import aiortc  # type: ignore[import-untyped, unused-ignore]  # noqa: F401
            from aiohttp import web

            from qwen3tts_phone.softphone.site import SoftphoneSite
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("qwen3tts_"):
                raise
            raise MissingWebPackages(error.name) from None
        settings = self.settings
        raise_descriptor_limit(FILES_A_CALL * settings.max_calls + MAX_PENDING)
        async with AsyncExitStack() as stack:
            context = self._tls()
            front = ProxyHeaders(self.scheme, settings.public_url, settings.trusted_proxies)
            waiting = PendingLimits(MAX_PENDING, MAX_PENDING_PER_ADDRESS, IDLE_S, front.trusts)
            door = ConnectionLimiter(waiting, self.clock)
            listeners = _listeners(door, settings.host, settings.port)
            for listener in listeners:
                stack.callback(listener.close)
            self.port = listeners[0].getsockname()[1]
            await self._services.open(stack)
            hosts = AllowedHosts(settings.host, (*settings.names, *settings.public_names))
            site = SoftphoneSite(self._services, TokenCheck(self.token), hosts, front, door.begun)
            self._sessions = site.sessions
            runner = web.AppRunner(
                site.application(),
                access_log=None,
                logger=_quiet(),
                handle_signals=False,
                keepalive_timeout=IDLE_S,
                shutdown_timeout=CLOSE_S,
            )
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            for listener in listeners:
                await web.SockSite(runner, listener, ssl_context=context).start()
            keeping_time = asyncio.create_task(door.keep_time(), name="pending pages")
            stack.push_async_callback(_cancelled, keeping_time)
            stack.push_async_callback(site.close)
            busy = heap.held_by if settings.freeze_heap else heap.heeds
            stack.enter_context(busy(lambda: bool(self.calls)))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    @property
    def scheme(self) -> str:
        return "https" if self.settings.tls else "http"

    @property
    def url(self) -> str:
        if self.settings.public_url:
            return f"{self.settings.public_url}/#token={self.token}"
        return self.url_at(shown_host(self.settings.host))

    def url_at(self, host: str) -> str:
        shown = f"[{host}]" if ":" in host else host
        return f"{self.scheme}://{shown}:{self.port}/#token={self.token}"

    @property
    def calls(self) -> frozenset[WebCall]:
        return frozenset(self._services.calls)

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def _tls(self) -> ssl.SSLContext | None:
        settings = self.settings
        if not settings.tls:
            return None
        if settings.certificate is not None:
            self.certificate = user_certificate(settings.certificate, settings.key)
        else:
            self.certificate = self_signed_certificate(certificate_hosts(settings))
        return self.certificate.context()


def shown_host(host: str) -> str:
    return local_address() if host in ALL else host


def certificate_hosts(settings: SoftphoneSettings) -> list[str]:
    hosts = {"localhost", "127.0.0.1", *settings.names}
    if settings.host in ALL:
        hosts |= {local_address(), socket.gethostname()}
    elif not is_loopback(settings.host):
        hosts.add(settings.host)
    return sorted(hosts)


def local_address() -> str:
    for family, elsewhere in zip((socket.AF_INET, socket.AF_INET6), ELSEWHERE, strict=True):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def _quiet() -> logging.Logger:
    logger = logging.getLogger(f"{__name__}.http")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    return logger


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _listeners(door: ConnectionLimiter, host: str, port: int) -> list[socket.socket]:
    try:
        return door.listen(host, port)
    except socket.gaierror as error:
        raise PortBusy(
            f"{host} is no address of this machine.",
            remedy="Give one of its addresses; 0.0.0.0 is all that it has.",
        ) from error
    except OSError as error:
        raise PortBusy(
            f"Port {port} at {host} is not available: {os.strerror(error.errno or 0)}.",
            remedy=PortBusy.remedy_for(error),
        ) from error


NICE = -10
"""About ten times the share of a thread of niceness 0."""


def raise_thread_priority() -> bool:
    """Raise the calling thread's priority (Linux); False if refused.

    Packets leave from this event loop. Needs CAP_SYS_NICE or RLIMIT_NICE.
    """
    try:
        plain = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, plain, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    except (OSError, AttributeError):
        return False
    return True
