"""Client request, with challenges and failover (RFC 3263 section 4.3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from qwen3tts_phone.errors import BadSip, CallError
from qwen3tts_phone.sip.message.fields import parse_address, parse_uri
from qwen3tts_phone.sip.message.message import Request, Response
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.message.via import loose_route, uri_at_server
from qwen3tts_phone.sip.transaction.dialog import min_se, new_branch, session_expires
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.transaction.layer import TransactionLayer
from qwen3tts_phone.sip.transaction.transaction import Failure, Transaction
from qwen3tts_wire.errors import log_text

OnOutcome = Callable[[Response | Failure, float], None]
"""Receives final response or failure, and the time."""


class OutcomeListener:
    """Adapter of a function to the final response or failure, once."""

    def __init__(self, told: OnOutcome) -> None:
        self._told: OnOutcome | None = told

    def on_provisional(self, response: Response, now: float) -> None: ...

    def on_final(self, response: Response, now: float) -> None:
        self._tell(response, now)

    def on_failure(self, failure: Failure, now: float) -> None:
        self._tell(failure, now)

    def _tell(self, outcome: Response | Failure, now: float) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(outcome, now)


FIRST_S = 30.0
"""First penalty; each further failure doubles it."""
LONGEST_S = 300.0
MAX_SERVERS = 1000


class ServerHealth:
    """Recent failures by transport, address and port (pure)."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, str, int], tuple[float, float]] = {}
        """End and length of the penalty, in seconds."""

    def failed(self, hop: Hop, now: float) -> None:
        key = _key(hop)
        until, lasted = self._failed.pop(key, (0.0, 0.0))
        if now < until:
            # One failure that many requests saw counts once.
            self._failed[key] = (until, lasted)
            return
        lasts = min(lasted * 2, LONGEST_S) if lasted else FIRST_S
        while len(self._failed) >= MAX_SERVERS:
            del self._failed[next(iter(self._failed))]
        self._failed[key] = (now + lasts, lasts)

    def answered(self, hop: Hop) -> None:
        self._failed.pop(_key(hop), None)

    def is_down(self, hop: Hop, now: float) -> bool:
        return now < self._failed.get(_key(hop), (0.0, 0.0))[0]

    def order(self, hops: Iterable[Hop], now: float) -> list[Hop]:
        return sorted(hops, key=lambda hop: self.is_down(hop, now))

    def first(self, hops: Iterable[Hop], now: float, prefer: Hop | None = None) -> Hop:
        """Return the first hop, others after it; ``prefer`` unless down."""
        order = self.order(hops, now)
        if prefer in order and not self.is_down(prefer, now):
            order.insert(0, order.pop(order.index(prefer)))
        return replace(order[0], others=tuple(order[1:]))


def _key(hop: Hop) -> tuple[str, str, int]:
    return (hop.transport, hop.host, hop.port)


log = logging.getLogger(__name__)


class ResponseListener(Protocol):
    def on_provisional(self, response: Response, now: float) -> None: ...

    def on_final(self, response: Response, now: float) -> None: ...

    def on_failure(self, failure: Failure, now: float) -> None: ...


class NullListener:
    def on_provisional(self, response: Response, now: float) -> None: ...

    def on_response(self, response: Response, now: float) -> None: ...

    def on_final(self, response: Response, now: float) -> None: ...

    def on_failure(self, failure: Failure, now: float) -> None: ...


FAILOVER_STATUSES = {408, 500, 502, 503, 504}
"""RFC 3263 section 4.3 names 503; proxies send the others for a server behind them."""


class RequestContext(Protocol):
    """User agent core as a client request needs it."""

    layer: TransactionLayer
    health: ServerHealth

    def via(self, hop: Hop) -> str: ...
    def contact(self, hop: Hop, *, user: str = "") -> str: ...
    def tcp_hop(self, hop: Hop, size: int) -> Hop | None: ...


