from __future__ import annotations

import pytest

from qwen3tts_phone.sip.call.state import CallState, Ended, ReinviteReceived
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.transaction.dialog import Due, SessionTimer, session_expires
from tests.sip.wire import (
    ANSWER,
    OFFER,
    Phone,
    Stranger,
    Wire,
    pair,
    request,
    stranger_up,
    without_update,
)


def timed(seconds: int = 600) -> tuple[Wire, Phone, Phone]:
    wire = Wire()
    return wire, Phone(wire, "10.0.0.1", session_expires_s=seconds), Phone(wire, "10.0.0.2")


def accepting(phone: Phone) -> None:
    """Answer changes of the phone's calls."""
    for call in phone.agent.calls:

        def notify(event: object) -> None:
            phone.events.append(event)  # type: ignore[arg-type]
            if isinstance(event, ReinviteReceived):
                event.respond(ANSWER)

        call.notify = notify


def answering(stranger: Stranger, statuses: dict[str, int]) -> dict[str, int]:
    """A callee that takes calls, knows timers and UPDATE, and answers some methods otherwise.

    Status 0 is no answer; 422 is given to intervals below 900 s.
    """

    def answer(request: Request) -> list[Response]:
        status = statuses.get(request.method, 200)
        asked = session_expires(request)
        if request.method == "ACK" or status == 0:
            return []
        if status == 422:
            status = 422 if asked is not None and asked[0] < 900 else 200
        response = reply(request, status, to_tag="x")
        response.add("Min-SE", "900")
        response.add("Contact", "<sip:x@10.0.0.9:5060>")
        response.add("Allow", "INVITE, ACK, CANCEL, BYE, UPDATE")
        if status == 200 and asked is not None:
            response.add("Session-Expires", f"{asked[0]};refresher=uac")
        response.set_body(ANSWER if request.body else None)
        return [response]

    stranger.respond = answer
    return statuses


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
def test_the_caller_refreshes_at_half_the_interval(method: str) -> None:
    """By UPDATE where both know it (RFC 4028 section 7.4), else by re-INVITE."""
    wire, caller, callee = timed(600)
    if method == "INVITE":
        without_update(callee)
    call = caller.call(callee)
    wire.run(1.0)
    accepting(callee)
    start = wire.now
    wire.run(2900.0)
    assert call.state is CallState.UP
    assert callee.calls[0].state is CallState.UP
    times = [carried.at - start for carried in wire.sent(method) if carried.at > start]
    assert len(times) == 9
    assert all(abs(at - 300.0 * n) < 3.0 for n, at in enumerate(times, 1))
    refresh = wire.requests(method)[-1]
    assert refresh.sdp == (OFFER if method == "INVITE" else None)
    assert refresh.get("Session-Expires") == "600;refresher=uac"
    assert refresh.get("Contact") == "<sip:agent@10.0.0.1:5060>"
    if method == "INVITE":
        assert wire.requests("ACK")[-1].cseq == refresh.cseq


def test_the_2xx_says_who_refreshes() -> None:
    wire, caller, callee = timed()
    caller.call(callee)
    wire.run(1.0)
    okay = wire.sent("200 INVITE")[0].message
    assert okay.get("Session-Expires") == "600;refresher=uac"
    assert okay.get("Require") == "timer"


@pytest.mark.parametrize("asked", ["1800;refresher=uas", "1800"])
def test_a_callee_that_is_to_refresh_does_so(asked: str) -> None:
    """Asked to, or because the caller does not know the extension."""
    wire, _, callee = pair()
    stranger = Stranger(wire)
    extra: tuple[tuple[str, str], ...] = (("Session-Expires", asked),)
    if "uas" in asked:
        extra = (*extra, ("Supported", "timer"))
    stranger.send(request("INVITE", callee, sdp=OFFER, extra=extra), callee)
    wire.run(0.2)
    okay = stranger.got[-1]
    assert okay.get("Session-Expires") == "1800;refresher=uas"
    assert okay.get("Require") is None
    ack = request("ACK", callee, branch="z9hG4bKa", to_tag=okay.to.tag or "")
    stranger.send(ack, callee)
    wire.run(901.0)
    (refresh,) = wire.requests("INVITE")[1:2]
    assert refresh.sdp == ANSWER
    assert refresh.get("Session-Expires") == "1800;refresher=uac"


