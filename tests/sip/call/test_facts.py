"""What must be right in SIP signalling, one line a test."""

from __future__ import annotations

import pytest

from qwen3tts_phone.errors import CallRefused
from qwen3tts_phone.sip.call.state import CallState, Ended
from qwen3tts_phone.sip.message.message import Request, Response, parse_message, reply
from qwen3tts_phone.sip.transaction.digest import Digest
from tests.sip.wire import (
    ANSWER,
    CHALLENGE,
    OFFER,
    Stranger,
    Wire,
    challenging,
    lose,
    pair,
    request,
)

# What must be right


def test_a_repeated_invite_is_answered_with_the_same_200() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invite = request("INVITE", callee, sdp=OFFER)
    stranger.send(invite, callee)
    wire.run(0.1)
    stranger.send(invite, callee)
    wire.run(0.1)
    okays = wire.sent("200 INVITE")
    assert len(okays) == 2
    assert okays[0].data == okays[1].data
    assert len(callee.calls) == 1


def proxied(wire: Wire) -> tuple[Stranger, list[str]]:
    """A callee whose answers have come through three proxies."""
    stranger = Stranger(wire)
    routes = ["<sip:10.0.0.9;lr;n=3>", "<sip:10.0.0.9:5060;lr;n=2>", "<sip:10.0.0.9;lr;n=1>"]

    def answer(request: Request) -> list[Response]:
        if request.method == "ACK":
            return []
        response = reply(request, 200, to_tag="x")
        if request.method == "INVITE":
            response.headers.add("Record-Route", f"{routes[0]}, {routes[1]}")
            response.headers.add("Record-Route", routes[2])
            response.add("Contact", "<sip:bob@192.0.2.77:5099>")
            response.set_body(ANSWER)
        return [response]

    stranger.respond = answer
    return stranger, list(reversed(routes))


def test_the_ack_to_a_2xx_is_its_own_transaction_along_the_route_set() -> None:
    wire, caller, _ = pair()
    stranger, routes = proxied(wire)
    caller.call(stranger)
    wire.run(0.5)
    (invite,), (ack,) = wire.requests("INVITE"), wire.requests("ACK")
    assert ack.branch != invite.branch
    assert ack.cseq == invite.cseq
    assert ack.uri == "sip:bob@192.0.2.77:5099"
    assert ack.headers.getlist("Route") == routes
    assert wire.sent("ACK")[0].to.host == "10.0.0.9"


def test_the_order_of_record_route_is_reversed_at_the_caller() -> None:
    wire, caller, _ = pair()
    stranger, routes = proxied(wire)
    call = caller.call(stranger)
    wire.run(0.5)
    call.bye(wire.now)
    wire.run(0.5)
    (bye,) = wire.requests("BYE")
    assert bye.headers.getlist("Route") == routes
    assert bye.uri == "sip:bob@192.0.2.77:5099"
    assert isinstance(caller.events[-1], Ended)


def test_the_order_of_record_route_is_kept_at_the_callee() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    routes = ("<sip:10.0.0.9;lr;n=1>", "<sip:10.0.0.9;lr;n=2>")
    extra = tuple(("Record-Route", route) for route in routes)
    stranger.send(request("INVITE", callee, sdp=OFFER, extra=extra), callee)
    wire.run(0.2)
    okay = stranger.got[-1]
    assert okay.headers.getlist("Record-Route") == list(routes)
    ack = request("ACK", callee, branch="z9hG4bKa", to_tag=okay.to.tag or "")
    stranger.send(ack, callee)
    wire.run(0.2)
    callee.calls[0].bye(wire.now)
    wire.run(0.2)
    (bye,) = wire.requests("BYE")
    assert bye.headers.getlist("Route") == list(routes)


def test_a_strict_router_gets_its_own_address_as_the_request_uri() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    extra = (("Record-Route", "<sip:10.0.0.9>"), ("Record-Route", "<sip:10.0.0.8;lr>"))
    stranger.send(request("INVITE", callee, sdp=OFFER, extra=extra), callee)
    wire.run(0.2)
    to_tag = stranger.got[-1].to.tag or ""
    stranger.send(request("ACK", callee, branch="z9hG4bKa", to_tag=to_tag), callee)
    wire.run(0.2)
    callee.calls[0].bye(wire.now)
    wire.run(0.2)
    (bye,) = wire.requests("BYE")
    assert bye.uri == "sip:10.0.0.9"
    assert bye.headers.getlist("Route") == ["<sip:10.0.0.8;lr>", "<sip:stranger@10.0.0.9:5060>"]


