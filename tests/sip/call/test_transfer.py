"""Transfers: REFER and its notices (RFC 3515, RFC 3892, RFC 4488), ours and theirs."""

from __future__ import annotations

import pytest

from qwen3tts_phone.errors import BadSip, CalleeUnreachable, CallError, CallRefused, TransferFailed
from qwen3tts_phone.sip.call.state import CallState, ReferReceived, TransferProgress
from qwen3tts_phone.sip.call.transfer import OutgoingRefer, read_status, write_status
from qwen3tts_phone.sip.message.message import Request, Response, reply
from qwen3tts_phone.sip.transaction.dialog import ReferTo, Replaces
from tests.sip.wire import (
    CHALLENGE,
    Phone,
    Stranger,
    Wire,
    ended,
    invited,
    pair,
    provisional,
    request,
    ringing,
    stranger_up,
    up,
)

TARGET = "sip:carol@10.0.0.3"


class Heard:
    """What a transfer of ours told."""

    def __init__(self) -> None:
        self.was_taken: list[tuple[int, bool]] = []
        self.notices: list[TransferProgress] = []
        self.outcome: list[int | CallError] = []

    def taken(self, status: int, *, quiet: bool) -> None:
        self.was_taken.append((status, quiet))

    def progress(self, progress: TransferProgress) -> None:
        self.notices.append(progress)

    def over(self, outcome: int | CallError) -> None:
        self.outcome.append(outcome)


def refer(
    phone: Phone, target: str = TARGET, replaces: Replaces | None = None, **headers: str
) -> Heard:
    """Hand the phone's only call on."""
    heard = Heard()
    (call,) = phone.agent.calls
    OutgoingRefer(call, ReferTo(target, replaces), heard, list(headers.items()), phone.wire.now)
    return heard


def refer_from(
    stranger: Stranger, callee: Phone, tag: str, extra: tuple[tuple[str, str], ...]
) -> None:
    message = request("REFER", callee, branch="z9hG4bKr", cseq=2, to_tag=tag, extra=extra)
    stranger.send(message, callee)
    stranger.wire.run(0.1)


def referred(phone: Phone) -> ReferReceived:
    event = phone.events[-1]
    assert isinstance(event, ReferReceived)
    return event


def transferring() -> tuple[Wire, Phone, Phone, Heard]:
    """A call that is up, and a REFER of the caller that has arrived."""
    wire, caller, callee = pair()
    up(wire, caller, callee)
    heard = refer(caller)
    wire.run(0.1)
    return wire, caller, callee, heard


def forget_all(wire: Wire, *phones: Phone) -> None:
    """After the last hang-up nothing is left over."""
    for phone in phones:
        for call in list(phone.agent.calls):
            call.hang_up(wire.now)
    wire.run(400.0)
    for phone in phones:
        assert not phone.agent.registry.usages
        assert not phone.agent.calls
        assert phone.agent.next_deadline() is None
        assert not phone.agent.registry


# Between two of us


def test_a_transfer_is_accepted_and_its_course_told() -> None:
    wire, caller, callee, heard = transferring()
    asked = referred(callee)
    assert (asked.target, asked.replaces) == (TARGET, None)
    assert asked.referred_by == "sip:agent@10.0.0.1:5060"
    asked.accept()
    wire.run(0.1)
    asked.notify(180, "Ringing")
    wire.run(0.1)
    asked.notify(200, "OK")
    wire.run(0.1)
    assert heard.was_taken == [(202, False)]
    assert heard.notices == [
        TransferProgress(100, "Trying"),
        TransferProgress(180, "Ringing"),
        TransferProgress(200, "OK", final=True),
    ]
    assert heard.outcome == [200]
    states = [n.get("Subscription-State") or "" for n in wire.requests("NOTIFY")]
    assert states[0].startswith("active;expires=")
    assert states[-1] == "terminated;reason=noresource"
    (sent,) = wire.requests("REFER")
    assert sent.get("Refer-To") == f"<{TARGET}>"
    assert sent.get("Contact") is not None
    assert {n.get("Event") for n in wire.requests("NOTIFY")} == {f"refer;id={sent.cseq}"}
    # The call itself goes on until somebody hangs up.
    assert callee.calls[0].state is CallState.UP
    forget_all(wire, caller, callee)


def test_a_target_that_does_not_answer_is_the_outcome_and_no_error() -> None:
    wire, caller, callee, heard = transferring()
    referred(callee).accept()
    referred(callee).notify(486, "Busy Here")
    wire.run(0.1)
    assert heard.notices[-1] == TransferProgress(486, "Busy Here", final=True)
    assert heard.outcome == [486]
    forget_all(wire, caller, callee)


