"""Registration: REGISTER and refreshes (RFC 3261 section 10.2).

The best answering server is used; a better one is probed now and then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum, auto

from qwen3tts_phone.errors import BadSip, CallError, RegistrationFailed
from qwen3tts_phone.sip.core.account import Account, address_of_record
from qwen3tts_phone.sip.core.failure import (
    registrar_not_found,
    registration_refused,
    registration_unanswered,
)
from qwen3tts_phone.sip.core.ua_core import UserAgentCore
from qwen3tts_phone.sip.message.fields import delta_seconds, parse_address, parse_uri
from qwen3tts_phone.sip.message.message import Request, Response
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.message.via import loose_route
from qwen3tts_phone.sip.registration.keepalive import Learn, Locate, Located, OptionsRequest
from qwen3tts_phone.sip.transaction.client_request import ClientRequest
from qwen3tts_phone.sip.transaction.dialog import new_call_id, new_tag
from qwen3tts_phone.sip.transaction.transaction import Failure


class RegistrationState(Enum):
    IDLE = auto()
    REGISTERING = auto()
    REGISTERED = auto()
    REFRESHING = auto()
    RETRYING = auto()
    """An attempt failed and is repeated."""
    UNREGISTERING = auto()
    ENDED = auto()


class RegistrationEvent(Enum):
    START = auto()
    GRANTED = auto()
    REFUSED = auto()
    """Final for a first attempt."""
    POSTPONED = auto()
    """First attempt failed, to be repeated."""
    DUE = auto()
    STOP = auto()


S, E = RegistrationState, RegistrationEvent

REGISTRATION_TRANSITIONS: dict[tuple[RegistrationState, RegistrationEvent], RegistrationState] = {
    (S.IDLE, E.START): S.REGISTERING,
    (S.REGISTERING, E.GRANTED): S.REGISTERED,
    (S.REGISTERING, E.REFUSED): S.ENDED,
    (S.REGISTERING, E.POSTPONED): S.RETRYING,
    (S.REGISTERING, E.STOP): S.UNREGISTERING,
    (S.REGISTERED, E.DUE): S.REFRESHING,
    (S.REGISTERED, E.STOP): S.UNREGISTERING,
    (S.REFRESHING, E.GRANTED): S.REGISTERED,
    (S.REFRESHING, E.REFUSED): S.RETRYING,
    (S.REFRESHING, E.STOP): S.UNREGISTERING,
    (S.RETRYING, E.DUE): S.REFRESHING,
    (S.RETRYING, E.STOP): S.UNREGISTERING,
    (S.UNREGISTERING, E.GRANTED): S.ENDED,
    (S.UNREGISTERING, E.REFUSED): S.ENDED,
    (S.UNREGISTERING, E.STOP): S.UNREGISTERING,
}


REFRESH_FROM, REFRESH_TO = 0.80, 0.90
"""Random refresh within this part of the expiry, so that clients of a restarted registrar spread.
"""
RETRY_S = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Backoff; the last one repeats."""
REFUSED_S = (60.0, 120.0, 300.0)
"""Backoff after a refusal: frequent attempts often get an address banned."""
REFUSALS = {400, 401, 403, 404, 405, 407, 501, 603, 604}
JITTER = 0.25
"""Random variation of waits."""
LOST_WITHIN_S = 1.0
"""Random delay before a lost connection is replaced."""
MOVE_EVERY_S = 5.0
"""Least interval of registrations for a changed address."""
MAX_MOVES = 3
"""Consecutive ones; a NAT that always maps another address is given up."""
RETURN_S = 30.0
"""Interval of probes of the best server."""
RETURNED_WITHIN_S = 3.0
"""Random delay after a server's return, as all its clients notice together."""
RETURNED_EVERY_S = 30.0
"""Least time between two such registrations."""
MAX_EXPIRES_S = 7 * 24 * 3600
MAX_RAISES = 3
"""Times one attempt raises its expiry after 423."""


