"""Changing a session: our re-INVITEs (RFC 3261 section 14) and UPDATEs (RFC 3311), one at a time.

Theirs are in :mod:`received`; both share the phase that is kept here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from qwen3tts_phone.errors import BadSdp, BadSip, CalleeUnreachable, CallError, WrongState
from qwen3tts_phone.sip.call_state import CallState
from qwen3tts_phone.sip.fields import delta_seconds
from qwen3tts_phone.sip.hop import Hop
from qwen3tts_phone.sip.message import Request, Response
from qwen3tts_phone.sip.phases import PHASES, Move, Phase
from qwen3tts_phone.sip.received import Received
from qwen3tts_phone.sip.refused import refused
from qwen3tts_phone.sip.transaction import Failure, Transaction

if TYPE_CHECKING:
    from qwen3tts_phone.sip.call import Call
    from qwen3tts_phone.sip.dialog import Dialog
    from qwen3tts_phone.sip.exchange import Exchange

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
