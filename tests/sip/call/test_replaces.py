"""A call that takes the place of another one (RFC 3891)."""

from __future__ import annotations

import pytest

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.call.call import Call
from qwen3tts_phone.sip.call.state import CallState, ReferReceived
from qwen3tts_phone.sip.message.message import Request, Response, parse_message, reply
from qwen3tts_phone.sip.transaction.dialog import Replaces
from tests.sip.wire import (
    ANSWER,
    OFFER,
    Phone,
    Stranger,
    Wire,
    ended,
    is_up,
    pair,
    request,
    stranger_up,
    up,
)


def as_known_at(phone: Phone, call: Call) -> Replaces:
    """How a phone's dialog of a call is named in an INVITE to that phone."""
    dialog = call.dialog
    assert dialog is not None
    return Replaces(dialog.call_id, dialog.local_tag, dialog.remote_tag)


def replacing(
    stranger: Stranger, callee: Phone, value: str, extra: tuple[tuple[str, str], ...] = ()
) -> int:
    """An INVITE of a stranger with Replaces; gives the status of the last answer."""
    message = request(
        "INVITE",
        callee,
        branch="z9hG4bKnew",
        call_id="new",
        sdp=OFFER,
        extra=(("Replaces", value), *extra),
    )
    stranger.send(message, callee)
    stranger.wire.run(0.1)
    return stranger.statuses()[-1]


def talking() -> tuple[Wire, Phone, Phone, Stranger, Call]:
    wire, caller, callee = pair()
    up(wire, caller, callee)
    callee.answers_with = None
    return wire, caller, callee, Stranger(wire), callee.calls[0]


def test_the_new_call_ends_the_old_one_when_it_is_answered() -> None:
    wire, caller, callee, stranger, old = talking()
    assert replacing(stranger, callee, as_known_at(callee, old).value) == 100
    new = callee.calls[1]
    assert new.replaced is old
    assert is_up(old)
    new.answer(ANSWER, wire.now)
    wire.run(0.2)
    assert stranger.statuses()[-1] == 200
    assert old.state is CallState.ENDED
    assert old.replaced_by is new
    assert ended(caller).by == "remote"
    assert wire.story()[-2:] == ["BYE", "200 BYE"] or "BYE" in wire.story()


def test_a_call_of_ours_that_is_up_may_be_replaced_as_well() -> None:
    wire, caller, callee = pair()
    up(wire, caller, callee)
    (old,) = caller.agent.calls
    stranger = Stranger(wire)
    caller.answers_with = ANSWER
    assert replacing(stranger, caller, as_known_at(caller, old).value) == 200
    assert old.state is CallState.ENDED
    assert ended(callee).by == "remote"


def test_a_call_of_ours_that_rings_is_cancelled_for_it() -> None:
    wire, caller, callee = pair()
    callee.answers_with = None
    old = caller.call(callee)
    wire.run(0.1)
    callee.calls[0].ring(wire.now)
    wire.run(0.1)
    (dialog,) = old.dialogs
    value = Replaces(dialog.call_id, dialog.local_tag, dialog.remote_tag, early_only=True).value
    stranger = Stranger(wire)
    caller.answers_with = ANSWER
    assert replacing(stranger, caller, value) == 200
    wire.run(0.2)
    assert wire.sent("CANCEL")
    assert old.state is CallState.ENDED


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("unknown", 481),
        ("other call", 481),
        ("early only", 486),
        ("hanging up", 603),
        ("swapped tags", 481),
    ],
)
def test_what_cannot_be_replaced_is_refused(how: str, status: int) -> None:
    wire, _, callee, stranger, old = talking()
    known = as_known_at(callee, old)
    if how == "unknown":
        known = Replaces(known.call_id, known.to_tag, "other")
    elif how == "other call":
        known = Replaces("other", known.to_tag, known.from_tag)
    elif how == "early only":
        known = Replaces(known.call_id, known.to_tag, known.from_tag, early_only=True)
    elif how == "swapped tags":
        known = Replaces(known.call_id, known.from_tag, known.to_tag)
    else:
        wire.drop = lambda carried: carried.what == "BYE"
        old.hang_up(wire.now)
    assert replacing(stranger, callee, known.value) == status
    assert len(callee.calls) == 1


