"""Where requests of a call go: the Contact of the far end, and how a change moves it."""

from __future__ import annotations

from typing import Any

import pytest

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.call.state import CallState, ReinviteReceived
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.message.network import Hop, address_of, in_networks, networks, site_of
from tests.sip.wire import ANSWER, OFFER, Carried, Phone, Stranger, Wire, pair, request, stranger_up


def test_a_new_contact_in_a_change_moves_where_our_requests_go() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    again = request("INVITE", callee, branch="z9hG4bKr", cseq=2, to_tag=tag, sdp=OFFER)
    again.replace("Contact", "<sip:moved@10.0.0.44:5062>")
    stranger.send(again, callee)
    wire.run(0.1)
    event = callee.events[-1]
    assert isinstance(event, ReinviteReceived)
    event.respond(ANSWER)
    ack = request("ACK", callee, branch="z9hG4bKs", cseq=2, to_tag=tag)
    stranger.send(ack, callee)
    wire.run(0.1)
    callee.calls[0].bye(wire.now)
    wire.run(0.1)
    (bye,) = wire.sent("BYE")
    assert (bye.to.host, bye.to.port) == ("10.0.0.44", 5062)


@pytest.mark.parametrize(
    "contact", ["<tel:+49123>", "<sips:x@10.0.0.9>", "<sip:x@10.0.0.9;transport=tls>", "garbage <"]
)
def test_a_new_contact_of_no_use_in_an_answer_leaves_the_old_one(contact: str) -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def answer(request: Request) -> list[Response]:
        response = reply(request, 200, to_tag="x")
        if request.method == "INVITE":
            first = request.to.tag is None
            response.add("Contact", "<sip:x@10.0.0.9:5060>" if first else contact)
            response.set_body(ANSWER)
        return [] if request.method == "ACK" else [response]

    stranger.respond = answer
    call = caller.call(stranger)
    wire.run(1.0)
    got: list[str | CallError] = []
    call.modification.start(OFFER, got.append, wire.now)
    wire.run(1.0)
    assert got == [ANSWER]
    assert wire.story().count("ACK") == 2
    call.hang_up(wire.now)
    wire.run(1.0)
    assert call.state is CallState.ENDED


def test_behind_a_proxy_a_new_contact_may_be_what_only_the_proxy_can_reach() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee, extra=(("Record-Route", "<sip:10.0.0.9;lr>"),))
    again = request("INVITE", callee, branch="z9hG4bKr", cseq=2, to_tag=tag, sdp=OFFER)
    again.replace("Contact", "<sips:moved@10.0.0.44>")
    stranger.send(again, callee)
    wire.run(0.1)
    assert isinstance(callee.events[-1], ReinviteReceived)


@pytest.mark.parametrize(
    ("host", "network", "inside"),
    [
        ("192.0.2.7", "192.0.2.0/24", True),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.3.7", "192.0.2.0/24", False),
        ("::ffff:192.0.2.7", "192.0.2.0/24", True),
        ("[2001:db8::7]", "2001:db8::/32", True),
        ("fe80::1%eth0", "fe80::/10", True),
        ("2001:db8::7", "192.0.2.0/24", False),
        ("pbx.example.org", "0.0.0.0/0", False),
    ],
)
def test_an_address_is_in_a_network_or_not(host: str, network: str, inside: bool) -> None:
    assert in_networks(address_of(host), networks((network,))) is inside


def test_one_customer_of_ipv6_is_one_source() -> None:
    assert site_of("2001:db8:0:1::7") == site_of("2001:db8:0:1:ffff::8") != site_of("2001:db8::7")
    assert site_of("::ffff:192.0.2.7") == site_of("192.0.2.7") != site_of("192.0.2.8")


@pytest.mark.parametrize("text", ["", "pbx.example.org", "192.0.2.0/33", "192.0.2"])
def test_what_is_no_network_is_refused_with_the_settings_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"^allow: "):
        networks((text,), "allow")


PUBLIC = "203.0.113.9"
OURS = "198.51.100.1"
OUTSIDE = Hop("udp", PUBLIC, 41000)


def called(
    contact: str,
    *,
    source: Hop = OUTSIDE,
    via: str = "192.168.1.7:5060;rport",
    extra: tuple[tuple[str, str], ...] = (),
    **settings: Any,
) -> Wire:
    """A call that came in from ``source`` with a Contact, up; we change it and hang up."""
    wire = Wire()
    callee = Phone(wire, OURS, **settings)
    invite = from_peer("INVITE", callee, contact, via, cseq=1, extra=extra)
    wire.put(bytes(invite), source, callee.hop(source.transport))
    wire.run(0.2)
    call = callee.calls[0]
    tag = call.dialog.local_tag if call.dialog is not None else ""
    ack = from_peer("ACK", callee, contact, via, cseq=1, to_tag=tag)
    wire.put(bytes(ack), source, callee.hop(source.transport))
    wire.run(0.2)
    assert call.state is CallState.UP
    call.hang_up(wire.now)
    wire.run(0.1)
    return wire


