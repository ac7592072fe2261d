"""A call of ours that forks to several phones (RFC 3261 sections 12.1.2 and 13.2.2.4)."""

from __future__ import annotations

import pytest

from qwen3tts_phone.sip.call.outgoing import OutgoingCall
from qwen3tts_phone.sip.call.state import Answered, CallState, EarlyMedia, ReinviteReceived, Ringing
from qwen3tts_phone.sip.message.message import Request, Response, reply
from tests.sip.wire import ANSWER, OFFER, Phone, Stranger, Wire, ended, is_up, pair


def sdp_of(tag: str) -> str:
    return ANSWER.replace("50000", str(51000 + sum(map(ord, tag))))


class Proxy(Stranger):
    """Sends an INVITE on to phones, each with a tag, a Contact and a description of its own."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.rseqs: dict[str, int] = {}
        self.respond = self._answer
        self.updates: dict[str, str] = {}

    @property
    def invite(self) -> Request:
        return self.wire.requests("INVITE")[0]

    def says(
        self, tag: str, status: int, sdp: str | None = None, *, reliable: bool = False
    ) -> None:
        response = reply(self.invite, status, to_tag=tag)
        response.add("Contact", f"<sip:{tag}@10.0.0.9:5060>")
        response.add("Record-Route", f"<sip:10.0.0.9:5060;lr;branch={tag}>")
        if reliable:
            self.rseqs[tag] = self.rseqs.get(tag, 10) + 1
            response.add("Require", "100rel")
            response.add("RSeq", str(self.rseqs[tag]))
        response.set_body(sdp)
        self.wire.put(bytes(response), self.hop(), Phone.hop(self.caller))
        self.wire.run(0.1)

    caller: Phone

    def _answer(self, request: Request) -> list[Response]:
        if request.method in ("INVITE", "ACK"):
            return []
        response = reply(request, 200)
        if request.method == "UPDATE":
            response.set_body(sdp_of("changed"))
        return [response]


def forked(**settings: object) -> tuple[Wire, Phone, Proxy, OutgoingCall]:
    wire, caller, _ = pair()
    proxy = Proxy(wire)
    proxy.caller = caller
    call = caller.call(proxy)
    wire.run(0.1)
    return wire, caller, proxy, call


def test_each_branch_has_a_dialog_a_route_and_numbers_of_its_own() -> None:
    wire, _caller, proxy, call = forked()
    for tag in ("a", "b"):
        proxy.says(tag, 180, reliable=True)
        proxy.says(tag, 183, sdp_of(tag), reliable=True)
    sent = [(p.to.tag, p.uri, p.get("Route"), p.cseq) for p in wire.requests("PRACK")]
    assert sent == [
        (tag, f"sip:{tag}@10.0.0.9:5060", f"<sip:10.0.0.9:5060;lr;branch={tag}>", cseq)
        for tag in ("a", "b")
        for cseq in (2, 3)
    ]
    assert len(call.dialogs) == 2


def test_early_media_tells_its_branch_and_the_answer_is_that_of_the_branch_that_answers() -> None:
    _wire, caller, proxy, call = forked()
    proxy.says("a", 183, sdp_of("a"))
    proxy.says("b", 183, sdp_of("b"), reliable=True)
    proxy.says("c", 180)
    proxy.says("c", 200, sdp_of("c"))
    assert caller.events == [
        Ringing(183),
        EarlyMedia(sdp_of("a"), "a"),
        EarlyMedia(sdp_of("b"), "b"),
        Ringing(180),
        Answered(sdp_of("c"), "c"),
    ]
    tags = [event.tag for event in caller.events if isinstance(event, EarlyMedia | Answered)]
    assert tags == ["a", "b", "c"]
    assert call.dialog is not None
    assert call.dialog.remote_tag == "c"
    assert len(call.dialogs) == 1


def test_an_answer_without_a_description_is_what_that_branch_described() -> None:
    _wire, caller, proxy, _call = forked()
    proxy.says("a", 183, sdp_of("a"), reliable=True)
    proxy.says("b", 183, sdp_of("b"), reliable=True)
    proxy.says("a", 200)
    assert caller.events[-1] == Answered(sdp_of("a"))


def test_an_answer_of_a_branch_that_never_described_anything_has_nothing_of_the_others() -> None:
    _wire, caller, proxy, _call = forked()
    proxy.says("a", 183, sdp_of("a"), reliable=True)
    proxy.says("b", 200)
    assert caller.events[-1] == Answered(None)


def test_what_a_branch_describes_with_its_200_is_what_it_does_now() -> None:
    _wire, caller, proxy, _call = forked()
    proxy.says("a", 183, sdp_of("a"), reliable=True)
    proxy.says("a", 200, sdp_of("again"))
    assert caller.events[-1] == Answered(sdp_of("again"))


def test_the_numbers_of_the_answered_dialog_go_on_after_its_pracks() -> None:
    wire, _caller, proxy, call = forked()
    proxy.says("a", 180, reliable=True)
    proxy.says("a", 183, sdp_of("a"), reliable=True)
    proxy.says("a", 200)
    call.hang_up(wire.now)
    wire.run(0.1)
    (bye,) = wire.requests("BYE")
    assert bye.cseq == 4
    assert bye.get("Route") == "<sip:10.0.0.9:5060;lr;branch=a>"


def test_a_second_answer_is_acknowledged_and_hung_up() -> None:
    wire, caller, proxy, call = forked()
    proxy.says("a", 183, sdp_of("a"), reliable=True)
    proxy.says("b", 183, sdp_of("b"), reliable=True)
    proxy.says("b", 200)
    proxy.says("a", 200)
    (bye,) = wire.requests("BYE")
    assert bye.to.tag == "a"
    assert [a.to.tag for a in wire.requests("ACK")] == ["b", "a"]
    assert call.state is CallState.UP
    assert caller.kinds().count("Answered") == 1


def test_after_the_answer_the_other_branches_are_gone() -> None:
    wire, caller, proxy, _call = forked()
    proxy.says("a", 183, sdp_of("a"), reliable=True)
    proxy.says("b", 200, sdp_of("b"))
    assert theirs(proxy, caller, "UPDATE", "a") == 481
    assert theirs(proxy, caller, "OPTIONS", "b") == 200
    wire.run(0.1)


def theirs(proxy: Proxy, caller: Phone, method: str, tag: str, sdp: str | None = None) -> int:
    """A request of one of the phones; gives the status of our last answer, 0 = none."""
    message = Request(method, caller.uri)
    message.add("Via", f"SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bK{method}{tag};rport")
    message.add("From", f"{proxy.invite.require('To')};tag={tag}")
    message.add("To", proxy.invite.require("From"))
    message.add("Call-ID", proxy.invite.call_id)
    message.add("CSeq", f"1 {method}")
    message.add("Contact", f"<sip:{tag}@10.0.0.9:5060>")
    message.set_body(sdp)
    proxy.send(message, caller)
    proxy.wire.run(0.1)
    return proxy.statuses()[-1] if proxy.statuses() else 0


def test_branches_may_change_their_early_sessions_each_for_itself() -> None:
    wire, caller, proxy, call = forked()
    proxy.says("a", 183, sdp_of("a"), reliable=True)
    proxy.says("b", 183, sdp_of("b"), reliable=True)
    for tag in ("a", "b"):
        theirs(proxy, caller, "UPDATE", tag, sdp_of(tag + "2"))
        asked = caller.events[-1]
        assert isinstance(asked, ReinviteReceived)
        assert asked.offer == sdp_of(tag + "2")
        asked.respond(OFFER)
        wire.run(0.1)
        assert proxy.statuses()[-1] == 200
    assert call.state is CallState.PROCEEDING


def test_an_early_change_of_ours_ends_where_another_branch_answers() -> None:
    wire, caller, proxy, call = forked()
    proxy.says("a", 183, sdp_of("a"), reliable=True)
    proxy.respond = lambda request: []
    got: list[object] = []
    call.modification.start(OFFER, got.append, wire.now, "UPDATE")
    wire.run(0.1)
    proxy.says("b", 200, sdp_of("b"))
    assert "Another phone has answered" in str(got[0])
    assert call.state is CallState.UP
    again: list[object] = []
    call.modification.start(OFFER, again.append, wire.now)
    assert caller.agent.calls
    wire.run(0.1)
    assert wire.requests("INVITE")[-1].to.tag == "b"


def test_an_early_change_of_theirs_ends_where_another_branch_answers() -> None:
    wire, caller, proxy, call = forked()
    proxy.says("a", 183, sdp_of("a"), reliable=True)
    theirs(proxy, caller, "UPDATE", "a", sdp_of("a2"))
    asked = caller.events[-1]
    assert isinstance(asked, ReinviteReceived)
    proxy.says("b", 200, sdp_of("b"))
    assert 487 in proxy.statuses()
    asked.respond(OFFER)
    wire.run(0.1)
    assert wire.sent("200 UPDATE") == []
    assert call.state is CallState.UP


def test_a_description_without_a_tag_is_told_once() -> None:
    """Section 12.1.2 makes no dialog of it; old gateways send it all the same."""
    wire, caller, proxy, call = forked()
    for _ in range(3):
        response = reply(proxy.invite, 183)
        response.set_body(sdp_of("a"))
        proxy.send(response, caller)
        wire.run(0.1)
    assert caller.events == [Ringing(183), EarlyMedia(sdp_of("a"))]
    assert not call.dialogs


def test_more_branches_than_anybody_has_are_not_kept() -> None:
    wire, _caller, proxy, call = forked()
    for number in range(40):
        proxy.says(f"t{number}", 180, reliable=True)
    assert len(call.dialogs) == 16
    assert len(wire.requests("PRACK")) == 16
    proxy.says("t39", 183, sdp_of("late"))
    assert not any(isinstance(event, EarlyMedia) for event in _caller.events)
    call.hang_up(wire.now)
    wire.run(100.0)
    assert not _caller.agent.registry


@pytest.mark.parametrize("contact", ["<sip:a@10.0.0.9;transport=sctp>", "<http://x>", "<sip:>"])
def test_a_branch_that_cannot_be_reached_does_not_end_the_call(contact: str) -> None:
    wire, caller, proxy, call = forked()
    response = reply(proxy.invite, 183, to_tag="a")
    response.add("Contact", contact)
    response.add("Require", "100rel")
    response.add("RSeq", "1")
    response.set_body(sdp_of("a"))
    proxy.send(response, caller)
    wire.run(0.1)
    assert not wire.requests("PRACK")
    assert not is_up(call)
    proxy.says("b", 200, sdp_of("b"))
    assert is_up(call)


def test_a_cancelled_fork_acknowledges_and_hangs_up_whoever_answers_all_the_same() -> None:
    wire, caller, proxy, call = forked()
    proxy.says("a", 180, reliable=True)
    call.cancel(wire.now)
    wire.run(0.1)
    proxy.says("b", 183, sdp_of("b"), reliable=True)
    proxy.says("a", 200, sdp_of("a"))
    assert [bye.to.tag for bye in wire.requests("BYE")] == ["a"]
    assert ended(caller).by == "local"
    wire.run(100.0)
    assert not caller.agent.calls
    assert not caller.agent.registry
