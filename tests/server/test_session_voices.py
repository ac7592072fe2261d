"""Voices made while contexts speak."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qwen3tts_engine.base import LoadedVoice
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.messages import ErrorInfo, VoiceReady
from tests.engine.fake_engine import CloningEngine
from tests.server.driver import Driver


def cloning(**settings: Any) -> Driver:
    return Driver(CloningEngine(), **settings)


def load(line: Driver, request_id: str, **fields: object) -> None:
    line.client.send_voice_load(request_id, **fields)
    line.write()


def test_a_voice_is_loaded_and_its_request_answered() -> None:
    line = cloning()
    load(line, "r1", ref_audio="AAAA", ref_text="Hello.")
    assert line.loading == ["r1"]
    line.act(line.session.voice_loaded("r1", LoadedVoice("abc", False, "Hello."), line.now))
    assert line.read() == [VoiceReady("r1", "abc", False, "Hello.")]


def test_a_voice_that_cannot_be_loaded_is_an_error_of_its_request() -> None:
    line = cloning()
    load(line, "r1", ref_audio="AAAA")
    line.act(line.session.voice_failed("r1", BadRequest("It is silent.", remedy="Speak."), 1.0))
    (error,) = line.read()
    assert isinstance(error, ErrorInfo)
    assert (error.code, error.request_id, error.ends) == ("bad_request", "r1", "none")
    load(line, "r1", ref_audio="AAAA")
    assert line.loading == ["r1", "r1"]


@pytest.mark.parametrize("fields", [{}, {"voice_id": "a", "ref_audio": "AAAA"}])
def test_a_voice_is_named_or_made_of_audio(fields: dict[str, object]) -> None:
    line = cloning()
    load(line, "r1", **fields)
    line.read()
    assert (line.error().code, line.error().request_id) == ("bad_request", "r1")
    assert line.loading == []


def test_a_connection_waits_for_so_many_voices_at_once() -> None:
    line = cloning(max_voice_loads=2)
    for request_id in ("r1", "r2", "r3"):
        load(line, request_id, voice_id="a")
    line.read()
    assert line.loading == ["r1", "r2"]
    assert (line.error().code, line.error().request_id) == ("server_busy", "r3")
    assert line.error().retryable
    line.act(line.session.voice_loaded("r1", LoadedVoice("a", True), line.now))
    load(line, "r3", voice_id="a")
    assert line.loading == ["r1", "r2", "r3"]


def test_a_request_under_way_keeps_its_name() -> None:
    line = cloning()
    load(line, "r1", voice_id="a")
    load(line, "r1", voice_id="b")
    line.read()
    assert (line.error().code, line.error().request_id) == ("bad_request", "r1")
    assert line.loading == ["r1"]


def test_an_answer_is_given_once() -> None:
    line = cloning()
    load(line, "r1", voice_id="a")
    line.act(line.session.voice_loaded("r1", LoadedVoice("a", True), line.now))
    line.act(line.session.voice_loaded("r1", LoadedVoice("a", True), line.now))
    line.act(line.session.voice_failed("r1", BadRequest("late"), line.now))
    assert len(line.read()) == 1


def test_a_server_that_stops_answers_what_it_will_not_finish() -> None:
    line = cloning()
    no = line.open()
    line.say(no, "Hello. ", end=True)
    load(line, "r1", voice_id="a")
    line.act(line.session.drain(30.0, line.now))
    load(line, "r2", voice_id="a")
    line.speak(no)
    line.read()
    errors = [each for each in line.events if isinstance(each, ErrorInfo)]
    assert [(each.code, each.request_id) for each in errors] == [
        ("server_busy", "r2"),
        ("server_busy", "r1"),
    ]
    assert line.closed is not None


def test_options_that_there_are_not_are_refused_before_they_are_sent() -> None:
    line = cloning()
    with pytest.raises(BadRequest, match="takes no option speed"):
        line.client.send_voice_load("r1", speed=1.0)


def test_a_message_with_a_long_reference_is_read_and_no_other_is() -> None:
    line = cloning()
    load(line, "r1", ref_audio="A" * 2_000_000, ref_text="a, b" * 1000)
    assert line.loading == ["r1"]
    fields = {f"field{number}": 1 for number in range(20_000)}
    for message in (
        {"type": "voice.load", "request_id": "r2", **fields},
        {"type": "ping", "client_time_ms": 1.0, "x": "x" * 300_000},
    ):
        line.act(line.session.receive(json.dumps(message), line.now))
        (error,) = line.read()
        assert isinstance(error, ErrorInfo)
        assert error.code == "limit_exceeded"


def test_a_message_above_the_connections_bound_closes_it() -> None:
    line = cloning()
    message = {"type": "voice.load", "request_id": "r2", "ref_audio": "A" * 2_100_000}
    line.act(line.session.receive(json.dumps(message), line.now))
    assert line.closed is not None
    assert line.closed.code == 1009
    assert line.loading == []
