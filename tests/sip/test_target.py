"""Where requests of a call go: the Contact of the far end, and how a change moves it."""

from __future__ import annotations

import pytest

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.call.state import CallState, ReinviteReceived
from qwen3tts_phone.sip.message.message import Request, Response, reply
from tests.sip.wire import ANSWER, OFFER, Stranger, pair, request, stranger_up


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
