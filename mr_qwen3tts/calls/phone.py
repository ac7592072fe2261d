"""The phone behind the desk: brought up in the background, and tried again while it cannot be."""

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
"""Where calls are expected (RFC 3261 section 19.1.2)."""
FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
CLOSE_S = 5.0
"""Longest wait for far ends that do not answer our BYE: the host is about to stop."""
NO_HOME = "no-server.invalid"
"""Stands for the server where there is none: numbers are telephone numbers nowhere (RFC 2606)."""
ELSEWHERE = "192.0.2.1"
"""Stands for any other machine (RFC 5737); nothing is sent there."""


class NotReady(Exception):
    """There is no phone yet; the message says why."""


def phone_extra_missing() -> str | None:
    """What is missing for calls: the name of a package, or what is wrong with one; None where all
    is there."""
    try:
        import qwen3tts_phone.phone  # noqa: F401
    except ImportError as error:
        return error.name or str(error)
    return None


def phone_settings(wishes: CallSettings) -> PhoneSettings:
    """How the phone is reached. It may look names up, so not in the event loop.

    Raises ValueError or SpeechError for what cannot be.
    """
    from qwen3tts_phone.phone import Account, PhoneSettings
    from qwen3tts_phone.sip.message.fields import parse_uri

    server = server_uri(wishes.sip_server) if wishes.sip_server else None
    host, port = listen_at(wishes)
    unavailable = wishes.sip_unavailable_file
    account = None
    if server is not None and wishes.sip_user:
        account = Account(server, wishes.sip_user, wishes.sip_password or "")
    if not host:
        host = _local_address(parse_uri(server).host.strip("[]") if server else ELSEWHERE)
    return PhoneSettings(
        host=host,
        port=port,
        account=account,
        user=wishes.sip_user or "agent",
        rtp_ports=wishes.sip_rtp_ports,
        advertised_host=wishes.sip_advertised or "",
        max_calls=wishes.sip_max_calls,
        unavailable_file=Path(unavailable) if unavailable else None,
        transfers=wishes.sip_transfers,
        guard=transfer_guard(wishes) if wishes.sip_transfers == "accept" else None,
    )


def transfer_guard(wishes: CallSettings) -> GuardSettings:
    """Return the rules of `desk_rules.check`, which the phone applies to transfers."""
    from qwen3tts_phone.dialling.guard import GuardSettings
    from qwen3tts_phone.sip.message.fields import parse_uri

    home = parse_uri(server_uri(wishes.sip_server)).host if wishes.sip_server else NO_HOME
    allowed = tuple(pattern for pattern in wishes.sip_allow if pattern.strip())
    return GuardSettings(allowed=allowed, home=(home,))


def listen_at(wishes: CallSettings) -> tuple[str, int]:
    """Host and port to bind; an empty host is the one that leads to the server or elsewhere.

    Without a word about it: where calls are to come in and no server forwards them, only this
    machine can call, at the usual port. Otherwise any port will do, as nobody needs to know it.
    """
    if wishes.sip_listen:
        host, colon, port = wishes.sip_listen.strip().rpartition(":")
        if not colon:
            host, port = port, str(SIP_PORT)
        return host.strip("[]") or "0.0.0.0", int(port)
    if wishes.sip_agent and not wishes.sip_server:
        return "127.0.0.1", SIP_PORT
    return "", 0


class PhoneSupervisor:
    """Brings the phone up, and hands over the calls that come in.

    Args:
        wishes: the settings, asked at each attempt.
        link: the plugin's connection to the speech server; calls share it.
        on_call: takes a call that comes in.
        problem: told once of each thing that keeps the phone from being there.
    """

    def __init__(
        self,
        wishes: Callable[[], CallSettings],
        link: Callable[[], SpeechLink],
        clock: Clock,
        on_call: Callable[[PhoneCall], None],
        problem: Callable[[str, BaseException | str], None],
    ) -> None:
        self._wishes = wishes
        self._link = link
        self._clock = clock
        self._on_call = on_call
        self._problem = problem
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._phone: Phone | None = None
        self.trouble = ""
        """Why there is no phone; empty while there is one, or while it is brought up."""

    @property
    def uri(self) -> str:
        """Where it can be called; empty while it is not up."""
        return self._phone.uri if self._phone is not None else ""

    def start(self) -> None:
        """Bring it up; returns at once, and does nothing where that was begun already."""
        if self._task is None:
            # A context of its own: what begins with one agent's turn must not remember that turn.
            self._task = asyncio.create_task(
                self._keep(), name="qwen3tts: phone", context=Context()
            )

    async def phone(self, most_s: float) -> Phone:
        """The phone, brought up if need be.

        Raises:
            NotReady: it is not there within ``most_s`` seconds, or cannot be at the moment.
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
        """Hang up all calls, unregister, and leave."""
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
        """Be there until it ends; why it did, or could not begin."""
        from qwen3tts_phone.phone import Phone

        try:
            settings = await asyncio.to_thread(phone_settings, self._wishes())
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
    """The address of this machine from which packets to ``host`` leave; nothing is sent."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"  # dialling will say what is wrong
