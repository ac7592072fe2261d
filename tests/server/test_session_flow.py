"""Pauses in the text become flushes."""

from __future__ import annotations

from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.messages import ContextDone, Limits
from tests.server.driver import Driver, tone


def test_a_pause_in_the_text_is_a_flush() -> None:
    line = Driver(pause_flush_ms=250)
    no = line.open()
    line.say(no, "And so it")
    line.pass_time(0.249)
    assert line.requests == []
    line.pass_time(0.002)
    assert [request.text for _, request in line.requests] == ["And so it"]
    assert not line.requests[0][1].final


def test_text_that_goes_on_is_no_pause() -> None:
    line = Driver(pause_flush_ms=250)
    no = line.open()
    for word in ["and", "so", "it", "goes", "on"]:
        line.say(no, word + " ")
        line.pass_time(0.2)
    assert all("and so it goes" in request.text for _, request in line.requests)


def test_a_context_may_choose_its_pause_or_none() -> None:
    line = Driver(pause_flush_ms=250)
    quick, never = line.open(pause_flush_ms=50.0), line.open(pause_flush_ms=0.0)
    line.say(quick, "And so it")
    line.say(never, "And so it")
    line.pass_time(0.051)
    assert [no for no, _ in line.requests] == [quick]
    line.pass_time(60)
    assert [no for no, _ in line.requests] == [quick]


def test_a_pause_does_not_cut_a_clause_while_the_listener_has_enough_to_hear() -> None:
    line = Driver(pause_flush_ms=250, pause_flush_lead_ms=500)
    no = line.open()
    line.say(no, "This was said before. ")
    line.client.send_flush(no)
    line.write()
    line.speak(no, 48_000)
    line.read()
    line.say(no, "And then the")
    line.pass_time(1.4)
    assert len(line.requests) == 1
    line.pass_time(0.2)
    assert [request.text for _, request in line.requests][1:] == ["And then the"]


def test_a_report_of_the_listener_moves_the_pause() -> None:
    line = Driver(pause_flush_ms=250, pause_flush_lead_ms=500)
    no = line.open()
    line.say(no, "This was said before. ")
    line.client.send_flush(no)
    line.write()
    line.speak(no, 48_000)
    line.read()
    line.pass_time(1.0)
    line.client.send_report(no, 0, "held")
    line.say(no, "And then the")
    line.write()
    assert line.session.next_deadline(line.now) is None, "while it is held nothing changes"
    line.pass_time(10.0)
    assert len(line.requests) == 1
    line.client.send_report(no, 47_000, "playing")
    line.write()
    line.pass_time(0.01)
    assert len(line.requests) == 2


def test_the_end_of_the_text_needs_no_pause() -> None:
    line = Driver()
    no = line.open()
    line.say(no, "And so it", end=True)
    assert len(line.requests) == 1
    assert line.session.next_deadline(line.now) is None


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
