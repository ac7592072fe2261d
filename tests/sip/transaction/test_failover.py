"""A call whose first server does not answer goes to the next one (RFC 3263 section 4.3)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from qwen3tts_phone.errors import CalleeUnreachable, CallRefused
from qwen3tts_phone.sdp.session import SdpOptions, SdpSession
from qwen3tts_phone.sip import SipEndpoint, SipSettings
from qwen3tts_phone.sip.call.outgoing import OutgoingCall
from qwen3tts_phone.sip.call.state import CallState
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.client_request import FIRST_S, LONGEST_S, ServerHealth
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.transport.locator import Locator
from qwen3tts_phone.sip.user_agent import CallOrigin
from tests.sip.name_server import Domains
from tests.sip.phones import QUICK, answer_all, session
from tests.sip.wire import (
    ANSWER,
    CHALLENGE,
    OFFER,
    Carried,
    Phone,
    Stranger,
    Wire,
    challenging,
    ended,
    is_up,
    pair,
)

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
        origin=CallOrigin(user="alice"),
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


LARGE = OFFER + "a=x-room:" + "x" * 1300 + "\r\n"


def sent(wire: Wire, method: str = "INVITE") -> list[Carried]:
    return wire.sent(method)


def transports(wire: Wire, method: str = "INVITE") -> list[str]:
    return [carried.to.transport for carried in sent(wire, method)]


def refusing_tcp(wire: Wire, caller: Phone) -> None:
    """Connections are refused: the message is lost, and that is reported."""

    def drop(carried: Carried) -> bool:
        if carried.to.transport != "tcp":
            return False
        refused.append(carried)
        return True

    refused: list[Carried] = []
    wire.drop = drop
    tick = wire.collect

    def collect() -> None:
        tick()
        while refused:
            caller.agent.transport_failed(refused.pop().to, wire.now)
            tick()

    wire.collect = collect  # type: ignore[method-assign]


def test_a_large_invite_goes_by_tcp_and_says_so() -> None:
    wire, caller, callee = pair()
    call = caller.call(callee, sdp=LARGE)
    wire.run(1.0)
    assert is_up(call)
    assert transports(wire) == ["tcp"]
    (invite,) = wire.requests("INVITE")
    assert invite.via.transport == "TCP"
    assert (invite.contact_uri or "").endswith(";transport=tcp")
    callee.calls[0].hang_up(wire.now)
    wire.run(1.0)
    assert call.state is CallState.ENDED
    assert transports(wire, "BYE") == ["tcp"]


def test_a_request_that_fits_goes_by_udp() -> None:
    wire, caller, callee = pair()
    caller.call(callee)
    wire.run(1.0)
    assert len(sent(wire)[0].data) <= 1300
    assert transports(wire) == ["udp"]


@pytest.mark.parametrize("over", [0, 1])
def test_the_limit_is_of_the_whole_message(over: int) -> None:
    wire, caller, callee = pair()
    caller.call(callee)
    wire.run(0.1)
    size = len(sent(wire)[0].data)
    other = Wire()
    caller, callee = (
        Phone(other, "10.0.0.1", udp_most_bytes=size - over),
        Phone(other, "10.0.0.2"),
    )
    caller.call(callee)
    other.run(0.1)
    assert transports(other)[0] == ("tcp" if over else "udp")


@pytest.mark.parametrize(
    "settings", [{"udp_most_bytes": 0}, {"transports": ("udp",)}], ids=["never", "no tcp"]
)
def test_where_tcp_is_not_to_be_used_it_goes_by_udp(settings: dict[str, Any]) -> None:
    wire = Wire()
    caller, callee = Phone(wire, "10.0.0.1", **settings), Phone(wire, "10.0.0.2")
    caller.call(callee, sdp=LARGE)
    wire.run(1.0)
    assert transports(wire) == ["udp"]


def test_a_target_that_names_udp_gets_udp() -> None:
    wire, caller, callee = pair()
    caller.call(f"{callee.uri};transport=udp", sdp=LARGE)
    wire.run(1.0)
    assert transports(wire) == ["udp"]


def test_where_the_connection_is_refused_it_goes_by_udp_after_all() -> None:
    wire, caller, callee = pair()
    refusing_tcp(wire, caller)
    call = caller.call(callee, sdp=LARGE)
    wire.run(1.0)
    assert call.state is CallState.UP
    assert transports(wire) == ["tcp", "udp"]
    first, second = wire.requests("INVITE")
    assert (second.via.transport, second.cseq) == ("UDP", first.cseq)
    assert second.branch != first.branch
    assert "transport" not in (second.contact_uri or "")
    # What is known to be refused is not tried at each call.
    call.hang_up(wire.now)
    wire.run(1.0)
    caller.call(callee, sdp=LARGE)
    wire.run(1.0)
    assert transports(wire) == ["tcp", "udp", "udp"]


def test_credentials_that_make_it_large_move_it_to_tcp() -> None:
    wire = Wire()
    caller, stranger = Phone(wire, "10.0.0.1"), Stranger(wire)
    challenging(stranger, (407, CHALLENGE))
    sdp = OFFER + "a=x-room:" + "x" * 450 + "\r\n"
    call = caller.call(stranger, digest=Digest("me", "secret"), sdp=sdp)
    wire.run(1.0)
    assert call.state is CallState.UP
    assert transports(wire) == ["udp", "tcp"]
    assert [invite.cseq for invite in wire.requests("INVITE")] == [1, 2]


def test_a_cancel_goes_the_way_of_its_invite() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    call = caller.call(callee, sdp=LARGE)
    wire.run(0.5)
    call.hang_up(wire.now)
    wire.run(1.0)
    assert transports(wire, "CANCEL") == ["tcp"]
    assert call.state is CallState.ENDED


def test_a_large_change_goes_by_tcp_and_the_hang_up_by_udp() -> None:
    wire, caller, callee = pair()
    call = caller.call(callee)
    wire.run(1.0)
    call.modification.start(LARGE, lambda got: None, wire.now)
    wire.run(0.2)
    assert transports(wire) == ["udp", "tcp"]
    assert isinstance(sent(wire)[1].message, Request)


@pytest.mark.parametrize("status", [503, 500, 486])
def test_a_server_that_refuses_by_tcp_is_not_asked_again_by_udp(status: int) -> None:
    wire = Wire()
    caller, stranger = Phone(wire, "10.0.0.1"), Stranger(wire)

    def refuse(request: Request) -> list[Response]:
        return [reply(request, status, to_tag="x")] if request.method == "INVITE" else []

    stranger.respond = refuse
    call = caller.call(stranger, sdp=LARGE)
    wire.run(1.0)
    assert call.state is CallState.ENDED
    assert transports(wire) == ["tcp"]


@pytest.mark.parametrize("host", ["192.168.100.200", "2001:db8:1234:5678:9abc:def0:1234:5678"])
@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        pytest.param({}, True, id="default"),
        pytest.param({"codecs": ("PCMU", "PCMA", "G722", "opus")}, True, id="four codecs"),
        pytest.param(
            {"codecs": ("PCMU", "PCMA", "G722", "opus"), "srtp": "require"}, False, id="srtp"
        ),
    ],
)
def test_which_of_our_invites_fit_a_datagram(
    host: str, fields: dict[str, object], fits: bool
) -> None:
    """With four codecs and keys for four suites they do not."""
    wire = Wire()
    caller = Phone(wire, host)
    sdp = SdpSession(host, 40000, SdpOptions(**fields)).offer()  # type: ignore[arg-type]
    call = caller.agent.place("sip:+4930987654321@sip.provider.example.com", sdp, wire.now)
    assert isinstance(call, OutgoingCall)
    assert (call.hop.transport == "udp") is fits


def test_the_setting_is_checked() -> None:
    with pytest.raises(ValueError, match="udp_most_bytes"):
        SipSettings(udp_most_bytes=-1)


@pytest.mark.network
@pytest.mark.parametrize("theirs", [("udp", "tcp"), ("udp",)], ids=["both", "udp alone"])
async def test_real_endpoints_with_and_without_tcp(theirs: tuple[str, ...]) -> None:
    large = session().offer() + "a=x-room:" + "x" * 1300 + "\r\n"
    async with (
        SipEndpoint(SipSettings(timers=QUICK, transports=theirs)) as callee,
        SipEndpoint(SipSettings(timers=QUICK)) as caller,
    ):
        task = asyncio.create_task(answer_all(callee, []))
        call = await caller.place(f"sip:x@127.0.0.1:{callee.port}", large)
        await asyncio.wait_for(call.answered(), 5)
        assert isinstance(call.core, OutgoingCall)
        assert call.core.hop.transport == theirs[-1]
        await asyncio.wait_for(call.bye(), 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.network
async def test_a_name_whose_server_has_no_tcp_is_called_by_udp() -> None:
    large = session().offer() + "a=x-room:" + "x" * 1300 + "\r\n"
    async with SipEndpoint(SipSettings(timers=QUICK, transports=("udp",))) as callee:
        task = asyncio.create_task(answer_all(callee, []))
        domains = Domains(hosts={"pbx.example": ("127.0.0.1",)})
        locator = Locator(lambda: 0.0, records=domains)
        async with SipEndpoint(SipSettings(timers=QUICK), locator=locator) as caller:
            call = await caller.place(f"sip:x@pbx.example:{callee.port}", large)
            await asyncio.wait_for(call.answered(), 5)
            await asyncio.wait_for(call.bye(), 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
