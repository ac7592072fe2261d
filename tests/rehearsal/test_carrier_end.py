"""The carrier's end of a media stream, against the carriers' documents and our own adapters."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.streams.carriers.adapter import (
    Message,
    StreamAdapter,
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamMark,
    StreamStarted,
    StreamStopped,
)
from qwen3tts_phone.streams.carriers.asterisk import ChanWebSocketAdapter
from qwen3tts_rehearsal.carrier_dialects import DIALECTS, FRAME_SAMPLES
from qwen3tts_rehearsal.carrier_end import CarrierEnd, PlayoutQueue
from tests.streams.carrier_fixtures import adapter_of, script

DOCUMENTED = tuple(line for line in DIALECTS if line != "asterisk")
RAMP = (np.sin(np.arange(FRAME_SAMPLES) / 4) * 8000).astype(np.int16)
OPTIONAL = {"customParameters", "custom_parameters", "tags", "client_state", "call_session_id"}
"""Fields that a carrier sends only where they are set."""


def adapter(line: str) -> StreamAdapter:
    return ChanWebSocketAdapter() if line == "asterisk" else adapter_of(line)


def fields(message: object) -> object:
    """The message with the kinds of its values in place of them."""
    if isinstance(message, dict):
        return {name: fields(value) for name, value in message.items() if name not in OPTIONAL}
    return type(message).__name__


def kind_of(message: dict[str, Any]) -> str:
    return str(message.get("event") or message.get("type") or "start")


def documented(line: str) -> dict[str, dict[str, Any]]:
    """The carrier's messages in the fixture, the first one of each kind."""
    found: dict[str, dict[str, Any]] = {}
    for step in script(line)["steps"]:
        if "from" in step:
            message = json.loads(step["from"])
            found.setdefault(kind_of(message), message)
    return found


def all_of(end: CarrierEnd, agent: StreamAdapter) -> list[Message]:
    """Each message that an end sends."""
    sent = [*end.begin()]
    for each in sent:
        agent.receive(each, 0.0)
    sent += [end.audio(RAMP), end.key("5")]
    for message in (*agent.mark("q1"), *agent.clear()):
        sent += end.receive(message)
    for message in agent.mark("q2"):
        sent += end.receive(message)
    sent += end.play()[1]
    return [*sent, *end.stop()]


@pytest.mark.parametrize("line", DOCUMENTED)
def test_its_messages_have_the_fields_of_the_carriers_documents(line: str) -> None:
    known = documented(line)
    seen = set()
    for message in all_of(CarrierEnd(line), adapter(line)):
        if isinstance(message, bytes):
            continue
        read = json.loads(message)
        kind = kind_of(read)
        seen.add(kind)
        assert fields(read) == fields(known[kind]), kind
    assert seen == set(known) - {"error"}


@pytest.mark.parametrize("line", DIALECTS)
def test_an_agent_of_ours_hears_the_call(line: str) -> None:
    end, agent = CarrierEnd(line, from_number="+15550100", to_number="+15550199"), adapter(line)
    events: list[StreamEvent] = []
    for message in all_of(end, agent):
        events += agent.receive(message, 0.0)
    started = [each for each in events if isinstance(each, StreamStarted)]
    # The start has been received before by `all_of`; a second one is an oddity.
    assert not started
    assert [each.digit for each in events if isinstance(each, StreamKey)] == ["5"]
    assert [each.name for each in events if isinstance(each, StreamMark)] == ["q1", "q2"]
    assert any(isinstance(each, StreamAudio) for each in events)
    if end.dialect.stop is not None:
        assert isinstance(events[-1], StreamStopped)


@pytest.mark.parametrize("line", DIALECTS)
def test_the_start_names_both_parties(line: str) -> None:
    end, agent = CarrierEnd(line, from_number="+15550100", to_number="+15550199"), adapter(line)
    events = [event for each in end.begin() for event in agent.receive(each, 0.0)]
    (started,) = (each for each in events if isinstance(each, StreamStarted))
    assert started.from_uri == "+15550100"
    assert started.to_uri == "+15550199"