def test_rport_is_in_every_via_of_ours() -> None:
    wire, caller, callee = pair()
    call = caller.call(callee)
    wire.run(0.5)
    call.bye(wire.now)
    wire.run(0.5)
    for method in ("INVITE", "ACK", "BYE"):
        (sent,) = wire.requests(method)
        # Parsed after the send: the receiver stamps its own copy.
        assert ";rport" in sent.values("Via")[0]


def test_the_answer_goes_where_the_request_came_from_and_says_so() -> None:
    """RFC 3581: Via names a private address, the packet came from another, behind a NAT."""
    wire, _, callee = pair()
    stranger = Stranger(wire, "198.51.100.7", 40123)
    via = "SIP/2.0/UDP 192.168.1.5:5060;branch=z9hG4bKnat;rport"
    stranger.send(request("OPTIONS", callee, via=via), callee)
    wire.run(0.2)
    assert stranger.statuses() == [200]
    said = stranger.got[0].values("Via")[0]
    assert ";rport=40123" in said
    assert ";received=198.51.100.7" in said


def test_without_rport_the_answer_goes_to_the_port_of_via() -> None:
    """RFC 3261 section 18.2.2."""
    wire, _, callee = pair()
    there = Stranger(wire, "10.0.0.9", 5070)
    via = "SIP/2.0/UDP 10.0.0.9:5070;branch=z9hG4bKold"
    Stranger(wire, "10.0.0.9", 40000).send(request("OPTIONS", callee, via=via), callee)
    wire.run(0.2)
    assert there.statuses() == [200]


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_contact_and_via_name_the_transport(transport: str) -> None:
    wire, caller, callee = pair()
    caller.call(f"{callee.uri};transport={transport}")
    wire.run(0.5)
    (invite,) = wire.requests("INVITE")
    assert invite.values("Via")[0].startswith(f"SIP/2.0/{transport.upper()} 10.0.0.1:5060")
    contact = invite.contact
    assert contact is not None
    assert (";transport=tcp" in contact.uri) == (transport == "tcp")
    (ack,) = wire.requests("ACK")
    assert ack.values("Via")[0].startswith(f"SIP/2.0/{transport.upper()} ")


@pytest.mark.parametrize(
    ("status", "header"), [(401, "Authorization"), (407, "Proxy-Authorization")]
)
def test_a_challenge_with_qop_is_answered_by_a_new_transaction(status: int, header: str) -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    challenging(stranger, (status, CHALLENGE))
    call = caller.call(stranger, digest=Digest("alice", "secret"))
    wire.run(1.0)
    assert call.state is CallState.UP
    one, two = wire.requests("INVITE")
    assert (one.cseq, two.cseq) == (1, 2)
    assert one.branch != two.branch
    assert (one.call_id, one.require("From")) == (two.call_id, two.require("From"))
    assert "qop=auth, nc=00000001" in two.require(header)


def test_a_stale_nonce_is_replaced_without_blaming_the_password() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    challenging(stranger, (401, CHALLENGE), (401, CHALLENGE.replace("n1", "n2") + ", stale=true"))
    call = caller.call(stranger, digest=Digest("alice", "secret"))
    wire.run(1.0)
    assert call.state is CallState.UP
    assert 'nonce="n2"' in wire.requests("INVITE")[2].require("Authorization")


def test_a_wrong_password_is_tried_once_only() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    challenging(stranger, *[(401, CHALLENGE.replace("n1", f"n{n}")) for n in range(9)])
    caller.call(stranger, digest=Digest("alice", "wrong"))
    wire.run(60.0)
    assert len(wire.requests("INVITE")) == 2
    event = caller.events[-1]
    assert isinstance(event, Ended)
    assert isinstance(event.error, CallRefused)
    assert "password" in event.error.remedy