@pytest.mark.parametrize("status", [403, 603])
def test_a_transfer_may_be_refused(status: int) -> None:
    wire, caller, callee, heard = transferring()
    referred(callee).refuse(status)
    wire.run(0.1)
    (error,) = heard.outcome
    assert isinstance(error, CallRefused)
    assert error.status == status
    assert "transfer" in str(error)
    assert not wire.requests("NOTIFY")
    assert callee.calls[0].state is CallState.UP
    forget_all(wire, caller, callee)


def test_what_the_owner_says_too_late_or_twice_does_nothing() -> None:
    wire, caller, callee, _ = transferring()
    asked = referred(callee)
    asked.notify(180, "before")
    assert asked.accept()
    assert not asked.accept()
    asked.refuse(603)
    asked.notify(200, "OK")
    asked.notify(486, "after the end")
    wire.run(0.1)
    assert len(wire.sent("202 REFER")) == 1
    assert [read_status(n.body) for n in wire.requests("NOTIFY")] == [(100, "Trying"), (200, "OK")]
    with pytest.raises(ValueError, match="status=99"):
        asked.notify(99, "")
    with pytest.raises(ValueError, match="status=200"):
        asked.refuse(200)
    forget_all(wire, caller, callee)


def test_a_transfer_that_the_owner_leaves_alone_is_603() -> None:
    wire, caller, callee, heard = transferring()
    wire.run(21.0)
    (error,) = heard.outcome
    assert isinstance(error, CallRefused)
    assert error.status == 603
    referred(callee).accept()
    wire.run(0.1)
    assert not wire.requests("NOTIFY")
    forget_all(wire, caller, callee)


def test_an_accepted_transfer_of_which_nobody_tells_the_end_is_ended_by_time() -> None:
    wire, caller, callee, heard = transferring()
    referred(callee).accept()
    wire.run(250.0)
    assert wire.requests("NOTIFY")[-1].get("Subscription-State") == "terminated;reason=timeout"
    (error,) = heard.outcome
    assert isinstance(error, TransferFailed)
    forget_all(wire, caller, callee)


def test_notices_go_on_after_the_end_of_the_call() -> None:
    """RFC 5057 section 4.1: the subscription outlives the session."""
    wire, caller, callee, heard = transferring()
    asked = referred(callee)
    asked.accept()
    wire.run(0.1)
    (call,) = caller.agent.calls
    call.hang_up(wire.now)
    wire.run(1.0)
    assert not caller.agent.calls
    assert not callee.agent.calls
    asked.notify(200, "OK")
    wire.run(0.5)
    assert heard.outcome == [200]
    forget_all(wire, caller, callee)


def test_a_hang_up_before_the_decision_refuses_the_transfer() -> None:
    wire, caller, callee, heard = transferring()
    asked = referred(callee)
    callee.calls[0].hang_up(wire.now)
    wire.run(1.0)
    asked.accept()
    wire.run(40.0)
    assert len(heard.outcome) == 1
    assert isinstance(heard.outcome[0], CallError)
    assert not wire.requests("NOTIFY")
    forget_all(wire, caller, callee)


def test_an_attended_transfer_names_the_dialog_to_replace() -> None:
    wire, caller, callee = pair()
    up(wire, caller, callee)
    replaces = Replaces("other@call", "their;tag", "our tag".replace(" ", ""), early_only=False)
    refer(caller, replaces=replaces)
    wire.run(0.1)
    (sent,) = wire.requests("REFER")
    value = sent.get("Refer-To") or ""
    assert value.startswith(f"<{TARGET}?Replaces=other%40call%3Bto-tag%3D")
    event = referred(callee)
    assert event.target == TARGET
    assert event.replaces == Replaces("other@call", "their", "ourtag")


def test_under_loss_a_transfer_is_told_to_its_end() -> None:
    for seed in range(10):
        wire, caller, callee = pair(loss=0.25, doubling=0.1, seed=seed)
        caller.call(callee)
        wire.run(30.0)
        assert callee.calls[0].state is CallState.UP
        heard = refer(caller)
        wire.until(lambda callee=callee: isinstance(callee.events[-1], ReferReceived))  # type: ignore[misc]
        referred(callee).accept()
        wire.run(5.0)
        referred(callee).notify(180, "")
        wire.run(5.0)
        referred(callee).notify(200, "")
        wire.run(20.0)
        assert heard.outcome == [200], seed
        forget_all(wire, caller, callee)


# A stranger's notices


