from __future__ import annotations

import json
from typing import Any

import pytest

from qwen3tts_phone.streams.carriers.adapter import (
    Message,
    StreamAudio,
    StreamEvent,
    StreamFlow,
    StreamKey,
    StreamMark,
    StreamOddity,
    StreamStarted,
    StreamStopped,
)
from qwen3tts_phone.streams.carriers.asterisk import (
    FORMATS,
    MAX_MESSAGE_BYTES,
    ChanWebSocketAdapter,
    asterisk,
    chan_websocket,
)

PLAIN = (
    "MEDIA_START connection_id:e226e283-c90a-4ea9-9e37-389000b9ef47 channel:WebSocket/agent "
    "channel_id:pbx1-123456789.999 format:slin24 optimal_frame_size:960 ptime:20"
)
AS_JSON = {
    "event": "MEDIA_START",
    "connection_id": "e226e283-c90a-4ea9-9e37-389000b9ef47",
    "channel": "WebSocket/agent",
    "channel_id": "pbx1-123456789.999",
    "format": "slin24",
    "optimal_frame_size": 960,
    "ptime": 20,
    "channel_variables": {"CALLERID(num)": "15550001", "CUSTOMER": "42"},
}


def started(*, as_json: bool = True, **changes: Any) -> ChanWebSocketAdapter:
    adapter = ChanWebSocketAdapter()
    message = json.dumps(AS_JSON | changes) if as_json else PLAIN
    (start,) = adapter.receive(message, 0.0)
    assert isinstance(start, StreamStarted)
    return adapter


def take(adapter: ChanWebSocketAdapter, message: Message) -> list[StreamEvent]:
    return adapter.receive(message, 0.0)


@pytest.mark.parametrize("message", [PLAIN, json.dumps(AS_JSON), json.dumps(AS_JSON, indent=4)])
def test_the_start_says_which_channel_and_in_which_format(message: str) -> None:
    adapter = ChanWebSocketAdapter()
    (start,) = take(adapter, message)
    assert isinstance(start, StreamStarted)
    assert start.call_id == "pbx1-123456789.999"
    assert start.stream_id == "e226e283-c90a-4ea9-9e37-389000b9ef47"
    assert start.parameters["channel"] == "WebSocket/agent"
    assert (adapter.payload.sample_hz, adapter.ptime_ms) == (24_000, 20)
    assert not adapter.owns_clock


def test_channel_variables_come_with_json() -> None:
    (start,) = take(ChanWebSocketAdapter(), json.dumps(AS_JSON))
    assert isinstance(start, StreamStarted)
    assert start.from_uri == "15550001"
    assert start.parameters["CUSTOMER"] == "42"


@pytest.mark.parametrize("name", FORMATS)
def test_all_of_its_formats_are_spoken(name: str) -> None:
    adapter = started(format=name, optimal_frame_size=0)
    assert adapter.payload is FORMATS[name]


def test_a_format_that_is_not_spoken_ends_the_call_with_the_reason() -> None:
    (stop,) = take(ChanWebSocketAdapter(), json.dumps(AS_JSON | {"format": "speex16"}))
    assert isinstance(stop, StreamStopped)
    assert stop.error
    assert "speex16" in stop.cause


def test_opus_is_framed_and_timed_here() -> None:
    adapter = started(format="opus", optimal_frame_size=0)
    assert (adapter.owns_clock, adapter.has_marks, adapter.clear()) == (True, False, ())


@pytest.mark.parametrize("size", [160, 960])
def test_sound_goes_both_ways_as_it_is(size: int) -> None:
    adapter = started()
    assert take(adapter, bytes(size)) == [StreamAudio(bytes(size))]
    assert list(adapter.audio(bytes(size))) == [bytes(size)]


def test_no_message_is_longer_than_asterisk_takes() -> None:
    messages = started().audio(bytes(150_000))
    assert [len(each) for each in messages] == [
        MAX_MESSAGE_BYTES,
        MAX_MESSAGE_BYTES,
        150_000 - 2 * MAX_MESSAGE_BYTES,
    ]


