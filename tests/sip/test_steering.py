"""Only a call's own peer, an account's server or a trusted network may transfer or replace it."""

from __future__ import annotations

import pytest

from qwen3tts_phone.sip.call.state import ReferReceived
from qwen3tts_phone.sip.dialog import Replaces
from qwen3tts_phone.sip.message.message import Request, Response, parse_message
from tests.sip.wire import ANSWER, OFFER, Phone, Stranger, Wire, is_up, pair, request, up

TRUSTED = "10.0.0.8"
REFER_TO = (("Refer-To", "<sip:carol@10.0.0.3>"),)


def guarded_call() -> tuple[Wire, Phone, Phone, Replaces]:
    """A call from 10.0.0.1 that is up; how an INVITE would replace it."""
    wire, caller, callee = pair()
    up(wire, caller, callee)
    callee.agent.trusts = lambda host, request: host == TRUSTED
    dialog = callee.calls[0].dialog
    assert dialog is not None
    return wire, caller, callee, Replaces(dialog.call_id, dialog.local_tag, dialog.remote_tag)


def status_of(sender: Stranger, message: Request, callee: Phone) -> int:
    sender.send(message, callee)
    sender.wire.run(0.1)
    return sender.statuses()[-1]


@pytest.mark.parametrize(("host", "status"), [("10.0.0.9", 403), (TRUSTED, 200)])
def test_replaces_is_honoured_from_trusted_sources_alone(host: str, status: int) -> None:
    wire, _, callee, known = guarded_call()
    old = callee.calls[0]
    callee.answers_with = ANSWER
    invite = request(
        "INVITE", callee, source=host, call_id="new", sdp=OFFER, extra=(("Replaces", known.value),)
    )
    assert status_of(Stranger(wire, host), invite, callee) == status
    assert is_up(old) == (status == 403)
    assert len(callee.calls) == (1 if status == 403 else 2)


def test_a_forged_via_does_not_make_a_stranger_the_peer() -> None:
    wire, _, callee, known = guarded_call()
    invite = request(
        "INVITE", callee, source="10.0.0.1", call_id="new", extra=(("Replaces", known.value),)
    )
    assert status_of(Stranger(wire), invite, callee) == 403
    assert is_up(callee.calls[0])


def test_the_dialogs_own_peer_may_replace_its_call() -> None:
    wire, caller, callee, known = guarded_call()
    got: list[int] = []
    receive = caller.agent.receive

    def look(data: bytes, source: object, now: float) -> None:
        message = parse_message(data)
        if isinstance(message, Response):
            got.append(message.status)
        receive(data, source, now)  # type: ignore[arg-type]

    caller.agent.receive = look  # type: ignore[method-assign]
    invite = request(
        "INVITE", callee, source="10.0.0.1", call_id="new", extra=(("Replaces", known.value),)
    )
    caller.send(invite, callee)
    wire.run(0.1)
    assert 200 in got


def refer_of(callee: Phone, source: str, branch: str = "z9hG4bKr", cseq: int = 77) -> Request:
    dialog = callee.calls[0].dialog
    assert dialog is not None
    return request(
        "REFER",
        callee,
        source=source,
        branch=branch,
        call_id=dialog.call_id,
        from_tag=dialog.remote_tag,
        to_tag=dialog.local_tag,
        cseq=cseq,
        extra=REFER_TO,
    )


@pytest.mark.parametrize(("host", "status"), [("10.0.0.9", 403), (TRUSTED, 202)])
def test_a_refer_is_honoured_from_the_peer_and_trusted_sources_alone(
    host: str, status: int
) -> None:
    wire, _, callee, _ = guarded_call()
    stranger = Stranger(wire, host)
    stranger.send(refer_of(callee, host), callee)
    wire.run(0.1)
    asked = [event for event in callee.events if isinstance(event, ReferReceived)]
    assert len(asked) == (status == 202)
    for event in asked:
        event.accept()
    wire.run(0.1)
    assert stranger.statuses()[-1] == status


def test_the_peer_itself_may_refer() -> None:
    wire, caller, callee, _ = guarded_call()
    caller.send(refer_of(callee, "10.0.0.1"), callee)
    wire.run(0.1)
    assert any(isinstance(event, ReferReceived) for event in callee.events)


def test_a_contact_that_a_later_request_brings_makes_nobody_the_peer() -> None:
    wire, _, callee, _ = guarded_call()
    stranger = Stranger(wire)
    dialog = callee.calls[0].dialog
    assert dialog is not None
    moved = request(
        "UPDATE",
        callee,
        branch="z9hG4bKu",
        call_id=dialog.call_id,
        from_tag=dialog.remote_tag,
        to_tag=dialog.local_tag,
        cseq=50,
    )
    assert status_of(stranger, moved, callee) == 200
    assert "10.0.0.9" in dialog.target
    assert status_of(stranger, refer_of(callee, "10.0.0.9"), callee) == 403
