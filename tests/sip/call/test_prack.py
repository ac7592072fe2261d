"""Provisional answers that are acknowledged (RFC 3262), at both ends."""

from __future__ import annotations

import pytest

from qwen3tts_phone.errors import CalleeUnreachable, WrongState
from qwen3tts_phone.sip.call.state import (
    Answered,
    CallState,
    EarlyAnswer,
    EarlyMedia,
    ReinviteConfirmed,
    ReinviteReceived,
    Ringing,
)
from qwen3tts_phone.sip.message.message import Request, Response, reply
from tests.sip.wire import (
    ANSWER,
    EARLY,
    OFFER,
    Phone,
    Stranger,
    Wire,
    ended,
    invited,
    is_up,
    lose,
    pair,
    prack,
    provisional,
    reliably,
    request,
    ringing,
)


def caller_and_stranger() -> tuple[Wire, Phone, Stranger]:
    wire, caller, _ = pair()
    return wire, caller, Stranger(wire)


# Our ringing


def test_ringing_is_acknowledged_between_two_of_us() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    call = caller.call(callee)
    wire.run(0.1)
    assert "100rel" in wire.requests("INVITE")[0].values("Supported")
    ringing(callee)
    wire.run(5.0)
    assert wire.story() == ["INVITE", "100 INVITE", "180 INVITE", "PRACK", "200 PRACK"]
    (sent,) = wire.requests("PRACK")
    rung = wire.sent("180 INVITE")[0].message
    assert sent.get("RAck") == f"{rung.get('RSeq')} 1 INVITE"
    assert "100rel" in rung.values("Require")
    callee.calls[0].answer(ANSWER, wire.now)
    wire.run(0.1)
    assert call.state is callee.calls[0].state is CallState.UP
    # The numbers of the dialog go on after the PRACK.
    call.hang_up(wire.now)
    assert wire.requests("ACK")[0].cseq == 1
    wire.run(0.1)
    assert wire.requests("BYE")[0].cseq == 3


def test_what_is_not_acknowledged_is_repeated_at_doubling_intervals() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee)
    start = wire.now
    wire.run(16.0)
    times = [round(c.at - start, 1) for c in wire.sent("180 INVITE")]
    assert times == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5]
    assert len({c.message.get("RSeq") for c in wire.sent("180 INVITE")}) == 1
    prack(stranger, callee, provisional(stranger))
    assert stranger.statuses()[-1] == 200
    wire.run(40.0)
    assert len(wire.sent("180 INVITE")) == 6


def test_without_a_prack_the_call_is_refused_in_the_end() -> None:
    """RFC 3262 section 3: a 5xx after 64*T1."""
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee)
    wire.run(33.0)
    assert stranger.statuses()[-1] == 504
    assert ended(callee).by == "timeout"
    assert isinstance(ended(callee).error, CalleeUnreachable)
    assert "PRACK" in str(ended(callee).error)
    assert not callee.agent.calls


def test_a_caller_without_the_extension_gets_plain_ringing() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee, reliable=False)
    ringing(callee)
    wire.run(5.0)
    (rung,) = wire.sent("180 INVITE")
    assert rung.message.get("RSeq") is None
    assert rung.message.get("Require") is None


@pytest.mark.parametrize("reliable", [True, False])
def test_ringing_is_said_anew_every_minute_until_the_answer(reliable: bool) -> None:
    """RFC 3261 section 13.3.1.1: proxies give up a call of which nothing is heard."""
    wire, caller, callee = pair()
    callee.answers_with = None
    call = caller.call(callee)
    wire.run(0.1)
    callee.calls[0].provisionals.reliable = reliable
    ringing(callee)
    wire.run(170.0)
    assert len(wire.sent("180 INVITE")) == 3
    callee.calls[0].answer(ANSWER, wire.now)
    wire.run(130.0)
    assert len(wire.sent("180 INVITE")) == 3
    assert call.state is CallState.UP


@pytest.mark.parametrize("reliable", [True, False])
def test_a_status_that_is_asked_for_is_sent(reliable: bool) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee, reliable=reliable)
    ringing(callee, status=183)
    wire.run(0.1)
    assert provisional(stranger).status == 183
    with pytest.raises(ValueError, match="status=200"):
        ringing(callee, status=200)


def test_a_caller_may_require_it() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    callee.answers_with = None
    extra = (("Require", "100rel"),)
    stranger.send(request("INVITE", callee, sdp=OFFER, extra=extra), callee)
    wire.run(0.1)
    ringing(callee)
    wire.run(0.1)
    assert provisional(stranger).get("RSeq") is not None


