"""Hostile sources: the gate inside the user agent, and malformed messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_phone.errors import CallError, WrongState
from qwen3tts_phone.sip import user_agent as agent_module
from qwen3tts_phone.sip.call.state import CallState, ReinviteReceived
from qwen3tts_phone.sip.core.settings import GateSettings
from qwen3tts_phone.sip.gate import DROP, Refusal, SourceGate, Verdict
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.digest import Digest
from tests.sip.wire import ANSWER, OFFER, Phone, Stranger, Wire, pair, request, stranger_up, up

requests = st.tuples(
    st.sampled_from(["INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "INFO", "BREW"]),
    st.sampled_from([1, 2, 3, 4, 2**31 - 1]),
    st.sampled_from(["z9hG4bKone", "z9hG4bKtwo", "old", "x"]),
    st.sampled_from(["right", "wrong", "none"]),
    st.sampled_from([None, OFFER, "garbage"]),
    st.sampled_from(
        [
            (),
            (("Contact", "<sips:x>"),),
            (("Route", "<sip:x;lr>"),),
            (("Record-Route", "<sip:10.0.0.9>"),),
            (("Record-Route", "garbage"),),
            (("Require", "x"),),
            (("Max-Forwards", "0"),),
        ]
    ),
)
ours = st.sampled_from(["ring", "answer", "reject", "hang up", "change", "accept", "refuse", ""])
pauses = st.sampled_from([0.0, 0.05, 0.6, 5.0, 40.0])


def act(phone: Phone, what: str) -> None:
    """Do something with each call; what does not fit is WrongState and nothing else."""
    now = phone.wire.now
    for call in list(phone.agent.calls):
        try:
            if what == "hang up":
                call.hang_up(now)
            elif what == "change":
                call.modification.start(OFFER, lambda result: None, now)
        except WrongState:
            continue
    for incoming in phone.calls:
        try:
            if what == "ring":
                incoming.ring(now)
            elif what == "answer":
                incoming.answer(ANSWER, now)
            elif what == "reject":
                incoming.reject(486, now)
        except WrongState:
            continue
    for event in phone.events:
        if isinstance(event, ReinviteReceived) and what in ("accept", "refuse"):
            try:
                event.respond(ANSWER if what == "accept" else None)
            except WrongState:
                continue


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(requests, ours, pauses), max_size=12), st.booleans())
def test_a_caller_that_says_anything_at_any_time(
    script: list[tuple[tuple[object, ...], str, float]], tcp: bool
) -> None:
    wire, _, callee = pair()
    callee.answers_with = None
    stranger = Stranger(wire)
    transport = "tcp" if tcp else "udp"
    for (method, cseq, branch, tag, sdp, extra), what, pause in script:
        known = [m.to.tag for m in stranger.got if isinstance(m, Response) and m.to.tag]
        to_tag = {"right": known[-1] if known else "", "wrong": "guess", "none": ""}[str(tag)]
        message = request(
            str(method),
            callee,
            branch=str(branch),
            cseq=int(str(cseq)),
            to_tag=to_tag or "",
            sdp=sdp,  # type: ignore[arg-type]
            extra=extra,  # type: ignore[arg-type]
        )
        stranger.send(message, callee, transport)
        wire.run(0.05)
        act(callee, what)
        wire.run(pause)
    act(callee, "hang up")
    act(callee, "reject")
    wire.run(200.0)
    for call in callee.calls:
        assert call.state is CallState.ENDED
    assert len(callee.agent.layer) == 0


answers = st.tuples(
    st.sampled_from([100, 180, 183, 199, 200, 202, 302, 401, 407, 408, 481, 486, 491, 503, 699]),
    st.sampled_from(["a", "b", ""]),
    st.sampled_from(
        [
            (),
            (("Contact", "<sip:x@10.0.0.9:5060>"),),
            (("Contact", "<sips:x>"),),
            (("Contact", "garbage <"),),
            (("Record-Route", "<sip:10.0.0.9;lr>"), ("Contact", "<sip:x@10.0.0.9>")),
            (("Record-Route", "garbage"),),
            (("WWW-Authenticate", 'Digest realm="r", nonce="1", qop="auth"'),),
            (("WWW-Authenticate", 'Digest realm="r", nonce="2", stale=true'),),
            (("Proxy-Authenticate", "garbage"),),
        ]
    ),
    st.sampled_from([None, ANSWER]),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(answers, max_size=8),
    st.lists(answers, max_size=8),
    st.lists(st.tuples(ours, pauses), max_size=6),
)
def test_a_callee_that_answers_anything_at_any_time(
    to_invite: list[tuple[int, str, tuple[tuple[str, str], ...], str | None]],
    to_others: list[tuple[int, str, tuple[tuple[str, str], ...], str | None]],
    script: list[tuple[str, float]],
) -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def respond(received: Request) -> list[Response]:
        responses = []
        queue = to_invite if received.method == "INVITE" else to_others
        for status, tag, extra, sdp in queue[:3] if received.method != "ACK" else []:
            response = reply(received, status, to_tag=tag)
            for name, value in extra:
                response.add(name, value)
            response.set_body(sdp)
            responses.append(response)
        if len(queue) > 3:
            queue.pop(0)
        return responses

    stranger.respond = respond
    call = caller.call(stranger, digest=Digest("alice", "secret"))
    wire.run(0.1)
    for what, pause in script:
        act(caller, what)
        wire.run(pause)
    act(caller, "hang up")
    wire.run(400.0)
    assert call.state is CallState.ENDED
    assert len(caller.agent.layer) == 0
    assert caller.kinds().count("Ended") == 1
    error = getattr(caller.events[-1], "error", None)
    assert error is None or isinstance(error, CallError)


def guarded(**settings: Any) -> tuple[Wire, Stranger, Phone, SourceGate]:
    """A stranger, and a callee with a gate."""
    wire = Wire()
    callee = Phone(wire, "10.0.0.2")
    gate = SourceGate(GateSettings(**settings), own=lambda host, port: host == callee.host)
    callee.agent.gate = gate
    return wire, Stranger(wire), callee, gate


def test_a_refusal_says_nothing_and_keeps_nothing() -> None:
    wire, stranger, callee, _ = guarded(users=("phone",))
    for method in ("REGISTER", "SUBSCRIBE", "MESSAGE", "PUBLISH"):
        stranger.send(request(method, callee, branch=f"z9hG4bK{method}"), callee)
    wire.run(0.1)
    answers = [message for message in stranger.got if isinstance(message, Response)]
    assert [answer.status for answer in answers] == [404] * 4
    told = {name.lower() for answer in answers for name in answer.headers.keys()}  # noqa: SIM118
    assert told <= {"via", "from", "to", "call-id", "cseq", "content-length"}
    assert len(callee.agent.layer) == 0


def test_nobody_is_called_who_is_not_here() -> None:
    wire, stranger, callee, _ = guarded(users=("somebody",))
    stranger.send(request("INVITE", callee, sdp=OFFER), callee)
    wire.run(0.1)
    stranger.send(request("ACK", callee), callee)
    wire.run(1.0)
    assert stranger.statuses() == [404]
    assert not callee.calls


def test_a_caller_who_is_banned_meanwhile_keeps_his_call() -> None:
    wire, stranger, callee, gate = guarded(users=("phone",), ban_after=1)
    tag = stranger_up(wire, stranger, callee)
    for number in range(5):
        wrong = request("REGISTER", callee, branch=f"z9hG4bK{number}", call_id=f"other{number}")
        stranger.send(wrong, callee)
    wire.run(0.1)
    assert gate.banned(stranger.host, wire.now)
    stranger.send(request("BYE", callee, branch="z9hG4bKbye", to_tag=tag, cseq=2), callee)
    wire.run(0.1)
    assert stranger.statuses()[-1] == 200
    assert callee.calls[0].state in (CallState.ENDING, CallState.ENDED)


def test_an_invite_that_is_repeated_is_one_call() -> None:
    wire, stranger, callee, gate = guarded(invite_burst=1, invites_per_s=0.001)
    for _ in range(5):
        stranger.send(request("INVITE", callee, sdp=OFFER), callee)
    wire.run(0.2)
    assert len(callee.calls) == 1
    assert gate.counts["invites"] == 0
    other = request("INVITE", callee, sdp=OFFER, branch="z9hG4bKother", call_id="other")
    stranger.send(other, callee)
    wire.run(0.1)
    assert stranger.statuses()[-1] == 503


def test_calls_of_one_source_are_counted_while_they_last() -> None:
    wire, stranger, callee, _ = guarded(max_calls_per_source=1)
    tag = stranger_up(wire, stranger, callee)
    second = request("INVITE", callee, sdp=OFFER, branch="z9hG4bK2", call_id="second")
    stranger.send(second, callee)
    wire.run(0.1)
    assert stranger.statuses()[-1] == 486
    stranger.send(request("BYE", callee, branch="z9hG4bKbye", to_tag=tag, cseq=2), callee)
    wire.run(40.0)
    third = request("INVITE", callee, sdp=OFFER, branch="z9hG4bK3", call_id="third")
    stranger.send(third, callee)
    wire.run(0.1)
    assert stranger.statuses()[-1] == 200


def test_a_flood_is_not_answered_and_a_trusted_call_goes_through() -> None:
    wire, stranger, callee, gate = guarded(burst=10, requests_per_s=1)
    caller = Phone(wire, "10.0.0.1")
    gate.trust("trunk", (caller.host,))
    for number in range(500):
        asked = request("OPTIONS", callee, branch=f"z9hG4bK{number}", call_id=str(number))
        callee.agent.receive(bytes(asked), stranger.hop(), wire.now)
    wire.run(0.1)
    assert len(stranger.got) == 10
    up(wire, caller, callee)


def test_garbage_is_answered_seldom() -> None:
    wire, stranger, callee, gate = guarded(burst=5, messages_per_s=20)
    bad = bytes(request("OPTIONS", callee)).replace(b"CSeq: 1 OPTIONS", b"CSeq: 1 INVITE")
    for _ in range(200):
        callee.agent.receive(bad, Hop("udp", stranger.host, 5060), wire.now)
    wire.run(0.1)
    assert len(stranger.got) <= 5
    assert callee.agent.rejected == 40
    assert gate.counts["messages"] == 160


def test_what_a_banned_source_sends_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    wire, stranger, callee, gate = guarded(ban_after=1)
    bad = bytes(request("OPTIONS", callee)).replace(b"CSeq: 1 OPTIONS", b"CSeq: 1 INVITE")
    source = Hop("udp", stranger.host, 5060)
    for _ in range(3):
        callee.agent.receive(bad, source, wire.now)
    assert gate.banned(stranger.host, wire.now)
    monkeypatch.setattr(agent_module, "parse_message", None)
    callee.agent.receive(bad, source, wire.now)
    callee.agent.receive(bytes(request("INVITE", callee, sdp=OFFER)), source, wire.now)
    assert gate.counts["banned"] >= 2
    assert not callee.calls


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