def handing_on(
    status: int = 202, extra: tuple[tuple[str, str], ...] = ()
) -> tuple[Wire, Phone, Stranger, Heard]:
    """A transfer of ours that a stranger answers."""
    wire, caller, _ = pair()
    stranger = Stranger(wire)

    def answer(request: Request) -> list[Response]:
        if request.method == "ACK":
            return []
        response = reply(request, status if request.method == "REFER" else 200, to_tag="x")
        response.add("Contact", "<sip:bob@10.0.0.9:5060>")
        if request.method == "REFER":
            for name, value in extra:
                response.add(name, value)
        return [response]

    stranger.respond = answer
    caller.call(stranger)
    wire.run(0.2)
    heard = refer(caller)
    wire.run(0.2)
    return wire, caller, stranger, heard


def notify(
    stranger: Stranger,
    caller: Phone,
    *,
    cseq: int = 1,
    body: bytes = b"SIP/2.0 200 OK",
    state: str = "terminated",
    event: str = "refer",
) -> int:
    invite = stranger.wire.requests("INVITE")[0]
    message = Request("NOTIFY", caller.uri)
    message.add("Via", f"SIP/2.0/UDP 10.0.0.9:5060;branch=z9hG4bKn{cseq};rport")
    message.add("From", "<sip:bob@10.0.0.9>;tag=x")
    message.add("To", invite.require("From"))
    message.add("Call-ID", invite.call_id)
    message.add("CSeq", f"{cseq} NOTIFY")
    message.add("Event", event)
    message.add("Subscription-State", state)
    message.add("Content-Type", "message/sipfrag;version=2.0")
    message.body = body
    stranger.send(message, caller)
    stranger.wire.run(0.1)
    return stranger.statuses()[-1]


def test_202_and_no_notice_is_an_error_after_a_bound() -> None:
    wire, caller, stranger, heard = handing_on()
    wire.run(31.0)
    assert not heard.outcome
    wire.run(2.0)
    (error,) = heard.outcome
    assert isinstance(error, TransferFailed)
    assert "did not say" in str(error)
    assert error.remedy
    assert notify(stranger, caller) == 481
    assert caller.agent.calls
    forget_all(wire, caller)


def test_a_far_end_that_will_tell_nothing_is_taken_at_its_word() -> None:
    """RFC 4488: Refer-Sub: false."""
    wire, caller, stranger, heard = handing_on(200, (("Refer-Sub", "false"),))
    assert heard.was_taken == [(200, True)]
    assert heard.outcome == [200]
    assert notify(stranger, caller) == 481
    forget_all(wire, caller)


def test_one_that_does_not_want_to_be_told_is_not() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    extra = (("Refer-To", f"<{TARGET}>"), ("Refer-Sub", "false"))
    stranger.send(
        request("REFER", callee, branch="z9hG4bKr", cseq=2, to_tag=tag, extra=extra), callee
    )
    wire.run(0.1)
    referred(callee).accept()
    referred(callee).notify(200, "OK")
    wire.run(1.0)
    assert stranger.statuses()[-1] == 202
    assert stranger.got[-1].get("Refer-Sub") == "false"
    assert not wire.requests("NOTIFY")


def test_a_notice_may_be_faster_than_the_answer_to_the_refer() -> None:
    wire, caller, stranger, heard = handing_on(100)
    assert notify(stranger, caller, body=b"SIP/2.0 100 Trying\r\n", state="active") == 200
    assert heard.was_taken == [(202, False)]
    assert notify(stranger, caller, cseq=2) == 200
    assert heard.outcome == [200]
    forget_all(wire, caller)


def test_a_final_notice_need_not_be_the_last() -> None:
    wire, caller, stranger, heard = handing_on()
    assert notify(stranger, caller, state="active;expires=60") == 200
    assert heard.outcome == [200]
    assert notify(stranger, caller, cseq=2, body=b"SIP/2.0 500 Later", state="active") == 200
    assert notify(stranger, caller, cseq=3) == 200
    assert heard.outcome == [200]
    assert len(heard.notices) == 1
    assert notify(stranger, caller, cseq=4) == 481
    forget_all(wire, caller)


@pytest.mark.parametrize("body", [b"", b"garbage", b"SIP/2.0 999 x", b"\xff\xfe\x00", b"SIP/2.0"])
def test_an_end_without_a_status_is_an_error(body: bytes) -> None:
    wire, caller, stranger, heard = handing_on()
    assert notify(stranger, caller, body=body) == 200
    (error,) = heard.outcome
    assert isinstance(error, TransferFailed)
    forget_all(wire, caller)