class RegistrationCore:
    """Registration without I/O; ``changed`` follows each transition."""

    def __init__(
        self,
        agent: UserAgentCore,
        account: Account,
        hop: Hop | None = None,
        *,
        locate: Locate | None = None,
        learn: Learn = lambda hop, response: None,
        keep_trying: bool = False,
    ) -> None:
        self.state = RegistrationState.IDLE
        self.error: CallError | None = None
        """Error of the last attempt, or None."""
        self.granted_s = 0
        """Last granted expiry."""
        self.grants = 0
        """Count of grants."""
        self.expires_at: float | None = None
        """End of the binding, seconds; None: no binding."""
        self.hop: Hop | None = None
        """Server used last."""
        self.changed: Callable[[], None] = lambda: None
        self._agent = agent
        self._account = account
        self._locate: Locate = locate or self._fixed
        self._learn = learn
        self._keep_trying = keep_trying
        self._hops: tuple[Hop, ...] = (hop,) if hop is not None else ()
        self._digest = agent.digest_for(account)
        self._expires = account.expires
        self._call_id = new_call_id()
        self._tag = new_tag()
        self._cseq = 0
        self._client_request: ClientRequest | None = None
        self._attempt = 0
        self._due_at: float | None = None
        self._return_at: float | None = None
        self._probe: OptionsRequest | None = None
        self._bound: str | None = None
        """Our granted Contact."""
        self._flow = 0
        self._failures = 0
        self._raises = 0
        self._moves = 0
        self._returned_at = -math.inf
        """Time of the registration after a server's return."""
        agent.timed.append(self)

    # Called by the shell

    def start(self, now: float) -> None:
        self._move(E.START)
        self._start_attempt(now)

    def stop(self, now: float) -> None:
        if self.state in (S.ENDED, S.UNREGISTERING, S.IDLE):
            return
        nothing_there = self.state is S.RETRYING and not self.is_bound(now)
        self._move(E.STOP)
        self._due_at = self._return_at = None
        self._attempt += 1
        if self._client_request is not None:
            # The response to it is not that of the attempt to unregister.
            self._client_request.abandon()
        if self.hop is None or nothing_there:
            # No binding exists: there is nothing to be removed.
            self._end(E.REFUSED)
            return
        self._send(self.hop, 0, now)

    def connection_lost(self, hop: Hop, now: float) -> None:
        if self.state is S.REGISTERED and hop.flow and hop.flow == self._flow:
            self._due_at = now + self._agent.random.uniform(0.0, LOST_WITHIN_S)

    def server_returned(self, now: float) -> None:
        registration_refused = (
            isinstance(self.error, RegistrationFailed) and self.error.status is not None
        )
        waiting = self.state is S.RETRYING and not registration_refused
        if not (waiting or self.state is S.REGISTERED) or self._returned_at > now:
            return
        soon = now + self._agent.random.uniform(0.0, RETURNED_WITHIN_S)
        at = max(soon, self._returned_at + RETURNED_EVERY_S)
        if self._due_at is None or at < self._due_at:
            self._returned_at = self._due_at = at

    def address_changed(self, now: float) -> None:
        if self.state is not S.REGISTERED or self.hop is None or self._client_request is None:
            return
        if self._contact(self.hop) == self._bound:
            return
        if self._moves < MAX_MOVES:
            # Immediately for the first time: a NAT is noticed by the first response.
            at = max(now, self._client_request.sent_at + MOVE_EVERY_S) if self._moves else now
            self._moves += 1
            self._due_at = at if self._due_at is None else min(self._due_at, at)

    def is_bound(self, now: float) -> bool:
        return self.expires_at is not None and now < self.expires_at

    def next_deadline(self) -> float | None:
        return min((at for at in (self._due_at, self._return_at) if at is not None), default=None)

    def tick(self, now: float) -> None:
        if self._return_at is not None and now >= self._return_at:
            self._return_at = now + RETURN_S
            self._probe_best_server(now)
        if self._due_at is not None and now >= self._due_at:
            self._due_at = None
            self._move(E.DUE)
            self._raises = 0
            self._start_attempt(now)

    # One attempt

    def _fixed(self, located: Located) -> None:
        located(self._hops, None, self._agent.now())

    def _start_attempt(self, now: float, first: Hop | None = None) -> None:
        self._attempt += 1
        attempt = self._attempt

        def located(hops: Sequence[Hop], error: OSError | None, now: float) -> None:
            if attempt != self._attempt:
                return
            if not hops:
                self._failed(
                    registrar_not_found(error or OSError("no address"), self._account), now, None
                )
                return
            self._hops = tuple(hops)
            prefer = first or (self.hop if self.is_bound(now) else None)
            hop = self._agent.health.first(hops, now, prefer)
            self.hop = hop
            self._send(hop, self._expires, now)

        self._locate(located)

    def _send(self, hop: Hop, expires: int, now: float) -> None:
        account = self._account
        record = address_of_record(account)
        # Section 10.2: the Request-URI names the registrar's domain alone.
        request = Request("REGISTER", account.registrar)
        request.add("Max-Forwards", "70")
        if account.proxy:
            request.add("Route", f"<{loose_route(account.proxy)}>")
        request.add("From", f"<{record}>;tag={self._tag}")
        request.add("To", f"<{record}>")
        request.add("Call-ID", self._call_id)
        request.add("CSeq", f"{self._next_cseq()} REGISTER")
        contact = self._contact(hop)
        if expires == 0 and self._bound is not None:
            # The granted Contact is removed, even if ours has changed.
            contact = self._bound
        request.add("Contact", contact)
        if self._bound not in (None, contact):
            request.add("Contact", f"{self._bound};expires=0")
        request.add("Expires", str(expires))
        self._agent.describe(request)
        self._client_request = self._agent.send_request(
            request, hop, self, now, next_cseq=self._next_cseq, digest=self._digest
        )

    # Responses

    def on_provisional(self, response: Response, now: float) -> None: ...

    def on_final(self, response: Response, now: float) -> None:
        if self._client_request is not None:
            self.hop = self._client_request.hop
            self._learn(self.hop, response)
        if response.status < 300:
            self._granted(response, now)
        elif response.status == 423 and self._raise_expiry(response, now):
            return
        else:
            wait = delta_seconds(response.get("Retry-After"), MAX_EXPIRES_S)
            self._failed(registration_refused(response, self._account), now, wait)

    def on_failure(self, failure: Failure, now: float) -> None:
        exchange = self._client_request
        if exchange is None:
            return
        self.hop = exchange.hop
        self._failed(registration_unanswered(failure, exchange.hop, exchange.cause), now, None)

    def _granted(self, response: Response, now: float) -> None:
        self.error = None
        self._failures = 0
        if self.state is S.UNREGISTERING:
            self.expires_at = None
            self._end()
            return
        exchange = self._client_request
        sent = exchange.request.headers.getlist("Contact")[0] if exchange is not None else ""
        granted = self._granted_seconds(response, sent)
        moved = self._bound not in (None, sent)
        self._bound = sent
        self._flow = response.flow
        self.granted_s = granted
        self.grants += 1
        self.expires_at = (exchange.sent_at if exchange is not None else now) + granted
        share = self._agent.random.uniform(REFRESH_FROM, REFRESH_TO)
        self._due_at = now + max(0.5, granted * share)
        if self._best() is None:
            self._return_at = None
        elif self._return_at is None:
            # Kept over refreshes, which may come more often.
            self._return_at = now + RETURN_S
        self._move(E.GRANTED)
        if not moved:
            self._moves = 0
        self.address_changed(now)

    def _granted_seconds(self, response: Response, sent: str) -> int:
        # Return the granted expiry (section 10.2.4): of our Contact, else of Expires.
        ours = parse_address(sent).uri
        for value in response.values("Contact"):
            try:
                contact = parse_address(value)
                same = _same_address(contact.uri, ours)
            except BadSip:
                continue
            seconds = delta_seconds(contact.parameters.get("expires"), MAX_EXPIRES_S)
            if same and seconds is not None:
                return max(1, seconds)
        seconds = delta_seconds(response.get("Expires"), MAX_EXPIRES_S)
        return max(1, self._expires if seconds is None else seconds)

    def _raise_expiry(self, response: Response, now: float) -> bool:
        # Retry a 423 with the registrar's Min-Expires (section 10.2.8).
        least = delta_seconds(response.get("Min-Expires"), MAX_EXPIRES_S)
        if least is None or least <= self._expires or self._raises >= MAX_RAISES:
            return False
        self._raises += 1
        self._expires = least
        if self.state is S.UNREGISTERING or self.hop is None:
            return False
        self._send(self.hop, self._expires, now)
        return True

    def _failed(self, error: RegistrationFailed, now: float, wait: int | None) -> None:
        self.error = error
        if self.state is S.UNREGISTERING:
            self._end(E.REFUSED)
            return
        first = self.state is S.REGISTERING
        if first and not self._keep_trying:
            self._end(E.REFUSED)
            return
        waits = REFUSED_S if error.status in REFUSALS else RETRY_S
        pause = waits[min(self._failures, len(waits) - 1)]
        pause *= self._agent.random.uniform(1 - JITTER, 1 + JITTER)
        self._failures += 1
        self._due_at = now + (max(pause, float(wait)) if wait is not None else pause)
        self._move(E.POSTPONED if first else E.REFUSED)

    # Returning to the best server

    def _best(self) -> Hop | None:
        if self.hop is None or not self._hops:
            return None
        best = min(self._hops, key=lambda hop: hop.rank)
        return best if best.rank < self.hop.rank else None

    def _probe_best_server(self, now: float) -> None:
        best = self._best()
        if best is None or self.state is not S.REGISTERED:
            return

        def answered(status: int | None, now: float) -> None:
            if status in (None, 408, 503) or self.state is not S.REGISTERED:
                return
            self._agent.health.answered(best)
            self._due_at = None
            self._move(E.DUE)
            self._raises = 0
            self._start_attempt(now, first=best)

        self._probe = OptionsRequest(self._agent, self._account, best, answered)
        self._probe.start(now)

    def _contact(self, hop: Hop) -> str:
        return self._agent.contact(hop, user=self._account.user)

    def _next_cseq(self) -> int:
        self._cseq += 1
        return self._cseq

    def _end(self, event: RegistrationEvent = E.GRANTED) -> None:
        self._due_at = self._return_at = None
        self._move(event)
        if self in self._agent.timed:
            self._agent.timed.remove(self)

    def _move(self, event: RegistrationEvent) -> None:
        state = REGISTRATION_TRANSITIONS.get((self.state, event))
        if state is None:
            raise RegistrationFailed(f"{event.name.lower()} while {self.state.name}.")
        self.state = state
        self.changed()


def _same_address(one: str, other: str) -> bool:
    a, b = parse_uri(one), parse_uri(other)
    return (a.user, a.host.lower(), a.port or 5060) == (b.user, b.host.lower(), b.port or 5060)
