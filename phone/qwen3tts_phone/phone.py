"""A phone: it dials and answers calls over SIP.

>>> async with Phone(port=5060) as phone:
...     async for call in phone:                        # one after the other, as they come
...         await call.answer()
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, get_args

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.audio.answering import AnsweringSettings
from qwen3tts_phone.audio.inbound import preload_codecs
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.call.core import BackgroundTasks, CallCore, CallVoice
from qwen3tts_phone.call.dialogue import OnMachine
from qwen3tts_phone.call.incoming import (
    OutageHandler,
    Replacements,
    SpeechOutages,
    refuse_with_retry_after,
)
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.call.setup import (
    media_host,
    new_facts,
    new_session,
    ready_message,
    registration_facts,
    srtp_of,
    suites_for,
)
from qwen3tts_phone.detection.recogniser import RecogniserPool
from qwen3tts_phone.dialling.guard import Admission, Guard, refuse_emergency
from qwen3tts_phone.errors import BadSip, CallError
from qwen3tts_phone.facts import CallFacts
from qwen3tts_phone.media.admission import PacingAdmission
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.process import MediaKeeper
from qwen3tts_phone.records.store import CallStore
from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.settings.phone import CallMediaSettings, PhoneSettings
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.message.fields import parse_uri
from qwen3tts_phone.sip.registration.keepalive import OptionsReply
from qwen3tts_phone.sip.registration.line import AccountEvent, Line
from qwen3tts_phone.sip.registration.lines import target_uri
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_settings.constraints import with_changes
from qwen3tts_speech.link import SpeechLink
from qwen3tts_speech.record_sinks import RecordSink, open_records
from qwen3tts_speech.voice_process import DEFAULT_URL, on_stderr, voice_server
from qwen3tts_wire.errors import MOST_SENTENCE_CHARS, log_text
from qwen3tts_wire.process import heap, raise_descriptor_limit

logger = logging.getLogger(__name__)


FILES_A_CALL = 8
"""Descriptors that a call may take, here or in the media process: memory, ports, files."""


class PhoneStatus:
    """State of a `Phone`, once it is entered."""

    _sip: SipEndpoint
    _media: MediaKeeper

    @property
    def uri(self) -> str:
        return self._sip.uri

    @property
    def port(self) -> int:
        return self._sip.port

    @property
    def tls_port(self) -> int:
        return self._sip.tls_port

    @property
    def scheduling(self) -> str:
        """Scheduling of the media process: ``fifo``, ``nice`` or ``plain``."""
        return self._media.process.rt

    @property
    def media_pid(self) -> int:
        return self._media.pid

    @property
    def pacing(self) -> PacingAdmission:
        return self._media.pacing

    @property
    def registrations(self) -> Mapping[str, Line]:
        return self._sip.lines

    @property
    def sip(self) -> SipEndpoint:
        return self._sip


__all__ = ["Account", "Call", "Phone", "PhoneCall", "PhoneSettings"]


class Phone(PhoneStatus):
    """SIP endpoint, media process and speech connection; an async context manager.

    Settings come as ``settings``, as keyword arguments named as the fields of `PhoneSettings`, or
    both; the keywords prevail: ``Phone(port=5060, voice="alba")``. Iterating over it gives the
    incoming calls. Without a speech server it starts one in a process that ends with the phone.
    ``announce`` gets lines for people, by default on standard error. A given ``link`` may be
    shared: it is neither checked nor closed. ``on_account`` is called when a registration or a
    trunk comes and goes.

    A keyword that is no field raises TypeError. Entering it raises PortBusy, BadCertificate,
    RegistrationFailed, CalleeUnreachable (the registrar), ConnectionLost (no speech server),
    EngineUnavailable (no voice), UnknownVoice, BadRequest (an unknown option), MissingEncryption or
    OSError (a log or folder that cannot be written).
    """

    def __init__(
        self,
        settings: PhoneSettings | None = None,
        *,
        clock: Clock | None = None,
        link: SpeechLink | None = None,
        on_account: Callable[[AccountEvent], None] | None = None,
        announce: Callable[[str], None] | None = on_stderr,
        **changes: Any,
    ) -> None:
        # Any, as a TypedDict would be a second list of the fields: for a type checker's help,
        # give `PhoneSettings`.
        self.settings = with_changes(settings or PhoneSettings(), changes, Phone)
        self.clock: Clock = clock or LoopClock()
        self._own_link = link is None
        self.link = SpeechLink(self.settings.server_url or DEFAULT_URL) if link is None else link
        self.calls: set[PhoneCall] = set()
        """Calls that are not over."""
        self.recognisers = RecogniserPool()
        """Recognisers that calls use by name (`Call.hear`)."""
        self.ignored: tuple[str, ...] = ()
        """Settings' ``options`` unknown to the server's engine."""
        home = [_host(server) for each in self.settings.all_accounts for server in each.servers]
        rules = self.settings.guard
        self.guard: Guard | None = Guard(rules, home=home) if rules is not None else None
        """Guard of ``dial``; None = only emergency numbers of every network are refused."""
        self._any_guard = self.guard or Guard(home=home)
        self._on_account = on_account
        self._announce = announce or (lambda line: None)
        self._told_ready = False
        self._suites: tuple[str, ...] = ()
        self._admissions: dict[PhoneCall, Admission] = {}
        self.tasks = BackgroundTasks()
        """Transfers by far ends and refusals under way. For calls."""
        self._replacements = Replacements(self.call_of, self._receive, self.tasks)
        file = self.settings.unavailable_file
        self._outage = OutageHandler(SpeechOutages(self.link, file), self._receive, self.tasks)
        self._stack = AsyncExitStack()
        self._records: RecordSink | None = None
        self._files: CallStore

    async def __aenter__(self) -> Phone:
        settings = self.settings
        self._suites = suites_for(settings)
        raise_descriptor_limit(FILES_A_CALL * settings.sip_settings().max_calls)
        async with AsyncExitStack() as stack:
            if self._own_link:
                self.link.url = await voice_server(stack, settings.server_url, self._announce)
                stack.push_async_callback(self.link.close)
                self.ignored = (await self.link.check(settings.speech)).ignored
            stack.push_async_callback(self.recognisers.close)
            self._records = await open_records(stack, settings.latency_log, settings.otel)
            self._files = CallStore(self.record_settings, settings.record_path, self.clock)
            stack.push_async_callback(self._files.close)
            self._files.start()
            await asyncio.to_thread(preload_codecs, settings.all_codecs)
            self._media = await MediaKeeper.start(settings.media)
            stack.push_async_callback(self._media.close)
            self._sip = SipEndpoint(
                settings.sip_settings(),
                self.clock,
                on_account=self._account_changed,
                on_replacing=self._replacements.accept,
                full=lambda: self._media.is_full,
            )
            stack.push_async_callback(self._sip.close)
            await self._sip.start()
            for account in settings.all_accounts:
                await self._sip.add(account, wait=settings.require_registration)
            busy = heap.held_by if settings.freeze_heap else heap.heeds
            stack.enter_context(busy(lambda: bool(self.calls)))
            stack.push_async_callback(self._hang_up_all)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    async def dial(
        self,
        uri: str,
        headers: dict[str, str] | None = None,
        *,
        with_account: bool = True,
        account: str | None = None,
        on_machine: OnMachine = "speak",
        answering: AnsweringSettings | None = None,
        theirs: bool = False,
        media: CallMediaSettings | None = None,
    ) -> PhoneCall:
        """Call an address; returns immediately, then ``await call.answered()``.

        Args:
            uri: SIP address; with an account also a bare number or name.
            headers: further header lines of the INVITE.
            with_account: False = without an account, for hosts that are not the account's.
            account: its name; None = the first that can call.
            on_machine: ``speak`` (no detection), ``hang-up`` (waiting for the answer raises
                MachineAnswered) or ``after-beep``. With the last two, `Call.answered`, `say` and an
                `Agent` wait for a person's greeting as well; ``call.facts.answered_by`` and the
                event `AnswererHeard` have the result.
            answering: thresholds of answering machine detection.
            theirs: a far end names ``uri``, as in a transfer; its host is resolved apart from
                accounts'.
            media: codecs and impairment of this call; None = as in the phone's settings.

        Raises:
            ValueError: an unknown ``on_machine`` or codec.
            CallNotAllowed: the guard forbids it; nothing was sent.
            BadSip: ``uri`` is no SIP address, or there is no such account.
            CalleeUnreachable: its host has no address.
            PortBusy: no RTP port is free.
            MediaRefused: this machine cannot pace another call.
        """
        if on_machine not in get_args(OnMachine):
            known = ", ".join(get_args(OnMachine))
            raise ValueError(f"on_machine={on_machine!r}: one of {known}")
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
            host = await self._sip.media_host(target, chosen, theirs=theirs)
            leg = await self._open_leg(host, media=media)
            session = self._session(host, leg.local_port, chosen, media)
            sip = await self._sip.place(
                target, session.offer(), chosen, headers, check=self._check_callee, theirs=theirs
            )
        except BaseException:
            if admission is not None:
                admission.over()
            if leg is not None:
                await leg.close()
            raise
        call = self._keep(sip, leg, session, chosen, began)
        if on_machine != "speak":
            call.screen(on_machine, answering)
        if admission is not None:
            self._admissions[call] = admission
            if admission.until is not None:
                call.end_by(admission.until)
        return call

    def __aiter__(self) -> AsyncIterator[PhoneCall]:
        return self.incoming()

    async def incoming(self) -> AsyncIterator[PhoneCall]:
        """Yield incoming calls until drained or closed; handle each in a task.

        A call without a free port or descriptor gets 503 with Retry-After; so do calls during an
        outage of the speech server, unless ``unavailable_file`` is played to them.
        """
        if not self._told_ready:
            self._told_ready = True
            self._announce(ready_message(self.settings, self.uri))
        async for sip in self._sip.incoming:
            if await self._outage.handle(sip):
                continue
            try:
                call = await self._receive(sip)
            except (CallError, OSError) as error:
                logger.error("a call was refused: %s", log_text(error))
                await refuse_with_retry_after(sip)
            else:
                self._announce(f"{time.strftime('%H:%M:%S')}  {log_text(call.remote_uri)} calls.")
                yield call

    async def drain(self) -> None:
        """Remove registrations and refuse callers (503); calls under way go on."""
        await self._sip.drain()

    async def drained(self) -> None:
        await self._sip.drained()

    def allow(self, target: str) -> None:
        self._any_guard.check(target, self.clock.now())

    def address_of(self, target: str, account: str) -> str:
        """Return a target's SIP address; a bare number gets an account's server."""
        line = self._sip.lines.get(account)
        address = target_uri(target, line.account if line is not None else None)
        if ":" not in address and "@" not in address:
            raise BadSip(
                f"{address[:60]!r} is no SIP address.",
                remedy="Write it as sip:USER@HOST, or call it with an account.",
            )
        return address

    async def options(self, uri: str, *, account: str | None = None) -> OptionsReply:
        """Send an OPTIONS request; return its final answer.

        Raises BadSip, CalleeUnreachable or BadCertificate.
        """
        chosen = self._chosen(account) if account is not None else None
        return await self._sip.options(uri, chosen)

    @property
    def record_settings(self) -> RecordSettings:
        return self.settings.records or RecordSettings()

    def trusts_media_of(self, host: str) -> bool:
        match self.settings.third_hosts:
            case "send":
                return True
            case "pause":
                return False
        return self._sip.trusts(host)

    def call_of(self, sip: SipCall | None) -> PhoneCall | None:
        return next((call for call in self.calls if call.sip is sip), None) if sip else None

    def forget(self, facts: CallFacts) -> None:
        for call in [call for call in self.calls if call.facts is facts]:
            self.calls.discard(call)
            admission = self._admissions.pop(call, None)
            if admission is not None:
                admission.over()
        if not self.calls:
            heap.sweep_if_idle()
        line = self._sip.lines.get(facts.account)
        facts.registration = registration_facts(line, draining=self._sip.draining)

    def _check_callee(self, target: str) -> None:
        self._any_guard.check_callee(self._any_guard.callee(target))

    def _chosen(self, name: str | None) -> Account | None:
        if name is None:
            return self._sip.best_account()
        line = self._sip.lines.get(name)
        if line is None:
            known = ", ".join(self._sip.lines) or "none"
            raise BadSip(f"There is no account named {name!r}.", remedy=f"Known are: {known}.")
        return line.account

    async def _open_leg(
        self, towards: str, *, bind_it: bool = False, media: CallMediaSettings | None = None
    ) -> MediaLeg:
        spec = self.settings.leg_spec(towards)
        if media is not None:
            spec = replace(spec, impairment=media.impairment)
        return await self._media.open(replace(spec, local_host=towards) if bind_it else spec)

    async def _receive(self, sip: SipCall) -> PhoneCall:
        began = time.time(), self.clock.now()
        account = self._sip.account_of(sip)
        srtp = srtp_of(self.settings, self._suites, account)
        host = media_host(sip.offer, sip.local_host, srtp)
        leg = await self._open_leg(host, bind_it=host != sip.local_host)
        session = self._session(host, leg.local_port, account)
        session.peer = sip.remote_address[0]
        return self._keep(sip, leg, session, account, began)

    def _session(
        self,
        host: str,
        port: int,
        account: Account | None,
        media: CallMediaSettings | None = None,
    ) -> SdpSession:
        settings = self.settings
        if media is not None and media.codecs is not None:
            settings = replace(settings, codecs=media.codecs)
            account = replace(account, codecs=None) if account is not None else None
        return new_session(settings, self._suites, account, host, port)

    def _keep(
        self,
        sip: SipCall,
        leg: MediaLeg,
        session: SdpSession,
        account: Account | None,
        began: tuple[float, float],
    ) -> PhoneCall:
        facts = new_facts(sip, session, account, self.settings, began)
        voice = CallVoice(self.link, self.settings.speech, self._records)
        body = CallCore(facts, self.clock, voice, self._files, self.recognisers)
        call = PhoneCall(self, sip, leg, session, body)
        self.calls.add(call)
        return call

    def _account_changed(self, event: AccountEvent) -> None:
        logger.info("account %s: %s", event.name, log_text(event.words, MOST_SENTENCE_CHARS))
        if self._on_account is not None:
            self._on_account(event)

    async def _hang_up_all(self) -> None:
        await self.tasks.cancel()
        await asyncio.gather(*(call.hangup() for call in list(self.calls)), return_exceptions=True)


def _host(uri: str) -> str:
    return parse_uri(uri).host