@pytest.mark.parametrize("line", DIALECTS)
def test_sound_passes_both_ways(line: str) -> None:
    end, agent = CarrierEnd(line), adapter(line)
    for message in end.begin():
        agent.receive(message, 0.0)
    tone = (np.sin(np.arange(8000) * 2 * np.pi * 440 / 8000) * 8000).astype(np.int16)
    heard = b""
    for at in range(0, 8000, FRAME_SAMPLES):
        for event in agent.receive(end.audio(tone[at : at + FRAME_SAMPLES]), at / 8000):
            heard += event.data if isinstance(event, StreamAudio) else b""
    payload = agent.payload_in
    assert len(heard) == payload.frame_bytes(20) * 50
    assert np.abs(payload.decoder().decode(heard)).max() == pytest.approx(8000, rel=0.05)
    for at in range(0, len(heard), size := agent.payload.frame_bytes(20)):
        for message in agent.audio(heard[at : at + size]):
            end.receive(message)
    for _ in range(3):  # what a carrier joins into longer messages
        for message in agent.flush():
            end.receive(message)
    played = np.concatenate([end.play()[0] for _ in range(50)])
    assert np.abs(played).max() == pytest.approx(8000, rel=0.05)
    assert end.counts.sound > 0
    assert not end.counts.odd


def test_a_mark_returns_when_all_before_it_was_played() -> None:
    end = CarrierEnd("twilio")
    end.begin()
    sound = base64.b64encode(bytes(240)).decode()
    end.receive(json.dumps({"event": "media", "media": {"payload": sound}}))
    end.receive(json.dumps({"event": "mark", "mark": {"name": "after"}}))
    assert end.play()[1] == []
    _, answers = end.play()
    assert [json.loads(each)["mark"]["name"] for each in answers] == ["after"]


def test_a_clear_drops_what_is_queued_and_returns_its_marks() -> None:
    end = CarrierEnd("twilio")
    end.receive(json.dumps({"event": "media", "media": {"payload": "AAAA" * 200}}))
    end.receive(json.dumps({"event": "mark", "mark": {"name": "never"}}))
    answers = end.receive(json.dumps({"event": "clear"}))
    assert "never" in str(answers)
    assert end.queued_s == 0
    assert not end.play()[0].any()


def test_an_agent_that_hangs_up_or_sends_keys() -> None:
    jambonz, plivo = CarrierEnd("jambonz"), CarrierEnd("plivo")
    jambonz.receive('{"type":"disconnect"}')
    assert jambonz.hung_up
    plivo.receive('{"event":"sendDTMF","dtmf":"12#"}')
    assert plivo.keys_sent == "12#"


@pytest.mark.parametrize(
    "message",
    [
        b"\x00\x01",
        "",
        "[]",
        "nonsense",
        '{"event":"media","media":{"payload":"?"}}',
        '{"event":"media","media":{"payload":""}}',
        '{"event":"media"}',
        '{"event":"mark"}',
        '{"event":"mark","mark":{"name":7}}',
        '{"event":{"a":1}}',
        '{"event":"media","media":"x"}',
    ],
)
def test_a_message_that_a_carrier_refuses_is_counted(message: Message) -> None:
    end = CarrierEnd("twilio")
    assert end.receive(message) == []
    assert sum(end.counts.odd.values()) == 1


def test_half_a_sample_is_refused() -> None:
    end = CarrierEnd("vonage")
    end.receive(b"\x00\x00\x00")
    assert end.counts.odd == {"half a sample": 1}


def test_a_key_that_no_telephone_has() -> None:
    with pytest.raises(ValueError, match="no key"):
        CarrierEnd("twilio").key("E")


@given(
    st.lists(
        st.one_of(st.integers(0, 500), st.sampled_from(["mark", "clear", "play"])), max_size=40
    )
)
def test_a_queue_plays_each_sample_once_and_in_order(steps: list[int | str]) -> None:
    queue, pushed, expected, heard = PlayoutQueue(), 0, list[int](), list[int]()
    names, returned = list[str](), list[str]()
    for number, step in enumerate([*steps, *["play"] * (40 * 500 // FRAME_SAMPLES + 1)]):
        if isinstance(step, int):
            samples = np.arange(pushed + 1, pushed + step + 1, dtype=np.int16)
            pushed += step
            queue.push(samples)
            expected += samples.tolist()
        elif step == "mark":
            names.append(str(number))
            queue.mark(str(number))
        elif step == "clear":
            returned += queue.clear()
            expected = expected[: len(heard)]
        else:
            frame, marks = queue.play(FRAME_SAMPLES)
            returned += marks
            heard += [each for each in frame.tolist() if each]
        assert queue.queued_samples == len(expected) - len(heard)
    assert heard == expected
    assert returned == names