def from_peer(
    method: str,
    callee: Phone,
    contact: str,
    via: str,
    *,
    cseq: int,
    to_tag: str = "",
    extra: tuple[tuple[str, str], ...] = (),
) -> Request:
    branch = f"z9hG4bK{method}{cseq}"
    message = request(
        method,
        callee,
        via=f"SIP/2.0/UDP {via};branch={branch}",
        cseq=cseq,
        to_tag=to_tag,
        sdp=OFFER if method == "INVITE" else None,
        extra=extra,
    )
    message.replace("Contact", f"<{contact}>")
    return message


def bye_of(wire: Wire) -> Carried:
    return wire.sent("BYE")[0]


def where(carried: Carried) -> tuple[str, str, int]:
    return (carried.to.transport, carried.to.host, carried.to.port)


def uri_of(carried: Carried) -> str:
    assert isinstance(carried.message, Request)
    return carried.message.uri


@pytest.mark.parametrize(
    "host",
    [
        *("192.168.1.7", "10.1.2.3", "172.16.5.5", "100.64.0.9", "127.0.0.1", "0.0.0.0"),
        *("169.254.1.1", "[fe80::1]", "[fd00::7]", "[::1]"),
    ],
)
def test_a_caller_behind_a_nat_is_hung_up_on_where_its_invite_came_from(host: str) -> None:
    bye = bye_of(called(f"sip:phone@{host}:5060"))
    assert where(bye) == ("udp", PUBLIC, 41000)
    assert uri_of(bye) == f"sip:phone@{host}:5060"


def test_a_contact_for_tcp_behind_a_nat_is_reached_as_its_invite_came() -> None:
    assert where(bye_of(called("sip:phone@10.1.2.3;transport=tcp"))) == ("udp", PUBLIC, 41000)


@pytest.mark.parametrize(
    ("contact", "there"),
    [
        ("sip:phone@203.0.113.44:5062", ("203.0.113.44", 5062)),
        ("sip:phone@pbx.example:5062", ("pbx.example", 5062)),
    ],
)
def test_a_contact_that_others_can_reach_is_believed(contact: str, there: tuple[str, int]) -> None:
    assert where(bye_of(called(contact)))[1:] == there


def test_within_one_network_a_private_contact_is_believed() -> None:
    source = Hop("udp", "192.168.1.1", 5060)
    assert where(bye_of(called("sip:phone@192.168.1.7:5062", source=source))) == (
        *("udp", "192.168.1.7", 5062),
    )


def test_a_contact_of_ones_own_machine_is_no_address_of_ours() -> None:
    """No host in our network may aim our requests at our own machine."""
    source = Hop("udp", "192.168.1.7", 5080)
    assert where(bye_of(called("sip:phone@127.0.0.1:5062", source=source))) == (
        *("udp", "192.168.1.7", 5080),
    )


def test_it_can_be_turned_off() -> None:
    wire = called("sip:phone@10.1.2.3:5062", nat_contacts=False)
    assert where(bye_of(wire)) == ("udp", "10.1.2.3", 5062)


def test_a_route_goes_before_where_the_invite_came_from() -> None:
    route = (("Record-Route", "<sip:203.0.113.77:5070;lr>"),)
    wire = called("sip:phone@10.1.2.3:5062", extra=route)
    assert where(bye_of(wire)) == ("udp", "203.0.113.77", 5070)


def test_a_public_contact_with_a_port_that_a_nat_has_changed() -> None:
    """The phone has learnt its host, but not the port of this flow (RFC 3581)."""
    assert where(bye_of(called(f"sip:phone@{PUBLIC}:5060")))[2] == 41000


@pytest.mark.parametrize(
    "via",
    [
        pytest.param(f"{PUBLIC}:5060;rport", id="not behind a NAT"),
        pytest.param("192.168.1.7:41000", id="rport was not asked for"),
    ],
)
def test_without_a_nat_another_port_in_the_contact_is_believed(via: str) -> None:
    wire = Wire()
    callee = Phone(wire, OURS)
    invite = from_peer("INVITE", callee, f"sip:phone@{PUBLIC}:5060", via, cseq=1)
    wire.put(bytes(invite), OUTSIDE, callee.hop())
    wire.run(0.2)
    call = callee.calls[0]
    assert call.dialog is not None
    assert call.agent.in_dialog_hop(call.dialog).port == 5060


