"""Every message of every carrier, to the byte, as the fixtures have them from the documents."""

from __future__ import annotations

import base64
import json

import pytest

from qwen3tts_codecs.l16 import l16
from qwen3tts_phone.errors import NotPossible
from qwen3tts_phone.streams.carriers.adapter import (
    Message,
    StreamAudio,
    StreamLost,
    StreamOddity,
    StreamStarted,
    StreamStopped,
)
from qwen3tts_phone.streams.carriers.json_media import JsonMediaAdapter
from qwen3tts_phone.streams.carriers.telnyx import TELNYX
from tests.streams.carrier_fixtures import (
    FOLDER,
    LINES,
    adapter_of,
    first_messages,
    played,
    script,
    shown,
    sound_message,
    started,
)

SOUND = base64.b64encode(bytes(range(160))).decode()
JSON_LINES = ("twilio", "telnyx", "plivo", "exotel")


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_the_conversation_is_as_it_is_written_down(name: str) -> None:
    conversation = script(name)
    adapter = adapter_of(conversation["line"])
    assert adapter.line == conversation["line"]
    for step in conversation["steps"]:
        if "events" in step:
            message = step.get("from") or base64.b64decode(step["from_bytes"])
            assert [shown(each) for each in adapter.receive(message, 0.0)] == step["events"]
        elif "to_bytes" in step:
            assert played(step, adapter) == [base64.b64decode(each) for each in step["to_bytes"]]
        else:
            assert played(step, adapter) == step["to"]


@pytest.mark.parametrize("line", LINES)
def test_what_no_protocol_has_is_noted_and_the_call_goes_on(line: str) -> None:
    adapter = adapter_of(line)
    bad: list[Message] = [
        "",
        "not json",
        "[]",
        "1",
        "null",
        '{"event":7}',
        '{"event":"future"}',
        "{" * 3000,
    ]
    if line in JSON_LINES:
        bad.append(b"\xff\xfe")
    for message in bad:
        (odd,) = adapter.receive(message, 0.0)
        assert isinstance(odd, StreamOddity)
    events = [each for message in first_messages(line) for each in adapter.receive(message, 0.0)]
    assert isinstance(events[-1], StreamStarted)
    assert any(
        isinstance(each, StreamAudio) for each in adapter.receive(sound_message(line, SOUND), 0.0)
    )


@pytest.mark.parametrize("line", JSON_LINES)
def test_text_that_comes_as_a_binary_message_is_none_of_the_carriers(line: str) -> None:
    adapter = adapter_of(line)
    for message in first_messages(line):
        assert isinstance(message, str)
        assert adapter.receive(message.encode(), 0.0) == [StreamOddity("a binary message")]


@pytest.mark.parametrize("line", LINES)
def test_sound_before_the_start_is_dropped(line: str) -> None:
    (odd,) = adapter_of(line).receive(sound_message(line, SOUND), 0.0)
    assert odd == StreamOddity("media before start")


@pytest.mark.parametrize("line", LINES)
def test_a_second_start_changes_nothing(line: str) -> None:
    adapter = started(line)
    before = (adapter.payload, adapter.clear())
    again = first_messages(line)[-1]
    assert isinstance(again, str)
    again = again.replace("8000", "16000").replace("MZ", "MY")
    assert adapter.receive(again, 0.0) == [StreamOddity("a second start")]
    assert (adapter.payload, adapter.clear()) == before


@pytest.mark.parametrize("line", JSON_LINES)
@pytest.mark.parametrize("payload", ["%%%", "AAA", "Zm9v\u00e9", 7, None, ["AAAA"]])
def test_sound_that_is_no_base64_becomes_a_hole(line: str, payload: object) -> None:
    message = json.loads(sound_message(line, ""))
    message["media"]["payload"] = payload
    events = started(line).receive(json.dumps(message), 0.0)
    assert events == [StreamOddity("sound that is no base64"), StreamLost(20.0)]


@pytest.mark.parametrize("line", ["exotel", "vonage", "jambonz"])
def test_half_a_sample_is_cut_off(line: str) -> None:
    message = sound_message(line, base64.b64encode(bytes(7)).decode())
    odd, audio = started(line).receive(message, 0.0)
    assert odd == StreamOddity("half a sample")
    assert isinstance(audio, StreamAudio)
    assert len(audio.data) == 6


@pytest.mark.parametrize("line", LINES)
def test_a_message_without_sound_is_odd_and_no_sound(line: str) -> None:
    events = started(line).receive(sound_message(line, ""), 0.0)
    assert events[0] == StreamOddity("media without sound")
    assert not any(isinstance(each, StreamAudio) for each in events)


@pytest.mark.parametrize("line", JSON_LINES)
def test_a_start_without_ids_still_begins_a_call(line: str) -> None:
    events = adapter_of(line).receive('{"event":"start","start":{}}', 0.0)
    assert events[0] == StreamOddity("a start without the call's id")
    assert isinstance(events[1], StreamStarted)
    assert events[1].call_id == line


@pytest.mark.parametrize("line", JSON_LINES)
def test_an_encoding_that_nobody_can_read_ends_the_stream_with_its_name(line: str) -> None:
    start = {"event": "start", "start": {"mediaFormat": {"encoding": "AMR-WB"}}}
    events = adapter_of(line).receive(json.dumps(start), 0.0)
    assert events[-1] == StreamStopped("its encoding AMR-WB cannot be read", error=True)


