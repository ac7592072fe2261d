"""Changes of the session that the far end asks for: its re-INVITEs (RFC 3261 section 14.2), its
UPDATEs (RFC 3311 section 5.2), and new offers in a PRACK (RFC 3262 section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from qwen3tts_phone.errors import CalleeUnreachable
from qwen3tts_phone.sip.call_state import CallState, ReinviteConfirmed, ReinviteReceived
from qwen3tts_phone.sip.message import Request, checked_sdp, reply
from qwen3tts_phone.sip.phases import Move, Phase
from qwen3tts_phone.sip.transaction import Transaction
from qwen3tts_phone.sip.unacked import UnackedAnswer

if TYPE_CHECKING:
    from qwen3tts_phone.sip.call import Call
    from qwen3tts_phone.sip.dialog import Dialog
    from qwen3tts_phone.sip.modification import Modification

RESPOND_WITHIN_S = 30.0
"""A re-INVITE that the owner has not answered by then is refused with 500."""
UPDATE_WITHIN_S = 10.0
"""The same for an UPDATE or PRACK, which the far end gives up after 32 s (RFC 3261 timer F)."""
MAX_RETRY_S = 10
"""RFC 3261 section 14.2: how long the far end is told to wait, at most."""

CHANGES: dict[str, Literal["INVITE", "UPDATE", "PRACK"]] = {
    "INVITE": "INVITE",
    "UPDATE": "UPDATE",
    "PRACK": "PRACK",
}


class Received:
    """Their changes of one call's session, one at a time."""

    def __init__(self, call: Call, own: Modification) -> None:
        self._call = call
        self._own = own
        self._incoming: Transaction | None = None
        self._respond_by: float | None = None
        self._offered = False
        """Whether the 200 that waits for its ACK holds our offer."""
        self._answer: UnackedAnswer | None = None

    def receive(
        self, request: Request, transaction: Transaction, dialog: Dialog, now: float
    ) -> None:
        """A re-INVITE or UPDATE inside the dialog, or a PRACK with a new offer."""
        state = self._call.state
        if state is CallState.ENDING:
            # Our BYE is out: there is no dialog any more (section 15.1.1).
            transaction.send_response(reply(request, 481), now)
            return
        if request.method != "INVITE" and not request.body:
            self._refreshed(request, transaction, dialog, now)
            return
        status = self._in_the_way(request, dialog)
        if status:
            response = reply(request, status)
            if status == 500:
                wait = self._call.agent.random.randint(0, MAX_RETRY_S)
                response.add("Retry-After", str(wait))
            transaction.send_response(response, now)
            return
        offer = checked_sdp(request)
        if request.method != "PRACK":
            # What could not be reached later is refused now.
            self._call.refresh_target(dialog, request)
        if request.method == "INVITE":
            transaction.send_response(reply(request, 100), now)
        self._call.learn(request)
        self._own.move(Move.RECEIVE)
        self._answer = None
        self._incoming = transaction
        wait_s = RESPOND_WITHIN_S if request.method == "INVITE" else UPDATE_WITHIN_S
        self._respond_by = now + wait_s
        self._offered = offer is None
        agent = self._call.agent

        def respond(sdp: str | None) -> None:
            if self._incoming is not transaction:
                # Answered already, or withdrawn by their CANCEL or BYE in the meantime.
                return
            if sdp is None:
                self.refuse(488, agent.now())
            else:
                self._accept(sdp, dialog, agent.now())
            agent.flush()

        early = state is not CallState.UP
        self._call.notify(ReinviteReceived(offer, respond, CHANGES[request.method], early))

    def _in_the_way(self, request: Request, dialog: Dialog) -> int:
        """491 where an offer of ours is unanswered, 500 where one of theirs is, else 0."""
        phase, state = self._own.phase, self._call.state
        if request.method == "INVITE":
            if phase is Phase.RECEIVED or state in (CallState.RECEIVED, CallState.RINGING):
                # Section 14.2: their last one has no final answer yet.
                return 500
            # Section 14.2: ours is in progress.
            return 491 if state is not CallState.UP or phase is Phase.SENT else 0
        first = self._call.first_exchange(dialog)
        # RFC 3311 section 5.2.
        if phase is Phase.RECEIVED or first == "theirs":
            return 500
        if phase is Phase.SENT or first == "ours":
            return 491
        if phase is Phase.ANSWERED:
            return 491 if self._offered else 500
        return 0

    def _refreshed(
        self, request: Request, transaction: Transaction, dialog: Dialog, now: float
    ) -> None:
        """An UPDATE without an offer moves the target and refreshes the session."""
        self._call.refresh_target(dialog, request)
        self._call.learn(request)
        response = reply(request, 200)
        response.add("Contact", dialog.contact)
        self._call.agent.describe(response)
        if self._call.state is CallState.UP:
            self._call.timer.answer(request, response, now)
        transaction.send_response(response, now)

    def _accept(self, sdp: str, dialog: Dialog, now: float) -> None:
        transaction = self._incoming
        if transaction is None:
            return
        self._incoming = self._respond_by = None
        request = transaction.request
        response = reply(request, 200)
        response.add("Contact", dialog.contact)
        self._call.agent.describe(response)
        response.set_body(sdp)
        self._call.local_sdp = sdp
        if request.method == "INVITE":
            self._own.move(Move.ACCEPT)
            self._call.timer.answer(request, response, now)
            timers = self._call.agent.settings.timers
            self._answer = UnackedAnswer(transaction, response, timers, now)
            return
        self._own.move(Move.SETTLE)
        if request.method == "UPDATE" and self._call.state is CallState.UP:
            self._call.timer.answer(request, response, now)
        transaction.send_response(response, now)
        self._call.notify(ReinviteConfirmed(None))
        self._own.next(now)

    def refuse(self, status: int, now: float) -> None:
        """Refuse the one that is pending."""
        transaction = self._incoming
        if transaction is None:
            return
        self._own.move(Move.REFUSE)
        self._incoming = self._respond_by = None
        transaction.send_response(reply(transaction.request, status), now)
        self._own.next(now)

    def acknowledged(self, request: Request, now: float) -> None:
        """The ACK to our 200."""
        if self._answer is None or request.cseq != self._answer.cseq:
            return
        self._answer = None
        if self._own.phase is Phase.ANSWERED:
            self._own.move(Move.ACK)
            self._call.notify(ReinviteConfirmed(request.sdp))
            self._own.next(now)

    def cancelled(self, transaction: Transaction, now: float) -> bool:
        """A CANCEL of their re-INVITE; whether it was the one that is pending."""
        if self._incoming is not transaction:
            return False
        self.refuse(487, now)
        return True

    def abort(self, now: float) -> None:
        """Nobody will answer what is pending: section 15.1.2 gives it 487."""
        if self._incoming is not None:
            self.refuse(487, now)
        self._respond_by = self._answer = None

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""
        answer = self._answer.next_at if self._answer else None
        own = (self._respond_by, answer)
        return min((at for at in own if at is not None), default=None)

    def tick(self, now: float) -> None:
        """Give up what is due."""
        if self._respond_by is not None and now >= self._respond_by:
            self.refuse(500, now)
        if self._answer is not None and not self._answer.tick(now):
            self._answer = None
            self._own.move(Move.ABORT)
            self._call.lost(
                now,
                CalleeUnreachable(
                    "The far end never acknowledged the change of the session.", why="no_ack"
                ),
            )
