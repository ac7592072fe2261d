"""Fuzz targets: what Asterisk, or whoever is in its place, sends on its media streams."""

from __future__ import annotations

import json

from qwen3tts_phone.call.keys import KEYS
from qwen3tts_phone.streams.admission import StreamAdmission
from qwen3tts_phone.streams.carriers.adapter import (
    Handshake,
    Refused,
    StreamAdapter,
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamOddity,
    StreamStarted,
)
from qwen3tts_phone.streams.carriers.asterisk import ChanWebSocketAdapter
from qwen3tts_phone.streams.carriers.audiosocket import AudioSocketAdapter
from qwen3tts_phone.streams.carriers.http import MAX_FORM_BYTES
from qwen3tts_phone.streams.inbound import StreamDecoder
from qwen3tts_phone.streams.settings import StreamSettings
from tests.fuzz.target import Target, steps, story

ID = b"\x01\x00\x10" + bytes(range(16))
START = (
    "MEDIA_START connection_id:c channel:WebSocket/a channel_id:1.2 format:ulaw "
    "optimal_frame_size:160 ptime:20"
)
START_JSON = json.dumps(
    {
        "event": "MEDIA_START",
        "connection_id": "c",
        "channel_id": "1.2",
        "format": "slin24",
        "optimal_frame_size": 960,
        "ptime": 20,
        "channel_variables": {"A": "b"},
    }
)


def _check(events: list[StreamEvent], adapter: StreamAdapter, hearing: StreamDecoder) -> None:
    starts = [each for each in events if isinstance(each, StreamStarted)]
    assert all(each.call_id for each in starts)
    for event in events:
        if isinstance(event, StreamKey):
            assert event.digit in KEYS
            assert len(event.digit) == 1
            assert 0 <= event.duration_ms <= 60_000
        if isinstance(event, StreamOddity):
            assert event.what
            assert len(event.what) < 60
        if isinstance(event, StreamAudio):
            for heard in hearing.take(event, adapter.payload_in, 100.0):
                assert len(heard.samples) <= 5760 * 4


def _out(adapter: StreamAdapter) -> None:
    """What we say is well formed, whatever came."""
    frame = adapter.payload.silent_frame(adapter.ptime_ms)
    for message in (
        *adapter.audio(frame),
        *adapter.clear(),
        *adapter.hang_up(),
        *adapter.mark("q"),
    ):
        assert message
        assert len(message) <= MAX_FORM_BYTES


def run_audiosocket(data: bytes) -> None:
    """All at once, and byte by byte: the same is understood."""
    whole, cut = AudioSocketAdapter(), AudioSocketAdapter()
    events = whole.receive(data, 100.0)
    assert [event for byte in data for event in cut.receive(bytes([byte]), 100.0)] == events
    assert sum(isinstance(each, StreamStarted) for each in events) <= 1
    _check(events, whole, StreamDecoder())
    _check(whole.tick(200.0), whole, StreamDecoder())
    _out(whole)


def run_chan_websocket(data: bytes) -> None:
    """Steps: ``t`` a text message, ``b`` a binary one."""
    adapter, hearing, starts = ChanWebSocketAdapter(), StreamDecoder(), 0
    for kind, rest in steps(data):
        message = rest.decode("utf-8", "replace") if kind == "t" else rest
        events = adapter.receive(message, 100.0)
        starts += sum(isinstance(each, StreamStarted) for each in events)
        _check(events, adapter, hearing)
        _out(adapter)
    assert starts <= 1


def run_stream_gate(data: bytes) -> None:
    """The first line is the query, the second the Authorization header, the third the address."""
    query, authorization, peer, *_ = [*data.decode("utf-8", "replace").split("\n"), "", "", ""]
    gate = StreamAdmission(StreamSettings(token="secret", allow=("10.0.0.0/8", "2001:db8::/32")))
    handshake = Handshake(query=query, headers={"authorization": authorization}, peer=peer)
    status = 0
    try:
        gate.check(handshake)
    except Refused as refused:
        status = refused.status
    assert status in (0, 401, 403)
    assert status or query or authorization


