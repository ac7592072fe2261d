"""Session modification by re-INVITE (RFC 3261 section 14), UPDATE (RFC 3311) and PRACK.

Both ends share one state: one offer/answer exchange is open at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Literal, Protocol

from qwen3tts_phone.errors import BadSdp, BadSip, CalleeUnreachable, CallError, WrongState
from qwen3tts_phone.sip.call.state import (
    MODIFICATION_TRANSITIONS,
    CallEvent,
    CallState,
    ModificationEvent,
    ModificationState,
    ReinviteConfirmed,
    ReinviteReceived,
)
from qwen3tts_phone.sip.core.failure import call_refused
from qwen3tts_phone.sip.core.ua_core import UserAgentCore
from qwen3tts_phone.sip.message.fields import delta_seconds
from qwen3tts_phone.sip.message.message import Request, Response, checked_sdp, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.client_request import (
    ClientRequest,
    ResponseListener,
)
from qwen3tts_phone.sip.transaction.dialog import Dialog, SessionTimer
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.transaction.transaction import Failure, ResponseRetransmitter, Transaction

ANSWERED_WITHIN_S = 60.0
"""Timeout of our re-INVITE."""
MAX_GLARE = 5
"""Retries after 491, or 500 with Retry-After."""
MAX_RETRY_AFTER_S = 10
"""Longest accepted Retry-After of a 500 (RFC 3261 section 14.2: 0 to 10 s)."""
RESPOND_WITHIN_S = 30.0
"""Timeout of the owner's answer to a re-INVITE; then 500."""
UPDATE_WITHIN_S = 10.0
"""The same for UPDATE and PRACK, which time out after 32 s (RFC 3261 timer F)."""

Done = Callable[[str | CallError], None]
Offer = str | Callable[[], str]
"""An SDP, or a function that makes it on sending: its version must exceed that of an answer given
meanwhile (RFC 3264 section 8)."""
Method = Literal["INVITE", "UPDATE"]
METHODS: dict[str, Literal["INVITE", "UPDATE", "PRACK"]] = {
    "INVITE": "INVITE",
    "UPDATE": "UPDATE",
    "PRACK": "PRACK",
}


class ModifiedCall(Protocol):
    agent: UserAgentCore
    state: CallState
    direction: Literal["in", "out"]
    digest: Digest | None
    timer: SessionTimer
    local_sdp: str | None
    notify: Callable[[CallEvent], None]

    def session_dialog(self) -> Dialog | None: ...
    def may_update_early(self) -> bool: ...
    def initial_offer(self, dialog: Dialog) -> Literal["ours", "theirs", "done"]: ...
    def learn_capabilities(self, message: Request | Response) -> None: ...
    def refresh_target(self, dialog: Dialog, message: Request | Response) -> None: ...
    def dialog_lost(self, now: float, error: CallError) -> None: ...
    def send_in_dialog(
        self, request: Request, listener: ResponseListener, now: float, dialog: Dialog | None = None
    ) -> ClientRequest: ...


