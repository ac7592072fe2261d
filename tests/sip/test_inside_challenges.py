"""Challenges inside a dialog: each kind of request answers them, of calls in both directions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qwen3tts_phone.errors import CallError, CallRefused
from qwen3tts_phone.sip.call.call import Call
from qwen3tts_phone.sip.call.state import CallState
from qwen3tts_phone.sip.call.transfer import OutgoingRefer
from qwen3tts_phone.sip.dialog import ReferTo
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.transaction.client_request import OutcomeListener
from qwen3tts_phone.sip.transaction.digest import Digest
from tests.sip.test_transfer import Heard
from tests.sip.wire import ANSWER, OFFER, Phone, Stranger, Wire, ended, pair, stranger_up

Does = Callable[[Call, float], object]


def _info(call: Call, now: float) -> None:
    assert call.dialog is not None
    call.send_in_dialog(call.dialog.request("INFO"), OutcomeListener(lambda outcome, at: None), now)


def _refer(call: Call, now: float) -> None:
    OutgoingRefer(call, ReferTo("sip:carol@10.0.0.3"), Heard(), [], now)


DOES: dict[str, Does] = {
    "BYE": lambda call, now: call.hang_up(now),
    "INVITE": lambda call, now: call.modification.start(OFFER, lambda result: None, now),
    "UPDATE": lambda call, now: call.modification.start(OFFER, lambda result: None, now, "UPDATE"),
    "INFO": _info,
    "REFER": _refer,
}


def guarded(stranger: Stranger, *, always: bool = False) -> None:
    """Take a call, then challenge each request inside it once, or always."""
    nonces = iter(range(1000))

    def answer(request: Request) -> list[Response]:
        if request.method == "ACK":
            return []
        known = request.get("Proxy-Authorization")
        inside = request.to.tag is not None
        if inside and (always or known is None):
            response = reply(request, 407)
            response.add("Proxy-Authenticate", f'Digest realm="in", nonce="n{next(nonces)}"')
            return [response]
        response = reply(request, 202 if request.method == "REFER" else 200, to_tag="x")
        response.add("Contact", "<sip:bob@10.0.0.9:5060>")
        response.set_body(ANSWER if request.method in ("INVITE", "UPDATE") else None)
        return [response]

    stranger.respond = answer


def call_out(*, password: bool = True) -> tuple[Wire, Phone, Stranger, Call]:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    guarded(stranger)
    call = caller.call(stranger, digest=Digest("us", "secret") if password else None)
    wire.run(0.5)
    return wire, caller, stranger, call


def call_in() -> tuple[Wire, Phone, Stranger, Call]:
    wire, _, callee = pair()
    callee.agent.digest_of = lambda call: Digest("us", "secret")
    stranger = Stranger(wire)
    stranger_up(wire, stranger, callee)
    guarded(stranger)
    return wire, callee, stranger, callee.calls[0]


@pytest.mark.parametrize("direction", ["out", "in"])
@pytest.mark.parametrize("method", DOES)
def test_a_request_inside_the_dialog_is_sent_again_with_the_password(
    method: str, direction: str
) -> None:
    wire, _phone, _stranger, call = call_out() if direction == "out" else call_in()
    before = len(wire.requests(method))
    DOES[method](call, wire.now)
    wire.run(1.0)
    one, two = wire.requests(method)[before:]
    assert two.cseq == one.cseq + 1
    assert two.branch != one.branch
    assert one.get("Proxy-Authorization") is None
    assert 'realm="in"' in (two.get("Proxy-Authorization") or "")
    assert two.body == one.body
    final = wire.sent(f"202 {method}" if method == "REFER" else f"200 {method}")
    assert final[-1].message.cseq == two.cseq
    assert call.state is (CallState.ENDED if method == "BYE" else CallState.UP)


@pytest.mark.parametrize("method", DOES)
def test_a_far_end_that_challenges_for_ever_is_asked_a_few_times_only(method: str) -> None:
    wire, phone, stranger, call = call_out()
    guarded(stranger, always=True)
    before = len(wire.requests(method))
    DOES[method](call, wire.now)
    wire.run(40.0)
    assert len(wire.requests(method)) - before == 2
    if method == "BYE":
        assert ended(phone).by == "local"
        assert not phone.agent.calls
    else:
        assert call.state is CallState.UP


def test_without_a_password_the_change_is_refused_in_plain_words() -> None:
    wire, _phone, _stranger, call = call_out(password=False)
    got: list[str | CallError] = []
    call.modification.start(OFFER, got.append, wire.now)
    wire.run(1.0)
    (error,) = got
    assert isinstance(error, CallRefused)
    assert (error.status, error.realm, error.user) == (407, "in", "")
    assert "asks for a password" in (error.remedy or "")
    assert call.state is CallState.UP