def test_a_call_by_a_connection_whose_contact_says_udp_stays_on_the_connection() -> None:
    source = Hop("tcp", PUBLIC, 41000, flow=7)
    bye = bye_of(called("sip:phone@10.1.2.3:5062", source=source, via="10.1.2.3:5062"))
    assert (bye.to.transport, bye.to.flow, bye.to.by_flow) == ("tcp", 7, True)


def test_a_change_that_comes_from_another_port_moves_where_our_requests_go() -> None:
    wire = Wire()
    callee = Phone(wire, OURS)
    contact, via = "sip:phone@10.1.2.3:5062", "10.1.2.3:5062;rport"
    before, after = OUTSIDE, Hop("udp", PUBLIC, 42000)
    wire.put(
        bytes(from_peer("INVITE", callee, contact, via, cseq=1)),
        before,
        callee.hop(),
    )
    wire.run(0.2)
    call = callee.calls[0]
    assert call.dialog is not None
    tag = call.dialog.local_tag
    ack = from_peer("ACK", callee, contact, via, cseq=1, to_tag=tag)
    wire.put(bytes(ack), before, callee.hop())
    wire.run(0.2)
    again = from_peer("INVITE", callee, contact, via, cseq=2, to_tag=tag)
    wire.put(bytes(again), after, callee.hop())
    wire.run(0.2)
    call.hang_up(wire.now)
    wire.run(0.1)
    assert where(bye_of(wire)) == ("udp", PUBLIC, 42000)


def placed(contact: str, **settings: Any) -> Wire:
    """A call of ours to a public peer, which answers with a Contact; changed, asked, hung up."""
    wire = Wire()
    caller = Phone(wire, OURS, **settings)
    peer = Stranger(wire, PUBLIC, 5060)

    def answer(message: Request) -> list[Response]:
        if message.method == "ACK":
            return []
        response = reply(message, 200, to_tag="x")
        response.add("Contact", f"<{contact}>")
        response.set_body(ANSWER if message.method == "INVITE" else None)
        return [response]

    peer.respond = answer
    call = caller.call(peer)
    wire.run(0.2)
    assert call.state is CallState.UP
    call.modification.start(OFFER, lambda got: None, wire.now)
    wire.run(0.2)
    call.hang_up(wire.now)
    wire.run(0.2)
    assert not caller.agent.calls
    return wire


def test_a_callee_behind_a_nat_gets_acks_and_changes_where_its_answer_came_from() -> None:
    wire = placed("sip:phone@192.168.1.7:5062")
    inside = [*wire.sent("ACK"), wire.sent("INVITE")[1], *wire.sent("BYE")]
    assert len(inside) == 4
    for carried in inside:
        assert where(carried) == ("udp", PUBLIC, 5060)
        assert uri_of(carried) == "sip:phone@192.168.1.7:5062"


def test_an_answer_of_another_branch_is_hung_up_on_where_it_came_from() -> None:
    wire = Wire()
    caller = Phone(wire, OURS)
    peer = Stranger(wire, PUBLIC, 5060)

    def answer(message: Request) -> list[Response]:
        if message.method != "INVITE":
            return []
        answers = []
        for tag in ("x", "y"):
            response = reply(message, 200, to_tag=tag)
            response.add("Contact", f"<sip:{tag}@10.1.2.3:5062>")
            response.set_body(ANSWER)
            answers.append(response)
        return answers

    peer.respond = answer
    caller.call(peer)
    wire.run(0.2)
    assert {where(c)[1:] for c in (*wire.sent("ACK"), *wire.sent("BYE"))} == {(PUBLIC, 5060)}
    assert uri_of(bye_of(wire)) == "sip:y@10.1.2.3:5062"


def test_a_callee_with_a_public_contact_is_asked_there() -> None:
    wire = Wire()
    caller = Phone(wire, OURS)
    peer = Stranger(wire, PUBLIC, 5060)

    def answer(message: Request) -> list[Response]:
        response = reply(message, 200, to_tag="x")
        response.add("Contact", "<sip:phone@203.0.113.44:5062>")
        response.set_body(ANSWER)
        return [response] if message.method == "INVITE" else []

    peer.respond = answer
    caller.call(peer)
    wire.run(0.2)
    assert where(wire.sent("ACK")[0]) == ("udp", "203.0.113.44", 5062)


def test_a_secure_contact_is_never_asked_in_the_clear() -> None:
    wire = Wire()
    callee = Phone(wire, OURS)
    invite = from_peer("INVITE", callee, "sips:phone@10.1.2.3", "10.1.2.3;rport", cseq=1)
    wire.put(bytes(invite), OUTSIDE, callee.hop())
    wire.run(0.2)
    assert not callee.calls
    assert wire.story() == ["INVITE", "400 INVITE"]
