"""Session modification as tables: (state, incoming, expected response, next state)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qwen3tts_phone.errors import CalleeUnreachable, CallError, CallRefused
from qwen3tts_phone.sip.call.modification import Method
from qwen3tts_phone.sip.call.state import CallState, ReinviteReceived
from qwen3tts_phone.sip.message.message import Request
from tests.sip.wire import (
    ANSWER,
    EARLY,
    OFFER,
    Phone,
    Stranger,
    ended,
    invited,
    pair,
    provisional,
    request,
    ringing,
    stranger_up,
    up,
)

METHODS: tuple[Method, ...] = ("INVITE", "UPDATE")


class Far:
    """A far end, written by hand, that has brought a callee into a state."""

    def __init__(self, state: str) -> None:
        self.wire, _, self.callee = pair()
        self.stranger = Stranger(self.wire)
        self.tag = ""
        self.cseq = 1
        STATES[state](self)

    def ring(self, *, offer: str | None = OFFER, sdp: str | None = None) -> None:
        invited(self.stranger, self.callee, sdp=offer)
        ringing(self.callee, sdp)
        self.wire.run(0.1)
        self.tag = provisional(self.stranger).to.tag or ""

    def up(self) -> None:
        self.tag = stranger_up(self.wire, self.stranger, self.callee)

    def send(self, method: str, sdp: str | None = OFFER) -> None:
        self.cseq += 1
        message = self.request(method, sdp)
        self.stranger.send(message, self.callee)
        self.wire.run(0.1)

    def request(self, method: str, sdp: str | None) -> Request:
        extra: tuple[tuple[str, str], ...] = ()
        if method == "PRACK":
            rung = provisional(self.stranger)
            extra = (("RAck", f"{rung.get('RSeq')} {rung.cseq} INVITE"),)
        return request(
            method,
            self.callee,
            branch=f"z9hG4bKf{self.cseq}",
            cseq=self.cseq,
            to_tag=self.tag,
            sdp=sdp,
            extra=extra,
        )

    def respond(self, sdp: str = ANSWER) -> None:
        event = self.callee.events[-1]
        assert isinstance(event, ReinviteReceived)
        event.respond(sdp)
        self.wire.run(0.1)


def _reinvite_unanswered(far: Far) -> None:
    far.up()
    far.send("INVITE")


def _reinvite_unacknowledged(far: Far) -> None:
    _reinvite_unanswered(far)
    far.respond()


def _our_offer_unanswered(far: Far) -> None:
    far.up()
    far.send("INVITE", None)
    far.respond()


def _update_unanswered(far: Far) -> None:
    far.up()
    far.send("UPDATE")


def _bye_sent(far: Far) -> None:
    far.up()
    far.callee.calls[0].hang_up(far.wire.now)


STATES: dict[str, Callable[[Far], None]] = {
    "ringing, their offer open": Far.ring,
    "ringing, our offer open": lambda far: far.ring(offer=None, sdp=EARLY),
    "re-INVITE unanswered": _reinvite_unanswered,
    "re-INVITE unacknowledged": _reinvite_unacknowledged,
    "our offer in a 200 unanswered": _our_offer_unanswered,
    "UPDATE unanswered": _update_unanswered,
    "BYE sent": _bye_sent,
}

U, R, G = CallState.UP, CallState.RINGING, CallState.ENDING


@pytest.mark.parametrize(
    ("state", "incoming", "sdp", "status", "next_state"),
    [
        # RFC 3261 section 14.2, RFC 3311 section 5.2, RFC 3262 section 5.
        ("ringing, their offer open", "INVITE", OFFER, 500, R),
        ("ringing, their offer open", "UPDATE", OFFER, 500, R),
        ("ringing, their offer open", "PRACK", OFFER, 500, R),
        ("ringing, our offer open", "INVITE", OFFER, 500, R),
        ("ringing, our offer open", "UPDATE", OFFER, 491, R),
        ("re-INVITE unanswered", "INVITE", OFFER, 500, U),
        ("re-INVITE unanswered", "UPDATE", OFFER, 500, U),
        ("re-INVITE unanswered", "UPDATE", None, 200, U),
        ("re-INVITE unacknowledged", "UPDATE", OFFER, 500, U),
        ("re-INVITE unacknowledged", "UPDATE", None, 200, U),
        ("our offer in a 200 unanswered", "UPDATE", OFFER, 491, U),
        ("UPDATE unanswered", "UPDATE", OFFER, 500, U),
        ("UPDATE unanswered", "INVITE", OFFER, 500, U),
        ("UPDATE unanswered", "UPDATE", None, 200, U),
        ("BYE sent", "INVITE", OFFER, 481, G),
        ("BYE sent", "UPDATE", OFFER, 481, G),
    ],
)
def test_an_offer_of_theirs_in_a_state(
    state: str, incoming: str, sdp: str | None, status: int, next_state: CallState
) -> None:
    far = Far(state)
    far.send(incoming, sdp)
    assert far.stranger.statuses()[-1] == status
    if status == 500:
        assert 0 <= int(far.stranger.got[-1].require("Retry-After")) <= 10
    assert far.callee.calls[0].state is next_state


@pytest.mark.parametrize("state", ["re-INVITE unanswered", "UPDATE unanswered"])
def test_after_the_answer_the_next_offer_is_taken(state: str) -> None:
    far = Far(state)
    far.send("UPDATE")
    assert far.stranger.statuses()[-1] == 500
    asked = next(e for e in far.callee.events[::-1] if isinstance(e, ReinviteReceived))
    asked.respond(ANSWER)
    far.wire.run(0.1)
    if asked.method == "INVITE":
        ack = request("ACK", far.callee, branch="z9hG4bKa", cseq=2, to_tag=far.tag)
        far.stranger.send(ack, far.callee)
        far.wire.run(0.1)
    far.send("UPDATE")
    far.respond()
    assert far.stranger.statuses()[-1] == 200


def _changed(method: Method) -> tuple[Phone, Phone, list[str | CallError]]:
    """Our change of a call that is up, which the callee's owner has not answered."""
    wire, caller, callee = pair()
    up(wire, caller, callee)
    got: list[str | CallError] = []
    (call,) = caller.agent.calls
    call.modification.start("v=0 hold", got.append, wire.now, method)
    wire.run(0.1)
    return caller, callee, got


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("status", "next_state", "by"),
    [
        (403, CallState.UP, ""),
        (405, CallState.UP, ""),
        (488, CallState.UP, ""),
        (500, CallState.UP, ""),
        # RFC 3261 section 12.2.1.2: the dialog is gone.
        (408, CallState.ENDED, "error"),
        (481, CallState.ENDED, "error"),
    ],
)
def test_a_change_of_ours_that_is_refused(
    method: Method, status: int, next_state: CallState, by: str
) -> None:
    caller, callee, got = _changed(method)
    (call,) = caller.agent.calls
    callee.calls[0].modification.refuse(status, caller.wire.now)
    caller.wire.run(5.0)
    assert isinstance(got[0], CallRefused)
    assert got[0].status == status
    assert call.state is next_state
    if by:
        assert ended(caller).by == by
        assert not caller.agent.calls
    else:
        assert callee.calls[0].state is CallState.UP
        assert callee.calls[0].local_sdp == ANSWER


@pytest.mark.parametrize("method", METHODS)
def test_a_change_of_ours_without_a_response_ends_the_call(method: Method) -> None:
    wire, caller, callee = pair()
    up(wire, caller, callee)
    wire.drop = lambda carried: True
    got: list[str | CallError] = []
    (call,) = caller.agent.calls
    call.modification.start("v=0 hold", got.append, wire.now, method)
    wire.run(70.0)
    assert isinstance(got[0], CalleeUnreachable)
    assert ended(caller).by == "error"
    assert not caller.agent.calls


@pytest.mark.parametrize(("method", "within_s"), [("INVITE", 31.0), ("UPDATE", 11.0)])
def test_a_change_that_the_owner_does_not_answer_is_refused_with_500(
    method: Method, within_s: float
) -> None:
    caller, callee, got = _changed(method)
    asked = callee.events[-1]
    assert isinstance(asked, ReinviteReceived)
    caller.wire.run(within_s)
    assert isinstance(got[0], CallRefused)
    assert got[0].status == 500
    before = caller.wire.story()
    asked.respond(ANSWER)
    caller.wire.run(1.0)
    assert caller.wire.story() == before
    assert callee.calls[0].state is CallState.UP
