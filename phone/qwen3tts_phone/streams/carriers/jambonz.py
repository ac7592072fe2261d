"""One call over jambonz' ``listen`` verb: sound as binary messages, the rest as JSON (pure).

Source: docs.jambonz.org, verb ``listen``, "Streaming bi-directional audio". The first message says
which call it is; linear samples, 16 bits, low byte first, both ways.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from qwen3tts_codecs.l16 import slin
from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.streams.adapter import (
    Handshake,
    Message,
    StreamEvent,
    StreamKind,
    StreamMark,
    StreamStarted,
)
from qwen3tts_phone.streams.carriers.authentication import (
    PUBLIC_URL,
    Admission,
    BasicPassword,
    JambonzSignature,
    WallClock,
    key_of,
    passes_by,
)
from qwen3tts_phone.streams.carriers.http import Answer, RequestCheck, jambonz_answer, stream_url
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
"""How long a key was pressed is said in RTP timestamps of 8 kHz."""


class JambonzAdapter(JsonAdapter):
    """How jambonz is spoken to.

    ``plays_hz`` is the ``bidirectionalAudio.sampleRate`` of the verb, which its first message does
    not repeat; None = the rate at which it sends.
    """

    line = "jambonz"
    has_marks = True
    ends_by_closing = True
    rest_after_clear_ms = 60
    """Messages may overtake killAudio there; its makers advise a pause of 50 to 100 ms."""

    def __init__(self, plays_hz: int | None = None) -> None:
        self._plays_hz = plays_hz
        self._in = slin(8000)
        self._out = slin(plays_hz or 8000)
        self._channels = 1
        self._started = False

    @property
    def payload(self) -> Payload:
        """See `StreamAdapter`."""
        return self._out

    @property
    def payload_in(self) -> Payload:
        """See `StreamAdapter`."""
        return self._in

    # --- what comes

    def receive(self, message: Message, now: float) -> list[StreamEvent]:
        """See `StreamAdapter`."""
        if not isinstance(message, str):
            return self._sound(message)
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

    def _sound(self, data: bytes) -> list[StreamEvent]:
        if not self._started:
            return self._odd("media before start")
        return self._linear(data, self._channels)

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

    # --- what goes out

    def audio(self, payload: bytes) -> Sequence[Message]:
        """See `StreamAdapter`."""
        return (payload,)

    def clear(self) -> Sequence[Message]:
        """See `StreamAdapter`."""
        return ('{"type":"killAudio"}',)

    def mark(self, name: str) -> Sequence[Message]:
        """See `StreamAdapter`."""
        return (json.dumps({"type": "mark", "data": {"name": name}}, separators=(",", ":")),)

    def hang_up(self) -> Sequence[Message]:
        """See `StreamAdapter`."""
        return ('{"type":"disconnect"}',)


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
    """The ``listen`` verb of jambonz with ``bidirectionalAudio.streaming``.

    Args:
        user: ``wsAuth.username`` of the verb, and of the application's webhook if it has a
            password; ``JAMBONZ_USER``.
        password: ``wsAuth.password``; ``JAMBONZ_PASSWORD``.
        webhook_secret: checks ``Jambonz-Signature`` of the webhook; ``JAMBONZ_WEBHOOK_SECRET``.
        rate_hz: what the start answer asks for, both ways.
        plays_hz: ``bidirectionalAudio.sampleRate`` of a verb that is written elsewhere, where that
            is another rate than the caller's; None = the same.
        public_url: scheme and host of the ``listen`` verb's ``url``;
            ``MR_QWEN3TTS_PUBLIC_URL``.
        clock: where the time comes from.

    Raises:
        BadRequest: there is no such rate.
    """
    for each in (rate_hz, plays_hz or rate_hz):
        if each not in RATES_HZ:
            known = ", ".join(map(str, RATES_HZ))
            raise BadRequest(f"jambonz has no streams of {each} Hz.", remedy=f"Take {known}.")
    name, secret = key_of(user, "JAMBONZ_USER"), key_of(password, "JAMBONZ_PASSWORD")
    webhook = key_of(webhook_secret, "JAMBONZ_WEBHOOK_SECRET")
    basic: list[RequestCheck] = [BasicPassword(name, secret, "jambonz")] if name and secret else []
    signed: list[RequestCheck] = [JambonzSignature(webhook)] if webhook else []
    # The start answer holds the password: it is given only to who knows it, or has signed.
    address = key_of(public_url, PUBLIC_URL)
    admission = Admission(address, basic, [*signed, *basic], passes_by(secret, webhook), clock)

    def answer(handshake: Handshake) -> Answer:
        url = admission.with_pass(stream_url(handshake, address), handshake)
        return jambonz_answer(url, rate_hz=rate_hz, user=name, password=secret)

    return StreamKind(
        "jambonz",
        lambda _: JambonzAdapter(plays_hz),
        admission if admission.checks else None,
        needs_key="JAMBONZ_USER and JAMBONZ_PASSWORD",
        subprotocols=(SUBPROTOCOL,),
        answer=answer,
    )
