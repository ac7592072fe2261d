"""One call over a Vonage WebSocket: sound as binary messages, events as JSON (pure).

Source: developer.vonage.com, "WebSockets in the Vonage Voice API"; the Video API's Audio Connector
speaks the same. Linear samples, 16 bits, low byte first, one channel, a message for each 20 ms.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence

from qwen3tts_codecs.l16 import slin
from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.streams.adapter import (
    Handshake,
    Message,
    StreamCleared,
    StreamEvent,
    StreamKind,
    StreamMark,
    StreamStarted,
    StreamStopped,
)
from qwen3tts_phone.streams.carriers.authentication import (
    PUBLIC_URL,
    Admission,
    WallClock,
    key_of,
    passes_by,
)
from qwen3tts_phone.streams.carriers.http import (
    Answer,
    asked_with,
    call_parameters,
    stream_url,
    vonage_answer,
)
from qwen3tts_phone.streams.carriers.messages import (
    JsonAdapter,
    Object,
    child,
    object_of,
    text,
    texts,
)
from qwen3tts_phone.streams.carriers.public_keys import VonageToken
from qwen3tts_wire.errors import BadRequest

RATES_HZ = (8000, 16000, 24000)
_RATE = re.compile(r"rate=(\d{4,6})")
_OWN = ("event", "content-type", "content_type")


class VonageAdapter(JsonAdapter):
    """How Vonage is spoken to; ``rate_hz`` holds until its first message says another."""

    line = "vonage"
    has_marks = True
    ends_by_closing = True

    def __init__(self, rate_hz: int = 16000) -> None:
        self._payload = slin(rate_hz)
        self._started = False

    @property
    def payload(self) -> Payload:
        """See `StreamAdapter`."""
        return self._payload

    # --- what comes

    def receive(self, message: Message, now: float) -> list[StreamEvent]:
        """See `StreamAdapter`."""
        if not isinstance(message, str):
            return self._sound(message)
        found = object_of(message)
        if found is None:
            return self._odd("no JSON object")
        name = text(found, "event")
        if name == "websocket:connected":
            return self._connected(found)
        if name in ("websocket:dtmf", "dtmf"):
            return self._key(found)
        if name == "websocket:cleared":
            return [StreamCleared()]
        if name == "websocket:notify":
            # What we gave along comes back: our mark's name is in it.
            mark = text(child(found, "payload"), "name")
            return [StreamMark(mark)] if mark else self._odd("a notification without a name")
        if name in ("websocket:hangup", "websocket:disconnected", "close"):
            return [StreamStopped(text(found, "reason")[:80])]
        return self._odd("unknown event")

    def _sound(self, data: bytes) -> list[StreamEvent]:
        if not self._started:
            return self._odd("media before start")
        return self._linear(data)

    def _connected(self, message: Object) -> list[StreamEvent]:
        if self._started:
            return self._odd("a second start")
        odd: list[StreamEvent] = []
        said = _RATE.search(text(message, *_OWN[1:]))
        rate = int(said[1]) if said else self._payload.sample_hz
        if rate not in RATES_HZ:
            odd += self._odd("a rate that no telephone has")
            rate = self._payload.sample_hz
        self._payload = slin(rate)
        self._started = True
        # The headers of the NCCO's endpoint stand beside, or in an object of their own.
        beside = {name: value for name, value in message.items() if name not in _OWN}
        parameters = texts({**beside, **child(message, "headers")})
        given: Object = dict(parameters)
        call_id = text(given, "uuid", "call_uuid", "conversation_uuid", "call_id")
        if not call_id:
            odd += self._odd("a start without the call's id")
        return [
            *odd,
            StreamStarted(
                call_id or self.line,
                from_uri=text(given, "from", "caller"),
                to_uri=text(given, "to", "did"),
                direction="out" if given.get("direction", "").startswith("out") else "in",
                payload=self._payload,
                payload_in=self._payload,
                parameters=parameters,
            ),
        ]

    # --- what goes out

    def audio(self, payload: bytes) -> Sequence[Message]:
        """See `StreamAdapter`."""
        return (payload,)

    def clear(self) -> Sequence[Message]:
        """See `StreamAdapter`."""
        return ('{"action":"clear"}',)

    def mark(self, name: str) -> Sequence[Message]:
        """See `StreamAdapter`."""
        message = {"action": "notify", "payload": {"name": name}}
        return (json.dumps(message, separators=(",", ":")),)


def vonage(
    *,
    signature_secret: str | None = None,
    application_id: str = "",
    rate_hz: int = 16000,
    public_url: str | None = None,
    parameters: Mapping[str, str] | None = None,
    clock: WallClock = time.time,
) -> StreamKind:
    """Vonage's Voice API over a WebSocket.

    Args:
        signature_secret: checks the token of signed webhooks, and of the WebSocket where the NCCO
            asks for one; ``VONAGE_SIGNATURE_SECRET``.
        application_id: refuses tokens of other applications.
        rate_hz: what the start answer asks for: 8000, 16000 or 24000.
        public_url: scheme and host as they stand in the NCCO;
            ``MR_QWEN3TTS_PUBLIC_URL``.
        parameters: headers of the start answer's endpoint; `StreamStarted.parameters`.
        clock: where the time comes from.

    Raises:
        BadRequest: there is no such rate.
    """
    if rate_hz not in RATES_HZ:
        raise BadRequest(
            f"Vonage has no streams of {rate_hz} Hz.", remedy="Take 8000, 16000 or 24000."
        )
    secret = key_of(signature_secret, "VONAGE_SIGNATURE_SECRET")
    checks = [VonageToken(secret, application_id=application_id)] if secret else []
    address = key_of(public_url, PUBLIC_URL)
    admission = Admission(address, checks, checks, passes_by(secret), clock)

    def answer(handshake: Handshake) -> Answer:
        asked = asked_with(handshake)
        ids = {name: asked[name] for name in ("uuid", "conversation_uuid") if asked.get(name)}
        given = {**ids, **call_parameters(asked), **(parameters or {})}
        url = admission.with_pass(stream_url(handshake, address), handshake)
        return vonage_answer(url, given, rate_hz=rate_hz, signed=bool(secret))

    return StreamKind(
        "vonage",
        lambda _: VonageAdapter(rate_hz),
        admission if admission.checks else None,
        needs_key="VONAGE_SIGNATURE_SECRET",
        answer=answer,
    )
