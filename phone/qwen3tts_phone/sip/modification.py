"""Changing a session that is up: re-INVITE both ways (RFC 3261 section 14), and answers that are
repeated until they are acknowledged (section 13.3.1.4)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from qwen3tts_phone.errors import (
    BadSdp,
    BadSip,
    CalleeUnreachable,
    CallError,
    CallRefused,
    WrongState,
)
from qwen3tts_phone.sip.call_state import CallState, ReinviteConfirmed, ReinviteReceived
from qwen3tts_phone.sip.fields import parse_uri
from qwen3tts_phone.sip.machines import State
from qwen3tts_phone.sip.message import Request, Response, checked_sdp, reply
from qwen3tts_phone.sip.transaction import Failure, Hop, Transaction

if TYPE_CHECKING:
    from qwen3tts_phone.sip.call import Call
    from qwen3tts_phone.sip.dialog import Dialog
    from qwen3tts_phone.sip.exchange import Exchange

RESPOND_WITHIN_S = 30.0
"""A re-INVITE that the owner has not answered by then is refused with 500."""
ANSWERED_WITHIN_S = 60.0
"""A re-INVITE of ours that has no final answer by then has failed."""
MAX_GLARE = 5
"""Times a re-INVITE of ours is sent anew after 491."""


class Phase(Enum):
    """Who is changing the session."""

    IDLE = auto()
    SENT = auto()
    """Our re-INVITE is out."""
    GLARE = auto()
    """It met theirs (491); waiting to send it anew."""
    RECEIVED = auto()
    """Theirs is here, the owner has not answered."""
    ANSWERED = auto()
    """We said 200; the ACK is still to come."""


class Move(Enum):
    """What may happen to a change."""

    SEND = auto()
    DONE = auto()
    PENDING = auto()
    """491."""
    RECEIVE = auto()
    ACCEPT = auto()
    REFUSE = auto()
    ACK = auto()
    ABORT = auto()


H, M = Phase, Move
PHASES: dict[tuple[Phase, Move], Phase] = {
    (H.IDLE, M.SEND): H.SENT,
    (H.IDLE, M.RECEIVE): H.RECEIVED,
    (H.IDLE, M.ABORT): H.IDLE,
    (H.SENT, M.DONE): H.IDLE,
    (H.SENT, M.PENDING): H.GLARE,
    (H.SENT, M.ABORT): H.IDLE,
    (H.GLARE, M.SEND): H.SENT,
    (H.GLARE, M.RECEIVE): H.RECEIVED,
    (H.GLARE, M.ABORT): H.IDLE,
    (H.RECEIVED, M.ACCEPT): H.ANSWERED,
    (H.RECEIVED, M.REFUSE): H.IDLE,
    (H.RECEIVED, M.ABORT): H.IDLE,
    (H.ANSWERED, M.ACK): H.IDLE,
    # A new one shows that the 200 arrived, whatever became of its ACK.
    (H.ANSWERED, M.RECEIVE): H.RECEIVED,
    (H.ANSWERED, M.ABORT): H.IDLE,
}

Done = Callable[[str | CallError], None]
Offer = str | Callable[[], str]
"""A description, or who writes it when it goes out: its version must be above that of an answer
that was given while it waited (RFC 3264 section 8)."""


class UnackedAnswer:
    """A 2xx to an INVITE, sent again at T1, 2*T1 ... T2 until its ACK, given up after 64*T1."""

    def __init__(self, call: Call, transaction: Transaction, response: Response, now: float):
        self._call = call
        self._transaction = transaction
        self._response = response
        self.cseq = transaction.request.cseq
        timers = call.agent.settings.timers
        self._wait = timers.t1
        self.sent_at = now
        """When it was first sent."""
        self.next_at = now + self._wait
        self._give_up_at = now + timers.timeout
        transaction.send_response(response, now)

    def tick(self, now: float) -> bool:
        """Send it again if that is due; False once it is given up."""
        if now >= self._give_up_at:
            return False
        if now >= self.next_at:
            self._wait = min(self._wait * 2, self._call.agent.settings.timers.t2)
            self.next_at = min(now + self._wait, self._give_up_at)
            if self._transaction.state is State.ACCEPTED:
                self._transaction.send_response(self._response, now)
        return True


class Modification:
    """The re-INVITEs of one call, one at a time."""

    def __init__(self, call: Call) -> None:
        self.phase = Phase.IDLE
        self._call = call
        self._done: Done | None = None
        self._offer: Offer = ""
        self._sdp = ""
        """The offer as it was sent last."""
        self._refreshing = False
        self._queued: tuple[Offer, Done] | None = None
        self._exchange: Exchange | None = None
        self._glares = 0
        self._retry_at: float | None = None
        self._incoming: Transaction | None = None
        self._respond_by: float | None = None
        self._answer: UnackedAnswer | None = None
        self._acks: dict[str, tuple[Request, Hop]] = {}

    # Ours

    def start(self, offer: Offer, done: Done, now: float) -> None:
        """Offer a changed session; ``done`` gets the answer or the error. Waits for theirs."""
        if self._call.state not in (CallState.UP, CallState.ANSWERED):
            raise WrongState("The session can be changed only while the call is up.")
        if self._queued is not None or (self._done is not None and not self._refreshing):
            raise WrongState("A change of the session is already under way.")
        if self._call.state is CallState.ANSWERED or self.phase is not Phase.IDLE:
            # Section 14.1: no new INVITE while another is in progress in either direction.
            self._queued = (offer, done)
            return
        self._begin(offer, done, now)

    def refresh(self, now: float) -> None:
        """Send the session as it is once more (RFC 4028); a change under way does as well."""
        if self._call.local_sdp is None or self.phase is not Phase.IDLE or self._done is not None:
            self._call.timer.refresh_failed(now)
            return

        def done(result: str | CallError) -> None:
            if isinstance(result, CallError):
                self._call.timer.refresh_failed(self._call.agent.now())

        self._begin(self._call.local_sdp, done, now, refreshing=True)

    def _begin(self, offer: Offer, done: Done, now: float, *, refreshing: bool = False) -> None:
        self._offer, self._done, self._glares = offer, done, 0
        self._refreshing = refreshing
        self._send(now)

    def _send(self, now: float) -> None:
        dialog = self._call.dialog
        if dialog is None:
            return
        self._move(Move.SEND)
        self._retry_at = None
        request = dialog.request("INVITE")
        self._call.agent.describe(request)
        self._call.timer.ask(request)
        self._sdp = self._offer if isinstance(self._offer, str) else self._offer()
        request.set_body(self._sdp)
        self._exchange = self._call.send_inside(request, self, now)
        self._exchange.limit(now + ANSWERED_WITHIN_S)

    def on_provisional(self, response: Response, now: float) -> None:
        """Nothing to do: the far end takes its time."""

    def on_final(self, response: Response, now: float) -> None:
        """The answer to our re-INVITE, or the same 2xx once more."""
        dialog = self._call.dialog
        exchange = self._exchange
        if dialog is None or exchange is None:
            return
        # A 2xx to an earlier change is repeated where our ACK was lost: it answers nothing now.
        awaited = self.phase is Phase.SENT and response.cseq == exchange.request.cseq
        if response.status < 300:
            if awaited:
                # Where their new Contact is of no use, the old one still is.
                with contextlib.suppress(BadSip):
                    self._refresh_target(dialog, response)
            # Acknowledged whatever has become of the call since.
            self._acknowledge(response)
            if not awaited:
                return
            self._move(Move.DONE)
            self._call.timer.answered(response, now)
            self._call.local_sdp = self._sdp
            sdp = response.sdp
            if sdp is None:
                self._finish(BadSdp("The far end took the change and described no media."))
            else:
                self._finish(sdp)
            self._next(now)
            return
        if not awaited:
            return
        if response.status == 491 and self._glares < MAX_GLARE:
            self._glares += 1
            self._move(Move.PENDING)
            # Section 14.1: the owner of the Call-ID waits 2.1 to 4 s, the other 0 to 2 s, in
            # steps of 10 ms.
            steps = (210, 400) if self._call.direction == "out" else (0, 200)
            self._retry_at = now + self._call.agent.random.randint(*steps) * 0.01
            return
        self._move(Move.DONE)
        error = CallRefused(response.status, response.reason, what="change of the session")
        self._finish(error)
        if response.status in (408, 481):
            self._call.lost(now, error)
        self._next(now)

    def on_failure(self, failure: Failure, now: float) -> None:
        """No answer to our re-INVITE: the dialog is lost."""
        if self.phase is not Phase.SENT:
            return
        self._move(Move.DONE)
        error = CalleeUnreachable(
            "The far end no longer answers.", remedy="Check the network, then call again."
        )
        self._finish(error)
        self._call.lost(now, error)

    def _acknowledge(self, response: Response) -> None:
        dialog, exchange = self._call.dialog, self._exchange
        if dialog is None or exchange is None:
            return
        key = str(response.cseq)
        if key not in self._acks:
            self._acks = {key: self._call.agent.ack(dialog, exchange.request, response.cseq)}
        self._call.agent.layer.send_alone(*self._acks[key])

    # Theirs

    def receive(self, request: Request, transaction: Transaction, now: float) -> None:
        """A re-INVITE of the far end."""
        dialog = self._call.dialog
        state = self._call.state
        if dialog is None or state is CallState.ENDING:
            # Our BYE is out: there is no dialog any more (section 15.1.1).
            transaction.send_response(reply(request, 481), now)
            return
        if self.phase is Phase.RECEIVED or state in (CallState.RECEIVED, CallState.RINGING):
            # Section 14.2: their last one has no final answer yet.
            response = reply(request, 500)
            response.add("Retry-After", str(self._call.agent.random.randint(0, 10)))
            transaction.send_response(response, now)
            return
        if state is not CallState.UP or self.phase is Phase.SENT:
            # Section 14.2: ours is in progress.
            transaction.send_response(reply(request, 491), now)
            return
        offer = checked_sdp(request)
        # What could not be reached later is refused now.
        self._refresh_target(dialog, request)
        transaction.send_response(reply(request, 100), now)
        self._move(Move.RECEIVE)
        self._answer = None
        self._incoming = transaction
        self._respond_by = now + RESPOND_WITHIN_S
        agent = self._call.agent

        def respond(sdp: str | None) -> None:
            if self._incoming is not transaction:
                # Answered already, or withdrawn by their CANCEL or BYE in the meantime.
                return
            if sdp is None:
                self._refuse(488, agent.now())
            else:
                self._accept(sdp, agent.now())
            agent.flush()

        self._call.notify(ReinviteReceived(offer, respond))

    def _refresh_target(self, dialog: Dialog, message: Request | Response) -> None:
        """Section 12.2: their Contact moves the remote target, never the route set.

        Raises BadSip, and changes nothing, where our requests could not be sent there.
        """
        contact = message.contact
        if contact is None:
            return
        parse_uri(contact.uri)
        if not dialog.routes:
            self._call.agent.hop(contact.uri)
        dialog.target = contact.uri

    def _accept(self, sdp: str, now: float) -> None:
        transaction = self._incoming
        if transaction is None:
            return
        self._move(Move.ACCEPT)
        self._incoming = self._respond_by = None
        response = reply(transaction.request, 200)
        if self._call.dialog is not None:
            response.add("Contact", self._call.dialog.contact)
        self._call.agent.describe(response)
        response.set_body(sdp)
        self._call.local_sdp = sdp
        self._call.timer.answer(transaction.request, response, now)
        self._answer = UnackedAnswer(self._call, transaction, response, now)

    def _refuse(self, status: int, now: float) -> None:
        transaction = self._incoming
        if transaction is None:
            return
        self._move(Move.REFUSE)
        self._incoming = self._respond_by = None
        transaction.send_response(reply(transaction.request, status), now)
        self._next(now)

    def receive_ack(self, request: Request, now: float) -> None:
        """The ACK to our 200."""
        if self._answer is None or request.cseq != self._answer.cseq:
            return
        self._answer = None
        if self.phase is Phase.ANSWERED:
            self._move(Move.ACK)
            self._call.notify(ReinviteConfirmed(request.sdp))
            self._next(now)

    def cancelled(self, transaction: Transaction, now: float) -> bool:
        """A CANCEL of their re-INVITE; whether it was the one that is pending."""
        if self._incoming is not transaction:
            return False
        self._refuse(487, now)
        return True

    # Both

    def call_is_up(self, now: float) -> None:
        """The first ACK has come; a change that waited for it may go."""
        self._next(now)

    def abort(self) -> None:
        """The call is over."""
        if self._incoming is not None:
            # Section 15.1.2: requests that are still pending are answered with 487.
            self._refuse(487, self._call.agent.now())
        if self._exchange is not None:
            self._exchange.may_retry = False
        self._move(Move.ABORT)
        self._retry_at = self._respond_by = self._answer = None
        over = WrongState("The call ended before the session was changed.")
        queued, self._queued = self._queued, None
        self._finish(over)
        if queued is not None:
            queued[1](over)

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""
        answer = self._answer.next_at if self._answer else None
        return min(
            (at for at in (self._retry_at, self._respond_by, answer) if at is not None),
            default=None,
        )

    def tick(self, now: float) -> None:
        """Send again, or give up, what is due."""
        if self._retry_at is not None and now >= self._retry_at:
            # While theirs is being answered, ours goes out right after it.
            self._retry_at = None
            if self.phase in (Phase.IDLE, Phase.GLARE):
                self._send(now)
        if self._respond_by is not None and now >= self._respond_by:
            self._refuse(500, now)
        if self._answer is not None and not self._answer.tick(now):
            self._answer = None
            self._move(Move.ABORT)
            self._call.lost(
                now,
                CalleeUnreachable("The far end never acknowledged the change of the session."),
            )

    def _next(self, now: float) -> None:
        if self.phase is not Phase.IDLE or self._call.state is not CallState.UP:
            return
        if self._queued is not None:
            (offer, done), self._queued = self._queued, None
            self._begin(offer, done, now)
        elif self._done is not None and self._retry_at is None:
            # Theirs came between our 491 and the retry; ours is still wanted.
            self._send(now)

    def _finish(self, result: str | CallError) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(result)

    def _move(self, move: Move) -> None:
        phase = PHASES.get((self.phase, move))
        if phase is None:
            raise WrongState(f"{move.name} while {self.phase.name}.")
        self.phase = phase
