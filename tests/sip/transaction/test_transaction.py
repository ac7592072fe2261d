from __future__ import annotations

import itertools
from collections import deque

import pytest

from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.state_machine import (
    INITIAL_STATES,
    STATE_TIMERS,
    TRANSITIONS,
    Timers,
    TransactionEvent,
    TransactionKind,
    TransactionState,
)
from qwen3tts_phone.sip.transaction.transaction import (
    Failure,
    IllegalTransition,
    OutboundMessage,
    Transaction,
)

UDP = Hop("udp", "10.0.0.2", 5060)
TCP = Hop("tcp", "10.0.0.2", 5060, 1)
CLIENTS = (TransactionKind.INVITE_CLIENT, TransactionKind.CLIENT)
RECEIVED_BY_SERVERS = {TransactionEvent.RECEIVE_REQUEST, TransactionEvent.RECEIVE_ACK}
SENT_BY_SERVERS = {
    TransactionEvent.SEND_1XX,
    TransactionEvent.SEND_2XX,
    TransactionEvent.SEND_FAILURE,
}
RECEIVED_BY_CLIENTS = {
    TransactionEvent.RECEIVE_1XX,
    TransactionEvent.RECEIVE_2XX,
    TransactionEvent.RECEIVE_FAILURE,
}


class Owner:
    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.failures: list[Failure] = []
        self.acks = 0
        self.no_acks = 0

    def on_response(self, response: Response, now: float) -> None:
        self.statuses.append(response.status)

    def on_failure(self, failure: Failure, now: float) -> None:
        self.failures.append(failure)

    def on_ack(self, request: Request, now: float) -> None:
        self.acks += 1

    def on_no_ack(self, now: float) -> None:
        self.no_acks += 1


def a_request(method: str) -> Request:
    request = Request(method, "sip:bob@10.0.0.2")
    request.add("Via", "SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bK1;rport")
    request.add("From", "<sip:alice@10.0.0.1>;tag=a")
    request.add("To", "<sip:bob@10.0.0.2>")
    request.add("Call-ID", "c")
    request.add("CSeq", f"1 {method}")
    return request


class Machine:
    """A transaction with its clock, its sent bytes and its owner."""

    def __init__(self, kind: TransactionKind, hop: Hop = UDP) -> None:
        self.method = (
            "INVITE"
            if kind in (TransactionKind.INVITE_CLIENT, TransactionKind.INVITE_SERVER)
            else "BYE"
        )
        self.outbox: deque[OutboundMessage] = deque()
        self.owner = Owner()
        self.now = 0.0
        self.request = a_request(self.method)
        self.transaction = Transaction(kind, self.request, hop, Timers(), self.outbox, 0.0)
        if kind in CLIENTS:
            self.transaction.client_owner = self.owner
        else:
            self.transaction.server_owner = self.owner

    def advance(self, seconds: float) -> list[float]:
        """Let time pass; gives the instants at which something was sent."""
        end = self.now + seconds
        sent: list[float] = []
        while (at := self.transaction.deadline) is not None and at <= end:
            before = len(self.outbox)
            self.transaction.tick(at)
            sent += [at] * (len(self.outbox) - before)
        self.now = end
        return sent

    def get(self, status: int) -> None:
        self.transaction.receive_response(reply(self.request, status, to_tag="b"), self.now)

    def say(self, status: int) -> None:
        self.transaction.send_response(reply(self.request, status, to_tag="b"), self.now)

    def get_request(self, method: str) -> None:
        self.transaction.receive_request(a_request(method), self.now)

    @property
    def ended(self) -> bool:
        return self.transaction.state is TransactionState.TERMINATED

    @property
    def state(self) -> TransactionState:
        return self.transaction.state


def pairs() -> list[tuple[TransactionKind, TransactionState, TransactionEvent]]:
    return [
        (kind, state, event)
        for kind in TransactionKind
        for state in TransactionState
        for event in TransactionEvent
    ]


@pytest.mark.parametrize(
    ("kind", "state", "event"),
    [(k, s, e) for k, s, e in pairs() if (s, e) not in TRANSITIONS[k]],
    ids=lambda value: value.name,
)
def test_what_no_table_holds_raises_and_changes_nothing(
    kind: TransactionKind, state: TransactionState, event: TransactionEvent
) -> None:
    machine = Machine(kind)
    machine.transaction.state = state
    machine.outbox.clear()
    with pytest.raises(IllegalTransition, match=state.name):
        machine.transaction._move(event, 0.0)
    assert machine.state is state
    assert not machine.outbox


