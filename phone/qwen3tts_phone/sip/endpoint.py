"""The SIP endpoint: sockets and time around the agent, and the calls that a program handles."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.errors import CalleeUnreachable, WrongState
from qwen3tts_phone.sip.agent import Agent
from qwen3tts_phone.sip.auth import Digest
from qwen3tts_phone.sip.call import Call
from qwen3tts_phone.sip.incoming import IncomingCall
from qwen3tts_phone.sip.registration import (
    Registration,
    RegistrationCore,
    address_of_record,
)
from qwen3tts_phone.sip.resolver import Resolver
from qwen3tts_phone.sip.settings import Account, SipSettings
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_phone.sip.transaction import Hop
from qwen3tts_phone.sip.transport import TcpTransport, UdpTransport, bind_pair

log = logging.getLogger(__name__)

ELSEWHERE = "192.0.2.1"
"""An address that only the default route leads to (RFC 5737); nothing is sent there."""
CLOSE_WITHIN_S = 2.0
"""How long ``close`` waits for the far ends to hear that it is over."""


class SipEndpoint:
    """Places and answers calls at one address, over UDP and TCP.

    Raises PortBusy from ``start`` when the address is taken. All operations belong to the event
    loop that started it.
    """

    def __init__(self, settings: SipSettings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or SipSettings()
        self._clock: Clock = clock or LoopClock()
        self.agent = Agent(
            self.settings,
            now=self._clock.now,
            local=self._local,
            on_call=self._on_call,
            flush=self.flush,
        )
        self.port = 0
        """The bound port, the same for all transports; 0 before ``start``."""
        self._incoming: asyncio.Queue[SipCall | None] = asyncio.Queue()
        self._udp: UdpTransport | None = None
        self._tcp: TcpTransport | None = None
        self._resolver = Resolver(self._clock.now)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Task[None] | None = None
        self._timer_at = 0.0
        self._timer_due: asyncio.Handle | None = None
        self._over: dict[Call, asyncio.Event] = {}
        self._registrations: list[Registration] = []
        self._closed = False
        self._addresses: dict[str, str] = {}

    async def start(self) -> None:
        """Bind and listen."""
        sockets = bind_pair(self.settings.host, self.settings.port, self.settings.transports)
        self.port = next(iter(sockets.values())).getsockname()[1]
        if "udp" in sockets:
            self._udp = UdpTransport(sockets["udp"], self._received, self._failed)
        if "tcp" in sockets:
            self._tcp = TcpTransport(sockets["tcp"], self._received, self._failed)
            await self._tcp.start()

    @property
    def uri(self) -> str:
        """Our own address, for others to call."""
        return self.agent.uri(Hop(self.settings.transports[0], "127.0.0.1", 5060))

    @property
    def incoming(self) -> AsyncIterator[SipCall]:
        """Calls that come in, until the endpoint is closed."""
        return self._calls()

    async def place(
        self,
        target: str,
        sdp_offer: str,
        account: Account | None = None,
        headers: dict[str, str] | None = None,
    ) -> SipCall:
        """Call someone; returns at once, follow the call's events or await ``answered()``.

        With an account the target may be a bare number or name, known to its registrar.
        Raises BadSip for an address that cannot be used, CalleeUnreachable for a host that has
        no address.
        """
        self._check_open()
        target = target.strip()
        if account is not None and target and ":" not in target and "@" not in target:
            target = address_of_record(replace(account, user=target))
        proxy = account.proxy if account else ""
        await self._find(self.agent.hop(proxy or target))
        digest = None
        identity = ""
        if account is not None:
            digest = Digest(account.auth_user or account.user, account.password)
            identity = address_of_record(account)
        core = self.agent.place(
            target,
            sdp_offer,
            self.now(),
            digest=digest,
            identity=identity,
            proxy=proxy,
            headers=headers,
        )
        call = SipCall(self, core)
        self.flush()
        return call

    async def register(self, account: Account) -> Registration:
        """Register and keep registered; raises RegistrationFailed or CalleeUnreachable."""
        self._check_open()
        hop = self.agent.hop(account.proxy or account.registrar)
        await self._find(hop)
        core = RegistrationCore(self.agent, account, hop)
        registration = Registration(core, self.now, self.flush)
        core.start(self.now())
        self.flush()
        await registration.registered()
        self._registrations.append(registration)
        return registration

    async def close(self) -> None:
        """Hang up, unregister, and close the sockets."""
        if self._closed:
            return
        self._closed = True
        farewells = [self._hang_up(call) for call in list(self.agent.calls)]
        farewells += [registration.unregister() for registration in self._registrations]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await asyncio.gather(*farewells, return_exceptions=True)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._udp is not None:
            self._udp.close()
        if self._tcp is not None:
            await self._tcp.close()
        if self._timer_due is not None:
            self._timer_due.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._incoming.put_nowait(None)

    async def __aenter__(self) -> SipEndpoint:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # For calls

    def now(self) -> float:
        """The clock's time, in seconds."""
        return self._clock.now()

    def flush(self) -> None:
        """Send what the agent has to send, and set the timer."""
        self._send_out()
        if self._timer_due is None:
            # Once for all datagrams of a burst: it looks at every call there is.
            self._timer_due = asyncio.get_running_loop().call_soon(self._set_timer)

    async def until_over(self, call: Call) -> None:
        """Wait until the agent has forgotten a call."""
        if call in self.agent.calls:
            await self._over.setdefault(call, asyncio.Event()).wait()

    # Inside

    async def _calls(self) -> AsyncIterator[SipCall]:
        while (call := await self._incoming.get()) is not None:
            # Callers that gave up before anybody looked need no answer any more.
            if call.ended is None:
                yield call
        self._incoming.put_nowait(None)

    def _on_call(self, core: IncomingCall) -> None:
        call = SipCall(self, core)
        if self._incoming.qsize() >= self.settings.max_calls:
            core.reject(503, self.now())
        else:
            self._incoming.put_nowait(call)

    async def _hang_up(self, call: Call) -> None:
        call.hang_up(self.now())
        self.flush()
        await self.until_over(call)

    def _received(self, data: bytes, hop: Hop) -> None:
        if self._closed and not self.agent.calls and not self.agent.timed:
            return
        try:
            self.agent.receive(data, hop, self.now())
        except Exception:
            # One peer's message must not end the others' calls.
            log.exception("a SIP message could not be handled")
        self.flush()

    def _failed(self, hop: Hop) -> None:
        if self._closed:
            return
        self.agent.transport_failed(hop, self.now())
        for name in self._resolver.names_of(hop.host):
            there = Hop(hop.transport, name, hop.port)
            # RFC 3263 section 4.3: where a name has several addresses, the next one is tried.
            if not (self._resolver.turn_to_next(name) and self.agent.layer.send_again(there)):
                self.agent.transport_failed(there, self.now())
        self.flush()

    def _transmit(self, data: bytes, hop: Hop, address: str) -> None:
        where = replace(hop, host=address)
        if hop.transport == "udp" and self._udp is not None:
            self._udp.send(data, where)
        elif hop.transport == "tcp" and self._tcp is not None:
            self._tcp.send(data, where)

    async def _send_resolved(self, data: bytes, hop: Hop) -> None:
        try:
            address = await self._resolver.resolve(hop.host, ipv6=":" in self.settings.host)
        except OSError:
            self._failed(hop)
            return
        self._transmit(data, hop, address)

    async def _find(self, hop: Hop) -> None:
        try:
            await self._resolver.resolve(hop.host, ipv6=":" in self.settings.host)
        except OSError as error:
            raise CalleeUnreachable(
                f"The host {hop.host!r} has no address ({error.strerror or error}).",
                remedy="Check its spelling and the name server.",
            ) from error

    def _local(self, hop: Hop) -> tuple[str, int]:
        host = self.settings.advertised_host or self.settings.host
        if host in ("0.0.0.0", "::"):
            # A name that is not looked up yet gets the default route's; nothing may wait here.
            host = self._address_towards(self._resolver.known(hop.host) or ELSEWHERE)
        return host, self.port

    def address_for(self, uri: str) -> str:
        """Which of our addresses the far end of ``uri`` should send media to; raises BadSip."""
        return self._local(self.agent.hop(uri))[0]

    def _address_towards(self, host: str) -> str:
        """Which of our addresses routes to a host; connecting a datagram socket sends nothing."""
        known = self._addresses.get(host)
        if known is not None:
            return known
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        address = "127.0.0.1"
        with socket.socket(family, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.connect((host, 9))
            address = probe.getsockname()[0]
        if len(self._addresses) > 1000:
            self._addresses.clear()
        self._addresses[host] = address
        return address

    def _send_out(self) -> None:
        outbox = self.agent.outbox
        while outbox:
            send = outbox.popleft()
            address = self._resolver.known(send.hop.host)
            if address is None:
                self._run(self._send_resolved(send.data, send.hop))
            else:
                self._transmit(send.data, send.hop, address)
        for call in [call for call in self._over if call not in self.agent.calls]:
            self._over.pop(call).set()

    def _set_timer(self) -> None:
        self._timer_due = None
        deadline = self.agent.next_deadline()
        running = self._timer is not None and not self._timer.done()
        if deadline is None or (running and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = asyncio.get_running_loop().create_task(self._keep_time())

    async def _keep_time(self) -> None:
        """Sleep to the agent's deadlines, one after another."""
        while (deadline := self.agent.next_deadline()) is not None:
            self._timer_at = deadline
            await self._clock.sleep_until(deadline)
            # Whatever happens in the tick, this loop looks at the deadlines again.
            self._timer_at = float("-inf")
            try:
                self.agent.tick(self.now())
            except Exception:
                log.exception("a SIP timer failed")
            self._send_out()

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _check_open(self) -> None:
        if self._closed or (self._udp is None and self._tcp is None):
            raise WrongState("The SIP endpoint is not started, or closed.")