@pytest.mark.parametrize(
    ("rack", "status"),
    [
        ("%d 2 INVITE", 481),
        ("%d 1 BYE", 481),
        ("7 1 INVITE", 481),
        ("", 400),
        ("x y z", 400),
        ("-1 1 INVITE", 400),
        ("99999999999 1 INVITE", 400),
    ],
)
def test_a_prack_for_something_else_is_refused(rack: str, status: int) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee)
    wire.run(0.1)
    rung = provisional(stranger)
    given = rack % int(rung.require("RSeq")) if "%" in rack else rack
    prack(stranger, callee, rung, rack=given or " ")
    assert stranger.statuses()[-1] == status
    wire.run(1.0)
    # It still waits for the right one.
    assert len(wire.sent("180 INVITE")) > 1


def test_a_second_prack_is_481_and_a_repeated_one_gets_its_200_again() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee)
    wire.run(0.1)
    rung = provisional(stranger)
    prack(stranger, callee, rung)
    stranger.send(wire.requests("PRACK")[0], callee)
    wire.run(0.1)
    assert stranger.statuses()[-2:] == [200, 200]
    prack(stranger, callee, rung, cseq=3)
    assert stranger.statuses()[-1] == 481


def test_the_next_ringing_waits_for_the_prack_of_the_one_before() -> None:
    """RFC 3262 section 3: the second is not sent before the first is acknowledged."""
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee, status=181)
    ringing(callee, status=182)
    ringing(callee, EARLY)
    wire.run(0.2)
    seen = []
    for cseq in (2, 3, 4):
        rung = provisional(stranger)
        seen.append((rung.status, int(rung.require("RSeq"))))
        prack(stranger, callee, rung, cseq=cseq)
    first = seen[0][1]
    assert seen == [(181, first), (182, first + 1), (183, first + 2)]
    assert provisional(stranger).sdp == EARLY


def test_a_prack_that_was_overtaken_is_taken_all_the_same() -> None:
    """It is matched by its RAck; its CSeq may be below that of a later request."""
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee)
    wire.run(0.1)
    rung = provisional(stranger)
    options = request("OPTIONS", callee, branch="z9hG4bKo", cseq=3, to_tag=rung.to.tag or "")
    stranger.send(options, callee)
    wire.run(0.1)
    prack(stranger, callee, rung, cseq=2)
    assert stranger.statuses()[-1] == 200


# Early media, and the answer after it


def test_early_media_is_the_answer_and_the_200_has_none() -> None:
    """RFC 3261 section 13.2.1: once answered reliably, the offer is not answered again."""
    wire, caller, callee = pair()
    callee.answers_with = None
    call = caller.call(callee)
    wire.run(0.1)
    ringing(callee, EARLY)
    wire.run(0.2)
    assert caller.events == [Ringing(183), EarlyMedia(EARLY)]
    callee.calls[0].answer(EARLY, wire.now)
    wire.run(0.2)
    assert wire.sent("200 INVITE")[0].message.sdp is None
    assert caller.events[-1] == Answered(EARLY)
    assert callee.calls[0].local_sdp == EARLY
    assert call.state is CallState.UP


def test_early_media_is_described_once() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee, EARLY)
    wire.run(0.1)
    prack(stranger, callee, provisional(stranger))
    ringing(callee, ANSWER)
    wire.run(0.1)
    assert (provisional(stranger).status, provisional(stranger).sdp) == (183, None)
    assert callee.calls[0].local_sdp == EARLY


def test_an_answer_waits_for_the_prack_of_early_media() -> None:
    """RFC 3262 section 3: no 2xx before that."""
    wire, caller, callee = pair()
    callee.answers_with = None
    caller.call(callee)
    wire.run(0.1)
    lose(wire, "183 INVITE", "PRACK")
    ringing(callee, EARLY)
    callee.calls[0].answer(EARLY, wire.now)
    assert callee.calls[0].state is CallState.RINGING
    with pytest.raises(WrongState, match="answered already"):
        callee.calls[0].answer(EARLY, wire.now)
    wire.run(3.0)
    story = wire.story()
    assert story.index("200 INVITE") > story.index("200 PRACK")
    assert is_up(callee.calls[0])