def test_spellings_of_the_other_carriers_are_read_too() -> None:
    start = {"event": "start", "streamSid": "S", "start": {"callSid": "C"}}
    for line in JSON_LINES:
        (event,) = adapter_of(line).receive(json.dumps(start), 0.0)
        assert isinstance(event, StreamStarted)
        assert (event.call_id, event.stream_id) == ("C", "S"), line


@pytest.mark.parametrize(
    "digit", ["", "12", "E", "\u0661", "\u00b2", None, True, 10, {"digit": "1"}, "1" * 10_000]
)
def test_a_key_that_no_telephone_has_is_odd(digit: object) -> None:
    for line, message in (
        ("twilio", {"event": "dtmf", "dtmf": {"digit": digit}}),
        ("vonage", {"event": "websocket:dtmf", "digit": digit}),
        ("jambonz", {"event": "dtmf", "dtmf": digit}),
    ):
        if line == "jambonz" and isinstance(digit, dict):
            continue  # the other spelling of a key
        (odd,) = started(line).receive(json.dumps(message), 0.0)
        assert odd == StreamOddity("a key that no telephone has"), line


def test_both_spellings_of_vonages_keys_are_read() -> None:
    for message in ({"digit": "5"}, {"dtmf": {"digit": "5"}}, {"dtmf": "5"}, {"digit": 5}):
        (event,) = started("vonage").receive(
            json.dumps({"event": "websocket:dtmf", **message}), 0.0
        )
        assert shown(event) == {"key": "5", "duration_ms": 0}


@pytest.mark.parametrize("line", ["twilio", "telnyx", "exotel", "vonage", "jambonz"])
def test_a_format_without_a_message_for_keys_says_so(line: str) -> None:
    with pytest.raises(NotPossible) as caught:
        started(line).keys("1")
    assert caught.value.line == line
    assert caught.value.remedy


def test_keys_for_plivo_are_only_keys() -> None:
    with pytest.raises(NotPossible):
        started("plivo").keys('1","event":"hangup')


def test_telnyx_plays_what_the_stream_was_asked_for_and_not_what_it_sends() -> None:
    adapter = JsonMediaAdapter(TELNYX, plays=l16(16000, 96), big_endian=True)
    for message in first_messages("telnyx"):
        adapter.receive(message, 0.0)
    assert adapter.payload.name == "L16"
    assert adapter.payload.sample_hz == 16000
    assert adapter.payload_in.name == "PCMA"


def test_what_telnyx_has_lost_is_a_hole_once_it_cannot_come_any_more() -> None:
    adapter = started("telnyx")
    assert len(adapter.receive(sound_message("telnyx", SOUND, 1), 0.00)) == 1
    assert adapter.receive(sound_message("telnyx", SOUND, 3), 0.02) == []
    assert adapter.tick(0.09) == []
    lost, audio = adapter.tick(0.101)
    assert lost == StreamLost(20.0)
    assert isinstance(audio, StreamAudio)


def test_what_twilio_has_left_out_by_its_time_stamps_is_a_hole() -> None:
    adapter = started("twilio")
    lost: list[float] = []
    for place in (136, 156, 175, 197, 257, 277, 9000, 9020, 5, 25, "x", 45):
        message = json.loads(sound_message("twilio", SOUND))
        message["media"]["timestamp"] = str(place)
        events = adapter.receive(json.dumps(message), 0.0)
        lost += [each.duration_ms for each in events if isinstance(each, StreamLost)]
        assert isinstance(events[-1], StreamAudio)
    assert lost == [40.0]


def test_what_waits_for_its_order_is_heard_before_the_end() -> None:
    adapter = started("telnyx")
    adapter.receive(sound_message("telnyx", SOUND, 1), 0.0)
    adapter.receive(sound_message("telnyx", SOUND, 3), 0.0)
    events = adapter.receive('{"event":"stop"}', 0.01)
    assert [type(each) for each in events] == [StreamLost, StreamAudio, StreamStopped]


def test_of_two_channels_of_jambonz_the_callers_is_heard() -> None:
    adapter = adapter_of("jambonz")
    odd, _ = adapter.receive('{"callSid":"c","sampleRate":8000,"mixType":"stereo"}', 0.0)
    assert odd == StreamOddity("sound of more than one channel")
    (audio,) = adapter.receive(b"\1\0\2\0\3\0\4\0", 0.0)
    assert isinstance(audio, StreamAudio)
    assert audio.data == b"\1\0\3\0"


def test_jambonz_rests_after_it_was_told_to_drop_everything() -> None:
    assert adapter_of("jambonz").rest_after_clear_ms == 60
    assert adapter_of("twilio").rest_after_clear_ms == 0


def test_only_lines_that_keep_something_back_are_asked_for_it() -> None:
    assert [line for line in LINES if adapter_of(line).wants_ticks] == ["telnyx", "exotel"]


@pytest.mark.parametrize("line", LINES)
def test_no_line_lets_more_than_400_ms_lie_at_the_carrier(line: str) -> None:
    assert (adapter_of(line).queue_lead_ms or 0) <= 400


def test_parameters_are_bounded_and_printable() -> None:
    given = {f"p{n}": "x" * 5000 for n in range(500)} | {"\x07": "\x1b[2J"}
    start = {"event": "start", "start": {"callSid": "c", "customParameters": given}}
    (event,) = adapter_of("twilio").receive(json.dumps(start), 0.0)
    assert isinstance(event, StreamStarted)
    assert len(event.parameters) == 64
    assert max(map(len, event.parameters.values())) == 1024
