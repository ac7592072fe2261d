"""A call that comes in: ring, answer until the ACK, refuse, and their CANCEL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from qwen3tts_phone.errors import CalleeUnreachable
from qwen3tts_phone.sip.call import Call
from qwen3tts_phone.sip.call_state import Answered, CallState, Step
from qwen3tts_phone.sip.dialog import Dialog, new_tag
from qwen3tts_phone.sip.fields import delta_seconds
from qwen3tts_phone.sip.message import Request, Response, checked_sdp, reply
from qwen3tts_phone.sip.modification import UnackedAnswer
from qwen3tts_phone.sip.transaction import Transaction

if TYPE_CHECKING:
    from qwen3tts_phone.sip.agent import Agent


MAX_EXPIRES_S = 24 * 3600


class IncomingCall(Call):
    """The callee's side of a call."""

    direction: Literal["in", "out"] = "in"

    def __init__(self, agent: Agent, request: Request, transaction: Transaction, now: float):
        self.offer = checked_sdp(request)
        """Their offer, or None where they leave it to us."""
        super().__init__(agent, CallState.RECEIVED, None)
        self.request = request
        self.call_id = request.call_id
        self.dialled_uri = request.uri
        self.remote_uri = request.from_.uri
        self.local_host = agent.local_host(transaction.hop)
        dialog = Dialog.of_callee(request, new_tag(), agent.contact(transaction.hop))
        # What could not be reached later is refused now.
        agent.hop(dialog.next_hop)
        self.dialog = dialog
        self.transaction = transaction
        self._answer: UnackedAnswer | None = None
        # Section 13.3.1: the caller may say how long its invitation is good for.
        seconds = delta_seconds(request.get("Expires"), MAX_EXPIRES_S)
        self._expires_at = now + seconds if seconds else None
        transaction.server_owner = self
        transaction.send_response(reply(request, 100), now)

    def ring(self, now: float, sdp: str | None = None) -> None:
        """Say 180, or 183 with early media."""
        self.step(Step.RING)
        self.transaction.send_response(self._response(183 if sdp else 180, sdp), now)

    def answer(self, sdp: str, now: float) -> None:
        """Take the call."""
        self.step(Step.ANSWER)
        self.local_sdp = sdp
        response = self._response(200, sdp)
        self.timer.answer(self.request, response, now)
        self._answer = UnackedAnswer(self, self.transaction, response, now)

    def reject(self, status: int, now: float, reason: str = "") -> None:
        """Refuse the call; ``status`` is 300 to 699."""
        if not 300 <= status <= 699:
            raise ValueError(f"status={status} is not between 300 and 699")
        self.step(Step.REJECT)
        self._refuse(status, now, reason)
        self.tell_end("local", status, reason)

    def hang_up(self, now: float) -> None:
        """480 before the answer, BYE after it."""
        if self.can(Step.REJECT):
            self.reject(480, now)
        else:
            super().hang_up(now)

    def cancelled(self, transaction: Transaction, now: float) -> None:
        """They no longer want it: a CANCEL, already answered, or the time that they gave is up."""
        if transaction is not self.transaction:
            self.modification.cancelled(transaction, now)
        elif self.can(Step.REMOTE_CANCEL):
            self.step(Step.REMOTE_CANCEL)
            self._refuse(487, now)
            self.tell_end("remote", 487, "Request Terminated")

    def before_remote_bye(self, now: float) -> None:
        """Section 15.1.2: a BYE while it rings ends the INVITE with 487."""
        if self.state in (CallState.RECEIVED, CallState.RINGING):
            self._refuse(487, now)
        self._answer = None

    def receive_ack(self, request: Request, now: float) -> None:
        """The ACK to our 200, or to one of a re-INVITE."""
        if self._answer is None or request.cseq != self._answer.cseq:
            super().receive_ack(request, now)
            return
        self._answer = None
        if not self.can(Step.ACK):
            return
        self.step(Step.ACK)
        if self.state is CallState.ENDING:
            self.send_bye(now)
            self.tell_end("local")
            return
        self.notify(Answered(request.sdp if self.offer is None else None))
        self.modification.call_is_up(now)

    def unacknowledged_since(self) -> float | None:
        """When the answer was first sent, while it has no ACK."""
        return self._answer.sent_at if self._answer is not None else None

    def on_ack(self, request: Request, now: float) -> None:
        """An ACK that reuses the INVITE's branch."""
        self.receive_ack(request, now)

    def on_no_ack(self, now: float) -> None:
        """Our refusal was never acknowledged; the call was over anyway."""

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""
        answer = self._answer.next_at if self._answer else None
        own = (super().next_deadline(), answer, self._expires_at)
        return min((at for at in own if at is not None), default=None)

    def tick(self, now: float) -> None:
        """Repeat the 200, or hang up where no ACK comes (section 13.3.1.4)."""
        super().tick(now)
        if self._expires_at is not None and now >= self._expires_at:
            self._expires_at = None
            self.cancelled(self.transaction, now)
        if self._answer is not None and not self._answer.tick(now):
            self.no_ack(now)

    def no_ack(self, now: float) -> None:
        """Our answer is not acknowledged: hang up."""
        self._answer = None
        if self.can(Step.NO_ACK):
            leaving = self.state is CallState.LEAVING
            self.step(Step.NO_ACK)
            self.send_bye(now)
            if leaving:
                self.tell_end("local")
                return
            error = CalleeUnreachable(
                "The caller never acknowledged our answer.",
                remedy="Check that the address in our Contact can be reached by the caller "
                "(advertised_host).",
            )
            self.tell_end("timeout", error=error)

    def _refuse(self, status: int, now: float, reason: str = "") -> None:
        self.transaction.send_response(self._response(status, None, reason), now)

    def _response(self, status: int, sdp: str | None, reason: str = "") -> Response:
        dialog = self.dialog
        response = reply(self.request, status, reason, to_tag=dialog.local_tag if dialog else "")
        if dialog is not None and status < 300:
            # Section 12.1.1: the route is copied into every answer that makes a dialog.
            for route in self.request.headers.getlist("Record-Route"):
                response.headers.add("Record-Route", route)
            response.add("Contact", dialog.contact)
        self.agent.describe(response)
        response.set_body(sdp)
        return response
