"""A server that is to stop."""

from __future__ import annotations

import pytest

from qwen3tts_server.connection import IDLE, Close
from qwen3tts_server.speech_stream import NullObserver
from qwen3tts_server.utterance import Utterance
from qwen3tts_wire.messages import FEATURES
from tests.engine.fake_engine import CloningEngine, FakeEngine
from tests.server.driver import Driver, tone


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


SECOND = 24_000


def left(driver: Driver) -> Close | None:
    return driver.closed


def test_who_never_says_anything_is_asked_to_go() -> None:
    driver = Driver(timed=True, first_message_s=30)
    driver.pass_time(29.9)
    assert left(driver) is None
    driver.pass_time(0.2)
    assert (close := left(driver)) is not None
    assert close.code == IDLE
    assert "nothing was said" in close.reason


def test_who_has_spoken_has_longer_and_each_message_counts() -> None:
    driver = Driver(timed=True, first_message_s=30, idle_s=600)
    for _ in range(3):
        driver.pass_time(29)
        driver.client.send_ping(1.0)
        driver.write()
    driver.pass_time(599)
    assert left(driver) is None
    driver.pass_time(2)
    assert (close := left(driver)) is not None
    assert "no message" in close.reason


def test_who_takes_no_sound_and_says_nothing_is_asked_to_go() -> None:
    driver = Driver(timed=True, idle_s=10, ahead_ms=100)
    no = driver.open(pause_flush_ms=0, window_ms=20)
    driver.say(no, "Hello.", end=True)
    driver.produce(no, tone(SECOND))
    driver.read()
    assert driver.paused == {no}
    driver.pass_time(9.9)
    assert left(driver) is None
    driver.client.send_credit(no, 20)
    driver.write()
    driver.read()
    driver.pass_time(9.9)
    assert left(driver) is None
    driver.pass_time(0.2)
    assert left(driver) is not None


def test_who_opens_an_utterance_and_never_writes_it_is_asked_to_go() -> None:
    driver = Driver(timed=True, idle_s=10)
    driver.open()
    driver.pass_time(11)
    assert left(driver) is not None


def test_nobody_is_asked_to_go_while_the_engine_works_for_him() -> None:
    driver = Driver(timed=True, idle_s=10)
    no = driver.open(pause_flush_ms=0)
    driver.say(no, "Hello.", end=True)
    driver.pass_time(1000)
    assert left(driver) is None
    driver.speak(no)
    driver.read()
    driver.pass_time(10.1)
    assert left(driver) is not None


def test_zero_is_any_time() -> None:
    driver = Driver(timed=True, first_message_s=0, idle_s=0)
    driver.pass_time(1e6)
    driver.client.send_ping(1.0)
    driver.write()
    driver.pass_time(1e6)
    assert left(driver) is None


def test_the_greeting_names_what_the_engine_can_do() -> None:
    class Poor(FakeEngine):
        alignment = "none"

    class Rich(FakeEngine):
        alignment = "estimated"
        options = frozenset({"lead"})

    assert Driver(FakeEngine()).one_session().features == ("alignment",)
    assert Driver(Poor()).one_session().features == ()
    features = Driver(Rich(live=True)).one_session().features
    assert features == ("live_text", "estimated_alignment", "playout_steering")
    assert set(features) < set(FEATURES)


@pytest.mark.parametrize(
    ("task", "can"), [("custom_voice", False), ("voice_design", False), ("base", True)]
)
def test_a_checkpoint_that_was_not_made_for_it_states_no_voice_loading(
    task: str, can: bool
) -> None:
    engine = CloningEngine()
    engine.task = task  # type: ignore[attr-defined]
    created = Driver(engine).one_session()
    assert ("voice_loading" in created.features) is can
    # Voices that are brought to it later may take live text, though none is there yet.
    assert ("live_text" in created.features) is can
    assert created.modes == ("clause",)


class Kept(NullObserver):
    """Keeps the last utterance that was opened."""

    utterance: Utterance

    def opened(self, utterance: Utterance) -> None:
        """See Observer."""
        self.utterance = utterance


@pytest.fixture
def kept() -> Kept:
    return Kept()


def spoken(kept: Kept, text: str = "One two three. ") -> tuple[Driver, int]:
    driver = Driver(observer=kept)
    no = driver.open()
    say(driver, no, text)
    return driver, no


def say(driver: Driver, no: int, text: str) -> None:
    """So that the engine has it immediately."""
    driver.say(no, text)
    driver.client.send_flush(no)
    driver.write()


def test_sound_that_comes_in_time_leaves_no_gap(kept: Kept) -> None:
    driver, no = spoken(kept)
    for _ in range(4):
        driver.produce(no, tone(SECOND // 10))
        driver.read()
        driver.pass_time(0.1)
    assert kept.utterance.gaps == []


def test_a_chunk_that_comes_late_is_a_gap_of_what_was_missing(kept: Kept) -> None:
    driver, no = spoken(kept)
    driver.produce(no, tone(SECOND // 10))
    driver.read()
    driver.pass_time(0.25)
    driver.produce(no, tone(SECOND // 10))
    driver.read()
    assert kept.utterance.gaps == [pytest.approx(0.15)]


def test_waiting_for_text_is_no_gap_but_waiting_for_the_engine_after_it_is(kept: Kept) -> None:
    driver, no = spoken(kept)
    driver.produce(no, tone(SECOND // 10))
    driver.finish(no)
    driver.read()
    driver.pass_time(5)
    say(driver, no, "Four five six. ")
    driver.pass_time(0.07)
    driver.produce(no, tone(SECOND // 10))
    driver.read()
    assert kept.utterance.gaps == [pytest.approx(0.07)]


def test_what_lies_unread_is_not_the_engines_gap(kept: Kept) -> None:
    driver, no = spoken(kept)
    driver.produce(no, tone(SECOND // 10))
    driver.pass_time(3)
    driver.produce(no, tone(SECOND // 10))
    assert kept.utterance.gaps == []
