"""Being registered: REGISTER with its refreshes (RFC 3261 section 10.2), until unregistered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from qwen3tts_phone.errors import BadSip, CallError, RegistrationFailed
from qwen3tts_phone.sip.auth import Digest
from qwen3tts_phone.sip.dialog import new_call_id, new_tag
from qwen3tts_phone.sip.fields import delta_seconds, parse_address, parse_uri
from qwen3tts_phone.sip.message import Request, Response
from qwen3tts_phone.sip.transaction import Failure, Hop
from qwen3tts_phone.sip.via import loose

if TYPE_CHECKING:
    from qwen3tts_phone.sip.agent import Agent
    from qwen3tts_phone.sip.exchange import Exchange
    from qwen3tts_phone.sip.settings import Account

REFRESH_FROM, REFRESH_TO = 0.80, 0.90
"""A refresh goes out at a random point of this part of the granted time, so that many clients
of a restarted registrar do not come at once."""
RETRY_S = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Waits before a failed refresh is tried again; the last one repeats."""
MAX_EXPIRES_S = 7 * 24 * 3600
MAX_RAISES = 3
"""Times one attempt raises its interval after 423."""


class RegistrationState(Enum):
    """Where a registration stands."""

    IDLE = auto()
    REGISTERING = auto()
    REGISTERED = auto()
    REFRESHING = auto()
    RETRYING = auto()
    """A refresh failed; it is tried again."""
    UNREGISTERING = auto()
    ENDED = auto()


class RegistrationEvent(Enum):
    """What may happen to it."""

    START = auto()
    GRANTED = auto()
    REFUSED = auto()
    DUE = auto()
    STOP = auto()


S, E = RegistrationState, RegistrationEvent

