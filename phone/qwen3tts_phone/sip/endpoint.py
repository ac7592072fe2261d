"""SIP endpoint: sockets and time around the user agent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.errors import CallError, WrongState, traceback_without_message
from qwen3tts_phone.sip.call.call import Call
from qwen3tts_phone.sip.call.incoming import IncomingCall
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.core.failure import host_not_found
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_phone.sip.gate import CallAdmission, Gate, SourceGate
from qwen3tts_phone.sip.message.message import Request
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.registration.keepalive import OptionsReply, send_options
from qwen3tts_phone.sip.registration.line import AccountEvent, Line, Registration
from qwen3tts_phone.sip.registration.lines import AccountLines, target_uri
from qwen3tts_phone.sip.scheduling import IncomingCallQueue, TimerScheduler
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_phone.sip.target_resolver import CheckTarget, RedirectFollower, TargetResolver
from qwen3tts_phone.sip.transport.listeners import Listeners
from qwen3tts_phone.sip.transport.locator import Locator
from qwen3tts_phone.sip.transport.udp import TransportCallbacks
from qwen3tts_phone.sip.user_agent import CallOrigin, UserAgent
from qwen3tts_wire.errors import MOST_SENTENCE_CHARS, log_text

log = logging.getLogger(__name__)

CLOSE_WITHIN_S = 2.0
"""Timeout of BYE and REGISTER responses on ``close``."""
DRAIN_WITHIN_S = 5.0
"""Timeout of the registrars' answers in ``drain``."""