TARGETS = {
    "audiosocket": Target(
        run_audiosocket,
        "Any bytes are messages or oddities, however they are cut; what is said is well formed.",
        (
            ID + b"\x10\x01\x40" + bytes(320) + b"\x03\x00\x015" + b"\x00\x00\x00",
            ID + b"\x13\x03\xc0" + bytes(960) + b"\xff\x00\x01\x01",
        ),
        (b"\x10\x00\x02", b"\x03\x00\x01", b"\x00\x00\x00", b"\xff\x00\x01", ID),
    ),
    "chan_websocket": Target(
        run_chan_websocket,
        "Any messages are events or oddities; there is one start, and what is answered is well "
        "formed.",
        (
            story("t" + START, b"b" + bytes(160), "tDTMF_END digit:5", "tHANGUP"),
            story("t" + START_JSON, b"b" + bytes(960), 't{"event": "MEDIA_XOFF"}'),
        ),
        (b"MEDIA_START", b"format:", b"ptime:", b"DTMF_END", b"digit:", b'"event"', b"opus"),
        stepwise=True,
    ),
    "stream_gate": Target(
        run_stream_gate,
        "Any handshake is let in or refused; without the token it is refused.",
        (
            b"token=secret\n\n10.0.0.1",
            b"\nBearer secret\n2001:db8::1",
            b"\nBasic dTpzZWNyZXQ=\n10.1.1.1",
        ),
        (b"token=", b"Bearer ", b"Basic ", b"secret", b"::ffff:"),
        most_bytes=512,
    ),
}

HARD: dict[str, tuple[bytes, ...]] = {
    "audiosocket": (
        b"",
        b"\x10\xff\xff",  # the longest message, and nothing of it
        b"\x01\x00\x00" + b"\x01\xff\xff" + bytes(65_535),
        b"\x00\x00\x05hello" + ID,
        ID + b"\x10\x00\x01\x00" * 50,
        ID + b"\x03\x00\x01\xff" + b"\x03\x00\x00",
        ID + b"".join(bytes([kind]) + b"\x00\x02\x00\x01" for kind in range(256)),
        ID + b"\x18\xff\xfe" + bytes(65_534),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    "chan_websocket": (
        story("t", b"b", "t{", "t[]", "tnull", "t\x00"),
        story("t" + START, "t" + START, "t" + START_JSON),
        story('t{"event": "MEDIA_START", "format": "slin192", "ptime": 60}', b"b" + bytes(4000)),
        story('t{"event": "MEDIA_START", "format": "opus"}', b"b\xff\xff\x00", b"b\xfc"),
        story(
            't{"event": "MEDIA_START", "format": "g722", "ptime": 10}', b"b\x01", b"b" + bytes(99)
        ),
        story('t{"event": "MEDIA_START", "format": ["ulaw"], "ptime": 1e400}'),
        story(
            't{"event": "MEDIA_START", "format": "slin44", "ptime": 10, "channel_id": '
            + "9" * 400
            + "}"
        ),
        story('t{"event": "DTMF_END", "digit": {"a": 1}, "duration": NaN}', "tDTMF_END digit:"),
        story("t" + "[" * 4000),
        story(
            "tMEDIA_START format:ulaw ptime:99999999999999999999 optimal_frame_size:-1", b"b\x00"
        ),
        story("tMEDIA_START " + "a:b " * 900),
        story(
            "t" + START,
            "tMEDIA_MARK_PROCESSED",
            "tMEDIA_MARK_PROCESSED correlation_id:" + "q" * 999,
        ),
    ),
    "stream_gate": (
        b"token=" + b"%00" * 100,
        b"token=secret&token=\xff\n",
        b"\nBasic \xff\xff\n10.0.0.1",
        b"\nBasic " + b"=" * 300 + b"\n10.0.0.1",
        b"token=secret\n\n10.0.0.1%eth0",
        b"token=secret\n\n::ffff:10.0.0.1",
        b"token=secret\n\nnowhere",
        b"\xf0\x28\n\xc3\x28\n1.2.3.4.5",
    ),
}