def test_a_server_that_says_stale_for_ever_is_given_up() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    stale = [(401, CHALLENGE.replace("n1", f"n{n}") + ", stale=true") for n in range(50)]
    challenging(stranger, *stale)
    caller.call(stranger, digest=Digest("alice", "secret"))
    wire.run(60.0)
    assert len(wire.requests("INVITE")) == 4
    assert isinstance(caller.events[-1], Ended)


def test_a_proxy_and_a_server_may_both_ask() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    challenging(stranger, (407, CHALLENGE), (401, CHALLENGE.replace("test", "other")))
    call = caller.call(stranger, digest=Digest("alice", "secret"))
    wire.run(1.0)
    assert call.state is CallState.UP
    last = wire.requests("INVITE")[-1]
    assert last.get("Authorization") is not None
    assert last.get("Proxy-Authorization") is not None


def test_options_are_answered_with_what_we_can() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    stranger.send(request("OPTIONS", callee), callee)
    wire.run(0.2)
    (answer,) = stranger.got
    assert isinstance(answer, Response)
    assert answer.status == 200
    assert answer.get("Accept") == "application/sdp"
    assert "INVITE" in (answer.get("Allow") or "")
    assert answer.to.tag


COMPACT = (
    b"INVITE sip:phone@10.0.0.2:5060 SIP/2.0\r\n"
    b"v: SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bKc;rport\r\n"
    b'f: "Telnyx, Inc." <sip:+15550100@10.0.0.9>\r\n'
    b" ;tag=abc\r\n"
    b"t: <sip:phone@10.0.0.2:5060>\r\n"
    b"i: compact@10.0.0.9\r\n"
    b"CSeq: 1\t INVITE\r\n"
    b"m: <sip:+15550100@10.0.0.9:5060>\r\n"
    b"Max-Forwards : 60\r\n"
    b"k: timer, 100rel\r\n"
    b"c: application/sdp\r\n\r\n" + OFFER.encode()
)


def test_compact_headers_folding_and_a_missing_content_length_are_accepted() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    stranger.send(COMPACT, callee)
    wire.run(0.2)
    assert stranger.statuses() == [100, 180, 200]
    assert callee.calls[0].offer == OFFER
    assert callee.calls[0].remote_uri == "sip:+15550100@10.0.0.9"


# Reliability of the 200


def test_a_lost_ack_is_sent_again_for_each_repeated_200() -> None:
    wire, caller, callee = pair()
    lose(wire, "ACK", "ACK", "ACK")
    call = caller.call(callee)
    wire.run(10.0)
    assert len(wire.sent("200 INVITE")) == 4
    acks = wire.sent("ACK")
    assert len(acks) == 4
    assert len({ack.data for ack in acks}) == 1
    assert call.state is CallState.UP
    assert callee.calls[0].state is CallState.UP


def test_a_200_without_ack_is_repeated_up_to_every_four_seconds_and_then_hung_up() -> None:
    wire, caller, callee = pair()
    wire.drop = lambda carried: carried.what == "ACK"
    caller.call(callee)
    start = wire.now
    wire.run(33.0)
    times = [round(c.at - start, 1) for c in wire.sent("200 INVITE")]
    assert times == [0.0, 0.5, 1.5, 3.5, 7.5, 11.5, 15.5, 19.5, 23.5, 27.5, 31.5]
    assert "BYE" in wire.story()
    event = callee.events[-1]
    assert isinstance(event, Ended)
    assert event.by == "timeout"
    assert "advertised_host" in str(event.error)
    assert not callee.agent.calls


def test_the_callee_hangs_up_only_after_the_ack() -> None:
    """RFC 3261 section 15.1.1."""
    wire, caller, callee = pair()
    lose(wire, "ACK")
    caller.call(callee)
    wire.until(lambda: bool(callee.calls))
    callee.calls[0].bye(wire.now)
    wire.run(0.3)
    assert "BYE" not in wire.story()
    wire.run(5.0)
    story = wire.story()
    assert story.count("ACK") == 2
    assert story.index("BYE") > story.index("ACK")
    assert not callee.agent.calls


def test_messages_of_ours_can_be_read_by_our_own_parser() -> None:
    wire, caller, callee = pair()
    call = caller.call(callee)
    wire.run(1.0)
    call.bye(wire.now)
    wire.run(1.0)
    for carried in wire.carried:
        again = parse_message(carried.data)
        assert bytes(again) == carried.data