@pytest.mark.parametrize(
    ("kind", "state", "event"),
    [(k, s, e) for k, s, e in pairs() if (s, e) in TRANSITIONS[k]],
    ids=lambda value: value.name,
)
def test_what_a_table_holds_is_done(
    kind: TransactionKind, state: TransactionState, event: TransactionEvent
) -> None:
    machine = Machine(kind)
    machine.transaction.state = state
    machine.transaction._move(event, 0.0)
    assert machine.state is TRANSITIONS[kind][state, event][0]


@pytest.mark.parametrize("kind", list(TransactionKind), ids=lambda kind: kind.name)
def test_nothing_a_peer_can_send_is_missing_from_a_table(kind: TransactionKind) -> None:
    """A peer must not be able to raise IllegalMove, in no state."""
    received = RECEIVED_BY_CLIENTS if kind in CLIENTS else {TransactionEvent.RECEIVE_REQUEST}
    if kind is TransactionKind.INVITE_SERVER:
        received = RECEIVED_BY_SERVERS
    states = {state for state, _ in TRANSITIONS[kind]} | {INITIAL_STATES[kind]}
    for state in states:
        for event in received | ({TransactionEvent.TRANSPORT_ERROR} if kind in CLIENTS else set()):
            assert (state, event) in TRANSITIONS[kind], (state.name, event.name)


def test_every_timer_that_runs_in_a_state_has_a_move_there() -> None:
    for (kind, state), events in STATE_TIMERS.items():
        for event in events:
            assert (state, event) in TRANSITIONS[kind]


def test_every_move_of_a_timer_belongs_to_a_state_where_it_runs() -> None:
    for kind, table in TRANSITIONS.items():
        for state, event in table:
            if event.name.startswith("TIMER"):
                assert event in STATE_TIMERS[kind, state]


def test_an_invite_over_udp_is_repeated_at_doubling_intervals_until_timer_b() -> None:
    machine = Machine(TransactionKind.INVITE_CLIENT)
    assert len(machine.outbox) == 1
    assert machine.advance(32.0) == [0.5, 1.5, 3.5, 7.5, 15.5, 31.5]
    assert machine.owner.failures == [Failure.TIMED_OUT]
    assert machine.ended


def test_an_invite_over_tcp_is_sent_once_and_times_out_all_the_same() -> None:
    machine = Machine(TransactionKind.INVITE_CLIENT, TCP)
    assert machine.advance(31.9) == []
    assert machine.owner.failures == []
    machine.advance(0.2)
    assert machine.owner.failures == [Failure.TIMED_OUT]


def test_a_provisional_answer_stops_the_repetition_of_an_invite() -> None:
    machine = Machine(TransactionKind.INVITE_CLIENT)
    machine.get(180)
    assert machine.advance(300.0) == []
    assert machine.state is TransactionState.PROCEEDING


def test_another_request_is_repeated_up_to_every_four_seconds_until_timer_f() -> None:
    machine = Machine(TransactionKind.CLIENT)
    assert machine.advance(32.0) == [0.5, 1.5, 3.5, 7.5, 11.5, 15.5, 19.5, 23.5, 27.5, 31.5]
    assert machine.owner.failures == [Failure.TIMED_OUT]


def test_another_request_goes_on_being_repeated_every_four_seconds_while_it_proceeds() -> None:
    machine = Machine(TransactionKind.CLIENT)
    machine.get(100)
    sent = machine.advance(20.0)
    assert sent[0] == 0.5
    assert all(b - a == 4.0 for a, b in itertools.pairwise(sent))


@pytest.mark.parametrize("status", [300, 401, 404, 486, 503, 603])
def test_a_failure_of_an_invite_is_acknowledged_each_time_it_comes(status: int) -> None:
    machine = Machine(TransactionKind.INVITE_CLIENT)
    machine.outbox.clear()
    machine.get(status)
    machine.get(status)
    acks = [send.data.decode() for send in machine.outbox]
    assert len(acks) == 2
    assert all(ack.startswith("ACK sip:bob@10.0.0.2 SIP/2.0\r\n") for ack in acks)
    assert "branch=z9hG4bK1" in acks[0]
    assert "To: <sip:bob@10.0.0.2>;tag=b" in acks[0]
    assert "CSeq: 1 ACK" in acks[0]
    assert machine.owner.statuses == [status]


