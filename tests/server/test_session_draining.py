"""A server that is to stop."""

from __future__ import annotations

from qwen3tts_server.connection import Close
from tests.server.driver import Driver


def test_a_drain_finishes_what_is_open_and_takes_nothing_new() -> None:
    line = Driver()
    no = line.open()
    line.say(no, "Hello. ", end=True)
    line.act(line.session.drain(30.0, line.now))
    line.open(context_id="late")
    line.read()
    assert (line.error().code, line.error().context_id) == ("server_busy", "late")
    assert line.closed is None
    line.speak(no)
    line.read()
    assert line.done().samples == 2400
    assert line.closed == Close(1012, "the server is stopping; connect again")


def test_a_drain_closes_an_idle_connection_at_once() -> None:
    line = Driver()
    line.act(line.session.drain(30.0, line.now))
    assert line.closed is not None


def test_what_is_not_finished_in_time_ends_with_an_error() -> None:
    line = Driver()
    no = line.open()
    line.say(no, "Hello. ", end=True)
    line.act(line.session.drain(30.0, line.now))
    line.pass_time(30.0)
    line.read()
    assert (line.error().code, line.error().ends) == ("server_busy", "context")
    assert line.closed is not None
    assert line.speaking == {}
    assert line.session.next_deadline(line.now) is None


def test_a_drain_can_be_hastened_but_not_put_off() -> None:
    line = Driver()
    line.say(line.open(), "Hello. ", end=True)
    line.act(line.session.drain(30.0, line.now))
    line.act(line.session.drain(1.0, line.now))
    line.act(line.session.drain(60.0, line.now))
    line.pass_time(1.0)
    assert line.closed is not None


def test_a_context_that_is_done_does_not_hold_up_a_drain() -> None:
    line = Driver()
    no = line.open()
    line.say(no, "Hello. ", end=True)
    line.speak(no)
    line.read()
    line.act(line.session.drain(30.0, line.now))
    assert line.closed is not None