@pytest.mark.parametrize(
    ("event", "status"),
    [("refer", 200), ("REFER; id = 2", 200), ("refer;id=77", 481), ("presence", 489), ("", 489)],
)
def test_a_notice_is_told_by_its_event(event: str, status: int) -> None:
    wire, caller, stranger, _ = handing_on()
    assert notify(stranger, caller, event=event or " ") == status
    forget_all(wire, caller)


def test_a_notice_for_nothing_is_481() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    extra = (("Event", "refer"), ("Subscription-State", "active"))
    message = request("NOTIFY", callee, branch="z9hG4bKn", cseq=2, to_tag=tag, extra=extra)
    stranger.send(message, callee)
    wire.run(0.1)
    assert stranger.statuses()[-1] == 481


@pytest.mark.parametrize("status", [408, 481])
def test_a_refer_for_a_call_that_is_gone_ends_it(status: int) -> None:
    wire, caller, _, heard = handing_on(status)
    assert isinstance(heard.outcome[0], CallRefused)
    assert ended(caller).by == "error"
    forget_all(wire, caller)


def test_a_refer_that_nobody_answers_ends_the_call() -> None:
    wire, caller, callee = pair()
    up(wire, caller, callee)
    wire.drop = lambda carried: True
    heard = refer(caller)
    wire.run(40.0)
    assert isinstance(heard.outcome[0], CalleeUnreachable)
    assert ended(caller).by == "error"


def test_a_call_that_ends_without_a_word_gives_the_transfer_little_time() -> None:
    wire, caller, stranger, heard = handing_on()
    assert notify(stranger, caller, body=b"SIP/2.0 100 Trying", state="active") == 200
    (call,) = caller.agent.calls
    call.hang_up(wire.now)
    wire.run(33.0)
    assert isinstance(heard.outcome[0], TransferFailed)
    forget_all(wire, caller)


def test_a_closed_agent_ends_what_waits_for_notices() -> None:
    _wire, caller, _, heard = handing_on()
    caller.agent.close()
    assert isinstance(heard.outcome[0], TransferFailed)
    assert not caller.agent.registry.usages


def test_two_transfers_are_told_apart() -> None:
    wire, caller, stranger, first = handing_on()
    second = refer(caller, "sip:dave@10.0.0.4")
    wire.run(0.2)
    ids = [r.cseq for r in wire.requests("REFER")]
    notify(stranger, caller, event=f"refer;id={ids[1]}", body=b"SIP/2.0 486 Busy")
    notify(stranger, caller, cseq=2, event=f"refer;id={ids[0]}")
    assert (first.outcome, second.outcome) == ([200], [486])
    forget_all(wire, caller)


def test_a_challenge_to_a_refer_is_answered() -> None:
    from qwen3tts_phone.sip.transaction.digest import Digest

    wire, caller, stranger, first = handing_on(407, (("Proxy-Authenticate", CHALLENGE),))
    assert isinstance(first.outcome[0], CallRefused)
    assert first.outcome[0].realm == "test"
    (call,) = caller.agent.calls
    call.digest = Digest("us", "secret")
    second = refer(caller)
    wire.run(0.2)
    sent = wire.requests("REFER")
    # Once without and once with credentials, then it ends: no loop.
    assert len(sent) == 3
    assert isinstance(second.outcome[0], CallRefused)
    assert (second.outcome[0].realm, second.outcome[0].user) == ("test", "us")
    assert "'us'" in (second.outcome[0].remedy or "")
    assert "secret" not in str(second.outcome[0]) + (second.outcome[0].remedy or "")
    assert stranger.got
    forget_all(wire, caller)


# A stranger's REFER


@pytest.mark.parametrize(
    "value",
    [
        "",
        "<>",
        "carol",
        "<http://10.0.0.3/>",
        "<sip:carol@10.0.0.3:99999>",
        "<sip:carol@10.0.0.3;method=BYE>",
        "<sip:carol@10.0.0.3?Replaces=x>",
        "<sip:carol@10.0.0.3?Replaces=a%3Bto-tag%3Db%3Bfrom-tag%3Dc&replaces=d>",
        "<sip:carol@10.0.0.3",
    ],
)
def test_a_target_that_cannot_be_called_is_400(value: str) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    extra = (("Refer-To", value or " "),)
    stranger.send(
        request("REFER", callee, branch="z9hG4bKr", cseq=2, to_tag=tag, extra=extra), callee
    )
    wire.run(0.1)
    assert stranger.statuses()[-1] == 400
    assert not any(isinstance(event, ReferReceived) for event in callee.events)
    assert not callee.agent.registry.usages


