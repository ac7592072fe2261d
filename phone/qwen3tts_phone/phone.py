"""A phone: it dials and answers, and every call of it can speak and listen.

>>> async with Phone(server_url="ws://127.0.0.1:8765/v1/speech") as phone:
...     call = await phone.dial("sip:bob@127.0.0.1:5070")
...     spoken = await call.say("Good morning.")        # waits for the answer
...     await call.hangup()

>>> async with Phone(port=5060) as phone:
...     async for call in phone:                        # one after the other, as they come
...         await call.answer()
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.account_facts import registration_facts
from qwen3tts_phone.call import Call
from qwen3tts_phone.call_body import CallBody, Voice
from qwen3tts_phone.call_facts import CallFacts, MediaFacts
from qwen3tts_phone.call_files import CallFiles
from qwen3tts_phone.call_life import CallLife
from qwen3tts_phone.errors import BadSip, CallError, MissingEncryption
from qwen3tts_phone.guard import Admission, Guard, refuse_emergency
from qwen3tts_phone.leg_ears import warm
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.srtp import available
from qwen3tts_phone.phone_call import PhoneCall
from qwen3tts_phone.phone_settings import PhoneSettings, changed
from qwen3tts_phone.recognise.shared import SharedRecognisers
from qwen3tts_phone.record_settings import RecordSettings
from qwen3tts_phone.sdp import SdpSession
from qwen3tts_phone.sip.account import Account
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.fields import parse_uri
from qwen3tts_phone.sip.line import AccountEvent, Line
from qwen3tts_phone.sip.lines import bare
from qwen3tts_phone.sip.options import OptionsReply
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_phone.srtp_key import SUITES
from qwen3tts_speech.link import SpeechLink
from qwen3tts_speech.record_sink import RecordSink, open_records

logger = logging.getLogger(__name__)

__all__ = ["Account", "Call", "Phone", "PhoneCall", "PhoneSettings"]


class Phone:
    """SIP endpoint, media process and speech connection; an async context manager.

    It is told what it needs by ``settings``, by fields of `PhoneSettings` under their names, or by
    both: ``Phone(port=5060, voice="alba")``; a name that is none raises TypeError, a value that
    cannot be ValueError. Iterating over it gives the calls that come in.

    With a ``link`` of the caller's own, which others may share, it speaks over that one: it is not
    asked for at the start, so the phone takes calls while no speech server is there, and it stays
    open at the end. ``on_account`` is told when a registration or a trunk comes and goes.

    Entering it raises PortBusy, BadCertificate, RegistrationFailed, CalleeUnreachable (the
    registrar), ConnectionLost (no speech server), UnknownVoice or BadRequest (an option that is
    none), MissingEncryption or OSError (a log or folder that cannot be written), before anybody's
    phone rings.
    """

    def __init__(
        self,
        settings: PhoneSettings | None = None,
        *,
        clock: Clock | None = None,
        link: SpeechLink | None = None,
        on_account: Callable[[AccountEvent], None] | None = None,
        **changes: Any,
    ) -> None:
        self.settings = changed(settings or PhoneSettings(), changes)
        self.clock: Clock = clock or LoopClock()
        self._own_link = link is None
        self.link = SpeechLink(self.settings.server_url) if link is None else link
        self.calls: set[PhoneCall] = set()
        """Calls that are not over."""
        self.recognisers = SharedRecognisers()
        """Those that its calls have asked for by name (`Call.hear`)."""
        self.ignored: tuple[str, ...] = ()
        """Those of the settings' ``options`` that the server's engine does not know."""
        home = [_host(server) for each in self.settings.all_accounts for server in each.servers]
        rules = self.settings.guard
        self.guard: Guard | None = Guard(rules, home=home) if rules is not None else None
        """What ``dial`` asks; None = it refuses the emergency numbers of every network alone."""
        self._any_guard = self.guard or Guard(home=home)
        self._on_account = on_account
        self._suites: tuple[str, ...] = ()
        self._admissions: dict[PhoneCall, Admission] = {}
        self._replacing = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._records: RecordSink | None = None
        self._files: CallFiles
        self._media: MediaProcess
        self._sip: SipEndpoint

    async def __aenter__(self) -> Phone:
        settings = self.settings
        self._suites = self._encryption()
        async with AsyncExitStack() as stack:
            if self._own_link:
                stack.push_async_callback(self.link.close)
                self.ignored = (await self.link.check(settings.speech)).ignored
            stack.push_async_callback(self.recognisers.close)
            self._records = await open_records(stack, settings.latency_log, settings.otel)
            self._files = CallFiles(self.record_settings, settings.record_path, self.clock)
            stack.push_async_callback(self._files.close)
            self._files.start()
            await asyncio.to_thread(warm, self._codecs())
            self._media = await MediaProcess.start(settings.media)
            stack.push_async_callback(self._close_media)
            self._sip = SipEndpoint(
                settings.sip_settings(), self.clock, on_account=self._account_changed
            )
            stack.push_async_callback(self._sip.close)
            await self._sip.start()
            for account in settings.all_accounts:
                await self._sip.add(account, wait=settings.require_registration)
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

    # --- what it is

    @property
    def uri(self) -> str:
        """The address at which this phone can be called."""
        return self._sip.uri

    @property
    def port(self) -> int:
        """The bound SIP port."""
        return self._sip.port

    @property
    def tls_port(self) -> int:
        """The bound port for SIP over TLS; 0 where there is none."""
        return self._sip.tls_port

    @property
    def scheduling(self) -> str:
        """How the media process runs: ``fifo``, ``nice`` or ``plain``."""
        return self._media.rt

    @property
    def media_pid(self) -> int:
        """The media process, for whoever watches what it uses."""
        return self._media.pid

    @property
    def registrations(self) -> Mapping[str, Line]:
        """How the accounts stand, by their names."""
        return self._sip.lines

    @property
    def sip(self) -> SipEndpoint:
        """Its signalling."""
        return self._sip

    # --- calling

    async def dial(
        self,
        uri: str,
        headers: dict[str, str] | None = None,
        *,
        with_account: bool = True,
        account: str | None = None,
    ) -> PhoneCall:
        """Call someone; returns at once, then ``await call.answered()``.

        ``account``: the name of the account in whose name; None = the first that is able to. Only
        with an account ``uri`` may be a bare number or name. ``with_account=False``: in none's
        name, and whoever is called is told nothing that follows from a password. For hosts that
        are not the account's.

        Raises:
            CallNotAllowed: the guard forbids it; nothing was sent.
            BadSip: ``uri`` is no SIP address, or there is no such account.
            CalleeUnreachable: its host has no address.
            PortBusy: no RTP port is free.
        """
        chosen = self._chosen(account) if with_account else None
        target = self.address_of(uri, chosen.name if chosen is not None else "")
        admission = None
        if self.guard is not None:
            admission = self.guard.admit(target, self.clock.now())
        else:
            refuse_emergency(target)
        leg: MediaLeg | None = None
        began = time.time(), self.clock.now()
        try:
            host = await self._sip.media_host(target, chosen)
            leg = await self._open_leg(host)
            session = self._session(host, leg.local_port, chosen)
            sip = await self._sip.place(target, session.offer(), account=chosen, headers=headers)
        except BaseException:
            if admission is not None:
                admission.over()
            if leg is not None:
                await leg.close()
            raise
        call = self._keep(sip, leg, session, chosen, began)
        if admission is not None:
            self._admissions[call] = admission
            if admission.until is not None:
                call.life.body.start(call.life.end_by(admission.until), "longest time")
        return call

    def __aiter__(self) -> AsyncIterator[PhoneCall]:
        """Calls as they come in; see :meth:`incoming`."""
        return self.incoming()

    async def incoming(self) -> AsyncIterator[PhoneCall]:
        """Calls as they come in; ``await call.answer()`` or ``await call.reject()`` each. Ends when
        this is drained or closed.

        Give each to a task of its own: the next one is here when it is asked for.

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

    async def drain(self) -> None:
        """Take no more calls: registrations are removed, and callers are told to come again later.

        Calls under way go on; ``await phone.drained()`` returns when they are over.
        """
        await self._sip.drain()

    async def drained(self) -> None:
        """Return when no call is left."""
        await self._sip.drained()

    def allow(self, target: str) -> None:
        """Whether a transfer may go there. Raises CallNotAllowed."""
        self._any_guard.check(target, self.clock.now())

    def address_of(self, target: str, account: str) -> str:
        """A SIP address for what may be a bare number or name of an account's server.

        Raises BadSip where it is one, and no account says whose.
        """
        line = self._sip.lines.get(account)
        address = bare(target, line.account if line is not None else None)
        if ":" not in address and "@" not in address:
            raise BadSip(
                f"{address[:60]!r} is no SIP address.",
                remedy="Write it as sip:USER@HOST, or call it with an account.",
            )
        return address

    async def options(self, uri: str, *, account: str | None = None) -> OptionsReply:
        """Ask somebody what he can (SIP OPTIONS); any final answer is given.

        Raises BadSip, CalleeUnreachable or BadCertificate where there is none.
        """
        chosen = self._chosen(account) if account is not None else None
        return await self._sip.options(uri, chosen)

    # --- for calls

    @property
    def record_settings(self) -> RecordSettings:
        """What is kept of calls. For `Call`."""
        return self.settings.records or RecordSettings()

    def call_of(self, sip: SipCall | None) -> PhoneCall | None:
        """The call whose signalling this is. For `Call`."""
        return next((call for call in self.calls if call.sip is sip), None) if sip else None

    def forget(self, life: CallLife) -> None:
        """A call is over; how its account stands goes into its record. For `CallLife`."""
        for call in [call for call in self.calls if call.life is life]:
            self.calls.discard(call)
            admission = self._admissions.pop(call, None)
            if admission is not None:
                admission.over()
        line = self._sip.lines.get(life.facts.account)
        life.facts.registration = registration_facts(line, draining=self._sip.draining)

    # --- inside

    def _encryption(self) -> tuple[str, ...]:
        """The crypto suites that can be spoken. Raises MissingEncryption where some are needed."""
        known = available()
        wanted = [each.srtp or self.settings.srtp for each in self.settings.all_accounts]
        if not known and "require" in (self.settings.srtp, *wanted):
            raise MissingEncryption(
                "Encrypted calls are required (srtp), and the library for them is not there.",
                remedy="Install pylibsrtp (it comes with the extra 'phone').",
            )
        return tuple(suite for suite in SUITES if suite in known)

    def _codecs(self) -> set[str]:
        further = (name for each in self.settings.all_accounts for name in each.codecs or ())
        return {*self.settings.codecs, *further}

    def _chosen(self, name: str | None) -> Account | None:
        if name is None:
            return self._sip.best_account()
        line = self._sip.lines.get(name)
        if line is None:
            known = ", ".join(self._sip.lines) or "none"
            raise BadSip(f"There is no account named {name!r}.", remedy=f"Known are: {known}.")
        return line.account

    async def _open_leg(self, towards: str) -> MediaLeg:
        """Ports for one more call; a media process that has died is replaced."""
        async with self._replacing:
            if self._media.lost.is_set():
                logger.error("the media process is replaced: %s", self._media.cause)
                await self._media.close()
                self._media = await MediaProcess.start(self.settings.media)
            return await self._media.open(self.settings.leg_spec(towards))

    async def _close_media(self) -> None:
        await self._media.close()

    async def _receive(self, sip: SipCall) -> PhoneCall:
        began = time.time(), self.clock.now()
        leg = await self._open_leg(sip.local_host)
        account = self._sip.account_of(sip)
        session = self._session(sip.local_host, leg.local_port, account)
        return self._keep(sip, leg, session, account, began)

    def _session(self, host: str, port: int, account: Account | None) -> SdpSession:
        settings = self.settings
        srtp = (account.srtp if account is not None else None) or settings.srtp
        return SdpSession(
            host,
            port,
            codecs=(account.codecs if account is not None else None) or settings.codecs,
            ptime_ms=settings.ptime_ms,
            srtp=srtp if self._suites else "off",
            srtp_suites=self._suites or SUITES,
            comfort_noise=settings.comfort_noise,
        )

    def _keep(
        self,
        sip: SipCall,
        leg: MediaLeg,
        session: SdpSession,
        account: Account | None,
        began: tuple[float, float],
    ) -> PhoneCall:
        srtp = (account.srtp if account is not None else None) or self.settings.srtp
        facts = CallFacts(
            call_id=sip.call_id,
            direction="in" if sip.direction == "in" else "out",
            local_uri=sip.local_uri,
            remote_uri=sip.remote_uri,
            dialled_uri=sip.dialled_uri,
            display_name=sip.display_name,
            account=account.name if account is not None else "",
            transport=sip.transport,
            keep_transcript=self.record_settings.transcript,
            started_wall=began[0],
            started_at=began[1],
            media=MediaFacts(
                srtp_setting=srtp,
                our_codecs=session.codecs,
                local=(session.host, session.port),
            ),
        )
        voice = Voice(self.link, self.settings.speech, self._records)
        body = CallBody(facts, self.clock, voice, self._files, self.recognisers)
        call = PhoneCall(self, sip, leg, session, body)
        self.calls.add(call)
        return call

    def _account_changed(self, event: AccountEvent) -> None:
        logger.info("account %s: %s", event.name, event.words)
        if self._on_account is not None:
            self._on_account(event)

    async def _hang_up_all(self) -> None:
        await asyncio.gather(*(call.hangup() for call in list(self.calls)), return_exceptions=True)


def _host(uri: str) -> str:
    return parse_uri(uri).host
