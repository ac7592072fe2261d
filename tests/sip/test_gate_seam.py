"""The agent asks its gate before it looks at anything, and does what the gate says."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from qwen3tts_phone.sip.call.state import CallState
from qwen3tts_phone.sip.gate import DROP, Refusal, Verdict
from qwen3tts_phone.sip.message.message import Request
from qwen3tts_phone.sip.message.network import Hop
from tests.sip.wire import OFFER, Phone, Stranger, Wire, pair, request, stranger_up


class Doorkeeper:
    """A gate that a test opens and closes."""

    def __init__(self) -> None:
        self.reads = True
        self.answers = True
        self.verdict: Verdict = None
        self.asked: list[tuple[str, bool]] = []
        self.callers: list[list[str]] = []
        self.unread = 0

    def message(self, data: bytes, source: Hop, now: float) -> bool:
        return self.reads

    def unreadable(self, source: Hop, now: float, request: Request | None = None) -> bool:
        self.unread += 1
        return self.answers

    def request(
        self,
        request: Request,
        source: Hop,
        now: float,
        *,
        known: bool = False,
        callers: Iterable[str] = (),
    ) -> Verdict:
        self.asked.append((request.method, known))
        self.callers.append(list(callers))
        return None if known else self.verdict

    def connection(self, host: str, hosts: Iterable[str], now: float) -> bool:
        return True


def watched() -> tuple[Wire, Stranger, Phone, Doorkeeper]:
    wire, _, callee = pair()
    callee.agent.gate = gate = Doorkeeper()
    return wire, Stranger(wire), callee, gate


@pytest.mark.parametrize("closed", ["message", "request"])
@pytest.mark.parametrize("method", ["INVITE", "OPTIONS", "REGISTER", "BREW", "ACK", "CANCEL"])
def test_what_is_dropped_gets_no_answer_and_leaves_nothing(closed: str, method: str) -> None:
    wire, stranger, callee, gate = watched()
    gate.reads = closed != "message"
    gate.verdict = DROP
    stranger.send(request(method, callee, sdp=OFFER), callee)
    wire.run(40.0)
    assert not stranger.got
    assert not callee.calls
    assert len(callee.agent.layer) == 0
    assert bool(gate.asked) is (closed == "request")


@pytest.mark.parametrize("method", ["INVITE", "OPTIONS", "REGISTER", "BREW"])
def test_a_refusal_is_sent_once_for_each_request_and_not_remembered(method: str) -> None:
    wire, stranger, callee, gate = watched()
    gate.verdict = Refusal(403, (("X-Why", "no"),))
    for _ in range(3):
        stranger.send(request(method, callee), callee)
    wire.run(40.0)
    assert stranger.statuses() == [403] * 3
    assert stranger.got[0].get("X-Why") == "no"
    assert len(callee.agent.layer) == 0


def test_an_ack_gets_no_answer_whatever_the_gate_says() -> None:
    wire, stranger, callee, gate = watched()
    gate.verdict = Refusal(403)
    stranger.send(request("ACK", callee, to_tag="x"), callee)
    wire.run(1.0)
    assert not stranger.got


def test_the_gate_is_told_what_belongs_to_a_call_that_is_here() -> None:
    wire, stranger, callee, gate = watched()
    tag = stranger_up(wire, stranger, callee)
    gate.verdict = DROP
    for cseq, method in enumerate(("INFO", "INFO", "BYE"), 2):
        message = request(method, callee, branch=f"z9hG4bK{cseq}", cseq=cseq, to_tag=tag)
        stranger.send(message, callee)
        stranger.send(message, callee)
        wire.run(0.1)
    assert gate.asked[:2] == [("INVITE", False), ("ACK", True)]
    assert all(known for _, known in gate.asked[2:])
    assert callee.calls[0].state is CallState.ENDED
    late = request("INFO", callee, branch="z9hG4bKlate", cseq=9, to_tag=tag)
    stranger.send(late, callee)
    wire.run(0.1)
    assert gate.asked[-1] == ("INFO", False)


def test_a_cancel_belongs_to_the_call_that_it_cancels() -> None:
    wire, stranger, callee, gate = watched()
    callee.answers_with = None
    stranger.send(request("INVITE", callee, sdp=OFFER), callee)
    wire.run(0.1)
    stranger.send(request("CANCEL", callee), callee)
    wire.run(0.1)
    assert gate.asked[-2:] == [("CANCEL", True), ("ACK", True)] or gate.asked[-1] == (
        "CANCEL",
        True,
    )
    assert callee.calls[0].state is CallState.ENDED


def test_the_gate_is_told_who_calls_at_the_moment() -> None:
    wire, stranger, callee, gate = watched()
    stranger_up(wire, stranger, callee)
    stranger.send(request("INVITE", callee, branch="z9hG4bK2", call_id="2", sdp=OFFER), callee)
    wire.run(0.1)
    assert gate.callers[0] == []
    assert gate.callers[-1] == ["10.0.0.9"]


@pytest.mark.parametrize("answers", [True, False])
def test_what_cannot_be_read_is_counted_and_answered_only_where_the_gate_says_so(
    answers: bool,
) -> None:
    wire, stranger, callee, gate = watched()
    gate.answers = answers
    wrong = bytes(request("OPTIONS", callee)).replace(b"1 OPTIONS", b"1 BYE")
    callee.agent.receive(wrong, stranger.hop(), wire.now)
    callee.agent.receive(b"garbage\r\n\r\n", stranger.hop(), wire.now)
    wire.run(0.1)
    assert gate.unread == 2
    assert stranger.statuses() == ([400] if answers else [])


def test_our_own_calls_are_no_matter_of_the_gate() -> None:
    wire, caller, callee = pair()
    caller.agent.gate = gate = Doorkeeper()
    gate.verdict = DROP
    call = caller.call(callee)
    wire.run(1.0)
    assert call.state is CallState.UP
    assert gate.asked == []
