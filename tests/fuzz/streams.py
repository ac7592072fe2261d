"""Media streams of carriers and of Asterisk, and the requests that open them."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

from qwen3tts_phone.call.keys import KEYS
from qwen3tts_phone.streams.admission import StreamAdmission
from qwen3tts_phone.streams.carriers.adapter import (
    Handshake,
    Message,
    Refused,
    StreamAdapter,
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamLost,
    StreamOddity,
    StreamStarted,
)
from qwen3tts_phone.streams.carriers.asterisk import ChanWebSocketAdapter
from qwen3tts_phone.streams.carriers.audiosocket import AudioSocketAdapter
from qwen3tts_phone.streams.carriers.authentication import BasicPassword, HeaderToken, StreamPasses
from qwen3tts_phone.streams.carriers.exotel import exotel
from qwen3tts_phone.streams.carriers.http import (
    MAX_FORM_BYTES,
    BadSignature,
    CarrierRequest,
    requested_url,
)
from qwen3tts_phone.streams.carriers.jambonz import JambonzSignature, jambonz
from qwen3tts_phone.streams.carriers.plivo import PlivoSignature, plivo
from qwen3tts_phone.streams.carriers.telnyx import telnyx
from qwen3tts_phone.streams.carriers.twilio import TwilioSignature, twilio
from qwen3tts_phone.streams.carriers.vonage import VonageToken, vonage
from qwen3tts_phone.streams.inbound import StreamDecoder
from qwen3tts_phone.streams.settings import StreamSettings
from tests.fuzz.target import Target, sequence, steps
from tests.streams.carrier_fixtures import FOLDER, LINES, adapter_of, script

LETTERS = dict(zip("abcdef", LINES, strict=True))

KEY = "the-one-key-that-is-taken"
NOW = 1_800_000_000.0
MOST_EVENTS = 64


def run_carrier(data: bytes) -> None:
    """The first byte chooses the carrier. Steps: a text or a binary message, or time."""
    adapter = adapter_of(LETTERS.get(chr(data[0]) if data else "a", "twilio"))
    hearing, now, begun = StreamDecoder(), 0.0, 0
    for kind, rest in steps(data[1:]):
        if kind == "w":
            now += len(rest) * 0.01
            events = adapter.tick(now)
            adapter.flush()
        else:
            message: Message = rest.decode("utf-8", "replace") if kind == "t" else rest
            events = adapter.receive(message, now)
        assert len(events) <= MOST_EVENTS
        for event in events:
            if isinstance(event, StreamStarted):
                begun += 1
                assert event.call_id
                assert len(event.parameters) <= 64
                json.dumps([event.call_id, event.from_uri, dict(event.parameters)])
            elif isinstance(event, StreamAudio):
                assert begun
                hearing.take(event, adapter.payload_in, now)
            elif isinstance(event, StreamLost):
                assert 0 < event.duration_ms <= 3_600_000
            elif isinstance(event, StreamOddity):
                assert len(event.what) < 200
        for out in (*adapter.clear(), *adapter.mark("q1"), *adapter.audio(bytes(320))):
            assert isinstance(out, bytes) or json.loads(out)
    assert begun <= 1, "a second start"


def run_admission(data: bytes) -> None:
    """Steps: a part of a request each. Without the key it is refused."""
    headers: dict[str, str] = {}
    path, query, body, public = "/twilio", "", b"", ""
    names = {
        "a": "authorization",
        "t": "x-twilio-signature",
        "p": "x-plivo-signature-v3",
        "P": "x-plivo-signature-v2",
        "n": "x-plivo-signature-v3-nonce",
        "N": "x-plivo-signature-v2-nonce",
        "x": "x-telnyx-streaming-auth-token",
        "j": "jambonz-signature",
        "h": "host",
        "c": "content-type",
    }
    for kind, rest in steps(data):
        text = rest.decode("utf-8", "replace")
        if kind in names:
            headers[names[kind]] = text
        elif kind == "/":
            path = "/" + text
        elif kind == "?":
            query = text
        elif kind == "b":
            body = rest
        elif kind == "u":
            public = text
    handshake = Handshake("POST" if body else "GET", path, query, headers, body=body)
    try:
        request = CarrierRequest(requested_url(handshake, public), headers, handshake.method, body)
    except ValueError:
        return  # our public address is invalid
    checks = (
        TwilioSignature(KEY),
        PlivoSignature(KEY),
        JambonzSignature(KEY),
        VonageToken(KEY),
        BasicPassword("user", KEY),
        HeaderToken(KEY),
    )
    shown = any(KEY in value for value in headers.values()) or _known(headers)
    for check in checks:
        try:
            check.check(request, NOW)
        except BadSignature:
            continue
        assert shown, f"{type(check).__name__} accepted a request without the key"
    assert not StreamPasses(KEY.encode()).take(path, NOW)
    for stream in KINDS:
        assert stream.answer is not None
        assert stream.check is not None
        try:
            stream.check(handshake)
        except Refused:
            pass
        else:
            assert shown or path.endswith("/answer")
        content_type, text = stream.answer(handshake)
        assert len(text) < 64_000
        if content_type == "application/json":
            json.loads(text)


KINDS = (
    twilio(auth_token=KEY, account_sid="A", clock=lambda: NOW),
    telnyx(stream_token=KEY, public_key="", api_key="", clock=lambda: NOW),
    plivo(auth_token=KEY, auth_id="A", clock=lambda: NOW),
    exotel(user="user", password=KEY, clock=lambda: NOW),
    vonage(signature_secret=KEY, clock=lambda: NOW),
    jambonz(user="user", password=KEY, webhook_secret=KEY, clock=lambda: NOW),
)


def _known(headers: dict[str, str]) -> bool:
    """Return whether a header contains one of the valid signatures below."""
    return any(good.lower() in value.lower() for good in GOOD for value in headers.values())


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _token() -> str:
    signed = f"{_part({'alg': 'HS256'})}.{_part({'iat': NOW})}"
    digest = hmac.digest(KEY.encode(), signed.encode(), "sha256")
    return f"Bearer {signed}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


_TWILIO = base64.b64encode(hmac.digest(KEY.encode(), b"wss://h.example/twilio", "sha1")).decode()

_PLIVO = base64.b64encode(hmac.digest(KEY.encode(), b"wss://h.example/twilio.1", "sha256")).decode()

_JAMBONZ = "t=1800000000,v1=" + hmac.new(KEY.encode(), b"1800000000.", "sha256").hexdigest()

_BASIC = "Basic " + base64.b64encode(f"user:{KEY}".encode()).decode()

GOOD = (_TWILIO, _PLIVO, _JAMBONZ[-64:], _BASIC[6:], _token()[-43:])
"""Made with the key, and therefore as good as it."""


def _conversation(name: str) -> bytes:
    conversation: dict[str, Any] = script(name)
    letter = next(key for key, line in LETTERS.items() if line == conversation["line"])
    pieces: list[str | bytes] = []
    for step in conversation["steps"]:
        if "from" in step:
            pieces.append("t" + step["from"])
        elif "from_bytes" in step:
            pieces.append(b"b" + base64.b64decode(step["from_bytes"]))
    return letter.encode() + sequence(*pieces, "w" + "." * 9)


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
    """Check that all that is sent is well formed."""
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
    """In one piece and byte by byte: the same events."""
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
    "carrier": Target(
        run_carrier,
        "Whatever a carrier sends becomes an event or a counted oddity; what is sent stays JSON.",
        tuple(_conversation(path.stem) for path in sorted(FOLDER.glob("*.json"))),
        tuple(b'"event": "media" "payload" "chunk" "start" null 1e999 \\ud800'.split()),
        max_bytes=8192,
        stepwise=True,
        hard=(
            b"",
            b"a",
            b"b" + sequence('t{"event":"start","start":{"media_format":{"sample_rate":1e999}}}'),
            b"b" + sequence('t{"event":"start","start":{"call_control_id":{"a":[1]}}}'),
            b"b"
            + sequence(
                't{"event":"start","start":{"call_control_id":"c"}}',
                *(
                    f't{{"event":"media","media":{{"chunk":{n},"payload":"AAAA"}}}}'
                    for n in (3, -1, 0, "1.5", '"9"', "1e15", "null", 10**30, 2, 7, 8, 9, 1)
                ),
                "w" + "." * 20,
            ),
            b"a" + sequence('t{"event":"start","start":"x"}', 't{"event":"media","media":[]}'),
            b"a" + sequence('t{"event":"start","start":{"callSid":"\\ud800"}}'),
            b"a" + sequence("t" + "[" * 4000, "t{" + '"a":{' * 900),
            b"a" + sequence('t{"event":["start"]}', 't{"event":{"a":1}}', "b\x00\x01"),
            b"c" + sequence('t{"event":"start","start":{},"extra_headers":"=;,=a,b=;{"}'),
            b"c" + sequence('t{"event":"start","start":{},"extra_headers":{"a":{"b":1}}}'),
            b"d"
            + sequence(
                't{"event":"start","start":{"media_format":{"encoding":"base64","sample_rate":"8000"}}}'
            ),
            b"d" + sequence('t{"event":"dtmf","dtmf":{"digit":"1","duration":"1e400"}}'),
            b"d" + sequence('t{"event":"dtmf","dtmf":{"digit":"1","duration":-5}}'),
            b"e"
            + sequence(
                't{"event":"websocket:connected","content-type":"audio/l16;rate=999999"}', "b\x00"
            ),
            b"e" + sequence('t{"event":"websocket:connected","headers":[1]}', b"b" + bytes(4001)),
            b"f"
            + sequence(
                't{"callSid":"c","sampleRate":"64000","mixType":"stereo"}', b"b" + bytes(4003)
            ),
            b"f" + sequence('t{"callSid":"c","sampleRate":' + "9" * 4000 + "}"),
        ),
    ),
    "admission": Target(
        run_admission,
        "No request opens a stream without the key; a start answer stays what it is.",
        (
            sequence("hh.example", "t" + _TWILIO),
            sequence("hh.example", "p" + _PLIVO, "n1"),
            sequence("a" + _token()),
            sequence("a" + _BASIC, "/jambonz/answer"),
            sequence("j" + _JAMBONZ, "/jambonz/answer"),
            sequence("x" + KEY, "/telnyx"),
            sequence("/twilio/answer", "?From=%2B1&To=2&Direction=inbound", "hh.example"),
        ),
        (
            *(b"Bearer ", b"Basic ", b"/pass/", b"/answer", b"&", b"%00", b"t=", b"v1="),
            *(b"https://", b"wss"),
        ),
        stepwise=True,
        hard=(
            b"",
            sequence("aBearer ..", "aBearer a.b.c"),
            sequence("aBearer " + "A" * 9000),
            sequence(
                f"aBearer {_part([])}.{_part({})}.AAAA", f"aBearer {_part({'alg': None})}.e30.AA"
            ),
            sequence("aBearer " + base64.urlsafe_b64encode(b"[" * 5000).decode() + ".e30.AA"),
            sequence("aBasic", "aBasic \u00e9", "aBasic ===="),
            sequence("t\u00e9", "t====", "p,,,,", "n", "p" + "," * 3000, "n\u00e9"),
            sequence("jt=,v1=", "jt=9" * 200, "jt=\u0661,v1=0"),
            sequence("/pass/1800000100-" + "0" * 32, "/pass/99999999999999-0"),
            sequence("h[::1", "h[::1]:x", "ha@b", "uhttps://[", "uhttps://h:99999"),
            sequence("?" + "a=1&" * 900, "?%ff=%ff", "/plivo/answer"),
            sequence("?From=%22%3E%3CHangup%2F%3E&To=%00%1b", "/twilio/answer", 'h"><x'),
            sequence("capplication/x-www-form-urlencoded", b"b\xff=\xfe", "t" + _TWILIO),
            sequence(
                "capplication/x-www-form-urlencoded", b"b" + b"a=1&" * 1000, "p" + _PLIVO, "n1"
            ),
        ),
    ),
    "audiosocket": Target(
        run_audiosocket,
        "Any bytes are messages or oddities, however they are cut; what is sent is well formed.",
        (
            ID + b"\x10\x01\x40" + bytes(320) + b"\x03\x00\x015" + b"\x00\x00\x00",
            ID + b"\x13\x03\xc0" + bytes(960) + b"\xff\x00\x01\x01",
        ),
        (b"\x10\x00\x02", b"\x03\x00\x01", b"\x00\x00\x00", b"\xff\x00\x01", ID),
        hard=(
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
    ),
    "chan_websocket": Target(
        run_chan_websocket,
        "Any messages are events or oddities; there is one start, and what is answered is well "
        "formed.",
        (
            sequence("t" + START, b"b" + bytes(160), "tDTMF_END digit:5", "tHANGUP"),
            sequence("t" + START_JSON, b"b" + bytes(960), 't{"event": "MEDIA_XOFF"}'),
        ),
        (b"MEDIA_START", b"format:", b"ptime:", b"DTMF_END", b"digit:", b'"event"', b"opus"),
        stepwise=True,
        hard=(
            sequence("t", b"b", "t{", "t[]", "tnull", "t\x00"),
            sequence("t" + START, "t" + START, "t" + START_JSON),
            sequence(
                't{"event": "MEDIA_START", "format": "slin192", "ptime": 60}', b"b" + bytes(4000)
            ),
            sequence('t{"event": "MEDIA_START", "format": "opus"}', b"b\xff\xff\x00", b"b\xfc"),
            sequence(
                't{"event": "MEDIA_START", "format": "g722", "ptime": 10}',
                b"b\x01",
                b"b" + bytes(99),
            ),
            sequence('t{"event": "MEDIA_START", "format": ["ulaw"], "ptime": 1e400}'),
            sequence(
                't{"event": "MEDIA_START", "format": "slin44", "ptime": 10, "channel_id": '
                + "9" * 400
                + "}"
            ),
            sequence(
                't{"event": "DTMF_END", "digit": {"a": 1}, "duration": NaN}', "tDTMF_END digit:"
            ),
            sequence("t" + "[" * 4000),
            sequence(
                "tMEDIA_START format:ulaw ptime:99999999999999999999 optimal_frame_size:-1",
                b"b\x00",
            ),
            sequence("tMEDIA_START " + "a:b " * 900),
            sequence(
                "t" + START,
                "tMEDIA_MARK_PROCESSED",
                "tMEDIA_MARK_PROCESSED correlation_id:" + "q" * 999,
            ),
        ),
    ),
    "stream_gate": Target(
        run_stream_gate,
        "Any handshake is accepted or refused; without the token it is refused.",
        (
            b"token=secret\n\n10.0.0.1",
            b"\nBearer secret\n2001:db8::1",
            b"\nBasic dTpzZWNyZXQ=\n10.1.1.1",
        ),
        (b"token=", b"Bearer ", b"Basic ", b"secret", b"::ffff:"),
        max_bytes=512,
        hard=(
            b"token=" + b"%00" * 100,
            b"token=secret&token=\xff\n",
            b"\nBasic \xff\xff\n10.0.0.1",
            b"\nBasic " + b"=" * 300 + b"\n10.0.0.1",
            b"token=secret\n\n10.0.0.1%eth0",
            b"token=secret\n\n::ffff:10.0.0.1",
            b"token=secret\n\nnowhere",
            b"\xf0\x28\n\xc3\x28\n1.2.3.4.5",
        ),
    ),
}