def test_a_far_end_that_never_refreshes_is_hung_up_shortly_before_the_end() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    extra = (("Session-Expires", "90;refresher=uac"), ("Supported", "timer"))
    stranger.send(request("INVITE", callee, sdp=OFFER, extra=extra), callee)
    wire.run(0.2)
    to_tag = stranger.got[-1].to.tag or ""
    stranger.send(request("ACK", callee, branch="z9hG4bKa", to_tag=to_tag), callee)
    wire.run(59.0)
    assert callee.calls[0].state is CallState.UP
    wire.run(2.0)
    event = callee.events[-1]
    assert isinstance(event, Ended)
    assert "not refreshed" in str(event.error)
    assert len(wire.requests("BYE")) >= 1


def test_a_refresh_of_theirs_keeps_the_call_up() -> None:
    wire, caller, callee = timed(600)
    caller.call(callee)
    wire.run(1.0)
    accepting(callee)
    wire.run(599.0)
    assert callee.calls[0].state is CallState.UP


def test_a_refresh_that_nobody_answers_ends_the_call() -> None:
    wire, caller, callee = timed(600)
    call = caller.call(callee)
    wire.run(1.0)
    wire.loss = 1.0
    wire.run(400.0)
    assert call.state is CallState.ENDED
    assert isinstance(caller.events[-1], Ended)


def test_a_refused_refresh_is_tried_again() -> None:
    wire, caller, callee = timed(600)
    without_update(callee)
    call = caller.call(callee)
    wire.run(1.0)
    refusals = [True]

    def notify(event: object) -> None:
        if isinstance(event, ReinviteReceived):
            event.respond(None if refusals and refusals.pop() else ANSWER)

    callee.calls[0].notify = notify
    wire.run(1000.0)
    assert call.state is CallState.UP
    assert "488 INVITE" in wire.story()


def test_a_422_to_our_invite_raises_the_interval() -> None:
    wire, caller, _ = timed(90)
    stranger = Stranger(wire)

    def answer(request: Request) -> list[Response]:
        asked = session_expires(request)
        if request.method != "INVITE" or asked is None:
            return []
        response = reply(request, 422 if asked[0] < 3600 else 200, to_tag="x")
        response.add("Min-SE", "3600")
        response.add("Session-Expires", "3600;refresher=uac")
        response.add("Contact", "<sip:x@10.0.0.9>")
        response.set_body(ANSWER)
        return [response]

    stranger.respond = answer
    call = caller.call(stranger)
    wire.run(1.0)
    assert call.state is CallState.UP
    assert call.timer.interval_s == 3600
    one, two = wire.requests("INVITE")
    assert (one.get("Session-Expires"), two.get("Session-Expires")) == ("90", "3600")
    assert two.get("Min-SE") == "3600"
    assert two.cseq == 2


def test_an_interval_that_is_too_brief_is_422() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    extra = (("Session-Expires", "20"), ("Supported", "timer"))
    stranger.send(request("INVITE", callee, sdp=OFFER, extra=extra), callee)
    wire.run(0.2)
    assert stranger.statuses() == [422]
    assert stranger.got[0].get("Min-SE") == "90"


def test_without_an_agreement_there_is_no_timer() -> None:
    wire, caller, _ = timed()
    stranger = Stranger(wire)

    def answer(request: Request) -> list[Response]:
        response = reply(request, 200, to_tag="x")
        response.add("Contact", "<sip:x@10.0.0.9>")
        return [response] if request.method == "INVITE" else []

    stranger.respond = answer
    call = caller.call(stranger)
    wire.run(4000.0)
    assert call.state is CallState.UP
    assert len(wire.requests("INVITE")) == 1


def test_no_timer_is_asked_for_when_it_is_turned_off() -> None:
    wire, caller, callee = timed(0)
    caller.call(callee)
    wire.run(1.0)
    assert wire.requests("INVITE")[0].get("Session-Expires") is None
    assert callee.calls[0].timer.interval_s == 0


@pytest.mark.parametrize("value", ["", "x", "-5", ";refresher=uac", "٣"])
def test_an_interval_that_is_none_is_ignored(value: str) -> None:
    response = Response(200, "OK")
    response.headers.set("Session-Expires", value)
    assert session_expires(response) is None
    timer = SessionTimer(600)
    timer.answered(response, 0.0)
    assert timer.next_deadline() is None
    assert timer.due(1e9) is Due.NOTHING


def test_an_interval_below_the_least_is_a_mistake_in_the_settings() -> None:
    with pytest.raises(ValueError, match="RFC 4028"):
        SipSettings(session_expires_s=60)


def test_a_change_asked_for_during_a_refresh_follows_it() -> None:
    wire, caller, callee = timed(600)
    without_update(callee)
    call = caller.call(callee)
    wire.run(1.0)
    accepting(callee)
    wire.until(lambda: len(wire.sent("INVITE")) == 2, within_s=400.0)
    got: list[object] = []
    call.modification.start("v=0 hold", got.append, wire.now)
    wire.run(2.0)
    assert got == [ANSWER]
    assert [r.sdp for r in wire.requests("INVITE")] == [OFFER, OFFER, "v=0 hold"]