def test_timer_d_waits_32_seconds_over_udp_and_not_at_all_over_tcp() -> None:
    udp, tcp = Machine(TransactionKind.INVITE_CLIENT), Machine(TransactionKind.INVITE_CLIENT, TCP)
    udp.get(486)
    tcp.get(486)
    udp.advance(31.9)
    tcp.advance(0.0)
    assert (udp.state, tcp.state) == (TransactionState.COMPLETED, TransactionState.TERMINATED)
    udp.advance(0.2)
    assert udp.ended


def test_each_2xx_reaches_the_owner_until_timer_m() -> None:
    machine = Machine(TransactionKind.INVITE_CLIENT)
    for _ in range(3):
        machine.get(200)
    assert machine.owner.statuses == [200, 200, 200]
    machine.advance(31.9)
    assert machine.state is TransactionState.ACCEPTED
    machine.advance(0.2)
    assert machine.ended


def test_the_transaction_itself_never_acknowledges_a_2xx() -> None:
    machine = Machine(TransactionKind.INVITE_CLIENT)
    machine.outbox.clear()
    machine.get(200)
    assert not machine.outbox


@pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.name)
def test_a_transport_error_tells_the_owner(kind: TransactionKind) -> None:
    machine = Machine(kind)
    machine.transaction.transport_error(0.0)
    assert machine.owner.failures == [Failure.UNREACHABLE]


def test_timer_k_waits_five_seconds_over_udp_and_not_at_all_over_tcp() -> None:
    udp, tcp = Machine(TransactionKind.CLIENT), Machine(TransactionKind.CLIENT, TCP)
    udp.get(200)
    tcp.get(200)
    udp.advance(4.9)
    tcp.advance(0.0)
    assert (udp.state, tcp.state) == (TransactionState.COMPLETED, TransactionState.TERMINATED)
    udp.get(200)
    assert udp.owner.statuses == [200]


def test_a_repeated_invite_gets_the_last_provisional_answer_again() -> None:
    machine = Machine(TransactionKind.INVITE_SERVER)
    machine.get_request("INVITE")
    assert not machine.outbox
    machine.say(100)
    machine.say(180)
    machine.get_request("INVITE")
    assert [send.data.split(b" ")[1] for send in machine.outbox] == [b"100", b"180", b"180"]


def test_a_failure_is_repeated_until_its_ack() -> None:
    machine = Machine(TransactionKind.INVITE_SERVER)
    machine.say(486)
    assert machine.advance(8.0) == [0.5, 1.5, 3.5, 7.5]
    machine.get_request("ACK")
    assert machine.advance(100.0) == []
    assert machine.ended
    assert machine.owner.no_acks == 0


def test_a_failure_is_not_repeated_over_tcp() -> None:
    machine = Machine(TransactionKind.INVITE_SERVER, TCP)
    machine.say(486)
    assert machine.advance(31.0) == []


def test_timer_h_gives_up_a_failure_that_is_never_acknowledged() -> None:
    machine = Machine(TransactionKind.INVITE_SERVER)
    machine.say(486)
    assert machine.advance(32.1)[-1] <= 32.0
    assert machine.owner.no_acks == 1
    assert machine.ended


def test_an_accepted_invite_is_answered_with_the_same_200_until_timer_l() -> None:
    machine = Machine(TransactionKind.INVITE_SERVER)
    machine.say(200)
    machine.get_request("INVITE")
    assert len(machine.outbox) == 2
    assert machine.outbox[0] == machine.outbox[1]
    machine.advance(32.1)
    assert machine.ended


def test_a_repeated_request_gets_the_same_answer_until_timer_j() -> None:
    machine = Machine(TransactionKind.SERVER)
    machine.get_request("BYE")
    machine.say(200)
    machine.get_request("BYE")
    assert len(machine.outbox) == 2
    machine.advance(31.9)
    assert machine.state is TransactionState.COMPLETED
    machine.advance(0.2)
    assert machine.ended


def test_a_second_final_answer_is_a_mistake_of_ours() -> None:
    machine = Machine(TransactionKind.SERVER)
    machine.say(200)
    with pytest.raises(IllegalTransition):
        machine.say(500)


def test_a_late_tick_sends_once_and_not_in_a_burst() -> None:
    machine = Machine(TransactionKind.CLIENT)
    machine.outbox.clear()
    machine.transaction.tick(20.0)
    assert len(machine.outbox) == 1
