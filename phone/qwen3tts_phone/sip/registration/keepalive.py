"""OPTIONS outside a call (RFC 3261 section 11) and keepalives (RFC 5626)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from qwen3tts_phone.errors import CalleeUnreachable, CallError
from qwen3tts_phone.sip.core.account import Account, address_of_record
from qwen3tts_phone.sip.core.ua_core import UserAgentCore
from qwen3tts_phone.sip.message.fields import check_secure
from qwen3tts_phone.sip.message.message import Request, Response
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.message.via import loose_route
from qwen3tts_phone.sip.transaction.client_request import ClientRequest
from qwen3tts_phone.sip.transaction.dialog import new_call_id, new_tag
from qwen3tts_phone.sip.transaction.transaction import Failure

Located = Callable[[Sequence[Hop], OSError | None, float], None]
"""Receives servers, best first, or the failure, and the time."""
Locate = Callable[[Located], None]
"""Server look-up of an account; may answer later."""
Learn = Callable[[Hop, Response], None]
"""Learns our mapped address from a response."""


@dataclass(frozen=True, slots=True)
class OptionsReply:
    status: int
    reason: str
    round_trip_s: float
    """From the last transmission to the response."""
    user_agent: str = ""
    """Server or User-Agent of the response."""
    server: str = ""
    """Responding server: ``192.0.2.1:5060 over UDP``."""


class OptionsRequest:
    """One OPTIONS; ``done`` gets the status or None, once."""

    def __init__(
        self,
        agent: UserAgentCore,
        account: Account | None,
        hop: Hop,
        done: Callable[[int | None, float], None],
        *,
        target: str = "",
        secret: bool = True,
    ) -> None:
        self.response: Response | None = None
        self.failure: Failure | None = None
        self.cause: CallError | None = None
        self._agent = agent
        self._account = account
        self._hop = hop
        self._done = done
        self._target = target
        self._secret = secret
        self._cseq = 0
        self._client_request: ClientRequest | None = None

    @property
    def hop(self) -> Hop:
        return self._client_request.hop if self._client_request is not None else self._hop

    def start(self, now: float) -> None:
        account = self._account
        record = address_of_record(account) if account is not None else self._agent.uri(self._hop)
        target = self._target or (account.registrar if account is not None else record)
        check_secure(target, self._hop.transport)
        request = Request("OPTIONS", target)
        request.add("Max-Forwards", "70")
        if account is not None and account.proxy:
            request.add("Route", f"<{loose_route(account.proxy)}>")
        request.add("From", f"<{record}>;tag={new_tag()}")
        request.add("To", f"<{target}>")
        request.add("Call-ID", new_call_id())
        request.add("CSeq", f"{self._next_cseq()} OPTIONS")
        user = account.user if account is not None else ""
        request.add("Contact", self._agent.contact(self._hop, user=user))
        request.add("Accept", "application/sdp")
        self._agent.describe(request)
        digest = None
        if account is not None and account.password and self._secret:
            digest = self._agent.digest_for(account)
        self._client_request = self._agent.send_request(
            request, self._hop, self, now, next_cseq=self._next_cseq, digest=digest
        )

    def abandon(self) -> None:
        if self._client_request is not None:
            self._client_request.abandon()

    def on_provisional(self, response: Response, now: float) -> None: ...

    def on_final(self, response: Response, now: float) -> None:
        self.response = response
        self._done(response.status, now)

    def on_failure(self, failure: Failure, now: float) -> None:
        self.failure = failure
        self.cause = self._client_request.cause if self._client_request is not None else None
        self._done(None, now)

    def round_trip_s(self, now: float) -> float:
        return now - self._client_request.sent_at if self._client_request is not None else 0.0

    def _next_cseq(self) -> int:
        self._cseq += 1
        return self._cseq


async def send_options(
    agent: UserAgentCore,
    hop: Hop,
    target: str,
    account: Account | None,
    *,
    secret: bool,
    now: Callable[[], float],
    flush: Callable[[], None],
) -> OptionsReply:
    done: asyncio.Future[OptionsReply] = asyncio.get_running_loop().create_future()

    def answered(status: int | None, now: float) -> None:
        if done.done():
            return
        answer = probe.response
        if answer is None:
            done.set_exception(probe.cause or _no_answer(probe))
            return
        who = answer.get("Server") or answer.get("User-Agent") or ""
        took = probe.round_trip_s(now)
        done.set_result(OptionsReply(answer.status, answer.reason, took, who, probe.hop.at))

    probe = OptionsRequest(agent, account, hop, answered, target=target, secret=secret)
    probe.start(now())
    flush()
    try:
        return await done
    finally:
        probe.abandon()


def _no_answer(probe: OptionsRequest) -> CalleeUnreachable:
    gone = probe.failure is Failure.UNREACHABLE
    return CalleeUnreachable(
        f"Nothing listens for SIP at {probe.hop.words}."
        if gone
        else f"No answer from {probe.hop.words}.",
        remedy="Check the address, the network and any firewall between.",
        why="refused" if gone else "timeout",
    )


EARLY = 0.8
"""Least part of the keepalive period (RFC 5626 section 4.4.1)."""
AGAIN_S = 15.0
"""Longest wait before a silent server is asked again."""
PONG_S = 10.0
"""A pong must come within this (RFC 5626 section 4.4.1)."""


class KeepaliveTransport(Protocol):
    def ping(self, hop: Hop) -> bool: ...

    def heard_at(self, hop: Hop) -> float | None: ...

    def abort(self, hop: Hop) -> None: ...


class Keepalive:
    """Keepalive of one server; ``changed`` reports reachability."""

    def __init__(
        self,
        agent: UserAgentCore,
        account: Account,
        locate: Locate,
        wires: KeepaliveTransport,
        *,
        current: Callable[[], Hop | None] = lambda: None,
        learn: Learn = lambda hop, response: None,
    ) -> None:
        self.reachable: bool | None = None
        """None: unknown; CRLF over UDP never tells."""
        self.round_trip_s: float | None = None
        self.hop: Hop | None = None
        """Server that responded last."""
        self.error: CallError | None = None
        self.changed: Callable[[], None] = lambda: None
        self.returned: Callable[[float], None] = lambda now: None
        """Called with the time when a server responds again."""
        self._agent = agent
        self._account = account
        self._locate = locate
        self._wires = wires
        self._current = current
        self._learn = learn
        self._at: float | None = None
        self._pinged: tuple[Hop, float] | None = None
        self._probe: OptionsRequest | None = None
        self._stopped = False

    def start(self, now: float) -> None:
        self._agent.timed.append(self)
        self._at = now

    def stop(self) -> None:
        self._stopped = True
        self._at = None
        if self._probe is not None:
            self._probe.abandon()
        if self in self._agent.timed:
            self._agent.timed.remove(self)

    def next_deadline(self) -> float | None:
        return self._at

    def tick(self, now: float) -> None:
        if self._at is None or now < self._at:
            return
        self._at = None
        if self._pinged is not None:
            self._check_pong(*self._pinged, now)
        elif self._account.keepalive == "crlf":
            hop = self._current() or self.hop
            if hop is not None:
                self._ping(hop, now)
                return
            self._locate(self._located)
        else:
            self._locate(self._located)

    def _located(self, hops: Sequence[Hop], error: OSError | None, now: float) -> None:
        if self._stopped:
            return
        if not hops:
            self._report(
                False,
                now,
                CalleeUnreachable(
                    f"{self._account.servers[0]!r} has no address ({error}).",
                    remedy="Check its spelling and the name server.",
                    why="dns",
                ),
            )
            return
        first = self._agent.health.first(hops, now, self._current())
        if self._account.keepalive == "crlf":
            self._ping(first, now)
            return
        self._probe = OptionsRequest(self._agent, self._account, first, self._answered)
        self._probe.start(now)

    def _answered(self, status: int | None, now: float) -> None:
        probe = self._probe
        if probe is None or self._stopped:
            return
        if probe.response is not None:
            self._learn(probe.hop, probe.response)
        if status is not None and status not in (408, 503):
            self.round_trip_s = probe.round_trip_s(now)
            moved = self.hop is not None and self.hop != probe.hop
            self.hop = probe.hop
            back = self.reachable is False
            self._report(True, now, None)
            if back or moved:
                self.returned(now)
            return
        words = f"{probe.hop.words} "
        if status is not None:
            words += f"answers {status}: it has no room, or is being serviced."
        elif probe.failure is Failure.UNREACHABLE:
            words += "refused the connection."
        else:
            words += "does not answer."
        error = CalleeUnreachable(
            words,
            remedy="Check its address and port, and the network.",
            why="refused" if probe.failure is Failure.UNREACHABLE else "timeout",
        )
        self._report(False, now, probe.cause or error)

    def _ping(self, hop: Hop, now: float) -> None:
        # Send a CRLF ping: over a connection it is answered, over UDP it only keeps the NAT open.
        there = self._wires.ping(hop)
        self.hop = hop
        if hop.reliable and there:
            self._pinged = (hop, now)
            self._at = now + PONG_S
        else:
            self._schedule(now, soon=False)

    def _check_pong(self, hop: Hop, since: float, now: float) -> None:
        self._pinged = None
        heard = self._wires.heard_at(hop)
        if heard is not None and heard >= since:
            back = self.reachable is False
            self._report(True, now, None)
            if back:
                self.returned(now)
            return
        if heard is not None:
            # The connection is half-open; the next request opens another.
            self._wires.abort(hop)
        error = CalleeUnreachable(
            f"The connection to {hop.words} is dead.",
            remedy="Check the network; a new one is made.",
            why="timeout",
        )
        self._report(False, now, error)

    def _report(self, reachable: bool, now: float, error: CallError | None) -> None:
        self.error = error
        news = reachable is not self.reachable
        self.reachable = reachable
        self._schedule(now, soon=not reachable)
        if news:
            self.changed()

    def _schedule(self, now: float, *, soon: bool) -> None:
        period = self._account.keepalive_s
        if soon:
            period = min(period, AGAIN_S)
        self._at = now + self._agent.random.uniform(EARLY, 1.0) * period