@pytest.mark.parametrize("how", ["cancel", "reject", "hang_up", "no prack", "bye"])
def test_an_answer_that_waits_can_still_be_taken_back(how: str) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee, EARLY)
    callee.calls[0].answer(EARLY, wire.now)
    wire.run(0.1)
    tag = provisional(stranger).to.tag or ""
    if how == "cancel":
        stranger.send(request("CANCEL", callee, branch="z9hG4bKhand"), callee)
    elif how == "bye":
        bye = request("BYE", callee, branch="z9hG4bKb", cseq=2, to_tag=tag)
        stranger.send(bye, callee)
    elif how == "reject":
        callee.calls[0].reject(603, wire.now)
    elif how == "hang_up":
        callee.calls[0].hang_up(wire.now)
    wire.run(33.0)
    status = {"reject": 603, "hang_up": 480, "no prack": 504}.get(how, 487)
    finals = [m for m in stranger.got if isinstance(m, Response) and m.status >= 200]
    assert {m.status for m in finals if m.cseq_method == "INVITE"} == {status}
    wire.run(100.0)
    assert not callee.agent.calls
    assert callee.agent.next_deadline() is None


def test_an_answer_does_not_wait_for_ringing_without_media() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee)
    callee.calls[0].answer(ANSWER, wire.now)
    wire.run(0.1)
    assert stranger.statuses() == [100, 180, 200]
    # And its PRACK, which crossed the answer, is taken.
    prack(stranger, callee, provisional(stranger))
    assert stranger.statuses()[-1] == 200
    wire.run(1.0)
    assert len(wire.sent("180 INVITE")) == 1


def test_an_offer_of_ours_in_a_183_is_answered_by_the_prack() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee, sdp=None)
    assert callee.calls[0].can_send_early_media
    ringing(callee, EARLY)
    wire.run(0.1)
    rung = provisional(stranger)
    assert rung.sdp == EARLY
    prack(stranger, callee, rung, sdp=ANSWER)
    assert callee.events == [EarlyAnswer(ANSWER)]
    callee.calls[0].answer(EARLY, wire.now)
    wire.run(0.1)
    okay = stranger.got[-1]
    assert isinstance(okay, Response)
    assert (okay.status, okay.sdp) == (200, None)
    ack = request("ACK", callee, branch="z9hG4bKack", to_tag=okay.to.tag or "")
    stranger.send(ack, callee)
    wire.run(0.1)
    assert callee.events[-1] == Answered(ANSWER)


def test_without_an_offer_and_without_the_extension_there_is_no_early_media() -> None:
    """RFC 3262 section 5: an offer is made in reliable answers only."""
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee, sdp=None, reliable=False)
    assert not callee.calls[0].can_send_early_media
    ringing(callee, EARLY)
    wire.run(0.1)
    rung = provisional(stranger)
    assert (rung.status, rung.sdp) == (180, None)


def test_a_new_offer_in_a_prack_is_put_to_the_owner() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee, EARLY)
    wire.run(0.1)
    prack(stranger, callee, provisional(stranger), sdp=OFFER)
    asked = callee.events[-1]
    assert isinstance(asked, ReinviteReceived)
    assert (asked.offer, asked.method, asked.early) == (OFFER, "PRACK", True)
    assert stranger.statuses()[-1] == 183
    asked.respond(ANSWER)
    wire.run(0.1)
    okay = stranger.got[-1]
    assert isinstance(okay, Response)
    assert (okay.status, okay.sdp) == (200, ANSWER)
    assert callee.events[-1] == ReinviteConfirmed(None)
    assert callee.calls[0].local_sdp == ANSWER


def test_a_new_offer_in_a_prack_that_nobody_answers_is_500() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee, EARLY)
    wire.run(0.1)
    prack(stranger, callee, provisional(stranger), sdp=OFFER)
    wire.run(11.0)
    assert stranger.statuses()[-1] == 500


# Their ringing


def test_each_reliable_answer_is_acknowledged_once_along_its_route() -> None:
    wire, caller, stranger = caller_and_stranger()

    def answer(request: Request) -> list[Response]:
        if request.method != "INVITE":
            return [reply(request, 200)]
        first = reliably(request, 500, 180)
        first.add("Record-Route", "<sip:10.0.0.9;lr>")
        return [first, first, reliably(request, 501, 183, ANSWER)]

    stranger.respond = answer
    caller.call(stranger)
    wire.run(1.0)
    one, two = wire.requests("PRACK")
    assert (one.get("RAck"), two.get("RAck")) == ("500 1 INVITE", "501 1 INVITE")
    assert (one.cseq, two.cseq) == (2, 3)
    assert one.get("Route") == "<sip:10.0.0.9;lr>"
    assert one.uri == "sip:bob@10.0.0.9:5060"
    assert one.to.tag == "x"
    assert caller.events == [Ringing(180), EarlyMedia(ANSWER)]