@pytest.mark.parametrize("count", [0, 2])
def test_a_refer_names_one_target(count: int) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    extra = tuple(("Refer-To", f"<sip:{n}@10.0.0.3>") for n in range(count))
    stranger.send(
        request("REFER", callee, branch="z9hG4bKr", cseq=2, to_tag=tag, extra=extra), callee
    )
    wire.run(0.1)
    assert stranger.statuses()[-1] == 400


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("sip:carol@10.0.0.3", "sip:carol@10.0.0.3"),
        ('"Carol" <sip:carol@10.0.0.3;transport=tcp>;x=y', "sip:carol@10.0.0.3;transport=tcp"),
        ("<tel:+4930123456>", "tel:+4930123456"),
        ("<sip:carol@10.0.0.3?Subject=x>", "sip:carol@10.0.0.3"),
        ("<sip:carol@10.0.0.3;method=INVITE;x=y>", "sip:carol@10.0.0.3;x=y"),
    ],
)
def test_the_target_is_told_without_headers(value: str, target: str) -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    extra = (("Refer-To", value), ("Referred-By", "garbage>"))
    stranger.send(
        request("REFER", callee, branch="z9hG4bKr", cseq=2, to_tag=tag, extra=extra), callee
    )
    wire.run(0.1)
    assert referred(callee).target == target
    assert referred(callee).referred_by is None


def test_more_transfers_at_once_than_anybody_needs_are_refused() -> None:
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    for cseq in range(2, 8):
        extra = (("Refer-To", f"<{TARGET}>"),)
        message = request(
            "REFER", callee, branch=f"z9hG4bKr{cseq}", cseq=cseq, to_tag=tag, extra=extra
        )
        stranger.send(message, callee)
        wire.run(0.1)
    assert stranger.statuses()[-2:] == [503, 503]
    assert len(callee.agent.registry.usages) == 4
    wire.run(25.0)
    assert not callee.agent.registry.usages


def test_a_transfer_before_the_answer_is_refused() -> None:

    wire, _, callee = pair()
    stranger = Stranger(wire)
    invited(stranger, callee)
    ringing(callee)
    wire.run(0.1)
    tag = provisional(stranger).to.tag or ""
    extra = (("Refer-To", f"<{TARGET}>"),)
    stranger.send(
        request("REFER", callee, branch="z9hG4bKr", cseq=2, to_tag=tag, extra=extra), callee
    )
    wire.run(0.1)
    assert stranger.statuses()[-1] == 403


def test_a_far_end_that_does_not_want_notices_any_more_gets_none() -> None:
    """RFC 6665 section 4.2.2: a notice that is refused is the last."""
    wire, _, callee = pair()
    stranger = Stranger(wire)
    tag = stranger_up(wire, stranger, callee)
    stranger.respond = lambda request: [reply(request, 481)]
    extra = (("Refer-To", f"<{TARGET}>"),)
    stranger.send(
        request("REFER", callee, branch="z9hG4bKr", cseq=2, to_tag=tag, extra=extra), callee
    )
    wire.run(0.1)
    referred(callee).accept()
    wire.run(0.1)
    referred(callee).notify(180, "")
    referred(callee).notify(200, "")
    wire.run(0.1)
    assert len(wire.requests("NOTIFY")) == 1
    assert callee.calls[0].state is CallState.UP


# The pieces


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b"SIP/2.0 100 Trying\r\n", (100, "Trying")),
        (b"sip/2.0 200", (200, "OK")),
        (
            b"\r\nSIP/2.0 486 Busy here and there\r\nContact: <sip:x>\r\n",
            (486, "Busy here and there"),
        ),
        (b"SIP/2.0 603 \x07bell", (603, "bell")),
        (b"SIP/2.0 099 x", None),
        (b"SIP/2.0 20", None),
        (b"HTTP/1.1 200 OK", None),
        (b"", None),
    ],
)
def test_the_piece_in_a_notice_is_read(body: bytes, read: tuple[int, str] | None) -> None:
    assert read_status(body) == read


def test_a_reason_phrase_brings_no_lines_of_its_own() -> None:
    assert write_status(486, "busy\r\nEvil: x") == b"SIP/2.0 486 busy  Evil: x\r\n"


@pytest.mark.parametrize(
    "target", ["", "carol", "sip:a@b>,<sip:c@d", "sip:a@b\r\nEvil: x", 'sip:"a@b']
)
def test_a_target_that_would_break_the_header_is_refused(target: str) -> None:
    with pytest.raises(BadSip):
        _ = ReferTo(target).value
