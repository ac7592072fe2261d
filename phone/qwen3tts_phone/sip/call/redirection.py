"""Recursion on 3xx responses to an INVITE (RFC 3261 section 8.1.3.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from qwen3tts_phone.errors import BadSip, CallError
from qwen3tts_phone.sip.core.ua_core import UserAgentCore
from qwen3tts_phone.sip.message.fields import check_secure, parse_address, parse_uri, uri_parameter
from qwen3tts_phone.sip.message.message import Request, Response
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.message.via import loose_route
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.transaction.transaction import Failure

MAX_TARGETS = 5
"""Redirection targets of one call, failed ones included."""
MAX_DEPTH = 3
"""Most redirections in a row."""
MAX_CONTACTS = 16
"""Most Contacts of one response."""
FOLLOWED = (300, 301, 302, 305)
"""Without 380: it offers another service."""

Key = tuple[str, str, str, int | None, str]


@dataclass(frozen=True, slots=True)
class RedirectTarget:
    uri: str
    """The Request-URI."""
    proxy: str = ""
    """Proxy to send it to (305); empty = none."""
    depth: int = 1
    """Redirections that led here."""

    @property
    def callees(self) -> tuple[str, ...]:
        if not self.proxy:
            return (self.uri,)
        return self.uri, str(replace(parse_uri(self.proxy), user=parse_uri(self.uri).user))


class TargetSet:
    """Target set (section 8.1.3.4); each address is tried once."""

    def __init__(self, first: str) -> None:
        self.taken = 0
        """Targets tried so far."""
        self.problems: list[str] = []
        """Reasons of untried targets."""
        self._first = first
        self._secure = parse_uri(first).scheme == "sips"
        self._known = {_key(first)}
        self._left: list[tuple[float, int, RedirectTarget]] = []
        self._number = 0

    def take(self, response: Response, current: RedirectTarget | None) -> None:
        """Add the Contacts of a 3xx from ``current``."""
        depth = 1 if current is None else current.depth + 1
        if depth > MAX_DEPTH:
            self.problems.append(f"it was redirected {MAX_DEPTH} times in a row")
            return
        for value in response.values("Contact")[:MAX_CONTACTS]:
            try:
                asked = current.uri if current is not None else self._first
                self._add(value, response.status, depth, asked)
            except BadSip as error:
                self.problems.append(error.message.rstrip("."))

    def next(self) -> RedirectTarget | None:
        if not self._left:
            return None
        if self.taken >= MAX_TARGETS:
            self.problems.append(f"{MAX_TARGETS} addresses were tried")
            self._left.clear()
            return None
        self._left.sort(key=lambda each: (-each[0], each[1]))
        self.taken += 1
        return self._left.pop(0)[2]

    def _add(self, value: str, status: int, depth: int, asked: str) -> None:
        contact = parse_address(value)
        # Section 19.1.5: header fields in the URI are not copied into our request.
        uri = contact.uri.partition("?")[0]
        parsed = parse_uri(uri)
        if parsed.scheme not in ("sip", "sips"):
            raise BadSip(f"a {parsed.scheme[:20]}: address cannot be called")
        if self._secure and parsed.scheme != "sips":
            raise BadSip("a sips: address was redirected to one without TLS")
        key = _key(uri)
        if key in self._known:
            self.problems.append("a loop was found: it leads back to an address that was called")
            return
        self._known.add(key)
        target = RedirectTarget(uri, depth=depth)
        if status == 305:
            target = RedirectTarget(asked, uri, depth)
        self._left.append((_q(contact.parameters.get("q")), self._number, target))
        self._number += 1


def _key(uri: str) -> Key:
    parsed = parse_uri(uri)
    transport = (uri_parameter(parsed, "transport") or "").lower()
    port = parsed.port or (5061 if parsed.scheme == "sips" else 5060)
    return parsed.scheme, parsed.user or "", parsed.host.lower(), port, transport


def _q(text: str | None) -> float:
    try:
        return min(1.0, max(0.0, float(text))) if text is not None else 1.0
    except ValueError:
        return 0.0


PER_ADDRESS = ("via", "route", "cseq", "contact", "authorization", "proxy-authorization")
"""Header fields that are made for each target."""

Outcome = Response | Failure


class RedirectedCall(Protocol):
    agent: UserAgentCore
    local_host: str

    @property
    def invite(self) -> Request: ...
    def next_cseq(self) -> int: ...
    def ask_at(
        self, target: RedirectTarget, request: Request, hop: Hop, digest: Digest | None, now: float
    ) -> None: ...
    def end_with(self, outcome: Outcome, now: float) -> None: ...


class Redirection:
    """Redirection of one call; `found` or `not_found` answers ``locate``."""

    def __init__(self, call: RedirectedCall, first: str) -> None:
        self.locate: Callable[[RedirectTarget], None] | None = None
        self.waits = False
        """True while the next target is being located."""
        self._call = call
        self._targets = TargetSet(first)
        self._current: RedirectTarget | None = None
        self._last: Outcome | None = None

    @property
    def remedy(self) -> str:
        problems = list(dict.fromkeys(self._targets.problems))
        if self.locate is None or not problems:
            return ""
        tried = self._targets.taken
        return f"The redirection was not followed further after {tried}: {'; '.join(problems)}."

    def follows(self, outcome: Outcome, now: float) -> bool:
        """Go to the next target; False where none is left."""
        # 600 and above is final for all targets.
        if self.locate is None:
            return False
        if isinstance(outcome, Response) and outcome.status in FOLLOWED:
            self._targets.take(outcome, self._current)
        elif self._current is None or (isinstance(outcome, Response) and outcome.status >= 600):
            return False
        self._last = outcome
        return self._goes_on()

    def found(
        self,
        target: RedirectTarget,
        hop: Hop,
        digest: Digest | None,
        leave_out: tuple[str, ...],
        now: float,
    ) -> None:
        """Send the INVITE to a located target, without the fields ``leave_out``."""
        if not self.waits:
            return
        call = self._call
        try:
            if call.agent.local_host(hop) != call.local_host:
                raise BadSip("it is reached from another address of ours than our sound comes from")
            request = self._request(target, hop, leave_out)
        except BadSip as error:
            self.not_found(error, now)
            return
        self.waits = False
        self._current = target
        call.ask_at(target, request, hop, digest, now)

    def not_found(self, error: CallError, now: float) -> None:
        if not self.waits:
            return
        self._targets.problems.append(error.message.rstrip("."))
        self.waits = False
        if not self._goes_on():
            assert self._last is not None
            self._call.end_with(self._last, now)

    def stop(self) -> bool:
        """Abandon it; True while a target was being located."""
        waited, self.waits = self.waits, False
        return waited

    def _goes_on(self) -> bool:
        target = self._targets.next()
        if target is None or self.locate is None:
            return False
        self.waits = True
        self.locate(target)
        return True

    def _request(self, target: RedirectTarget, hop: Hop, leave_out: tuple[str, ...]) -> Request:
        check_secure(target.uri, hop.transport)
        call = self._call
        old = call.invite
        request = Request("INVITE", target.uri, body=old.body)
        if target.proxy:
            request.add("Route", f"<{loose_route(target.proxy)}>")
        request.copy_headers(old, without=(*PER_ADDRESS, *(name.lower() for name in leave_out)))
        request.add("CSeq", f"{call.next_cseq()} INVITE")
        user = parse_uri(parse_address(old.require("Contact")).uri).user or ""
        request.add("Contact", call.agent.contact(hop, user=user))
        return request
