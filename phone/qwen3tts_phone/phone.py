"""A phone: it dials and answers, and every call of it can speak.

>>> async with Phone(PhoneSettings(server_url="ws://127.0.0.1:8765/v1/speech")) as phone:
...     call = await phone.dial("sip:bob@127.0.0.1:5070")
...     await call.answered()
...     spoken = await call.say("Good morning.")
...     await call.hangup()
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.call import Call
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.types import LegSpec, MediaSettings
from qwen3tts_phone.record import recording_path
from qwen3tts_phone.sdp import SdpSession
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.settings import Account, SipSettings
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_speech.latency import LatencyLog
from qwen3tts_speech.link import SpeechLink
from qwen3tts_speech.utterance import VoiceOptions

logger = logging.getLogger(__name__)

__all__ = ["Account", "Call", "Phone", "PhoneSettings"]


@dataclass(frozen=True, slots=True)
class PhoneSettings:
    """How a phone is reached, what it speaks with, and what it keeps."""

    host: str = "127.0.0.1"
    """Address to bind SIP and RTP to; 0.0.0.0 for all."""
    port: int = 0
    """SIP port, UDP and TCP; 0 = any free one."""
    server_url: str = "ws://127.0.0.1:8765/v1/speech"
    """The synthesis server."""
    account: Account | None = None
    """Registers with it at the start, and answers challenges with it."""
    voice: str | None = None
    language: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of ``context.open``, such as ``mode``, ``instructions`` or ``seed``."""
    codecs: tuple[str, ...] = ("PCMU", "PCMA")
    """In order of preference."""
    ptime_ms: int = 20
    rtp_ports: tuple[int, int] = (0, 0)
    """Lowest and highest RTP port; (0, 0) lets the system choose."""
    user: str = "agent"
    """User part of our own address where there is no account."""
    display_name: str = ""
    advertised_host: str = ""
    """Host in SIP and SDP; empty = the bound one, or the one that routes to the peer."""
    record_path: Path | None = None
    """Stereo WAV of both directions; further calls get ``-2``, ``-3``, ... (0600)."""
    latency_log: Path | None = None
    """One JSON line an utterance is appended here."""
    max_calls: int = 200
    media: MediaSettings = field(default_factory=MediaSettings)

    @property
    def speech(self) -> VoiceOptions:
        """How its calls speak where an utterance says nothing else."""
        return VoiceOptions(self.voice, self.language, dict(self.options))


class Phone:
    """SIP endpoint, media process and speech connection; an async context manager.

    With a ``link`` of the caller's own, which others may share, it speaks over that one: it is not
    asked for at the start, so the phone takes calls while no speech server is there, and it stays
    open at the end.

    Entering it raises PortBusy, RegistrationFailed, CalleeUnreachable (the registrar),
    ConnectionLost (no speech server), UnknownVoice or BadRequest (an option that is none), before
    anybody's phone rings.
    """

    def __init__(
        self,
        settings: PhoneSettings | None = None,
        *,
        clock: Clock | None = None,
        link: SpeechLink | None = None,
    ) -> None:
        self.settings = settings or PhoneSettings()
        self.clock: Clock = clock or LoopClock()
        self._own_link = link is None
        self.link = SpeechLink(self.settings.server_url) if link is None else link
        self.latency_log: LatencyLog | None = None
        self.calls: set[Call] = set()
        """Calls that are not over."""
        self.ignored: tuple[str, ...] = ()
        """Those of the settings' ``options`` that the server's engine does not know."""
        self._recordings = 0
        self._replacing = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._media: MediaProcess
        self._sip: SipEndpoint

    async def __aenter__(self) -> Phone:
        settings = self.settings
        async with AsyncExitStack() as stack:
            if self._own_link:
                stack.push_async_callback(self.link.close)
                self.ignored = (await self.link.check(settings.speech)).ignored
            if settings.latency_log is not None:
                self.latency_log = stack.enter_context(LatencyLog(settings.latency_log))
            self._media = await MediaProcess.start(settings.media)
            stack.push_async_callback(self._close_media)
            account = settings.account
            self._sip = SipEndpoint(
                SipSettings(
                    host=settings.host,
                    port=settings.port,
                    user=account.user if account is not None else settings.user,
                    display_name=settings.display_name,
                    advertised_host=settings.advertised_host,
                    max_calls=settings.max_calls,
                ),
                self.clock,
            )
            stack.push_async_callback(self._sip.close)
            await self._sip.start()
            if account is not None:
                await self._sip.register(account)
            stack.push_async_callback(self._hang_up_all)
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
    def uri(self) -> str:
        """The address at which this phone can be called."""
        return self._sip.uri

    @property
    def port(self) -> int:
        """The bound SIP port."""
        return self._sip.port

    @property
    def scheduling(self) -> str:
        """How the media process runs: ``fifo``, ``nice`` or ``plain``."""
        return self._media.rt

    async def dial(
        self, uri: str, headers: dict[str, str] | None = None, *, with_account: bool = True
    ) -> Call:
        """Call someone; returns at once, then ``await call.answered()``.

        ``with_account=False``: not in the account's name, and whoever is called is told nothing
        that follows from its password. For hosts that are not the account's.

        Raises:
            BadSip: ``uri`` is no SIP address.
            CalleeUnreachable: its host has no address.
            PortBusy: no RTP port is free.
        """
        session_host = self._sip.address_for(uri)
        leg = await self._open_leg()
        try:
            session = self._session(session_host, leg.local_port)
            account = self.settings.account if with_account else None
            sip = await self._sip.place(uri, session.offer(), account=account, headers=headers)
        except BaseException:
            await leg.close()
            raise
        return self._keep(Call(self, sip, leg, session))

    async def incoming(self) -> AsyncIterator[Call]:
        """Calls as they come in; ``await call.answer()`` or ``await call.reject()`` each.

        A call that cannot be given a port is refused with 503, and the next one is waited for.
        """
        async for sip in self._sip.incoming:
            try:
                call = await self._receive(sip)
            except CallError as error:
                logger.error("a call was refused: %s", error)
                with contextlib.suppress(CallError):
                    await sip.reject(503)
            else:
                yield call

    async def _open_leg(self) -> MediaLeg:
        """Ports for one more call; a media process that has died is replaced."""
        async with self._replacing:
            if self._media.lost.is_set():
                logger.error("the media process is replaced: %s", self._media.cause)
                await self._media.close()
                self._media = await MediaProcess.start(self.settings.media)
            return await self._media.open(self._leg_spec())

    async def _close_media(self) -> None:
        await self._media.close()

    async def _receive(self, sip: SipCall) -> Call:
        leg = await self._open_leg()
        session = self._session(sip.local_host, leg.local_port)
        return self._keep(Call(self, sip, leg, session))

    def _leg_spec(self) -> LegSpec:
        return LegSpec(local_host=self.settings.host, port_range=self.settings.rtp_ports)

    def _session(self, host: str, port: int) -> SdpSession:
        return SdpSession(host, port, codecs=self.settings.codecs, ptime_ms=self.settings.ptime_ms)

    def _keep(self, call: Call) -> Call:
        self.calls.add(call)
        return call

    def forget(self, call: Call) -> None:
        """A call is over. For `Call`."""
        self.calls.discard(call)

    def next_recording(self) -> Path | None:
        """The file for the next call's recording. For `Call`."""
        if self.settings.record_path is None:
            return None
        self._recordings += 1
        return recording_path(self.settings.record_path, self._recordings)

    async def _hang_up_all(self) -> None:
        await asyncio.gather(*(call.hangup() for call in list(self.calls)), return_exceptions=True)