class ClientRequest:
    """Request until its final response: challenges, failover, UDP and TCP."""

    def __init__(
        self,
        context: RequestContext,
        request: Request,
        hop: Hop,
        listener: ResponseListener,
        *,
        next_cseq: Callable[[], int],
        digest: Digest | None,
        max_retries: int,
    ) -> None:
        self.request = request
        """The request as last sent."""
        self.hop = hop
        """Hop of the last transmission."""
        self.cause: CallError | None = None
        """Transport's reason of a failure."""
        self.sent_at = 0.0
        """Last transmission, seconds."""
        self._context = context
        self._udp_fallback: tuple[Hop, list[str]] | None = None
        """UDP hop and Contacts, while TCP is tried for a large request."""
        self._stays_udp = False
        self._health = context.health
        self._others = list(hop.others)
        self._uri: str | None = None
        """Request-URI as given."""
        self._routes: list[str] = []
        self._rerouted = False
        self._proceeding = False
        self.may_retry = True
        """False once its success is not wanted."""
        self.transaction: Transaction | None = None
        self._layer = context.layer
        self._listener = listener
        self._next_cseq = next_cseq
        self._digest = digest
        self._retries_left = max_retries
        self._limit: float | None = None
        self._answered: set[tuple[bool, str]] = set()
        self._reached = False
        """True after a provisional response: none of our proxies challenges then."""

    def start(self, now: float) -> None:
        self._send(self.request, now)

    def limit(self, at: float) -> None:
        self._limit = at
        self._others.clear()
        if self.transaction is not None:
            self.transaction.limit(at)

    def abandon(self) -> None:
        self.may_retry = False
        self._listener = NullListener()

    def on_response(self, response: Response, now: float) -> None:
        self._udp_fallback = None
        if response.status == 503:
            self._health.failed(self.hop, now)
        else:
            self._health.answered(self.hop)
        if response.status < 200:
            if not self._proceeding and self.transaction is not None:
                # The server responds: failover is over, however long it takes.
                self.transaction.limit(self._limit)
            self._proceeding = True
            if response.status > 100:
                # A telephone may ring: it must not ring at two places.
                self._others.clear()
                if self.request.to.tag is None and response.to.tag is not None:
                    self._reached = True
            self._listener.on_provisional(response, now)
        elif response.status in FAILOVER_STATUSES and self._fail_over(now):
            return
        elif not self._retry(response, now):
            self._listener.on_final(response, now)

    def on_failure(self, failure: Failure, now: float) -> None:
        self.cause = self.transaction.cause if self.transaction is not None else None
        self._health.failed(self.hop, now)
        if self._falls_back_to_udp(failure, now):
            return
        if not self._fail_over(now):
            self._listener.on_failure(failure, now)

    def _fail_over(self, now: float) -> bool:
        if not self._others or not self.may_retry:
            return False
        self.hop = self._others.pop(0)
        self._proceeding = False
        self._udp_fallback, self._stays_udp = None, False
        self._answered.clear()
        request = self._copy_request()
        contacts = request.headers.getlist("Contact")
        if contacts:
            contacts[0] = self._contact_for_hop(contacts[0])
        self._send(request, now)
        return True

    def _copy_request(self) -> Request:
        request = Request(self.request.method, self.request.uri, body=self.request.body)
        request.copy_headers(self.request, without=("via", "authorization", "proxy-authorization"))
        return request

    def _falls_back_to_udp(self, failure: Failure, now: float) -> bool:
        # Retry by UDP where TCP is refused (RFC 3261 section 18.1.1).
        small, self._udp_fallback = self._udp_fallback, None
        if small is None or failure is not Failure.UNREACHABLE or not self.may_retry:
            return False
        self.hop, contacts = small
        self.cause = None
        self._stays_udp = True
        request = self._copy_request()
        request.headers.getlist("Contact")[:] = contacts
        self._send(request, now)
        return True

    def _needs_tcp(self, request: Request, sent: Request, now: float) -> bool:
        hop = None if self._stays_udp else self._context.tcp_hop(self.hop, len(bytes(sent)))
        if hop is None or self._health.is_down(hop, now):
            return False
        contacts = request.headers.getlist("Contact")
        self._udp_fallback = (self.hop, list(contacts))
        self.hop = hop
        if contacts:
            fitting = self._contact_for_hop(contacts[0])
            # A mapped address of UDP is not known for TCP.
            if fitting != contacts[0] and _host(fitting) == _host(contacts[0]):
                contacts[0] = fitting
        return True

    def _contact_for_hop(self, contact: str) -> str:
        try:
            return self._context.contact(
                self.hop, user=parse_uri(parse_address(contact).uri).user or ""
            )
        except BadSip:
            return contact

    def _retry(self, response: Response, now: float) -> bool:
        if response.status in (401, 407):
            return self._answer_challenge(response, now)
        return response.status == 422 and self._raise_interval(response, now)

    def _answer_challenge(self, response: Response, now: float) -> bool:
        # Answer once for each realm, again only for a stale nonce (RFC 3261 section 22.2).
        if self._digest is None or not self.may_retry or self._retries_left <= 0:
            return False
        asked = self._digest.answerable(
            response,
            self.request,
            self.hop,
            reached=self._reached,
            relayed=self._proceeding,
            passed=frozenset(realm for by_proxy, realm in self._answered if by_proxy),
        )
        if response.unanswered:
            log.warning(
                "A challenge to %s from %s for a password gets no answer: %s",
                self.request.method,
                log_text(self.hop.words),
                response.unanswered,
            )
        if not asked:
            return False
        if any(not c.stale and c.space in self._answered for c in asked):
            return False
        self._answered |= {challenge.space for challenge in asked}
        self._retry_with({}, now)
        return True

    def _raise_interval(self, response: Response, now: float) -> bool:
        # Retry with the interval that the far end accepts (RFC 4028 section 7.4).
        asked, least = session_expires(self.request), min_se(response)
        if not self.may_retry or self._retries_left <= 0 or asked is None or least <= asked[0]:
            return False
        role = f";refresher={asked[1]}" if asked[1] else ""
        self._retry_with({"Session-Expires": f"{least}{role}", "Min-SE": str(least)}, now)
        return True

    def _retry_with(self, changes: dict[str, str], now: float) -> None:
        self._retries_left -= 1
        old = self.request
        request = Request(old.method, old.uri, body=old.body)
        request.copy_headers(old, without=("via", "authorization", "proxy-authorization", "cseq"))
        # Section 8.1.3.5: the same Call-ID, From and To, the next CSeq, a new branch.
        request.add("CSeq", f"{self._next_cseq()} {old.method}")
        for name, value in changes.items():
            request.replace(name, value)
        self._send(request, now)

    def _address(self, request: Request) -> Request:
        server = self.hop.server
        if self._uri is None:
            self._uri = request.uri
            self._routes = list(request.headers.getlist("Route"))
        if not server and not self._rerouted:
            return request
        self._rerouted = True
        request.uri = self._uri
        routes = request.headers.getlist("Route")
        routes[:] = self._routes
        if server and routes:
            routes[0] = f"<{loose_route(server)}>"
        elif server:
            request.uri = uri_at_server(self._uri, server)
        return request

    def _send(self, request: Request, now: float) -> None:
        request = self._address(request)
        if self._digest is not None:
            self.hop = self._digest.authorize(request, self.hop, asked=bool(self._answered))
        sent = self._with_via(request)
        if self._needs_tcp(request, sent, now):
            sent = self._with_via(request)
        self.request = sent
        self.sent_at = now
        self.transaction = self._layer.send(sent, self.hop, self, now)
        if self._limit is not None:
            self.transaction.limit(self._limit)
        elif self._others and not self._proceeding:
            self.transaction.limit(now + self._layer.timers.failover)

    def _with_via(self, request: Request) -> Request:
        sent = Request(request.method, request.uri, body=request.body)
        sent.add("Via", f"{self._context.via(self.hop)};branch={new_branch()};rport")
        sent.copy_headers(request)
        return sent


def _host(contact: str) -> str:
    return parse_uri(parse_address(contact).uri).host.lower()
