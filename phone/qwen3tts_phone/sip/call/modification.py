"""Session modification by re-INVITE (RFC 3261 section 14), UPDATE (RFC 3311) and PRACK, in both directions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from qwen3tts_phone.errors import BadSdp, BadSip, CalleeUnreachable, CallError, WrongState
from qwen3tts_phone.sip.call.state import (
    PHASES,
    CallState,
    Move,
    Phase,
    ReinviteConfirmed,
    ReinviteReceived,
)
from qwen3tts_phone.sip.message.fields import delta_seconds
from qwen3tts_phone.sip.message.message import Request, Response, checked_sdp, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.client_request import Asked
from qwen3tts_phone.sip.transaction.digest import refused
from qwen3tts_phone.sip.transaction.transaction import Failure, Transaction, UnackedAnswer

if TYPE_CHECKING:
    from qwen3tts_phone.sip.call.call import Call
    from qwen3tts_phone.sip.dialog import Dialog
    from qwen3tts_phone.sip.transaction.client_request import Exchange


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


ANSWERED_WITHIN_S = 60.0
"""A re-INVITE of ours that has no final answer by then has failed."""
MAX_GLARE = 5
"""Times a change of ours is sent anew after 491, or 500 with Retry-After."""
MAX_RETRY_AFTER_S = 10
"""Longest wait that a 500 may ask for (RFC 3261 section 14.2 says 0 to 10 s)."""

Done = Callable[[str | CallError], None]
Offer = str | Callable[[], str]
"""A description, or who writes it when it goes out: its version must be above that of an answer
that was given while it waited (RFC 3264 section 8)."""
Method = Literal["INVITE", "UPDATE"]


class Modification:
    """The changes of one call's session."""

    def __init__(self, call: Call) -> None:
        self.phase = Phase.IDLE
        self.received = Received(call, self)
        """Theirs."""
        self._call = call
        self._done: Done | None = None
        self._offer: Offer = ""
        self._method: Method = "INVITE"
        self._dialog: Dialog | None = None
        """The dialog that the last one was sent in."""
        self._sdp = ""
        """The offer as it was sent last."""
        self._refreshing = False
        self._queued: tuple[Offer, Done, Method] | None = None
        self._exchange: Exchange | None = None
        self._glares = 0
        self._retry_at: float | None = None
        self._acks: dict[str, tuple[Request, Hop]] = {}

    # Ours

    def start(self, offer: Offer, done: Done, now: float, method: Method = "INVITE") -> None:
        """Offer a changed session; ``done`` gets the answer or the error. Waits for theirs.

        Before the call is answered only an UPDATE can do that, and only once the first offer has
        been answered reliably (RFC 3311 section 5.1).
        """
        state = self._call.state
        early = method == "UPDATE" and self._call.may_update_early()
        if state not in (CallState.UP, CallState.ANSWERED) and not early:
            raise WrongState("The session can be changed only while the call is up.")
        if self._queued is not None or (self._done is not None and not self._refreshing):
            raise WrongState("A change of the session is already under way.")
        if state is CallState.ANSWERED or self.phase is not Phase.IDLE:
            # Section 14.1: no new INVITE while another is in progress in either direction.
            self._queued = (offer, done, method)
            return
        self._begin(offer, done, now, method)

    def refresh(self, now: float) -> None:
        """Send the session as it is once more (RFC 4028); a change under way does as well."""
        if self._call.local_sdp is None or self.phase is not Phase.IDLE or self._done is not None:
            self._call.timer.refresh_failed(now)
            return

        def done(result: str | CallError) -> None:
            if isinstance(result, CallError):
                self._call.timer.refresh_failed(self._call.agent.now())

        self._begin(self._call.local_sdp, done, now, "INVITE", refreshing=True)

    def _begin(
        self, offer: Offer, done: Done, now: float, method: Method, *, refreshing: bool = False
    ) -> None:
        self._offer, self._done, self._method, self._glares = offer, done, method, 0
        self._refreshing = refreshing
        self._send(now)

    def _send(self, now: float) -> None:
        dialog = self._call.dialog_of_session()
        if dialog is None:
            return
        self.move(Move.SEND)
        self._retry_at = None
        self._dialog = dialog
        request = dialog.request(self._method)
        self._call.agent.describe(request)
        self._call.timer.ask(request)
        self._sdp = self._offer if isinstance(self._offer, str) else self._offer()
        request.set_body(self._sdp)
        self._exchange = self._call.send_inside(request, self, now, dialog)
        if self._method == "INVITE":
            self._exchange.limit(now + ANSWERED_WITHIN_S)

    def on_provisional(self, response: Response, now: float) -> None:
        """Nothing to do: the far end takes its time."""

    def on_final(self, response: Response, now: float) -> None:
        """The answer to our change, or the same 2xx once more."""
        dialog = self._dialog
        exchange = self._exchange
        if dialog is None or exchange is None:
            return
        # A 2xx to an earlier change is repeated where our ACK was lost: it answers nothing now.
        awaited = self.phase is Phase.SENT and response.cseq == exchange.request.cseq
        if response.status < 300:
            if awaited:
                # Where their new Contact is of no use, the old one still is.
                with contextlib.suppress(BadSip):
                    self._call.refresh_target(dialog, response)
            if response.cseq_method == "INVITE":
                # Acknowledged whatever has become of the call since.
                self._acknowledge(response)
            if awaited:
                self._accepted(response, now)
        elif awaited and not self._again(response, now):
            self._refused(response, now)

    def _accepted(self, response: Response, now: float) -> None:
        self.move(Move.DONE)
        self._call.learn(response)
        self._call.timer.answered(response, now)
        self._call.local_sdp = self._sdp
        sdp = response.sdp
        if sdp is None:
            self._finish(BadSdp("The far end took the change and described no media."))
        else:
            self._finish(sdp)
        self.next(now)

    def _refused(self, response: Response, now: float) -> None:
        self.move(Move.DONE)
        error = refused(response, self._call.digest, what="change of the session")
        self._finish(error)
        if response.status in (408, 481):
            self._call.lost(now, error)
        self.next(now)

    def _again(self, response: Response, now: float) -> bool:
        """Whether it met theirs and goes out once more a little later."""
        if response.status == 491:
            # Section 14.1: the owner of the Call-ID waits 2.1 to 4 s, the other 0 to 2 s, in
            # steps of 10 ms.
            steps = (210, 400) if self._call.direction == "out" else (0, 200)
            wait = self._call.agent.random.randint(*steps) * 0.01
        elif response.status == 500 and response.get("Retry-After") is not None:
            # Section 14.2, RFC 3311 section 5.2: theirs has not been answered yet.
            after = delta_seconds(response.get("Retry-After"), MAX_RETRY_AFTER_S + 1)
            if after is None or after > MAX_RETRY_AFTER_S:
                return False
            wait = max(float(after), 0.1)
        else:
            return False
        if self._glares >= MAX_GLARE:
            return False
        self._glares += 1
        self.move(Move.PENDING)
        self._retry_at = now + wait
        return True

    def on_failure(self, failure: Failure, now: float) -> None:
        """No answer to our change: the dialog is lost."""
        if self.phase is not Phase.SENT:
            return
        self.move(Move.DONE)
        error = CalleeUnreachable(
            "The far end no longer answers.",
            remedy="Check the network, then call again.",
            why="session",
        )
        self._finish(error)
        self._call.lost(now, error)

    def _acknowledge(self, response: Response) -> None:
        dialog, exchange = self._dialog, self._exchange
        if dialog is None or exchange is None:
            return
        key = str(response.cseq)
        if key not in self._acks:
            call = self._call
            ack = call.agent.ack(dialog, exchange.request, response.cseq, exchange.hop, call.digest)
            self._acks = {key: ack}
        self._call.agent.layer.send_alone(*self._acks[key])

    # Both

    def receive_ack(self, request: Request, now: float) -> None:
        """The ACK to our 200."""
        self.received.acknowledged(request, now)

    def cancelled(self, transaction: Transaction, now: float) -> bool:
        """A CANCEL of their re-INVITE; whether it was the one that is pending."""
        return self.received.cancelled(transaction, now)

    def call_is_up(self, now: float) -> None:
        """The first ACK has come; a change that waited for it may go."""
        self.next(now)

    def other_branch(self, dialog: Dialog, now: float) -> None:
        """Another branch of a fork has answered than that whose early session was changing."""
        if self.phase is not Phase.IDLE and self._dialog is not dialog:
            self._abort(WrongState("Another phone has answered."), now)

    def abort(self) -> None:
        """The call is over."""
        over = WrongState("The call ended before the session was changed.")
        self._abort(over, self._call.agent.now())

    def _abort(self, over: CallError, now: float) -> None:
        self.received.abort(now)
        if self._exchange is not None:
            self._exchange.may_retry = False
        self.move(Move.ABORT)
        self._retry_at = None
        queued, self._queued = self._queued, None
        self._finish(over)
        if queued is not None:
            queued[1](over)

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""
        own = (self._retry_at, self.received.next_deadline())
        return min((at for at in own if at is not None), default=None)

    def tick(self, now: float) -> None:
        """Send again, or give up, what is due."""
        if self._retry_at is not None and now >= self._retry_at:
            # While theirs is being answered, ours goes out right after it.
            self._retry_at = None
            if self.phase in (Phase.IDLE, Phase.GLARE):
                self._send(now)
        self.received.tick(now)

    def next(self, now: float) -> None:
        """Begin what has waited, if nothing is under way."""
        call = self._call
        ready = call.state is CallState.UP or call.may_update_early()
        if self.phase is not Phase.IDLE or not ready:
            return
        if self._queued is not None:
            (offer, done, method), self._queued = self._queued, None
            self._begin(offer, done, now, method)
        elif self._done is not None and self._retry_at is None:
            # Theirs came between our 491 and the retry; ours is still wanted.
            self._send(now)

    def move(self, move: Move) -> None:
        """Make a move; raises WrongState when the table has none."""
        phase = PHASES.get((self.phase, move))
        if phase is None:
            raise WrongState(f"{move.name} while {self.phase.name}.")
        self.phase = phase

    def _finish(self, result: str | CallError) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(result)


