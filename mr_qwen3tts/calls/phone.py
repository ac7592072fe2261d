"""The plugin's phone, restarted after failures."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3tts_pacer.clock import Clock
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import SpeechError, log_text

from .options import CallSettings
from .rules import server_uri

if TYPE_CHECKING:
    from qwen3tts_phone.call.phone_call import PhoneCall
    from qwen3tts_phone.dialling.guard import GuardSettings
    from qwen3tts_phone.phone import Phone, PhoneSettings

log = logging.getLogger(__name__)

SIP_PORT = 5060
"""Default SIP port (RFC 3261 section 19.1.2)."""
FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
CLOSE_S = 5.0
"""Timeout of BYEs at the host's stop."""
NO_HOME = "no-server.invalid"
"""Placeholder server of bare numbers (RFC 2606)."""
ELSEWHERE = "192.0.2.1"
"""Unreached placeholder (RFC 5737)."""


class NotReady(Exception):
    """The phone is down, with the cause."""


def phone_extra_missing() -> str | None:
    """Return the missing or broken package, or None."""
    try:
        import qwen3tts_phone.phone  # noqa: F401
    except ImportError as error:
        return error.name or str(error)
    return None


def phone_settings(settings: CallSettings) -> PhoneSettings:
    """Return the settings; blocks on name lookups.

    Raises:
        ValueError, SpeechError: invalid ones.
    """
    from qwen3tts_phone.phone import Account, PhoneSettings
    from qwen3tts_phone.sip.message.fields import parse_uri

    server = server_uri(settings.sip_server) if settings.sip_server else None
    host, port = listen_at(settings)
    unavailable = settings.sip_unavailable_file
    account = None
    if server is not None and settings.sip_user:
        account = Account(server, settings.sip_user, settings.sip_password or "")
    if not host:
        host = _local_address(parse_uri(server).host.strip("[]") if server else ELSEWHERE)
    return PhoneSettings(
        host=host,
        port=port,
        account=account,
        user=settings.sip_user or "agent",
        rtp_ports=settings.sip_rtp_ports,
        advertised_host=settings.sip_advertised or "",
        max_calls=settings.sip_max_calls,
        unavailable_file=Path(unavailable) if unavailable else None,
        transfers=settings.sip_transfers,
        guard=transfer_guard(settings) if settings.sip_transfers == "accept" else None,
    )


def transfer_guard(settings: CallSettings) -> GuardSettings:
    """Return `rules.check` for transfers."""
    from qwen3tts_phone.dialling.guard import GuardSettings
    from qwen3tts_phone.sip.message.fields import parse_uri

    home = parse_uri(server_uri(settings.sip_server)).host if settings.sip_server else NO_HOME
    allowed = tuple(pattern for pattern in settings.sip_allow if pattern.strip())
    return GuardSettings(allowed=allowed, home=(home,))


def listen_at(settings: CallSettings) -> tuple[str, int]:
    """Return host and port to bind; empty host: towards the server.

    Unset: 5060 on loopback for incoming calls without a server, else any port.
    """
    if settings.sip_listen:
        host, colon, port = settings.sip_listen.strip().rpartition(":")
        if not colon:
            host, port = port, str(SIP_PORT)
        return host.strip("[]") or "0.0.0.0", int(port)
    if settings.sip_agent and not settings.sip_server:
        return "127.0.0.1", SIP_PORT
    return "", 0


class PhoneSupervisor:
    """Start and restart of the phone.

    Args:
        settings: read at each attempt.
        link: speech connection, shared by calls.
        on_call: takes an incoming call.
        problem: reports each distinct failure once.
    """

    def __init__(
        self,
        settings: Callable[[], CallSettings],
        link: Callable[[], SpeechLink],
        clock: Clock,
        on_call: Callable[[PhoneCall], None],
        problem: Callable[[str, BaseException | str], None],
    ) -> None:
        self._settings = settings
        self._link = link
        self._clock = clock
        self._on_call = on_call
        self._problem = problem
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._phone: Phone | None = None
        self.trouble = ""
        """Failure, empty while up or starting."""

    @property
    def uri(self) -> str:
        """Address; empty while down."""
        return self._phone.uri if self._phone is not None else ""

    def start(self) -> None:
        """Start in the background; idempotent."""
        if self._task is None:
            # A context of its own: what begins with one agent's turn must not remember that turn.
            self._task = asyncio.create_task(
                self._keep(), name="qwen3tts: phone", context=Context()
            )

    async def phone(self, most_s: float) -> Phone:
        """Return the phone, started if needed.

        Raises:
            NotReady: not up within ``most_s`` seconds.
        """
        self.start()
        try:
            async with asyncio.timeout(most_s), self._changed:
                await self._changed.wait_for(lambda: self._phone is not None or self.trouble)
        except TimeoutError:
            raise NotReady("it is still being brought up") from None
        if self._phone is None:
            raise NotReady(self.trouble)
        return self._phone

    async def close(self) -> None:
        """Hang up, unregister and stop."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=CLOSE_S)

    async def _keep(self) -> None:
        delay = FIRST_RETRY_S
        while True:
            error = await self._run()
            if not self.trouble:
                delay = FIRST_RETRY_S  # it was there until now
            cause = str(error)
            if cause != self.trouble:
                self._problem("telephone", error)
            await self._tell(None, cause)
            await self._clock.sleep_until(self._clock.now() + delay)
            delay = min(2 * delay, LONGEST_RETRY_S)

    async def _run(self) -> Exception:
        from qwen3tts_phone.phone import Phone

        try:
            settings = await asyncio.to_thread(phone_settings, self._settings())
            async with Phone(settings, link=self._link()) as phone:
                log.info("the telephone is there: %s", log_text(phone.uri))
                await self._tell(phone, "")
                async for call in phone.incoming():
                    self._on_call(call)
            return NotReady("its endpoint was closed")
        except (SpeechError, OSError, ValueError) as error:
            return error
        except Exception as error:
            log.exception("the telephone broke")
            return error
        finally:
            self._phone = None

    async def _tell(self, phone: Phone | None, trouble: str) -> None:
        async with self._changed:
            self._phone, self.trouble = phone, trouble
            self._changed.notify_all()


def _local_address(host: str) -> str:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"  # dialling will say what is wrong