TABLE: dict[tuple[RegistrationState, RegistrationEvent], RegistrationState] = {
    (S.IDLE, E.START): S.REGISTERING,
    (S.REGISTERING, E.GRANTED): S.REGISTERED,
    (S.REGISTERING, E.REFUSED): S.ENDED,
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


class RegistrationCore:
    """The registration without I/O; ``changed`` is called after each move."""

    def __init__(self, agent: Agent, account: Account, hop: Hop) -> None:
        self.state = RegistrationState.IDLE
        self.error: CallError | None = None
        """What the last attempt failed with; None after a success."""
        self.granted_s = 0
        """Seconds that the registrar granted last."""
        self.grants = 0
        """How often it was granted."""
        self.changed: Callable[[], None] = lambda: None
        self._agent = agent
        self._account = account
        self._hop = hop
        self._digest = Digest(account.auth_user or account.user, account.password)
        self._expires = account.expires
        self._call_id = new_call_id()
        self._tag = new_tag()
        self._cseq = 0
        self._exchange: Exchange | None = None
        self._due_at: float | None = None
        self._failures = 0
        self._raises = 0
        agent.timed.append(self)

    def start(self, now: float) -> None:
        """Register for the first time."""
        self._move(E.START)
        self._send(self._expires, now)

    def stop(self, now: float) -> None:
        """Unregister: the binding of ours is removed with an expiry of 0."""
        if self.state in (S.ENDED, S.UNREGISTERING, S.IDLE):
            return
        self._move(E.STOP)
        self._due_at = None
        if self._exchange is not None:
            # Its refusal or silence is not that of the attempt to unregister.
            self._exchange.abandon()
        self._send(0, now)

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""
        return self._due_at

    def tick(self, now: float) -> None:
        """Refresh when it is time."""
        if self._due_at is not None and now >= self._due_at:
            self._due_at = None
            self._move(E.DUE)
            self._raises = 0
            self._send(self._expires, now)

    # Answers

    def on_provisional(self, response: Response, now: float) -> None:
        """Nothing to do."""

    def on_final(self, response: Response, now: float) -> None:
        """The registrar's answer."""
        if response.status < 300:
            self._granted(response, now)
        elif response.status == 423 and self._raise(response, now):
            return
        else:
            wait = delta_seconds(response.get("Retry-After"), MAX_EXPIRES_S)
            self._refused(
                RegistrationFailed(
                    f"The registrar answered {response.status} {response.reason}".rstrip() + ".",
                    remedy=_remedy(response.status),
                    status=response.status,
                ),
                now,
                wait,
            )

    def on_failure(self, failure: Failure, now: float) -> None:
        """The registrar did not answer."""
        where = f"{self._hop.host}:{self._hop.port} over {self._hop.transport.upper()}"
        text = "refused the connection" if failure is Failure.UNREACHABLE else "does not answer"
        self._refused(
            RegistrationFailed(
                f"The registrar {where} {text}.",
                remedy="Check its address and port, and the network.",
            ),
            now,
            None,
        )

    def _granted(self, response: Response, now: float) -> None:
        self.error = None
        self._failures = 0
        if self.state is S.UNREGISTERING:
            self._end()
            return
        granted = self._granted_seconds(response)
        self.granted_s = granted
        self.grants += 1
        share = self._agent.random.uniform(REFRESH_FROM, REFRESH_TO)
        self._due_at = now + max(0.5, granted * share)
        self._move(E.GRANTED)

    def _granted_seconds(self, response: Response) -> int:
        """Section 10.2.4: from our Contact, else from Expires, else what was asked."""
        ours = parse_address(self._contact()).uri
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

    def _raise(self, response: Response, now: float) -> bool:
        """Section 10.2.8: the interval was too brief; ask for what the registrar wants."""
        least = delta_seconds(response.get("Min-Expires"), MAX_EXPIRES_S)
        if least is None or least <= self._expires or self._raises >= MAX_RAISES:
            return False
        self._raises += 1
        self._expires = least
        if self.state is S.UNREGISTERING:
            return False
        self._send(self._expires, now)
        return True

    def _refused(self, error: RegistrationFailed, now: float, wait: int | None) -> None:
        self.error = error
        if self.state in (S.REGISTERING, S.UNREGISTERING):
            self._end(E.REFUSED)
            return
        pause = RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._failures += 1
        self._due_at = now + (max(pause, float(wait)) if wait is not None else pause)
        self._move(E.REFUSED)

    def _send(self, expires: int, now: float) -> None:
        account = self._account
        record = address_of_record(account)
        # Section 10.2: the Request-URI names the registrar's domain alone.
        request = Request("REGISTER", account.registrar)
        request.add("Max-Forwards", "70")
        if account.proxy:
            request.add("Route", f"<{loose(account.proxy)}>")
        request.add("From", f"<{record}>;tag={self._tag}")
        request.add("To", f"<{record}>")
        request.add("Call-ID", self._call_id)
        request.add("CSeq", f"{self._next_cseq()} REGISTER")
        request.add("Contact", self._contact())
        request.add("Expires", str(expires))
        self._agent.describe(request)
        self._exchange = self._agent.exchange(
            request, self._hop, self, now, next_cseq=self._next_cseq, digest=self._digest
        )

    def _contact(self) -> str:
        return self._agent.contact(self._hop)

    def _next_cseq(self) -> int:
        self._cseq += 1
        return self._cseq

    def _end(self, event: RegistrationEvent = E.GRANTED) -> None:
        self._due_at = None
        self._move(event)
        if self in self._agent.timed:
            self._agent.timed.remove(self)

    def _move(self, event: RegistrationEvent) -> None:
        state = TABLE.get((self.state, event))
        if state is None:
            raise RegistrationFailed(f"{event.name.lower()} while {self.state.name}.")
        self.state = state
        self.changed()


class Registration:
    """A registration as a program sees it; it refreshes itself until ``unregister``."""

    def __init__(
        self, core: RegistrationCore, now: Callable[[], float], flush: Callable[[], None]
    ) -> None:
        self._core = core
        self._now = now
        self._flush = flush
        self._moved = asyncio.Event()
        core.changed = self._moved.set

    @property
    def state(self) -> RegistrationState:
        """Where it stands; RETRYING means that the last refresh failed, see ``error``."""
        return self._core.state

    @property
    def error(self) -> CallError | None:
        """What the last attempt failed with, or None."""
        return self._core.error

    @property
    def granted_s(self) -> int:
        """Seconds that the registrar granted last."""
        return self._core.granted_s

    async def registered(self) -> None:
        """Wait for the first answer; raises RegistrationFailed."""
        await self._until(RegistrationState.REGISTERED, RegistrationState.ENDED)
        if self._core.state is RegistrationState.ENDED and self._core.error is not None:
            raise self._core.error

    async def refreshed(self) -> None:
        """Wait until the registrar has granted the binding once more, or it has ended."""
        grants = self._core.grants
        while self._core.grants == grants and self._core.state is not RegistrationState.ENDED:
            self._moved.clear()
            await self._moved.wait()

    async def unregister(self) -> None:
        """Remove our binding and wait for the answer; raises RegistrationFailed when refused."""
        self._core.stop(self._now())
        self._flush()
        await self._until(RegistrationState.ENDED)
        if self._core.error is not None:
            raise self._core.error

    async def _until(self, *states: RegistrationState) -> None:
        while self._core.state not in states:
            self._moved.clear()
            await self._moved.wait()


def address_of_record(account: Account) -> str:
    """``sip:user@domain`` of an account."""
    registrar = parse_uri(account.registrar)
    host = registrar.host if registrar.port is None else f"{registrar.host}:{registrar.port}"
    return f"sip:{account.user}@{host}"


def _same_address(one: str, other: str) -> bool:
    a, b = parse_uri(one), parse_uri(other)
    return (a.user, a.host.lower(), a.port or 5060) == (b.user, b.host.lower(), b.port or 5060)


def _remedy(status: int) -> str:
    return {
        401: "Check the user name and the password.",
        403: "Check the user name and the password; the account may be blocked.",
        404: "Check the user name; the registrar does not know it.",
        407: "Check the user name and the password.",
        423: "Ask for a longer time (expires).",
    }.get(status, "Try again later.")
