"""No more is sent than the client has room for."""

from __future__ import annotations

from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.messages import ContextDone, Limits
from tests.server.driver import Driver, tone


def test_no_more_is_sent_than_the_client_has_room_for() -> None:
    line = Driver()
    no = line.open(window_ms=50.0)
    line.say(no, "Hello.", end=True)
    line.produce(no, tone(24_000))
    line.finish(no)
    line.read()
    assert len(line.sound(no)) // 2 == 1200
    line.client.send_credit(no, 25.0)
    line.write()
    line.read()
    assert len(line.sound(no)) // 2 == 1800
    assert not [e for e in line.events if isinstance(e, ContextDone)]
    line.client.send_credit(no, 60_000.0)
    line.write()
    line.read()
    assert line.done().samples == 24_000


def test_a_context_without_credit_does_not_hold_up_another() -> None:
    line = Driver()
    stalled, lively = line.open(window_ms=20.0), line.open()
    for no in (stalled, lively):
        line.say(no, "Hello.", end=True)
        line.produce(no, tone(24_000))
        line.finish(no)
    line.read()
    assert len(line.sound(lively)) // 2 == 24_000
    assert len(line.sound(stalled)) // 2 == 480


def test_contexts_take_turns() -> None:
    line = Driver()
    one, two = line.open(), line.open()
    for no in (one, two):
        line.say(no, "Hello.", end=True)
        line.produce(no, tone(9600))
    line.read()
    order = [each.context_no for each in line.events if isinstance(each, AudioFrame)]
    assert order == [one, two] * 4


def test_the_engine_waits_when_enough_is_buffered_and_goes_on_when_there_is_room() -> None:
    line = Driver(ahead_ms=200)
    no = line.open(window_ms=20.0)
    line.say(no, "Hello. ", end=True)
    line.produce(no, tone(4799))
    assert line.paused == set()
    line.produce(no, tone(1))
    assert line.paused == {no}
    line.client.send_credit(no, 60.0)
    line.write()
    line.read()
    assert line.paused == {no}
    line.client.send_credit(no, 60.0)
    line.write()
    line.read()
    assert line.paused == set()


def test_the_next_clause_is_not_begun_while_enough_is_buffered() -> None:
    line = Driver(ahead_ms=200)
    no = line.open(window_ms=20.0)
    line.say(no, "One is said. Two is said. ", end=True)
    line.produce(no, tone(9600))
    line.finish(no)
    assert line.speaking == {}
    line.client.send_credit(no, 1000.0)
    line.write()
    line.read()
    assert no in line.speaking


def test_credit_is_bounded() -> None:
    line = Driver(limits=Limits(max_window_ms=100))
    no = line.open(window_ms=10_000.0)
    for _ in range(5):
        line.client.send_credit(no, 60_000.0)
    line.say(no, "Hello.", end=True)
    line.produce(no, tone(24_000))
    line.read()
    assert len(line.sound(no)) // 2 == 2400
