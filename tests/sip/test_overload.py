"""Floods of requests that are never completed: their state is bounded, good calls go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from qwen3tts_phone.sip import user_agent as agent
from qwen3tts_phone.sip.call.state import CallState, Ended
from qwen3tts_phone.sip.gate import (
    BEHIND_WINDOWS,
    CALM_WINDOWS,
    WAIT_MOST_S,
    WINDOW_S,
    OverloadControl,
    OverloadState,
)
from qwen3tts_phone.sip.message.message import Request, Response, parse_message, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.scheduling import MOST_WAITING, IncomingCallQueue
from qwen3tts_phone.sip.transaction import layer
from tests.sip.wire import OFFER, Phone, Wire, ended, pair, request

LATE = WAIT_MOST_S + 0.05


class Queue:
    """Messages every 5 ms that wait as they are said to."""

    def __init__(self) -> None:
        self.control = OverloadControl()
        self.now = 1000.0

    def windows(self, count: float, *waits_s: float, lost: int = 0) -> list[bool]:
        """Let so many windows pass; whether the state changed at each message.

        ``lost``: datagrams dropped before each message.
        """
        changes = []
        until = self.now + count * WINDOW_S
        number = 0
        while self.now < until:
            changes.append(self.control.waited(waits_s[number % len(waits_s)], self.now, lost))
            self.now += 0.005
            number += 1
        return changes


def shedding() -> Queue:
    queue = Queue()
    assert queue.windows(BEHIND_WINDOWS + 2, LATE).count(True) == 1
    assert queue.control.state is OverloadState.SHEDDING
    return queue


def test_calls_are_set_up_while_messages_are_read_soon() -> None:
    queue = Queue()
    assert not any(queue.windows(100, 0.05, 0.001))
    assert queue.control.admits(queue.now)


def test_stalls_that_come_and_go_refuse_no_call() -> None:
    queue = Queue()
    assert not any(queue.windows(100, 2.0, 1.0, 0.5, 0.25, 0.01))  # the queue empties each time
    assert queue.control.admits(queue.now)


def test_one_stall_of_the_process_refuses_no_call_where_few_come() -> None:
    control = OverloadControl()
    for number in range(20):  # what came during a stall of 2 s, read in one go
        assert not control.waited(2.0 - number / 20, 10.0 + number * 0.001)
    assert control.admits(10.02)
    assert not control.waited(0.001, 15.0)
    assert control.admits(15.0)


def test_a_queue_that_does_not_empty_refuses_calls_and_counts_them() -> None:
    queue = shedding()
    assert [queue.control.admits(queue.now) for _ in range(3)] == [False] * 3
    assert queue.control.shed == 3


def test_calls_are_taken_again_once_the_queue_empties_for_a_time() -> None:
    queue = shedding()
    assert not any(queue.windows(20, 0.05, 0.3))  # shorter, and never empty: no back and forth
    assert not queue.control.admits(queue.now)
    assert not any(queue.windows(CALM_WINDOWS - 2, 0.3, 0.001))
    assert not queue.control.admits(queue.now)
    assert queue.windows(4, 0.3, 0.001).count(True) == 1  # it empties between stalls
    assert queue.control.admits(queue.now)


def test_when_no_message_comes_any_more_the_next_call_is_taken() -> None:
    queue = shedding()
    assert queue.control.admits(queue.now + (CALM_WINDOWS + 2) * WINDOW_S)


def test_a_full_socket_buffer_that_drops_messages_refuses_calls_however_short_their_wait() -> None:
    queue = Queue()
    assert queue.windows(BEHIND_WINDOWS + 2, WAIT_MOST_S / 2, lost=1).count(True) == 1
    assert not queue.control.admits(queue.now)


def test_messages_dropped_in_bursts_between_which_the_queue_empties_refuse_no_call() -> None:
    queue = Queue()
    assert not any(queue.windows(100, WAIT_MOST_S / 2, 0.001, lost=1))
    assert queue.control.admits(queue.now)


def test_one_burst_that_overflows_the_buffer_refuses_no_call() -> None:
    queue = Queue()
    assert not any(queue.windows(2, WAIT_MOST_S / 2, lost=50))
    assert not any(queue.windows(20, 0.001))
    assert queue.control.admits(queue.now)


STRANGER = Hop("udp", "10.9.9.9", 5060)


def flood(wire: Wire, phone: Phone, method: str, count: int, first: int = 0) -> None:
    """Requests from an address that neither receives nor answers anything."""
    for number in range(first, first + count):
        asked = request(method, phone, branch=f"z9hG4bK{number}", call_id=str(number), sdp=OFFER)
        phone.agent.receive(bytes(asked), STRANGER, wire.now)
    phone.agent.outbox.clear()


def test_a_flood_of_requests_does_not_keep_a_good_call_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "MAX_SERVER_TRANSACTIONS", 100)
    wire, caller, callee = pair()
    flood(wire, callee, "OPTIONS", 300)
    assert len(callee.agent.layer) == 100
    call = caller.call(callee)
    wire.run(1.0)
    assert call.state is CallState.UP
    flood(wire, callee, "OPTIONS", 300, 300)
    call.hang_up(wire.now)
    wire.run(1.0)
    assert ended(callee).by == "remote"
    wire.run(40.0)
    assert len(callee.agent.layer) == 0


def test_a_call_that_rings_is_not_forgotten_for_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "MAX_SERVER_TRANSACTIONS", 100)
    wire, caller, callee = pair()
    callee.answers_with = None
    call = caller.call(callee)
    wire.run(1.0)
    flood(wire, callee, "OPTIONS", 300)
    callee.calls[0].answer(OFFER, wire.now)
    wire.run(1.0)
    assert call.state is CallState.UP


def test_timers_of_a_flood_are_not_kept_until_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "MAX_SERVER_TRANSACTIONS", 100)
    wire, _, callee = pair()
    flood(wire, callee, "OPTIONS", 5000)
    assert len(callee.agent.layer._heap) <= 2 * 100 + layer.MAX_STALE + 1


def test_a_request_repeated_for_ever_sets_one_timer() -> None:
    wire, _, callee = pair()
    for _ in range(50):
        flood(wire, callee, "OPTIONS", 1)
    assert len(callee.agent.layer._heap) == 1


def test_answers_without_ack_give_way_to_good_callers() -> None:
    wire = Wire()
    caller, callee = Phone(wire, "10.0.0.1"), Phone(wire, "10.0.0.2", max_calls=20)
    good = caller.call(callee)
    wire.run(1.0)
    flood(wire, callee, "INVITE", 100)
    assert len(callee.agent.calls) == 20
    at_once = caller.call(callee)
    wire.run(1.0)
    assert at_once.state is CallState.ENDED
    assert ended(caller).status == 486
    wire.run(1.5)
    later = [caller.call(callee) for _ in range(5)]
    wire.run(1.0)
    assert [call.state for call in (good, *later)] == [CallState.UP] * 6
    assert sum(isinstance(event, Ended) for event in callee.events) == 5
    wire.run(100.0)
    assert [call.state for call in (good, *later)] == [CallState.UP] * 6
    assert len(callee.agent.calls) == 6
    assert len(callee.agent.layer) == 0


def test_a_call_that_is_being_hung_up_takes_no_room() -> None:
    wire = Wire()
    caller, callee = Phone(wire, "10.0.0.1"), Phone(wire, "10.0.0.2", max_calls=1)
    caller.call(callee)
    wire.run(1.0)
    wire.drop = lambda carried: carried.what == "BYE"
    callee.calls[0].hang_up(wire.now)
    wire.run(1.0)
    assert callee.calls[0].state is CallState.ENDING
    again = caller.call(callee)
    wire.run(1.0)
    assert again.state is CallState.UP


def test_a_flood_of_answers_to_nothing_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    wire, caller, callee = pair()
    call = caller.call(callee)
    read: list[bytes] = []

    def reading(data: bytes) -> Request | Response:
        read.append(data)
        return parse_message(data)

    monkeypatch.setattr(agent, "parse_message", reading)
    asked = request("INVITE", caller, branch="z9hG4bK" + "0" * 24)
    for status in (100, 200, 401):
        caller.agent.receive(bytes(reply(asked, status, to_tag="x")), STRANGER, wire.now)
    assert not read
    assert caller.agent.rejected == 3
    wire.run(1.0)
    assert call.state is CallState.UP
    wire.run(100.0)
    assert not caller.agent.layer._branches


def sent_statuses(phone: Phone) -> list[int]:
    found = [parse_message(send.data) for send in phone.agent.outbox]
    phone.agent.outbox.clear()
    return [message.status for message in found if isinstance(message, Response)]


def test_without_room_a_new_call_gets_503_and_when_to_come_again_and_nothing_is_remembered() -> (
    None
):
    wire, caller, callee = pair()
    going = caller.call(callee)
    wire.run(1.0)
    callee.agent.busy = lambda: 7
    before = len(callee.agent.layer)
    invite = request("INVITE", callee, branch="z9hG4bKnew", call_id="new", sdp=OFFER)
    for _ in range(2):  # a repetition, too
        callee.agent.receive(bytes(invite), STRANGER, wire.now)
        answer = parse_message(callee.agent.outbox[0].data)
        assert answer.get("Retry-After") == "7"
        assert sent_statuses(callee) == [503]
    ack = request("ACK", callee, branch="z9hG4bKnew", call_id="new")
    callee.agent.receive(bytes(ack), STRANGER, wire.now)
    assert not callee.agent.outbox
    assert (len(callee.agent.layer), len(callee.agent.calls)) == (before, 1)
    refused = caller.call(callee)
    wire.run(1.0)
    assert refused.state is CallState.ENDED
    assert ended(caller).status == 503
    going.hang_up(wire.now)  # what concerns a call that is up is looked at
    wire.run(1.0)
    assert ended(callee).by == "remote"
    callee.agent.busy = lambda: 0
    again = caller.call(callee)
    wire.run(1.0)
    assert again.state is CallState.UP


def test_without_room_those_who_only_ask_get_503_as_well() -> None:
    wire, _, callee = pair()
    callee.agent.busy = lambda: 7
    options = request("OPTIONS", callee, branch="z9hG4bKo", call_id="o")
    callee.agent.receive(bytes(options), STRANGER, wire.now)
    assert sent_statuses(callee) == [503]


def test_where_no_further_request_can_be_remembered_it_is_answered_503_and_not_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layer, "MAX_SERVER_TRANSACTIONS", 3)
    wire, _, callee = pair()
    callee.answers_with = None  # they ring
    flood(wire, callee, "INVITE", 3)
    invite = request("INVITE", callee, branch="z9hG4bKfull", call_id="full", sdp=OFFER)
    callee.agent.receive(bytes(invite), STRANGER, wire.now)
    assert sent_statuses(callee) == [503]
    assert len(callee.agent.layer) == 3


def waiting(count: int, most: int = 1000) -> IncomingCallQueue:
    queue = IncomingCallQueue(most)
    for number in range(count):
        queue.put(cast(Any, SimpleNamespace(ended=None, number=number)))
    return queue


def test_it_is_full_at_its_bound_or_at_as_many_calls_as_there_may_be() -> None:
    assert [waiting(count).is_full for count in (MOST_WAITING - 1, MOST_WAITING)] == [False, True]
    assert [waiting(count, most=3).is_full for count in (2, 3)] == [False, True]


async def test_once_full_it_stays_so_until_half_of_them_are_taken() -> None:
    queue = waiting(MOST_WAITING)
    assert queue.is_full
    calls = queue.calls()
    for _ in range(MOST_WAITING // 2 - 1):
        await anext(calls)
        assert queue.is_full
    await anext(calls)
    assert not queue.is_full


async def test_callers_who_gave_up_take_no_place_and_the_others_keep_their_order() -> None:
    queue = waiting(4, most=4)
    queue._queue._queue[1].ended = "by the caller"  # type: ignore[attr-defined]
    assert not queue.is_full
    queue.close()
    assert [cast(Any, call).number async for call in queue.calls()] == [0, 2, 3]