@pytest.mark.parametrize("status", [405, 501])
def test_where_update_is_not_known_after_all_the_refresh_is_a_reinvite(status: int) -> None:
    wire, caller, _ = timed(600)
    stranger = Stranger(wire)
    answering(stranger, {"UPDATE": status})
    call = caller.call(stranger)
    wire.run(700.0)
    assert call.state is CallState.UP
    assert wire.story(Request) == ["INVITE", "ACK", "UPDATE", *2 * ["INVITE", "ACK"]]


@pytest.mark.parametrize("status", [408, 481])
def test_a_refresh_of_a_call_that_is_gone_there_ends_it_here(status: int) -> None:
    wire, caller, _ = timed(600)
    stranger = Stranger(wire)
    answering(stranger, {"UPDATE": status})
    caller.call(stranger)
    wire.run(400.0)
    assert isinstance(caller.events[-1], Ended)
    assert caller.events[-1].by == "error"
    assert not caller.agent.calls


def test_a_refresh_by_update_that_nobody_answers_ends_the_call() -> None:
    wire, caller, _ = timed(600)
    stranger = Stranger(wire)
    answering(stranger, {"UPDATE": 0})
    caller.call(stranger)
    wire.run(600.0)
    assert isinstance(caller.events[-1], Ended)
    assert not caller.agent.calls


def test_a_refresh_that_is_refused_for_now_is_tried_again() -> None:
    wire, caller, _ = timed(600)
    stranger = Stranger(wire)
    statuses = answering(stranger, {"UPDATE": 500})
    call = caller.call(stranger)
    wire.run(320.0)
    statuses["UPDATE"] = 200
    wire.run(600.0)
    assert call.state is CallState.UP
    assert [c.what for c in wire.carried if c.what.endswith("UPDATE")][:4] == [
        *("UPDATE", "500 UPDATE", "UPDATE", "200 UPDATE"),
    ]


def test_a_422_to_a_refresh_raises_the_interval() -> None:
    wire, caller, _ = timed(600)
    stranger = Stranger(wire)
    answering(stranger, {"UPDATE": 422})
    call = caller.call(stranger)
    wire.run(302.0)
    one, two = wire.requests("UPDATE")
    assert one.get("Session-Expires") == "600;refresher=uac"
    assert two.get("Session-Expires") == "900;refresher=uac"
    assert call.timer.interval_s == 900


def test_an_update_of_theirs_refreshes_the_session_and_moves_the_target() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    extra = (("Session-Expires", "90;refresher=uac"), ("Supported", "timer"))
    tag = stranger_up(wire, stranger, callee, extra=extra)
    for cseq in range(2, 6):
        wire.run(40.0)
        update = request(
            "UPDATE", callee, branch=f"z9hG4bKu{cseq}", cseq=cseq, to_tag=tag, extra=extra
        )
        update.replace("Contact", "<sip:moved@10.0.0.9:5060>")
        stranger.send(update, callee)
    wire.run(30.0)
    okay = wire.sent("200 UPDATE")[-1].message
    assert okay.get("Session-Expires") == "90;refresher=uac"
    assert okay.get("Contact") == "<sip:agent@10.0.0.2:5060>"
    assert callee.calls[0].state is CallState.UP
    callee.calls[0].hang_up(wire.now)
    wire.run(0.1)
    assert wire.requests("BYE")[0].uri == "sip:moved@10.0.0.9:5060"


def test_an_update_with_an_interval_that_is_too_brief_is_422() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    extra = (("Session-Expires", "20"), ("Supported", "timer"))
    update = request("UPDATE", callee, branch="z9hG4bKu", cseq=2, to_tag=tag, extra=extra)
    stranger.send(update, callee)
    wire.run(0.2)
    assert stranger.statuses()[-1] == 422
    assert stranger.got[-1].get("Min-SE") == "90"


def test_an_interval_of_a_second_in_a_2xx_is_taken_for_the_least() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def answer(request: Request) -> list[Response]:
        response = reply(request, 200, to_tag="x")
        response.add("Contact", "<sip:x@10.0.0.9:5060>")
        response.add("Session-Expires", "1;refresher=uac")
        response.set_body(ANSWER)
        return [] if request.method == "ACK" else [response]

    stranger.respond = answer
    call = caller.call(stranger)
    wire.run(100.0)
    assert call.state is CallState.UP
    assert len(wire.sent("INVITE")) == 3
