"""A call of ours after a 3xx: the same call, asked for at the next address."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from qwen3tts_phone.errors import BadSip, CallError
from qwen3tts_phone.sip.auth import Digest
from qwen3tts_phone.sip.fields import check_secure, parse_address, parse_uri
from qwen3tts_phone.sip.hop import Hop
from qwen3tts_phone.sip.message import Request, Response
from qwen3tts_phone.sip.redirection import FOLLOWED, Redirects, RedirectTarget
from qwen3tts_phone.sip.transaction import Failure
from qwen3tts_phone.sip.via import loose

if TYPE_CHECKING:
    from qwen3tts_phone.sip.outgoing import OutgoingCall

PER_ADDRESS = ("via", "route", "cseq", "contact", "authorization", "proxy-authorization")
"""Header lines that are made for each address."""

Outcome = Response | Failure


class Redirection:
    """One call's. It follows where ``locate`` is set; `found` or `not_found` answers it."""

    def __init__(self, call: OutgoingCall, first: str) -> None:
        self.locate: Callable[[RedirectTarget], None] | None = None
        self.waits = False
        """Whether the next address is being located: no request of the call is under way."""
        self._call = call
        self._targets = Redirects(first)
        self._current: RedirectTarget | None = None
        self._last: Outcome | None = None

    @property
    def remedy(self) -> str:
        """What to do about a redirection that led nowhere; empty where none was followed."""
        problems = list(dict.fromkeys(self._targets.problems))
        if self.locate is None or not problems:
            return ""
        tried = self._targets.taken
        return f"The redirection was not followed further after {tried}: {'; '.join(problems)}."

    def follows(self, outcome: Outcome, now: float) -> bool:
        """Go on to the next address after this final answer or silence; False where none is left.

        An answer of 600 and above is final for all of them (RFC 3261 section 8.1.3.4).
        """
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
        """The address is located: ask there. ``leave_out``: header lines that stay with us."""
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
        """It may not, or cannot, be called: the next one, or the end."""
        if not self.waits:
            return
        self._targets.problems.append(error.message.rstrip("."))
        self.waits = False
        if not self._goes_on():
            assert self._last is not None
            self._call.end_with(self._last, now)

    def stop(self) -> bool:
        """Nothing more is wanted; whether an address was being located."""
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
            request.add("Route", f"<{loose(target.proxy)}>")
        request.take(old, without=(*PER_ADDRESS, *(name.lower() for name in leave_out)))
        request.add("CSeq", f"{call.next_cseq()} INVITE")
        user = parse_uri(parse_address(old.need("Contact")).uri).user or ""
        request.add("Contact", call.agent.contact(hop, user=user))
        return request
