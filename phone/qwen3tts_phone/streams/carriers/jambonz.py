"""The ``listen`` verb of jambonz: messages, authentication, start answer.

Source: docs.jambonz.org, verb ``listen``, "Streaming bi-directional audio". Audio is binary: linear
samples, 16 bits, little-endian, both ways. The first text message identifies the call.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from qwen3tts_codecs.l16 import slin
from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.streams.carriers.adapter import (
    Handshake,
    Message,
    StreamEvent,
    StreamKind,
    StreamMark,
    StreamStarted,
)
from qwen3tts_phone.streams.carriers.authentication import (
    PUBLIC_URL,
    BasicPassword,
    CarrierAdmission,
    RequestCheck,
    WallClock,
    check_timestamp,
    encoded,
    given_key,
    passes_signed_with,
)
from qwen3tts_phone.streams.carriers.http import JSON, Answer, BadSignature, CarrierRequest
from qwen3tts_phone.streams.carriers.messages import (
    JsonAdapter,
    Object,
    child,
    object_of,
    text,
    texts,
    whole,
)
from qwen3tts_wire.errors import BadRequest

SUBPROTOCOL = "audio.jambonz.org"
RATES_HZ = (8000, 16000, 24000, 48000, 64000)
TICKS_PER_MS = 8.0
"""The duration of a key is in RTP timestamps of 8 kHz."""


def jambonz(
    *,
    user: str | None = None,
    password: str | None = None,
    webhook_secret: str | None = None,
    rate_hz: int = 8000,
    plays_hz: int | None = None,
    public_url: str | None = None,
    clock: WallClock = time.time,
) -> StreamKind:
    """Return jambonz' ``listen`` verb with ``bidirectionalAudio.streaming``.

    Args:
        user: ``wsAuth.username`` of the verb, and of the application's webhook if it has a
            password; ``JAMBONZ_USER``.
        password: ``wsAuth.password``; ``JAMBONZ_PASSWORD``.
        webhook_secret: checks ``Jambonz-Signature`` of the webhook; ``JAMBONZ_WEBHOOK_SECRET``.
        rate_hz: requested by the start answer, both ways.
        plays_hz: ``bidirectionalAudio.sampleRate`` of a verb written elsewhere; None = the caller's
            rate.
        public_url: scheme and host of the ``listen`` verb's ``url``; ``MR_QWEN3TTS_PUBLIC_URL``.
        clock: seconds since 1970.

    Raises:
        BadRequest: there is no such rate.
    """
    for each in (rate_hz, plays_hz or rate_hz):
        if each not in RATES_HZ:
            known = ", ".join(map(str, RATES_HZ))
            raise BadRequest(f"jambonz has no streams of {each} Hz.", remedy=f"Take {known}.")
    name, secret = given_key(user, "JAMBONZ_USER"), given_key(password, "JAMBONZ_PASSWORD")
    webhook = given_key(webhook_secret, "JAMBONZ_WEBHOOK_SECRET")
    basic: list[RequestCheck] = [BasicPassword(name, secret, "jambonz")] if name and secret else []
    signed: list[RequestCheck] = [JambonzSignature(webhook)] if webhook else []
    url = given_key(public_url, PUBLIC_URL)
    # The start answer holds the password, so its webhook must show it, or be signed.
    webhooks = [*signed, *basic]
    passes = passes_signed_with(secret, webhook)
    admission = CarrierAdmission(url, basic, webhooks, passes, clock)

    def answer(handshake: Handshake) -> Answer:
        stream = admission.stream_url(handshake)
        return jambonz_answer(stream, rate_hz=rate_hz, user=name, password=secret)

    return StreamKind(
        "jambonz",
        lambda _: JambonzAdapter(plays_hz),
        admission if admission.checks else None,
        needs_key="JAMBONZ_USER and JAMBONZ_PASSWORD",
        subprotocols=(SUBPROTOCOL,),
        answer=answer,
    )


class JambonzAdapter(JsonAdapter):
    """Adapter of a ``listen`` verb.

    ``plays_hz``: its ``bidirectionalAudio.sampleRate``, which no message repeats; None = the rate
    at which it sends.
    """

    line = "jambonz"
    has_marks = True
    ends_by_closing = True
    rest_after_clear_ms = 60
    """Messages may overtake killAudio; jambonz advises a pause of 50 to 100 ms."""

    def __init__(self, plays_hz: int | None = None) -> None:
        self._plays_hz = plays_hz
        self._in = slin(8000)
        self._out = slin(plays_hz or 8000)
        self._channels = 1
        self._started = False

    @property
    def payload(self) -> Payload:
        return self._out

    @property
    def payload_in(self) -> Payload:
        return self._in

    def receive(self, message: Message, now: float) -> list[StreamEvent]:
        if not isinstance(message, str):
            if not self._started:
                return self._odd("media before start")
            return self._linear(message, self._channels)
        found = object_of(message)
        if found is None:
            return self._odd("no JSON object")
        if found.get("event") == "dtmf":
            return self._key(found, ticks_per_ms=TICKS_PER_MS)
        if found.get("type") == "mark":
            # "playout", or "cleared" after killAudio.
            mark = text(child(found, "data"), "name")
            return [StreamMark(mark)] if mark else self._odd("a mark without a name")
        if found.get("type") == "playDone":
            return []  # the end of a playAudio, which is never sent
        if not self._started and ("callSid" in found or "sampleRate" in found):
            return self._start(found)
        again = self._started and "callSid" in found
        return self._odd("a second start" if again else "unknown event")

    def _start(self, message: Object) -> list[StreamEvent]:
        odd: list[StreamEvent] = []
        rate = whole(message, "sampleRate", "sample_rate") or 8000
        if rate not in RATES_HZ:
            odd += self._odd("a rate that no telephone has")
            rate = 8000
        if text(message, "mixType", "mix_type") == "stereo":
            odd += self._odd("sound of more than one channel")
            self._channels = 2
        self._in = slin(rate)
        self._out = slin(self._plays_hz or rate)
        self._started = True
        call_id = text(message, "callSid", "call_sid", "callId", "call_id")
        if not call_id:
            odd += self._odd("a start without the call's id")
        return [
            *odd,
            StreamStarted(
                call_id or self.line,
                from_uri=text(message, "from"),
                to_uri=text(message, "to"),
                display_name=text(message, "callerName"),
                direction="out" if text(message, "direction").startswith("out") else "in",
                payload=self._out,
                payload_in=self._in,
                parameters={**texts(message), **texts(message.get("metadata"))},
            ),
        ]

    def audio(self, payload: bytes) -> Sequence[Message]:
        return (payload,)

    def clear(self) -> Sequence[Message]:
        return ('{"type":"killAudio"}',)

    def mark(self, name: str) -> Sequence[Message]:
        return (json.dumps({"type": "mark", "data": {"name": name}}, separators=(",", ":")),)

    def hang_up(self) -> Sequence[Message]:
        return ('{"type":"disconnect"}',)


@dataclass(frozen=True, slots=True)
class JambonzSignature:
    """``Jambonz-Signature: t=…,v1=…``: HMAC-SHA256 of time, dot and body, in hex.

    Source: jambonz' node-client and python library.
    """

    secret: str = field(repr=False)

    def check(self, request: CarrierRequest, now: float) -> bytes:
        parts = [
            part.strip().partition("=")
            for part in request.header("jambonz-signature", "jambonz").split(",")
        ]
        times = [value for name, _, value in parts if name == "t"]
        given = [encoded(value.lower()) for name, _, value in parts if name == "v1"]
        if len(times) != 1 or not given:
            raise BadSignature("The Jambonz-Signature header has no time or no signature.")
        check_timestamp(times[0], now, "jambonz")
        signed = times[0].encode() + b"." + request.body
        expected = hmac.new(self.secret.encode(), signed, "sha256").hexdigest().encode()
        if not any(hmac.compare_digest(each, expected) for each in given):
            raise BadSignature(
                "The jambonz signature is not that of this request.",
                remedy="Check the webhook secret of the account in the portal.",
            )
        # Of a GET only the second is signed: calls of one second differ in the query alone.
        return expected + request.url.encode()


def jambonz_answer(url: str, *, rate_hz: int = 8000, user: str = "", password: str = "") -> Answer:
    listen: dict[str, object] = {
        "verb": "listen",
        "url": url,
        "sampleRate": rate_hz,
        "mixType": "mono",
        "passDtmf": True,
        "bidirectionalAudio": {"enabled": True, "streaming": True, "sampleRate": rate_hz},
    }
    if user:
        listen["wsAuth"] = {"username": user, "password": password}
    return JSON, json.dumps([{"verb": "answer"}, listen, {"verb": "hangup"}])
