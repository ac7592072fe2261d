"""Calls that are answered with 3xx: followed within bounds, loops found (RFC 3261 8.1.3.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.errors import CallError, CallNotAllowed, CallRefused
from qwen3tts_phone.sip.call.outgoing import OutgoingCall
from qwen3tts_phone.sip.call.redirection import MAX_DEPTH, MAX_TARGETS, RedirectTarget, TargetSet
from qwen3tts_phone.sip.call.state import CallState
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.message.message import Request, Response, reply
from tests.sip.phones import QUICK
from tests.sip.wire import ANSWER, OFFER, Phone, Stranger, Wire, ended


def moved(*contacts: str, status: int = 302) -> Response:
    asked = Request("INVITE", "sip:a@10.0.0.1")
    for name, value in (("Via", "SIP/2.0/UDP h;branch=z9hG4bKx"), ("From", "<sip:u@h>;tag=f")):
        asked.add(name, value)
    for name, value in (("To", "<sip:a@10.0.0.1>"), ("Call-ID", "c"), ("CSeq", "1 INVITE")):
        asked.add(name, value)
    response = reply(asked, status, to_tag="x")
    for contact in contacts:
        response.add("Contact", contact)
    return response


def order(targets: TargetSet) -> list[str]:
    found = []
    while (target := targets.next()) is not None:
        found.append(target.proxy or target.uri)
    return found


def test_contacts_are_tried_by_their_q_and_each_once() -> None:
    targets = TargetSet("sip:a@10.0.0.1")
    targets.take(
        moved(
            "<sip:low@10.0.0.2>;q=0.1, <sip:high@10.0.0.3>;q=0.9",
            "<sip:first@10.0.0.4>",
            "<sip:HIGH@10.0.0.3>;q=x",
            "<sip:high@10.0.0.3:5060>",
        ),
        None,
    )
    assert order(targets) == [
        "sip:first@10.0.0.4",
        "sip:high@10.0.0.3",
        "sip:low@10.0.0.2",
        "sip:HIGH@10.0.0.3",
    ]
    assert any("loop" in each for each in targets.problems)


def test_a_redirection_to_the_address_itself_is_a_loop() -> None:
    targets = TargetSet("sip:a@10.0.0.1")
    targets.take(moved("<sip:a@10.0.0.1:5060>"), None)
    assert targets.next() is None
    assert "a loop was found" in targets.problems[0]


def test_depth_and_count_are_bounded() -> None:
    targets = TargetSet("sip:a@10.0.0.1")
    deep = RedirectTarget("sip:b@10.0.0.2", depth=MAX_DEPTH)
    targets.take(moved("<sip:c@10.0.0.3>"), deep)
    assert targets.next() is None
    assert "in a row" in targets.problems[0]
    wide = TargetSet("sip:a@10.0.0.1")
    wide.take(moved(*(f"<sip:{n}@10.0.0.2>" for n in range(40))), None)
    assert len(order(wide)) == MAX_TARGETS
    assert f"{MAX_TARGETS} addresses" in wide.problems[-1]


def test_what_cannot_be_called_is_left_out_with_its_reason() -> None:
    targets = TargetSet("sips:a@example.com")
    targets.take(moved("<tel:+4930>", "<sip:b@10.0.0.2>", "*", "<mailto:x@y>", "<<<"), None)
    assert targets.next() is None
    assert any("without TLS" in each for each in targets.problems)


def test_use_proxy_repeats_the_request_by_that_proxy() -> None:
    targets = TargetSet("sip:a@10.0.0.1")
    targets.take(moved("<sip:proxy@10.0.0.9;lr>", status=305), None)
    assert targets.next() == RedirectTarget("sip:a@10.0.0.1", "sip:proxy@10.0.0.9;lr", 1)


def test_headers_in_a_contact_do_not_get_into_the_request() -> None:
    targets = TargetSet("sip:a@10.0.0.1")
    targets.take(moved("<sip:b@10.0.0.2?Replaces=x&Route=y>"), None)
    assert order(targets) == ["sip:b@10.0.0.2"]


@given(st.lists(st.text(max_size=60), max_size=5))
def test_any_contact_is_taken_or_left_out(values: list[str]) -> None:
    targets = TargetSet("sip:a@10.0.0.1")
    response = moved()
    for value in values:
        response.headers.add("Contact", value)
    targets.take(response, None)
    assert len(order(targets)) <= MAX_TARGETS


# --- a call


def redirecting(wire: Wire, host: str, *contacts: str, status: int = 302) -> Stranger:
    """A server that answers each INVITE so."""
    server = Stranger(wire, host)

    def answer(asked: Request) -> list[Response]:
        if asked.method != "INVITE":
            return [reply(asked, 200, to_tag="x")] if asked.method == "CANCEL" else []
        response = reply(asked, status, to_tag="x")
        for contact in contacts:
            response.add("Contact", contact)
        return [response]

    server.respond = answer
    return server


def calling(wire: Wire, target: str, forbidden: str = "") -> tuple[Phone, OutgoingCall]:
    """A call that follows redirections."""
    caller = Phone(wire, "10.0.0.1")
    call = caller.agent.place(target, OFFER, wire.now)
    call.notify = caller.events.append

    def locate(target: RedirectTarget) -> None:
        if forbidden and forbidden in target.uri:
            error = CallNotAllowed("a rule forbids it", rule="denied")
            call.redirection.not_found(error, wire.now)
            return
        hop = caller.agent.hop(target.proxy or target.uri)
        call.redirection.found(target, hop, None, ("x-secret",), wire.now)

    call.redirection.locate = locate
    return caller, call


def test_a_call_goes_on_where_it_is_sent() -> None:
    wire = Wire()
    redirecting(wire, "10.0.0.2", "<sip:bob@10.0.0.3>")
    callee = Phone(wire, "10.0.0.3")
    caller, call = calling(wire, "sip:bob@10.0.0.2")
    wire.run(1.0)
    assert call.state is CallState.UP
    assert call.remote_uri == "sip:bob@10.0.0.3"
    first, second = wire.requests("INVITE")
    assert (first.call_id, first.from_.tag) == (second.call_id, second.from_.tag)
    assert second.cseq == first.cseq + 1
    assert second.branch != first.branch
    assert second.get("Route") is None
    callee.calls[0].hang_up(wire.now)
    wire.run(1.0)
    assert ended(caller).by == "remote"


def test_the_next_contact_is_asked_where_one_is_busy_but_not_after_a_decline() -> None:
    for status, calls in ((486, 1), (603, 0)):
        wire = Wire()
        redirecting(wire, "10.0.0.2", "<sip:b@10.0.0.3>;q=0.9", "<sip:b@10.0.0.4>;q=0.1")
        redirecting(wire, "10.0.0.3", status=status)
        last = Phone(wire, "10.0.0.4")
        calling(wire, "sip:bob@10.0.0.2")
        wire.run(1.0)
        assert len(last.calls) == calls


def test_two_servers_that_point_to_each_other_are_told_as_a_loop() -> None:
    wire = Wire()
    redirecting(wire, "10.0.0.2", "<sip:bob@10.0.0.3>")
    redirecting(wire, "10.0.0.3", "<sip:bob@10.0.0.2>")
    caller, call = calling(wire, "sip:bob@10.0.0.2")
    wire.run(1.0)
    assert call.state is CallState.ENDED
    error = ended(caller).error
    assert isinstance(error, CallRefused)
    assert "a loop was found" in error.remedy
    assert len(wire.requests("INVITE")) == 2


def test_the_guard_is_asked_about_each_address() -> None:
    wire = Wire()
    redirecting(wire, "10.0.0.2", "<sip:900@10.0.0.3>;q=0.9", "<sip:ok@10.0.0.4>;q=0.1")
    forbidden, allowed = Phone(wire, "10.0.0.3"), Phone(wire, "10.0.0.4")
    calling(wire, "sip:bob@10.0.0.2", forbidden="900")
    wire.run(1.0)
    assert (len(forbidden.calls), len(allowed.calls)) == (0, 1)


def test_where_all_are_forbidden_the_error_says_so() -> None:
    wire = Wire()
    redirecting(wire, "10.0.0.2", "<sip:900@10.0.0.3>")
    caller, _ = calling(wire, "sip:bob@10.0.0.2", forbidden="900")
    wire.run(1.0)
    error = ended(caller).error
    assert error is not None
    assert "a rule forbids it" in error.remedy


@pytest.mark.parametrize("when", ["locating", "after"])
def test_a_call_that_is_given_up_meanwhile_calls_nobody_else(when: str) -> None:
    wire = Wire()
    redirecting(wire, "10.0.0.2", "<sip:bob@10.0.0.3>")
    other = Phone(wire, "10.0.0.3")
    other.answers_with = None
    caller, call = calling(wire, "sip:bob@10.0.0.2")
    found: list[RedirectTarget] = []
    if when == "locating":
        call.redirection.locate = found.append
    wire.run(0.2)
    call.cancel(wire.now)
    wire.run(1.0)
    if found:
        call.redirection.found(found[0], caller.agent.hop(found[0].uri), None, (), wire.now)
        wire.run(1.0)
        assert not other.calls
    assert call.state is CallState.ENDED
    assert ended(caller).by == "local"


# --- endpoints


@pytest.mark.network
@pytest.mark.parametrize(
    ("account", "everywhere", "follows"),
    [
        ("trunk", False, True),
        ("trunk off", True, False),
        ("none", False, False),
        ("none", True, True),
    ],
)
async def test_trunks_follow_and_plain_calls_do_where_the_settings_say_so(
    account: str, everywhere: bool, follows: bool
) -> None:
    asked: list[str] = []
    settings = SipSettings(timers=QUICK, follow_redirects=everywhere)
    async with (
        SipEndpoint(SipSettings(timers=QUICK)) as server,
        SipEndpoint(SipSettings(timers=QUICK)) as callee,
        SipEndpoint(settings) as caller,
    ):
        trunk = Account(
            f"sip:127.0.0.1:{server.port}",
            "",
            name="trunk",
            register=False,
            headers={"X-Secret": "1"},
            follow_redirects=False if account == "trunk off" else None,
        )
        await caller.add(trunk)
        used = None if account == "none" else trunk
        call = await caller.place(
            f"sip:bob@127.0.0.1:{server.port}", OFFER, used, check=asked.append
        )
        first = await anext(server.incoming)
        contact = f"<sip:bob@127.0.0.1:{callee.port}>"
        first.core.transaction.send_response(  # type: ignore[union-attr]
            _with_contact(first.core.response(302, None), contact),  # type: ignore[union-attr]
            server.now(),
        )
        server.flush()
        if follows:
            second = await anext(callee.incoming)
            await second.answer(ANSWER)
            await call.answered()
            assert asked == [f"sip:bob@127.0.0.1:{callee.port}"]
            assert call.remote_uri == asked[0]
            await call.bye()
        else:
            with pytest.raises(CallError):
                await call.answered()
            assert not asked


def _with_contact(response: Response, contact: str) -> Response:
    response.headers.remove("Contact")
    response.headers.add("Contact", contact)
    return response