class SipEndpoint:
    """SIP endpoint over UDP, TCP and TLS, for any number of accounts.

    ``start`` raises BadCertificate and PortBusy. Use it in the event loop that started it.

    Args:
        gate: admission of requests; default: as the settings say.
        locator: server look-up; default: DNS.
        on_account: receives changes of registration or server.
        on_replacing: receives calls that are to replace another one (RFC 3891); True: handled,
            not in ``incoming``.
        full: no room for another call; callers get 503 with Retry-After.
    """

    def __init__(
        self,
        settings: SipSettings | None = None,
        clock: Clock | None = None,
        *,
        gate: Gate | None = None,
        locator: Locator | None = None,
        on_account: Callable[[AccountEvent], None] | None = None,
        on_replacing: Callable[[SipCall], bool] = lambda call: False,
        full: Callable[[], bool] = lambda: False,
    ) -> None:
        self.settings = settings or SipSettings()
        self._clock: Clock = clock or LoopClock()
        self.gate = gate
        if gate is None and self.settings.gate is not None:
            self.gate = SourceGate(self.settings.gate, own=self._is_own)
        self._incoming = IncomingCallQueue(self.settings.max_calls)
        self.room = CallAdmission(self._clock.now, lambda: full() or self._incoming.is_full)
        self._listeners = Listeners(
            self.settings,
            TransportCallbacks(
                receive=self._received,
                failed=self._failed,
                closed=self._connection_closed,
                admit=self._admits,
                waited=self.room.waited,
                now=self._clock.now,
            ),
        )
        self.agent = UserAgent(
            self.settings,
            now=self._clock.now,
            local=self._listeners.local,
            on_call=self._on_call,
            flush=self.flush,
            gate=self.gate,
        )
        self.agent.busy = self.room.busy_s
        self._locator = locator or Locator(
            self._clock.now, self.settings.dns, families=self._listeners.families
        )
        self._on_account = on_account
        self._on_replacing = on_replacing
        self._lines = AccountLines(
            self.agent,
            self._locator,
            self._listeners,
            now=self._clock.now,
            flush=self.flush,
            run=self._run,
            tell=self._tell,
            trust=self._trust,
        )
        self.agent.digest_of = self._lines.digest_of
        self.agent.digest_for = self._lines.digest_for
        self.agent.trusts = self._trusts
        self._tasks: set[asyncio.Task[None]] = set()
        self._time = TimerScheduler(self._clock, self.agent.next_deadline, self._tick)
        self._ways = TargetResolver(
            self.agent, self._lines, self._locator, self._listeners, self._clock.now
        )
        self._redirects = RedirectFollower(
            self._ways, self._lines, now=self._clock.now, run=self._run, flush=self.flush
        )
        self._over: dict[Call, asyncio.Event] = {}
        self._started = False
        self._closed = False

    async def start(self) -> None:
        await self._listeners.start()
        self._started = True

    @property
    def port(self) -> int:
        """First bound port of UDP and TCP; 0 before ``start``."""
        return self._listeners.port()

    @property
    def tls_port(self) -> int:
        """Port for TLS; 0 without TLS."""
        return self._listeners.port("tls")

    @property
    def uri(self) -> str:
        first = self.settings.listening()[0]
        here = Hop(first.transports[0], "::1" if first.ipv6 else "127.0.0.1", 5060)
        return self.agent.uri(here)

    @property
    def incoming(self) -> AsyncIterator[SipCall]:
        return self._incoming.calls()

    # Accounts

    @property
    def lines(self) -> Mapping[str, Line]:
        return self._lines.all

    async def add(self, account: Account, *, wait: bool = True) -> Line:
        """Use an account: register, begin its keepalive.

        With ``wait`` it raises RegistrationFailed, or CalleeUnreachable for a host without an
        address; without, it returns immediately and retries.

        Raises:
            BadSip: the account cannot be used here.
            WrongState: its name is taken.
        """
        self._check_open()
        try:
            return await self._lines.add(account, wait=wait)
        except OSError as error:
            raise host_not_found(account.servers[0], error) from error

    async def register(self, account: Account, *, wait: bool = True) -> Registration:
        """Register and keep registered; raises as :meth:`add`."""
        line = await self.add(replace(account, register=True), wait=wait)
        assert line.registration is not None
        return line.registration

    async def remove(self, name: str) -> None:
        """Remove an account and its binding, even where this raises.

        Raises:
            WrongState: the name is unknown.
            RegistrationFailed: the registrar did not respond.
        """
        self._check_open()
        await self._lines.remove(name)

    def account_of(self, call: SipCall) -> Account | None:
        """Return an incoming call's account, or None."""
        core = call.core
        return self._lines.account_of(core) if isinstance(core, IncomingCall) else None

    def trusts(self, host: str) -> bool:
        """Return whether an address is an account server's or in a trusted network."""
        return self._trusts(host)

    def best_account(self, *names: str) -> Account | None:
        """Return the first account ready for a call; else the first."""
        return self._lines.best(*names)

    # Calling

    async def place(
        self,
        target: str,
        sdp_offer: str,
        account: Account | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        check: CheckTarget = lambda target: None,
        theirs: bool = False,
    ) -> SipCall:
        """Place a call and return immediately; await ``answered()``.

        With an account ``target`` may be a number or name at its registrar. ``check`` raises
        CallError for a forbidden redirection target; ``theirs``: see `Locator.locate`.

        Raises:
            BadSip: an invalid target or header.
            CalleeUnreachable: the host has no address.
            WrongState: the endpoint drains.
        """
        self._check_open()
        if self.draining:
            raise WrongState("The endpoint is draining: no new calls.")
        target = target_uri(target, account)
        hop = await self._ways.find(target, account, theirs=theirs)
        digest = self._lines.digest_towards(account, hop)
        core = self.agent.place(
            target,
            sdp_offer,
            self.now(),
            digest=digest,
            origin=CallOrigin.of(account),
            headers={**(account.headers if account else {}), **(headers or {})},
            hop=hop,
        )
        if account is not None:
            core.servers = frozenset(each.host for each in self._lines.credentials(account).servers)
        follows = account.follow_redirects if account is not None else None
        trunk = account is not None and not account.register
        if follows or (follows is None and (trunk or self.settings.follow_redirects)):
            self._redirects.attach(core, account, check)
        call = SipCall(self, core)
        self.flush()
        return call

    async def options(self, target: str, account: Account | None = None) -> OptionsReply:
        self._check_open()
        target = target_uri(target, account)
        hop = await self._ways.find(target, account)
        return await send_options(
            self.agent,
            hop,
            target,
            account,
            secret=self._lines.digest_towards(account, hop) is not None,
            now=self._clock.now,
            flush=self.flush,
        )

    def address_for(self, uri: str, account: Account | None = None) -> str:
        """Return our address that the far end of ``uri`` should send media to; raises BadSip."""
        return self._ways.address_for(uri, account)

    async def media_host(
        self, uri: str, account: Account | None = None, *, theirs: bool = False
    ) -> str:
        """Return the same after the DNS look-up, which decides the family."""
        self._check_open()
        hop = await self._ways.find(target_uri(uri, account), account, theirs=theirs)
        return self._listeners.local(hop)[0]

    # Ending

    @property
    def draining(self) -> bool:
        """True while new calls are refused."""
        return bool(self.agent.draining)

    async def drain(self) -> None:
        """Refuse new calls (503), unregister, let calls go on.

        Returns after the registrars' answers or 5 s; ``incoming`` ends.
        """
        self._check_open()
        if self.draining:
            return
        self.agent.draining = max(1, self.settings.drain_retry_after_s)
        self._incoming.close()
        await self._wait_for(self._lines.stop(), DRAIN_WITHIN_S)

    async def drained(self) -> None:
        while self.agent.calls:
            await self.until_over(next(iter(self.agent.calls)))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        farewells = [self._hang_up(call) for call in list(self.agent.calls)]
        if not self.draining:
            farewells += self._lines.stop()
        await self._wait_for(farewells, CLOSE_WITHIN_S)
        self.agent.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listeners.close()
        self._locator.close()
        self._time.stop()
        self._incoming.close()

    async def __aenter__(self) -> SipEndpoint:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # For calls

    def now(self) -> float:
        return self._clock.now()

    def flush(self) -> None:
        self._send_out()
        self._time.reschedule()

    async def until_over(self, call: Call) -> None:
        if call in self.agent.calls:
            await self._over.setdefault(call, asyncio.Event()).wait()

    # Internals

    def _on_call(self, core: IncomingCall) -> None:
        call = SipCall(self, core)
        if core.replaced is not None and self._on_replacing(call):
            return
        self._incoming.put(call)

    async def _hang_up(self, call: Call) -> None:
        call.hang_up(self.now())
        self.flush()
        await self.until_over(call)

    async def _wait_for(self, work: list[Coroutine[Any, Any, None]], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*work, return_exceptions=True)

    def _tell(self, event: AccountEvent) -> None:
        log.info("%s", log_text(event.words, MOST_SENTENCE_CHARS))
        if self._on_account is not None:
            # Not synchronously: the callback may call the user agent, which is in the middle of a
            # message.
            asyncio.get_running_loop().call_soon(self._on_account, event)

    def _trust(self, name: str, sources: Sequence[str]) -> None:
        if isinstance(self.gate, SourceGate):
            self.gate.trust(name, sources)

    def _trusts(self, host: str, request: Request | None = None) -> bool:
        if isinstance(self.gate, SourceGate):
            return self.gate.trusts(host, request)
        return self._lines.has_server(host)

    def _admits(self, host: str, hosts: Iterable[str]) -> bool:
        return self.gate is None or self.gate.connection(host, hosts, self.now())

    def _is_own(self, host: str, port: int | None) -> bool:
        return self._listeners.is_ours(host) or self._lines.is_domain(host)

    def _received(self, data: bytes, hop: Hop) -> None:
        if self._closed and not self.agent.calls and not self.agent.timed:
            return
        try:
            self.agent.receive(data, hop, self.now())
        except Exception as error:
            # One peer's message must not end the others' calls.
            log.error("a SIP message could not be handled\n%s", traceback_without_message(error))
        self.flush()

    def _failed(self, hop: Hop, cause: CallError | None = None) -> None:
        if self._closed and not self.agent.calls and not self.agent.timed:
            return
        self.agent.transport_failed(hop, self.now(), cause)
        for named, has_next in self._locator.use_next_address(hop):
            # RFC 3263 section 4.3: where a name has several addresses, the next one is tried.
            if not (has_next and self.agent.layer.send_again(named)):
                self.agent.transport_failed(named, self.now(), cause)
        self.flush()

    def _connection_closed(self, hop: Hop) -> None:
        if not self._closed:
            self._lines.connection_lost(hop)
            self.flush()

    async def _send_resolved(self, data: bytes, hop: Hop) -> None:
        try:
            await self._locator.locate(hop, theirs=True)
        except OSError:
            self._failed(hop)
            return
        self._transmit(data, hop, self._locator.current(hop))

    def _transmit(self, data: bytes, hop: Hop, server: Hop | None) -> None:
        if server is None:
            self._failed(hop)
        else:
            self._listeners.send(data, replace(server, flow=hop.flow, by_flow=hop.by_flow))

    def _send_out(self) -> None:
        outbox = self.agent.outbox
        while outbox:
            send = outbox.popleft()
            server = self._locator.current(send.hop)
            if server is None:
                self._run(self._send_resolved(send.data, send.hop))
            else:
                self._transmit(send.data, send.hop, server)
        for call in [call for call in self._over if call not in self.agent.calls]:
            self._over.pop(call).set()

    def _tick(self) -> None:
        self.agent.tick(self.now())
        self._send_out()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _check_open(self) -> None:
        if self._closed or not self._started:
            raise WrongState("The SIP endpoint is not started, or closed.")
