"""Well-formed messages in any order, from a peer that knows the call: no exception of ours."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_phone.errors import CallError, WrongState
from qwen3tts_phone.sip.call.state import CallState, ReinviteReceived
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.transaction.digest import Digest
from tests.sip.wire import ANSWER, OFFER, Phone, Stranger, pair, request

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