def test_a_call_that_rings_here_cannot_be_replaced() -> None:
    """RFC 3891 section 3: an early dialog that the far end began is 481."""
    wire, caller, callee = pair()
    callee.answers_with = None
    caller.call(callee)
    wire.run(0.1)
    callee.calls[0].ring(wire.now)
    wire.run(0.1)
    stranger = Stranger(wire)
    assert replacing(stranger, callee, as_known_at(callee, callee.calls[0]).value) == 481


def test_an_old_call_that_ends_first_leaves_the_new_one_alone() -> None:
    wire, caller, callee, stranger, old = talking()
    replacing(stranger, callee, as_known_at(callee, old).value)
    (theirs,) = caller.agent.calls
    theirs.hang_up(wire.now)
    wire.run(0.1)
    callee.calls[1].answer(ANSWER, wire.now)
    wire.run(0.1)
    assert stranger.statuses()[-1] == 200


def test_a_new_call_that_is_refused_leaves_the_old_one_alone() -> None:
    wire, _, callee, stranger, old = talking()
    replacing(stranger, callee, as_known_at(callee, old).value)
    callee.calls[1].reject(603, wire.now)
    wire.run(0.1)
    assert old.state is CallState.UP
    assert stranger.statuses()[-1] == 603


def test_it_needs_no_room_of_its_own() -> None:
    wire = Wire()
    callee = Phone(wire, "10.0.0.2", max_calls=1)
    stranger = Stranger(wire)
    stranger_up(wire, stranger, callee)
    value = as_known_at(callee, callee.calls[0]).value
    assert replacing(stranger, callee, value) == 200


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x",
        "x;to-tag=a",
        "x;from-tag=a",
        ";to-tag=a;from-tag=b",
        "x;to-tag=;from-tag=b",
        "x;to-tag=a;from-tag=b;to-tag=c",
        "x;to-tag=a b;from-tag=b",
        "x" * 600 + ";to-tag=a;from-tag=b",
    ],
)
def test_a_header_that_names_no_dialog_is_400(value: str) -> None:
    with pytest.raises(BadSip):
        Replaces.parse(value)
    wire, _, callee = pair()
    stranger = Stranger(wire)
    assert replacing(stranger, callee, value or " ") == 400
    assert not callee.calls


def test_two_of_them_are_400() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    value = "x;to-tag=a;from-tag=b"
    assert replacing(stranger, callee, value, (("Replaces", value),)) == 400


def test_it_may_be_required() -> None:
    _wire, _, callee, stranger, old = talking()
    value = as_known_at(callee, old).value
    assert replacing(stranger, callee, value, (("Require", "replaces"),)) == 100


def test_a_name_is_read_as_it_is_written() -> None:
    value = " a@b ;from-tag=f;early-only ; to-tag = t;x=y"
    known = Replaces.parse(value)
    assert known == Replaces("a@b", "t", "f", early_only=True)
    assert Replaces.parse(known.value) == known


def test_our_invites_say_that_it_is_known() -> None:
    wire, caller, _ = pair()
    stranger = Stranger(wire)
    stranger.respond = lambda request: [reply(request, 486, to_tag="x")]
    caller.agent.place(stranger.uri, OFFER, wire.now, headers={"Replaces": "x;to-tag=a;from-tag=b"})
    wire.run(0.1)
    (sent,) = wire.requests("INVITE")
    assert "replaces" in sent.values("Supported")
    assert sent.get("Replaces") == "x;to-tag=a;from-tag=b"
    assert not any(isinstance(message, Response) for message in stranger.got)


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
