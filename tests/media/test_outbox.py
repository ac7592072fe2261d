from __future__ import annotations

from qwen3tts_phone.media.reports import EVENTS_MOST, LEG_EVENTS_MOST, Outbox


def drained(outbox: Outbox) -> list[bytes]:
    found = []
    while (data := outbox.first()) is not None:
        found.append(data)
        outbox.sent()
    return found


def test_replies_go_before_everything_else_and_the_load_goes_last() -> None:
    outbox = Outbox()
    outbox.load(b"load 1")
    outbox.event(1, b"key")
    outbox.fact(1, b"played")
    outbox.reply(b"reply 1")
    outbox.reply(b"reply 2")
    outbox.load(b"load 2")
    assert drained(outbox) == [b"reply 1", b"reply 2", b"key", b"played", b"load 2"]
    assert not outbox


def test_one_calls_events_are_bounded_and_leave_room_for_those_of_others() -> None:
    outbox = Outbox()
    accepted = [outbox.event(1, b"%d" % number) for number in range(LEG_EVENTS_MOST + 5)]
    assert accepted == [True] * LEG_EVENTS_MOST + [False] * 5
    assert outbox.event(2, b"of another")
    assert drained(outbox) == [b"%d" % number for number in range(LEG_EVENTS_MOST)] + [
        b"of another"
    ]
    assert outbox.event(1, b"room again")


def test_all_calls_events_together_are_bounded_and_replies_and_facts_are_not() -> None:
    outbox = Outbox()
    for number in range(EVENTS_MOST):
        assert outbox.event(number, b"event")
    assert not outbox.event(EVENTS_MOST, b"one more")
    for _ in range(EVENTS_MOST):
        outbox.reply(b"reply")
        outbox.fact(1, b"fact")
    assert outbox.replies == EVENTS_MOST
    sent = drained(outbox)
    assert [sent.count(each) for each in (b"reply", b"fact", b"event")] == [EVENTS_MOST] * 3


def test_what_waits_of_a_closed_call_is_removed_and_its_room_is_free() -> None:
    outbox = Outbox()
    for number in range(EVENTS_MOST):
        outbox.event(number % 200, b"event")
    outbox.fact(7, b"fact of 7")
    outbox.fact(8, b"fact of 8")
    outbox.reply(b"closed")
    outbox.forget(7)
    assert outbox.event(200, b"of a new call")
    sent = drained(outbox)
    assert sent[0] == b"closed"
    assert b"fact of 7" not in sent
    assert b"fact of 8" in sent
    assert sent.count(b"event") == EVENTS_MOST - EVENTS_MOST // 200
