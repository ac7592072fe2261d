"""A call whose first server does not answer goes to the next one (RFC 3263 section 4.3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qwen3tts_phone.errors import CalleeUnreachable, CallRefused
from qwen3tts_phone.sip.call.outgoing import OutgoingCall
from qwen3tts_phone.sip.call.state import CallState
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.client_request import FIRST_S, LONGEST_S, ServerHealth
from tests.sip.wire import ANSWER, OFFER, Phone, Stranger, Wire, ended

FIRST, SECOND = Hop("udp", "10.0.0.5", 5060), Hop("udp", "10.0.0.6", 5060)
FAILOVER_S = 8.0


class Scene:
    def __init__(self) -> None:
        self.wire = Wire()
        self.caller = Phone(self.wire, "10.0.0.1")
        self.first = Stranger(self.wire, "10.0.0.5")
        self.second = Stranger(self.wire, "10.0.0.6")
        self.second.respond = takes_the_call

    def call(self) -> OutgoingCall:
        call = self.caller.agent.place(
            "sip:bob@example.org", OFFER, self.wire.now, hop=replace(FIRST, others=(SECOND,))
        )
        call.notify = self.caller.events.append
        return call

    def invites(self) -> list[Request]:
        found: dict[str, Request] = {}
        for request in self.wire.requests("INVITE"):
            found.setdefault(request.branch, request)
        return list(found.values())


def takes_the_call(request: Request) -> list[Response]:
    if request.method == "ACK":
        return []
    response = reply(request, 200, to_tag="x")
    response.add("Contact", "<sip:bob@10.0.0.6:5060>")
    response.set_body(ANSWER if request.method == "INVITE" else None)
    return [response]


def answers(status: int, *before: int) -> object:
    def respond(request: Request) -> list[Response]:
        if request.method == "ACK":
            return []
        return [reply(request, one, to_tag="y") for one in (*before, status)]

    return respond


def test_a_silent_server_gives_way_within_a_quarter_of_the_timeout() -> None:
    scene = Scene()
    call = scene.call()
    scene.wire.run(FAILOVER_S + 0.5)
    assert call.state is CallState.UP
    first, second = scene.invites()
    assert first.branch != second.branch
    assert (first.call_id, first.cseq, first.from_.tag) == (
        second.call_id,
        second.cseq,
        second.from_.tag,
    )
    assert first.body == second.body
    assert second.uri == "sip:bob@example.org"


def test_where_nobody_listens_the_next_is_asked_at_once() -> None:
    scene = Scene()
    call = scene.call()
    scene.wire.run(0.05)
    scene.caller.agent.transport_failed(FIRST, scene.wire.now)
    scene.wire.run(0.2)
    assert call.state is CallState.UP


def test_a_server_without_room_is_acknowledged_and_the_next_one_asked() -> None:
    scene = Scene()
    scene.first.respond = answers(503, 100)  # type: ignore[assignment]
    call = scene.call()
    scene.wire.run(0.5)
    assert call.state is CallState.UP
    assert [m.method for m in scene.first.got if isinstance(m, Request)] == ["INVITE", "ACK"]


@pytest.mark.parametrize("status", [404, 486, 603])
def test_an_answer_about_the_callee_is_final(status: int) -> None:
    scene = Scene()
    scene.first.respond = answers(status)  # type: ignore[assignment]
    scene.call()
    scene.wire.run(1.0)
    error = ended(scene.caller).error
    assert isinstance(error, CallRefused)
    assert error.status == status
    assert scene.second.got == []


def test_once_it_rings_no_other_telephone_is_rung() -> None:
    scene = Scene()
    scene.first.respond = answers(503, 180)  # type: ignore[assignment]
    scene.call()
    scene.wire.run(1.0)
    assert isinstance(ended(scene.caller).error, CallRefused)
    assert scene.second.got == []


def test_a_server_that_has_begun_may_take_its_time() -> None:
    scene = Scene()
    scene.first.respond = lambda r: [reply(r, 100)] if r.method == "INVITE" else []
    call = scene.call()
    scene.wire.run(60.0)
    assert call.state is CallState.PROCEEDING
    assert scene.second.got == []


def test_a_call_that_is_given_up_is_not_carried_on_elsewhere() -> None:
    scene = Scene()
    call = scene.call()
    scene.wire.run(1.0)
    call.hang_up(scene.wire.now)
    scene.wire.run(60.0)
    assert scene.second.got == []
    assert call.state is CallState.ENDED


def test_where_none_answers_the_last_one_is_named() -> None:
    scene = Scene()
    scene.second.respond = lambda request: []
    scene.call()
    scene.wire.run(60.0)
    error = ended(scene.caller).error
    assert isinstance(error, CalleeUnreachable)
    assert "10.0.0.6:5060 over UDP" in error.message


def test_the_contact_fits_the_way_to_the_server_that_is_asked() -> None:
    scene = Scene()
    over_tcp = replace(SECOND, transport="tcp")
    scene.caller.agent.place(
        "sip:bob@example.org",
        OFFER,
        scene.wire.now,
        hop=replace(FIRST, others=(over_tcp,)),
        user="alice",
    )
    scene.wire.run(FAILOVER_S + 0.5)
    first, second = scene.invites()
    assert first.contact_uri == "sip:alice@10.0.0.1:5060"
    assert second.contact_uri == "sip:alice@10.0.0.1:5060;transport=tcp"
    assert second.via.transport == "TCP"


def test_a_server_that_has_failed_comes_last_for_a_while_and_longer_each_time() -> None:
    health = ServerHealth()
    assert health.order([FIRST, SECOND], 0.0) == [FIRST, SECOND]
    health.failed(FIRST, 0.0)
    health.failed(FIRST, 1.0)
    assert health.order([FIRST, SECOND], 1.0) == [SECOND, FIRST]
    assert health.order([FIRST, SECOND], FIRST_S) == [FIRST, SECOND]
    health.failed(FIRST, 40.0)
    assert health.is_down(FIRST, 40.0 + 2 * FIRST_S - 1.0)
    now = 40.0
    for _ in range(9):
        now += LONGEST_S
        health.failed(FIRST, now)
    assert not health.is_down(FIRST, now + LONGEST_S)
    health.answered(FIRST)
    health.failed(FIRST, now)
    assert not health.is_down(FIRST, now + FIRST_S)


def test_failures_of_very_many_servers_are_bounded() -> None:
    health = ServerHealth()
    for number in range(5000):
        health.failed(Hop("udp", "10.0.0.1", 1 + number), 0.0)
    assert len(health._failed) <= 1000
