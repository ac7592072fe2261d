"""Requests that a datagram has no room for go by TCP (RFC 3261 section 18.1.1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.sip import SipEndpoint, SipSettings
from qwen3tts_phone.sip.call.outgoing import OutgoingCall
from qwen3tts_phone.sip.call.state import CallState
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.transport.locator import Locator
from tests.sip.name_server import Domains
from tests.sip.phones import QUICK, answer_all, session
from tests.sip.wire import (
    CHALLENGE,
    OFFER,
    Carried,
    Phone,
    Stranger,
    Wire,
    challenging,
    is_up,
    pair,
)

LARGE = OFFER + "a=x-room:" + "x" * 1300 + "\r\n"


def sent(wire: Wire, method: str = "INVITE") -> list[Carried]:
    return wire.sent(method)


def transports(wire: Wire, method: str = "INVITE") -> list[str]:
    return [carried.to.transport for carried in sent(wire, method)]


def refusing_tcp(wire: Wire, caller: Phone) -> None:
    """Connections are refused: the message is lost, and the caller is told."""

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
    sdp = SdpSession(host, 40000, **fields).offer()  # type: ignore[arg-type]
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