class SessionModification:
    """Session changes of one call, one at a time."""

    def __init__(self, call: ModifiedCall) -> None:
        self.phase = ModificationState.IDLE
        self._call = call
        # Ours
        self._done: Done | None = None
        self._offer: Offer = ""
        self._method: Method = "INVITE"
        self._dialog: Dialog | None = None
        self._sdp = ""
        self._refreshing = False
        self._queued: tuple[Offer, Done, Method] | None = None
        self._client_request: ClientRequest | None = None
        self._glares = 0
        self._retry_at: float | None = None
        self._acks: dict[str, tuple[Request, Hop]] = {}
        # Theirs
        self._incoming: Transaction | None = None
        self._respond_by: float | None = None
        self._offered = False
        """True if the 200 awaiting its ACK holds our offer."""
        self._answer: ResponseRetransmitter | None = None

    # Ours

    def start(self, offer: Offer, done: Done, now: float, method: Method = "INVITE") -> None:
        """Offer a changed session, after theirs; ``done`` gets the answer or the error."""
        # Before the call is answered only an UPDATE may, once the first offer has been answered
        # reliably (RFC 3311 section 5.1).
        state = self._call.state
        early = method == "UPDATE" and self._call.may_update_early()
        if state not in (CallState.UP, CallState.ANSWERED) and not early:
            raise WrongState("The session can be changed only while the call is up.")
        if self._queued is not None or (self._done is not None and not self._refreshing):
            raise WrongState("A change of the session is already under way.")
        if state is CallState.ANSWERED or self.phase is not ModificationState.IDLE:
            # Section 14.1: no new INVITE while another is in progress in either direction.
            self._queued = (offer, done, method)
            return
        self._begin(offer, done, now, method)

    def _begin(
        self, offer: Offer, done: Done, now: float, method: Method, *, refreshing: bool = False
    ) -> None:
        self._offer, self._done, self._method, self._glares = offer, done, method, 0
        self._refreshing = refreshing
        self._send(now)

    def _send(self, now: float) -> None:
        dialog = self._call.session_dialog()
        if dialog is None:
            return
        self.move(ModificationEvent.SEND)
        self._retry_at = None
        self._dialog = dialog
        request = dialog.request(self._method)
        self._call.agent.describe(request)
        self._call.timer.ask(request)
        self._sdp = self._offer if isinstance(self._offer, str) else self._offer()
        request.set_body(self._sdp)
        self._client_request = self._call.send_in_dialog(request, self, now, dialog)
        if self._method == "INVITE":
            self._client_request.limit(now + ANSWERED_WITHIN_S)

    def on_provisional(self, response: Response, now: float) -> None: ...

    def on_final(self, response: Response, now: float) -> None:
        dialog = self._dialog
        exchange = self._client_request
        if dialog is None or exchange is None:
            return
        # A 2xx to an earlier change is retransmitted where our ACK was lost: it is not awaited.
        awaited = self.phase is ModificationState.SENT and response.cseq == exchange.request.cseq
        if response.status < 300:
            if awaited:
                # Where their new Contact cannot be used, the old one is kept.
                with contextlib.suppress(BadSip):
                    self._call.refresh_target(dialog, response)
            if response.cseq_method == "INVITE":
                # Acknowledged whatever has become of the call since.
                self._acknowledge(response)
            if awaited:
                self._accepted(response, now)
        elif awaited and not self._schedule_retry(response, now):
            self._refused(response, now)

    def _accepted(self, response: Response, now: float) -> None:
        self.move(ModificationEvent.DONE)
        self._call.learn_capabilities(response)
        self._call.timer.answered(response, now)
        self._call.local_sdp = self._sdp
        sdp = response.sdp
        if sdp is None:
            self._finish(BadSdp("The far end took the change and described no media."))
        else:
            self._finish(sdp)
        self.start_queued(now)

    def _refused(self, response: Response, now: float) -> None:
        self.move(ModificationEvent.DONE)
        error = call_refused(response, self._call.digest, what="change of the session")
        self._finish(error)
        if response.status in (408, 481):
            self._call.dialog_lost(now, error)
        self.start_queued(now)

    def _schedule_retry(self, response: Response, now: float) -> bool:
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
        self.move(ModificationEvent.PENDING)
        self._retry_at = now + wait
        return True

    def on_failure(self, failure: Failure, now: float) -> None:
        if self.phase is not ModificationState.SENT:
            return
        self.move(ModificationEvent.DONE)
        error = no_response()
        self._finish(error)
        self._call.dialog_lost(now, error)

    def _acknowledge(self, response: Response) -> None:
        dialog, exchange = self._dialog, self._client_request
        if dialog is None or exchange is None:
            return
        key = str(response.cseq)
        if key not in self._acks:
            call = self._call
            ack = call.agent.ack(dialog, exchange.request, response.cseq, exchange.hop, call.digest)
            self._acks = {key: ack}
        self._call.agent.layer.send_statelessly(*self._acks[key])

    def refresh(self, now: float) -> None:
        """Repeat the session's offer (RFC 4028), unless a change is under way."""
        call = self._call
        if (
            call.local_sdp is None
            or self.phase is not ModificationState.IDLE
            or self._done is not None
        ):
            call.timer.refresh_failed(now)
            return

        def done(result: str | CallError) -> None:
            if isinstance(result, CallError):
                call.timer.refresh_failed(call.agent.now())

        self._begin(call.local_sdp, done, now, "INVITE", refreshing=True)

    # Theirs

    def receive(
        self, request: Request, transaction: Transaction, dialog: Dialog, now: float
    ) -> None:
        state = self._call.state
        if state is CallState.ENDING:
            # Our BYE is out: there is no dialog any more (section 15.1.1).
            transaction.send_response(reply(request, 481), now)
            return
        if request.method != "INVITE" and not request.body:
            self._answer_refresh(request, transaction, dialog, now)
            return
        status = self._conflict_status(request, dialog)
        if status:
            response = reply(request, status)
            if status == 500:
                wait = self._call.agent.random.randint(0, MAX_RETRY_AFTER_S)
                response.add("Retry-After", str(wait))
            transaction.send_response(response, now)
            return
        offer = checked_sdp(request)
        if request.method != "PRACK":
            # A Contact that could not be reached later is refused now.
            self._call.refresh_target(dialog, request)
        if request.method == "INVITE":
            transaction.send_response(reply(request, 100), now)
        self._call.learn_capabilities(request)
        self.move(ModificationEvent.RECEIVE)
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
        self._call.notify(ReinviteReceived(offer, respond, METHODS[request.method], early))

    def _conflict_status(self, request: Request, dialog: Dialog) -> int:
        phase, state = self.phase, self._call.state
        if request.method == "INVITE":
            if phase is ModificationState.RECEIVED or state in (
                CallState.RECEIVED,
                CallState.RINGING,
            ):
                # Section 14.2: their last one has no final response yet.
                return 500
            # Section 14.2: ours is in progress.
            return 491 if state is not CallState.UP or phase is ModificationState.SENT else 0
        first = self._call.initial_offer(dialog)
        # RFC 3311 section 5.2.
        if phase is ModificationState.RECEIVED or first == "theirs":
            return 500
        if phase is ModificationState.SENT or first == "ours":
            return 491
        if phase is ModificationState.ANSWERED:
            return 491 if self._offered else 500
        return 0

    def _answer_refresh(
        self, request: Request, transaction: Transaction, dialog: Dialog, now: float
    ) -> None:
        self._call.refresh_target(dialog, request)
        self._call.learn_capabilities(request)
        response = self._okay(request, dialog)
        if self._call.state is CallState.UP:
            self._call.timer.answer(request, response, now)
        transaction.send_response(response, now)

    def _okay(self, request: Request, dialog: Dialog) -> Response:
        response = reply(request, 200)
        response.add("Contact", dialog.contact)
        self._call.agent.describe(response)
        return response

    def _accept(self, sdp: str, dialog: Dialog, now: float) -> None:
        transaction = self._incoming
        if transaction is None:
            return
        self._incoming = self._respond_by = None
        request = transaction.request
        response = self._okay(request, dialog)
        response.set_body(sdp)
        self._call.local_sdp = sdp
        if request.method == "INVITE":
            self.move(ModificationEvent.ACCEPT)
            self._call.timer.answer(request, response, now)
            timers = self._call.agent.settings.timers
            self._answer = ResponseRetransmitter(transaction, response, timers, now)
            return
        self.move(ModificationEvent.SETTLE)
        if request.method == "UPDATE" and self._call.state is CallState.UP:
            self._call.timer.answer(request, response, now)
        transaction.send_response(response, now)
        self._call.notify(ReinviteConfirmed(None))
        self.start_queued(now)

    def refuse(self, status: int, now: float) -> None:
        transaction = self._incoming
        if transaction is None:
            return
        self.move(ModificationEvent.REFUSE)
        self._incoming = self._respond_by = None
        transaction.send_response(reply(transaction.request, status), now)
        self.start_queued(now)

    def receive_ack(self, request: Request, now: float) -> None:
        if self._answer is None or request.cseq != self._answer.cseq:
            return
        self._answer = None
        if self.phase is ModificationState.ANSWERED:
            self.move(ModificationEvent.ACK)
            self._call.notify(ReinviteConfirmed(request.sdp))
            self.start_queued(now)

    def cancelled(self, transaction: Transaction, now: float) -> bool:
        """Refuse their pending re-INVITE with 487; False for another one."""
        if self._incoming is not transaction:
            return False
        self.refuse(487, now)
        return True

    # Both

    def other_branch(self, dialog: Dialog, now: float) -> None:
        if self.phase is not ModificationState.IDLE and self._dialog is not dialog:
            self._abort(WrongState("Another phone has answered."), now)

    def abort(self) -> None:
        over = WrongState("The call ended before the session was changed.")
        self._abort(over, self._call.agent.now())

    def _abort(self, over: CallError, now: float) -> None:
        if self._incoming is not None:
            # Section 15.1.2.
            self.refuse(487, now)
        self._respond_by = self._answer = None
        if self._client_request is not None:
            self._client_request.may_retry = False
        self.move(ModificationEvent.ABORT)
        self._retry_at = None
        queued, self._queued = self._queued, None
        self._finish(over)
        if queued is not None:
            queued[1](over)

    def next_deadline(self) -> float | None:
        answer = self._answer.next_at if self._answer else None
        own = (self._retry_at, self._respond_by, answer)
        return min((at for at in own if at is not None), default=None)

    def tick(self, now: float) -> None:
        if self._retry_at is not None and now >= self._retry_at:
            # While theirs is being answered, ours goes out right after it.
            self._retry_at = None
            if self.phase in (ModificationState.IDLE, ModificationState.GLARE):
                self._send(now)
        if self._respond_by is not None and now >= self._respond_by:
            self.refuse(500, now)
        if self._answer is not None and not self._answer.tick(now):
            self._answer = None
            self.move(ModificationEvent.ABORT)
            error = CalleeUnreachable(
                "The far end never acknowledged the change of the session.", why="no_ack"
            )
            self._call.dialog_lost(now, error)

    def start_queued(self, now: float) -> None:
        call = self._call
        ready = call.state is CallState.UP or call.may_update_early()
        if self.phase is not ModificationState.IDLE or not ready:
            return
        if self._queued is not None:
            (offer, done, method), self._queued = self._queued, None
            self._begin(offer, done, now, method)
        elif self._done is not None and self._retry_at is None:
            # Theirs came between our 491 and the retry; ours is still wanted.
            self._send(now)

    def move(self, move: ModificationEvent) -> None:
        phase = MODIFICATION_TRANSITIONS.get((self.phase, move))
        if phase is None:
            raise WrongState(f"{move.name} while {self.phase.name}.")
        self.phase = phase

    def _finish(self, result: str | CallError) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(result)


def no_response() -> CalleeUnreachable:
    return CalleeUnreachable(
        "The far end no longer answers.",
        remedy="Check the network, then call again.",
        why="session",
    )
