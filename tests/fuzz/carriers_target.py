"""Fuzz targets: what carriers send on their streams, and what claims to come from them."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

from qwen3tts_phone.streams.carriers.adapter import (
    Handshake,
    Message,
    Refused,
    StreamAudio,
    StreamLost,
    StreamOddity,
    StreamStarted,
)
from qwen3tts_phone.streams.carriers.authentication import BasicPassword, HeaderToken, StreamPasses
from qwen3tts_phone.streams.carriers.exotel import exotel
from qwen3tts_phone.streams.carriers.http import BadSignature, CarrierRequest, requested_url
from qwen3tts_phone.streams.carriers.jambonz import JambonzSignature, jambonz
from qwen3tts_phone.streams.carriers.plivo import PlivoSignature, plivo
from qwen3tts_phone.streams.carriers.telnyx import telnyx
from qwen3tts_phone.streams.carriers.twilio import TwilioSignature, twilio
from qwen3tts_phone.streams.carriers.vonage import VonageToken, vonage
from qwen3tts_phone.streams.inbound import StreamDecoder
from tests.fuzz.target import Target, steps, story
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
    """Steps: a part of a request each. Nobody gets in who does not hold the key."""
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
        return  # what we are told of ourselves is no address
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
        assert shown, f"{type(check).__name__} let in somebody without the key"
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
    """Whether a header holds one of the good signatures below, with whatever around it."""
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
    return letter.encode() + story(*pieces, "w" + "." * 9)


TARGETS = {
    "carrier": Target(
        run_carrier,
        "Whatever a carrier sends becomes an event or a counted oddity; what is sent stays JSON.",
        tuple(_conversation(path.stem) for path in sorted(FOLDER.glob("*.json"))),
        (
            b'"event":',
            b'"media"',
            b'"payload"',
            b'"chunk"',
            b'"start"',
            b"null",
            b"1e999",
            b"\\ud800",
        ),
        most_bytes=8192,
        stepwise=True,
    ),
    "admission": Target(
        run_admission,
        "No request opens a stream without the key; a start answer stays what it is.",
        (
            story("hh.example", "t" + _TWILIO),
            story("hh.example", "p" + _PLIVO, "n1"),
            story("a" + _token()),
            story("a" + _BASIC, "/jambonz/answer"),
            story("j" + _JAMBONZ, "/jambonz/answer"),
            story("x" + KEY, "/telnyx"),
            story("/twilio/answer", "?From=%2B1&To=2&Direction=inbound", "hh.example"),
        ),
        (
            b"Bearer ",
            b"Basic ",
            b"/pass/",
            b"/answer",
            b"&",
            b"%00",
            b"t=",
            b"v1=",
            b"https://",
            b"wss",
        ),
        stepwise=True,
    ),
}

HARD: dict[str, tuple[bytes, ...]] = {
    "carrier": (
        b"",
        b"a",
        b"b" + story('t{"event":"start","start":{"media_format":{"sample_rate":1e999}}}'),
        b"b" + story('t{"event":"start","start":{"call_control_id":{"a":[1]}}}'),
        b"b"
        + story(
            't{"event":"start","start":{"call_control_id":"c"}}',
            *(
                f't{{"event":"media","media":{{"chunk":{n},"payload":"AAAA"}}}}'
                for n in (3, -1, 0, "1.5", '"9"', "1e15", "null", 10**30, 2, 7, 8, 9, 1)
            ),
            "w" + "." * 20,
        ),
        b"a" + story('t{"event":"start","start":"x"}', 't{"event":"media","media":[]}'),
        b"a" + story('t{"event":"start","start":{"callSid":"\\ud800"}}'),
        b"a" + story("t" + "[" * 4000, "t{" + '"a":{' * 900),
        b"a" + story('t{"event":["start"]}', 't{"event":{"a":1}}', "b\x00\x01"),
        b"c" + story('t{"event":"start","start":{},"extra_headers":"=;,=a,b=;{"}'),
        b"c" + story('t{"event":"start","start":{},"extra_headers":{"a":{"b":1}}}'),
        b"d"
        + story(
            't{"event":"start","start":{"media_format":{"encoding":"base64","sample_rate":"8000"}}}'
        ),
        b"d" + story('t{"event":"dtmf","dtmf":{"digit":"1","duration":"1e400"}}'),
        b"d" + story('t{"event":"dtmf","dtmf":{"digit":"1","duration":-5}}'),
        b"e"
        + story('t{"event":"websocket:connected","content-type":"audio/l16;rate=999999"}', "b\x00"),
        b"e" + story('t{"event":"websocket:connected","headers":[1]}', b"b" + bytes(4001)),
        b"f"
        + story('t{"callSid":"c","sampleRate":"64000","mixType":"stereo"}', b"b" + bytes(4003)),
        b"f" + story('t{"callSid":"c","sampleRate":' + "9" * 4000 + "}"),
    ),
    "admission": (
        b"",
        story("aBearer ..", "aBearer a.b.c"),
        story("aBearer " + "A" * 9000),
        story(f"aBearer {_part([])}.{_part({})}.AAAA", f"aBearer {_part({'alg': None})}.e30.AA"),
        story("aBearer " + base64.urlsafe_b64encode(b"[" * 5000).decode() + ".e30.AA"),
        story("aBasic", "aBasic \u00e9", "aBasic ===="),
        story("t\u00e9", "t====", "p,,,,", "n", "p" + "," * 3000, "n\u00e9"),
        story("jt=,v1=", "jt=9" * 200, "jt=\u0661,v1=0"),
        story("/pass/1800000100-" + "0" * 32, "/pass/99999999999999-0"),
        story("h[::1", "h[::1]:x", "ha@b", "uhttps://[", "uhttps://h:99999"),
        story("?" + "a=1&" * 900, "?%ff=%ff", "/plivo/answer"),
        story("?From=%22%3E%3CHangup%2F%3E&To=%00%1b", "/twilio/answer", 'h"><x'),
        story("capplication/x-www-form-urlencoded", b"b\xff=\xfe", "t" + _TWILIO),
        story("capplication/x-www-form-urlencoded", b"b" + b"a=1&" * 1000, "p" + _PLIVO, "n1"),
    ),
}
