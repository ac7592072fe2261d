"""A transfer that the far end asks for: its REFER, our notices (RFC 3515, RFC 3892, RFC 4488)."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.asked import Asked
from qwen3tts_phone.sip.call_state import CallState
from qwen3tts_phone.sip.fields import parse_address, parse_uri
from qwen3tts_phone.sip.message import Request, Response, reply
from qwen3tts_phone.sip.replaces import ReferTo
from qwen3tts_phone.sip.sipfrag import CONTENT_TYPE, write_status
from qwen3tts_phone.sip.transaction import Failure, Transaction
from qwen3tts_phone.sip.transfer_events import ReferReceived
from qwen3tts_phone.sip.trusted import may_steer

if TYPE_CHECKING:
    from qwen3tts_phone.sip.call import Call
    from qwen3tts_phone.sip.dialog import Dialog

DECIDE_WITHIN_S = 20.0
"""A REFER that the owner has not decided by then is refused with 603; its sender waits 32 s."""
EXPIRES_S = 240
"""How long notices of one transfer go on."""
MAX_REFERRALS = 4
"""Transfers of one call that may be under way at once."""


class ReferralState(Enum):
    """How far a transfer of theirs has come."""

    ASKED = auto()
    TAKEN = auto()
    """Accepted: notices go out until the new call's final answer."""
    OVER = auto()


class Referral:
    """One REFER of theirs."""

    def __init__(
        self, call: Call, request: Request, transaction: Transaction, dialog: Dialog, now: float
    ) -> None:
        self.stage = ReferralState.ASKED
        self.dialog = dialog
        self._call = call
        self._agent = call.agent
        self._transaction: Transaction | None = transaction
        self._event = f"refer;id={request.cseq}"
        self._deadline: float | None = now + DECIDE_WITHIN_S
        # RFC 4488: they may not want to be told.
        self._quiet = (request.get("Refer-Sub") or "").strip().lower() == "false"

    @classmethod
    def receive(
        cls, call: Call, request: Request, transaction: Transaction, dialog: Dialog, now: float
    ) -> None:
        """Ask the owner about a REFER; raises BadSip for one that cannot be understood."""
        if call.state is not CallState.UP or call.dialog is not dialog:
            status = 481 if call.state is CallState.ENDING else 403
            transaction.send_response(reply(request, status), now)
            return
        if not may_steer(call.agent, request, call, dialog):
            transaction.send_response(reply(request, 403), now)
            return
        if call.open_referrals >= MAX_REFERRALS:
            response = reply(request, 503)
            response.add("Retry-After", "10")
            transaction.send_response(response, now)
            return
        values = request.headers.getlist("Refer-To")
        if len(values) != 1:
            # RFC 3515 section 2.4.2.
            raise BadSip("A REFER names one target.")
        refer_to = ReferTo.parse(values[0])
        call.refresh_target(dialog, request)
        referral = cls(call, request, transaction, dialog, now)
        call.open_referrals += 1
        referral._agent.timed.append(referral)
        call.notify(
            ReferReceived(
                refer_to.target,
                _referred_by(request),
                refer_to.replaces,
                referral._accept,
                referral._refuse,
                referral._notify,
            )
        )

    # What the owner calls

    def _accept(self) -> bool:
        if self.stage is not ReferralState.ASKED:
            return False
        now = self._agent.now()
        response = self._answer(202)
        if self._quiet:
            response.add("Refer-Sub", "false")
        self._respond(response, now)
        if self._quiet:
            self._end()
        else:
            self.stage = ReferralState.TAKEN
            self._deadline = now + EXPIRES_S
            # RFC 3515 section 2.4.4: the first notice goes out at once.
            self._tell(100, "", now)
        self._agent.flush()
        return True

    def _refuse(self, status: int = 603) -> None:
        if not 300 <= status <= 699:
            raise ValueError(f"status={status} is not between 300 and 699")
        if self.stage is ReferralState.ASKED:
            self._respond(self._answer(status), self._agent.now())
            self._end()
            self._agent.flush()

    def _notify(self, status: int, reason: str = "") -> None:
        if not 100 <= status <= 699:
            raise ValueError(f"status={status} is not between 100 and 699")
        if self.stage is not ReferralState.TAKEN:
            return
        self._tell(status, reason, self._agent.now())
        if status >= 200:
            self._end()
        self._agent.flush()

    # Inside

    def _answer(self, status: int) -> Response:
        transaction = self._transaction
        if transaction is None:
            raise RuntimeError("the REFER has been answered")
        response = reply(transaction.request, status)
        if status < 300:
            response.add("Contact", self.dialog.contact)
        self._agent.describe(response)
        return response

    def _respond(self, response: Response, now: float) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.send_response(response, now)

    def _tell(self, status: int, reason: str, now: float, why: str = "noresource") -> None:
        request = self.dialog.request("NOTIFY")
        request.add("Event", self._event)
        left = max(1, int((self._deadline or now) - now))
        going = status < 200 and why == "noresource"
        state = f"active;expires={left}" if going else f"terminated;reason={why}"
        request.add("Subscription-State", state)
        self._agent.describe(request)
        request.headers.set("Content-Type", CONTENT_TYPE)
        request.body = write_status(status, reason)
        try:
            self._call.send_inside(request, Asked(self._told), now, self.dialog)
        except BadSip:
            self._end()

    def _told(self, outcome: Response | Failure, now: float) -> None:
        if isinstance(outcome, Failure) or outcome.status >= 300:
            # RFC 6665 section 4.2.2: nobody listens any more.
            self._end()

    def call_over(self, now: float) -> None:
        """The call has ended before the owner has decided."""
        if self.stage is ReferralState.ASKED:
            self._respond(self._answer(481), now)
            self._end()

    def close(self) -> None:
        """The endpoint is closed."""
        self._end()

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""
        return self._deadline

    def tick(self, now: float) -> None:
        """Nobody has decided, or nobody has said how it went."""
        if self._deadline is None or now < self._deadline:
            return
        if self.stage is ReferralState.ASKED:
            self._respond(self._answer(603), now)
        elif self.stage is ReferralState.TAKEN:
            self._tell(100, "", now, "timeout")
        self._end()

    def _end(self) -> None:
        if self.stage is not ReferralState.OVER:
            self.stage = ReferralState.OVER
            self._deadline = None
            self._call.open_referrals -= 1
            self._agent.timed.remove(self)


def _referred_by(request: Request) -> str | None:
    values = request.headers.getlist("Referred-By")
    if not values:
        return None
    try:
        uri = parse_address(values[0]).uri
        parse_uri(uri)
    except BadSip:
        return None
    return uri