def test_commands_have_the_form_of_the_events() -> None:
    plain, as_json = started(as_json=False), started()
    assert plain.clear() == ("FLUSH_MEDIA",)
    assert plain.mark("q7") == ("MARK_MEDIA q7",)
    assert plain.hang_up() == ("HANGUP",)
    assert plain.answer() == ("ANSWER",)
    assert [json.loads(each) for each in as_json.clear()] == [{"command": "FLUSH_MEDIA"}]
    assert [json.loads(each) for each in as_json.mark("q7")] == [
        {"command": "MARK_MEDIA", "correlation_id": "q7"}
    ]
    assert [json.loads(each) for each in as_json.hang_up()] == [{"command": "HANGUP"}]


@pytest.mark.parametrize(
    ("plain", "values", "event"),
    [
        ("DTMF_END digit:5", {"event": "DTMF_END", "digit": "5"}, StreamKey("5")),
        ("DTMF_END digit:#", {"event": "DTMF_END", "digit": "#"}, StreamKey("#")),
        ("MEDIA_XOFF", {"event": "MEDIA_XOFF", "channel_id": "x"}, StreamFlow(stop=True)),
        ("MEDIA_XON", {"event": "MEDIA_XON", "channel_id": "x"}, StreamFlow(stop=False)),
        (
            "MEDIA_MARK_PROCESSED correlation_id:q3",
            {"event": "MEDIA_MARK_PROCESSED", "channel_id": "x", "correlation_id": "q3"},
            StreamMark("q3"),
        ),
        (
            "MEDIA_MARK_PROCESSED q3",
            {"event": "MEDIA_MARK_PROCESSED", "correlation_id": "q3"},
            StreamMark("q3"),
        ),
        ("HANGUP", {"event": "HANGUP"}, StreamStopped()),
    ],
)
def test_events_are_understood_in_both_forms(
    plain: str, values: dict[str, Any], event: StreamEvent
) -> None:
    assert take(started(as_json=False), plain) == [event]
    assert take(started(), json.dumps(values)) == [event]


def test_events_that_tell_nothing_are_no_oddities() -> None:
    adapter = started(as_json=False)
    for message in (
        "STATUS queue_length:43 xon_level:800 xoff_level:900 queue_full:false",
        "QUEUE_DRAINED",
        "MEDIA_BUFFERING_COMPLETED correlation_id:1",
    ):
        assert take(adapter, message) == []


def test_frames_of_another_length_are_cut_by_asterisk() -> None:
    adapter = started(optimal_frame_size=480)
    assert [json.loads(each)["command"] for each in adapter.answer()] == [
        "ANSWER",
        "START_MEDIA_BUFFERING",
    ]
    assert [json.loads(each)["command"] for each in adapter.clear()] == [
        "FLUSH_MEDIA",
        "START_MEDIA_BUFFERING",
    ]


def test_another_packet_time_is_taken_over() -> None:
    adapter = started(format="ulaw", ptime=30, optimal_frame_size=240)
    assert adapter.ptime_ms == 30
    assert adapter.answer() == ('{"command": "ANSWER"}',)


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (json.dumps(AS_JSON), "a second start"),
        ("MEDIA_START format:ulaw", "a second start"),
        (b"", "sound that is empty"),
        ("", "an unknown event"),
        ("NONSENSE a b c", "an unknown event"),
        ("{}", "an unknown event"),
        ("[1, 2]", "an unknown event"),
        ('{"event": ["DTMF_END"]}', "an unknown event"),
        ("DTMF_END", "a key that no telephone has"),
        ("DTMF_END digit:55", "a key that no telephone has"),
        ('{"event": "DTMF_END", "digit": null}', "a key that no telephone has"),
    ],
)
def test_what_is_odd_is_told_and_the_call_goes_on(message: Message, what: str) -> None:
    adapter = started()
    assert take(adapter, message) == [StreamOddity(what)]
    assert take(adapter, bytes(960)) == [StreamAudio(bytes(960))]


def test_sound_before_the_start_is_not_taken() -> None:
    adapter = ChanWebSocketAdapter()
    assert take(adapter, bytes(960)) == [StreamOddity("sound before the start")]
    assert isinstance(take(adapter, PLAIN)[0], StreamStarted)


def test_only_its_start_says_which_form_asterisk_speaks() -> None:
    adapter = ChanWebSocketAdapter()
    take(adapter, '{"event": "FUTURE"}')
    take(adapter, PLAIN)
    assert list(adapter.mark("q1")) == ["MARK_MEDIA q1"]


def test_both_names_are_the_same_kind() -> None:
    assert (asterisk().name, chan_websocket().name) == ("asterisk", "chan_websocket")
    assert asterisk().subprotocols == chan_websocket().subprotocols == ("media",)