UNKNOWN = (405, 420, 501)
"""Answers to an UPDATE that say that it is not known after all."""


class UpdateRefresh:
    """The refreshes of one call."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._refused = False
        self._under_way = False

    def send(self, now: float) -> None:
        """Refresh the session."""
        call = self._call
        if self._refused or not call.says_it_allows("UPDATE"):
            call.modification.refresh(now)
            return
        dialog = call.dialog
        if dialog is None or self._under_way:
            call.timer.refresh_failed(now)
            return
        request = dialog.request("UPDATE")
        call.agent.describe(request)
        call.timer.ask(request)
        self._under_way = True
        call.send_inside(request, Asked(self._done), now)

    def _done(self, outcome: Response | Failure, now: float) -> None:
        call = self._call
        self._under_way = False
        if isinstance(outcome, Failure):
            error = CalleeUnreachable(
                "The far end no longer answers.",
                remedy="Check the network, then call again.",
                why="session",
            )
            call.lost(now, error)
        elif outcome.status < 300:
            with contextlib.suppress(BadSip):
                if call.dialog is not None:
                    call.refresh_target(call.dialog, outcome)
            call.learn(outcome)
            call.timer.answered(outcome, now)
        elif outcome.status in UNKNOWN:
            self._refused = True
            call.modification.refresh(now)
        elif outcome.status in (408, 481):
            call.lost(now, refused(outcome, call.digest, what="refresh of the session"))
        else:
            call.timer.refresh_failed(now)
