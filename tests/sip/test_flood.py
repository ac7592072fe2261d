"""Floods of requests that nobody completes: what is kept of them is bounded, good calls go on."""

from __future__ import annotations

import pytest

from qwen3tts_phone.sip import user_agent as agent
from qwen3tts_phone.sip.call.state import CallState, Ended
from qwen3tts_phone.sip.message.message import Request, Response, parse_message, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction import layer
from tests.sip.wire import OFFER, Phone, Wire, ended, pair, request

STRANGER = Hop("udp", "10.9.9.9", 5060)


def flood(wire: Wire, phone: Phone, method: str, count: int, first: int = 0) -> None:
    """Requests from an address that neither hears nor answers anything."""
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
