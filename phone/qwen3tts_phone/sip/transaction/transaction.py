"""Transactions (RFC 3261 section 17, RFC 6026), and retransmission of 2xx responses.

No I/O: bytes go to ``outbox``, events to the owner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.message.message import Request, Response
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.state_machine import (
    INITIAL_STATES,
    RETRANSMISSION_TIMERS,
    STATE_TIMERS,
    TIMEOUTS,
    TRANSITIONS,
    Timers,
    TransactionAction,
    TransactionEvent,
    TransactionKind,
    TransactionState,
)

S, E, A = TransactionState, TransactionEvent, TransactionAction


class IllegalTransition(RuntimeError):
    """State and event that no table holds: our own mistake."""


class Failure(Enum):
    """Reason of a missing final response."""

    TIMED_OUT = auto()
    UNREACHABLE = auto()


@dataclass(frozen=True, slots=True)
class OutboundMessage:
    hop: Hop
    data: bytes


class ClientOwner(Protocol):
    def on_response(self, response: Response, now: float) -> None: ...

    def on_failure(self, failure: Failure, now: float) -> None: ...


class ServerOwner(Protocol):
    def on_ack(self, request: Request, now: float) -> None: ...

    def on_no_ack(self, now: float) -> None: ...


class Transaction:
    def __init__(
        self,
        kind: TransactionKind,
        request: Request,
        hop: Hop,
        timers: Timers,
        outbox: deque[OutboundMessage],
        now: float,
        schedule: Callable[[Transaction], None] = lambda transaction: None,
    ) -> None:
        self.kind = kind
        self.request = request
        self.hop = hop
        self.state = INITIAL_STATES[kind]
        self.client_owner: ClientOwner | None = None
        self.server_owner: ServerOwner | None = None
        self.response: Response | None = None
        """Last response."""
        self._timers = timers
        self._outbox = outbox
        self._schedule = schedule
        self._deadlines: dict[TransactionEvent, float] = {}
        self._waits: dict[TransactionEvent, float] = {}
        self._scheduled_at: float | None = None
        self._ack: bytes | None = None
        self._wire: bytes = b""
        self.cause: CallError | None = None
        """Cause of a transport error, where known."""
        self._enter(now)
        self._reschedule()
        if kind in (TransactionKind.INVITE_CLIENT, TransactionKind.CLIENT):
            self._wire = bytes(request)
            self._send(self._wire)

    @property
    def deadline(self) -> float | None:
        return min(self._deadlines.values(), default=None)

    def tick(self, now: float) -> None:
        while self._deadlines:
            event = min(self._deadlines, key=self._deadlines.__getitem__)
            at = self._deadlines[event]
            if at > now:
                return
            if event in RETRANSMISSION_TIMERS:
                # RFC 3261: A doubles; E and G double up to T2, E stays at T2 once proceeding.
                wait = self._waits[event] * 2
                if event is not E.TIMER_A:
                    wait = min(wait, self._timers.t2)
                if event is E.TIMER_E and self.state is S.PROCEEDING:
                    wait = self._timers.t2
                self._waits[event] = wait
                # From now, not from the missed instant: a late tick must not send a burst.
                self._deadlines[event] = max(at, now) + wait
            else:
                del self._deadlines[event]
            self._move(event, now)

    def receive_response(self, response: Response, now: float) -> None:
        self._move(_class_of(response.status), now, response)

    def receive_request(self, request: Request, now: float) -> None:
        event = E.RECEIVE_ACK if request.method == "ACK" else E.RECEIVE_REQUEST
        self._move(event, now, request)

    def send_response(self, response: Response, now: float) -> None:
        event = {1: E.SEND_1XX, 2: E.SEND_2XX}.get(response.status // 100, E.SEND_FAILURE)
        if (self.state, event) not in TRANSITIONS[self.kind]:
            raise IllegalTransition(f"{event.name} while {self.state.name} ({self.kind.name})")
        self.response = response
        self._wire = bytes(response)
        if response.status >= 200:
            # The body is not needed for retransmissions.
            self.request.body = b""
        self._move(event, now)

    def limit(self, at: float | None) -> None:
        if at is None:
            self._deadlines.pop(E.GIVE_UP, None)
        elif (self.state, E.GIVE_UP) in TRANSITIONS[self.kind]:
            self._deadlines[E.GIVE_UP] = at
        self._reschedule()

    def give_up(self, now: float) -> None:
        self._move(E.GIVE_UP, now)

    def send_again(self) -> None:
        self._send(self._wire)

    def transport_error(self, now: float, cause: CallError | None = None) -> None:
        self.cause = cause
        self._move(E.TRANSPORT_ERROR, now)

    def _move(
        self, event: TransactionEvent, now: float, message: Request | Response | None = None
    ) -> None:
        move = TRANSITIONS[self.kind].get((self.state, event))
        if move is None:
            raise IllegalTransition(f"{event.name} while {self.state.name} ({self.kind.name})")
        state, actions = move
        if state is not self.state:
            self.state = state
            self._enter(now)
        self._reschedule()
        for action in actions:
            self._act(action, now, message)

    def _act(
        self, action: TransactionAction, now: float, message: Request | Response | None
    ) -> None:
        if action in (A.SEND_REQUEST, A.SEND_RESPONSE):
            if self._wire:
                self._send(self._wire)
        elif action is A.SEND_ACK:
            if isinstance(message, Response):
                self._ack = bytes(ack_for_failure(self.request, message))
            if self._ack:
                self._send(self._ack)
        elif action is A.DELIVER:
            if isinstance(message, Response):
                self.response = message
                if self.client_owner:
                    self.client_owner.on_response(message, now)
            elif isinstance(message, Request) and self.server_owner:
                self.server_owner.on_ack(message, now)
        elif self.client_owner:
            timed_out = action is A.TIMED_OUT
            failure = Failure.TIMED_OUT if timed_out else Failure.UNREACHABLE
            self.client_owner.on_failure(failure, now)
        elif self.server_owner and action is A.TIMED_OUT:
            self.server_owner.on_no_ack(now)

    def _reschedule(self) -> None:
        if self.deadline != self._scheduled_at:
            self._scheduled_at = self.deadline
            self._schedule(self)

    def _enter(self, now: float) -> None:
        live = STATE_TIMERS.get((self.kind, self.state), ())
        kept = (*live, E.GIVE_UP) if (self.state, E.GIVE_UP) in TRANSITIONS[self.kind] else live
        self._deadlines = {e: at for e, at in self._deadlines.items() if e in kept}
        for event in live:
            if event in self._deadlines:
                continue
            if event in RETRANSMISSION_TIMERS and self.hop.reliable:
                # Section 17: a reliable transport needs no retransmission, timer G included.
                continue
            self._waits[event] = self._wait(event)
            self._deadlines[event] = now + self._waits[event]

    def _wait(self, event: TransactionEvent) -> float:
        if event in RETRANSMISSION_TIMERS:
            return self._timers.t1
        if event in TIMEOUTS:
            return self._timers.timeout
        if self.hop.reliable:
            return 0.0
        # D is "at least 32 s", J is 64*T1, I and K are T4.
        return self._timers.timeout if event in (E.TIMER_D, E.TIMER_J) else self._timers.t4

    def _send(self, data: bytes) -> None:
        self._outbox.append(OutboundMessage(self.hop, data))


def _class_of(status: int) -> TransactionEvent:
    return {1: E.RECEIVE_1XX, 2: E.RECEIVE_2XX}.get(status // 100, E.RECEIVE_FAILURE)


def ack_for_failure(invite: Request, response: Response) -> Request:
    """Return the ACK of RFC 3261 section 17.1.1.3."""
    ack = Request("ACK", invite.uri)
    ack.add("Via", invite.values("Via")[0])
    ack.add("Max-Forwards", "70")
    ack.add("From", invite.require("From"))
    ack.add("To", response.require("To"))
    ack.add("Call-ID", invite.call_id)
    ack.add("CSeq", f"{invite.cseq} ACK")
    for route in invite.headers.getlist("Route"):
        ack.add("Route", route)
    return ack


def cancel_for(invite: Request) -> Request:
    """Return the CANCEL of RFC 3261 section 9.1."""
    cancel = Request("CANCEL", invite.uri)
    cancel.add("Via", invite.values("Via")[0])
    cancel.add("Max-Forwards", "70")
    for name in ("From", "To", "Call-ID"):
        cancel.add(name, invite.require(name))
    cancel.add("CSeq", f"{invite.cseq} CANCEL")
    for route in invite.headers.getlist("Route"):
        cancel.add("Route", route)
    return cancel


class ResponseRetransmitter:
    """Response sent at T1, 2*T1 and so on, given up after 64*T1.

    A 2xx (RFC 3261 section 13.3.1.4) waits at most T2; a reliable provisional one (RFC 3262
    section 3) doubles on.
    """

    def __init__(
        self, transaction: Transaction, response: Response, timers: Timers, now: float
    ) -> None:
        final = response.status >= 200
        self._transaction = transaction
        self._response = response
        self._while = TransactionState.ACCEPTED if final else TransactionState.PROCEEDING
        self._longest = timers.t2 if final else timers.timeout
        self.cseq = transaction.request.cseq
        self._wait = timers.t1
        self.sent_at = now
        """First transmission."""
        self.next_at = now + self._wait
        self._give_up_at = now + timers.timeout
        transaction.send_response(response, now)

    def tick(self, now: float) -> bool:
        """Retransmit if due; False once given up."""
        if now >= self._give_up_at:
            return False
        if now >= self.next_at:
            self._wait = min(self._wait * 2, self._longest)
            self.next_at = min(now + self._wait, self._give_up_at)
            if self._transaction.state is self._while:
                self._transaction.send_response(self._response, now)
        return True