def test_an_answer_that_came_before_its_turn_waits_to_be_repeated() -> None:
    """RFC 3262 section 4: where a number is missing, it is neither used nor acknowledged."""
    wire, caller, stranger = caller_and_stranger()
    numbers = [[500], [502], [501, 502]]

    def answer(request: Request) -> list[Response]:
        if request.method == "PRACK":
            return [reply(request, 200)]
        return [reliably(request, n, 183, ANSWER if n == 502 else None) for n in numbers.pop(0)]

    stranger.respond = answer
    caller.call(stranger)
    wire.run(0.1)
    invite = wire.requests("INVITE")[0]
    for _ in range(2):
        for response in answer(invite):
            stranger.send(response, caller)
        wire.run(0.1)
    acknowledged = [(p.get("RAck") or "").split()[0] for p in wire.requests("PRACK")]
    assert acknowledged == ["500", "501", "502"]
    assert [type(e).__name__ for e in caller.events] == ["Ringing", "EarlyMedia"]


@pytest.mark.parametrize("rseq", ["0", "x", "", "4294967296", "99999999999999999"])
def test_a_number_that_is_none_makes_a_plain_provisional_answer(rseq: str) -> None:
    wire, caller, stranger = caller_and_stranger()

    def answer(request: Request) -> list[Response]:
        response = reliably(request, 1, 180)
        response.replace("RSeq", rseq or " ")
        return [response] if request.method == "INVITE" else []

    stranger.respond = answer
    caller.call(stranger)
    wire.run(0.1)
    assert caller.events == [Ringing(180)]
    assert not wire.requests("PRACK")


def test_a_prack_is_challenged_and_answers_the_challenge() -> None:
    wire, caller, stranger = caller_and_stranger()
    challenged: list[str] = []

    def answer(request: Request) -> list[Response]:
        if request.method == "INVITE":
            return [reliably(request, 9, 180)]
        if not challenged:
            challenged.append("once")
            response = reply(request, 401)
            response.add("WWW-Authenticate", 'Digest realm="r", nonce="n"')
            return [response]
        return [reply(request, 200)]

    stranger.respond = answer
    from qwen3tts_phone.sip.transaction.digest import Digest

    caller.call(stranger, digest=Digest("us", "secret"))
    wire.run(0.2)
    one, two = wire.requests("PRACK")
    assert (one.cseq, two.cseq) == (2, 3)
    assert two.get("RAck") == one.get("RAck")
    assert 'username="us"' in (two.get("Authorization") or "")


@pytest.mark.parametrize("status", [0, 481, 500])
def test_a_prack_that_fails_does_not_end_the_call(status: int) -> None:
    wire, caller, stranger = caller_and_stranger()

    def answer(request: Request) -> list[Response]:
        if request.method == "INVITE":
            return [reliably(request, 9, 180)]
        return [reply(request, status)] if status else []

    stranger.respond = answer
    call = caller.call(stranger)
    wire.run(40.0)
    assert call.state is CallState.PROCEEDING


def test_a_flood_of_reliable_answers_is_acknowledged_up_to_a_bound() -> None:
    wire, caller, stranger = caller_and_stranger()
    stranger.respond = lambda request: (
        [reliably(request, n, 180) for n in range(1, 200)]
        if request.method == "INVITE"
        else [reply(request, 200)]
    )
    caller.call(stranger)
    wire.run(1.0)
    assert len(wire.requests("PRACK")) == 64


def test_without_an_offer_of_ours_reliable_answers_are_not_asked_for() -> None:
    wire, caller, callee = pair()
    caller.call(callee, sdp="")
    wire.run(0.1)
    assert "100rel" not in wire.requests("INVITE")[0].values("Supported")


def test_under_loss_every_reliable_answer_arrives_in_order() -> None:
    for seed in range(20):
        wire, caller, callee = pair(loss=0.3, doubling=0.1, jitter_s=0.05, seed=seed)
        callee.answers_with = None
        call = caller.call(callee)
        wire.until(lambda callee=callee: bool(callee.calls))  # type: ignore[misc]
        ringing(callee)
        ringing(callee, EARLY)
        callee.calls[0].answer(EARLY, wire.now) if seed % 2 else None
        wire.run(25.0)
        if not seed % 2 and callee.calls[0].state is CallState.RINGING:
            callee.calls[0].answer(EARLY, wire.now)
            wire.run(20.0)
        assert call.state is callee.calls[0].state is CallState.UP, seed
        assert [e for e in caller.events if isinstance(e, EarlyMedia | Answered)][-1] == Answered(
            EARLY
        )
