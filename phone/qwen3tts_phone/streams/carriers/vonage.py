"""Vonage's Voice API over a WebSocket.

Source: developer.vonage.com, "WebSockets in the Vonage Voice API". Audio is binary: linear samples,
16 bits, little-endian, mono, 20 ms a message.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qwen3tts_codecs.l16 import slin
from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.streams.carriers.adapter import (
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
    TOLERANCE_S,
    CarrierAdmission,
    WallClock,
    given_key,
    passes_signed_with,
    require_cryptography,
)
from qwen3tts_phone.streams.carriers.http import (
    JSON,
    Answer,
    BadSignature,
    CarrierRequest,
    call_parameters,
    webhook_fields,
)
from qwen3tts_phone.streams.carriers.messages import (
    JsonAdapter,
    Object,
    child,
    object_of,
    text,
    texts,
)
from qwen3tts_wire.errors import BadRequest

RATES_HZ = (8000, 16000, 24000)
MAX_TOKEN_CHARS = 8192
_RATE = re.compile(r"rate=(\d{4,6})")
_OWN_FIELDS = ("event", "content-type", "content_type")


def vonage(
    *,
    signature_secret: str | None = None,
    application_id: str = "",
    rate_hz: int = 16000,
    public_url: str | None = None,
    parameters: Mapping[str, str] | None = None,
    clock: WallClock = time.time,
) -> StreamKind:
    """Return Vonage's Voice API over a WebSocket.

    Args:
        signature_secret: checks the token of signed webhooks, and of the WebSocket where the NCCO
            requests one; ``VONAGE_SIGNATURE_SECRET``.
        application_id: refuses tokens of other applications.
        rate_hz: requested by the start answer: 8000, 16000 or 24000.
        public_url: scheme and host as in the NCCO; ``MR_QWEN3TTS_PUBLIC_URL``.
        parameters: headers of the start answer's endpoint; `StreamStarted.parameters`.
        clock: seconds since 1970.

    Raises:
        BadRequest: there is no such rate.
    """
    if rate_hz not in RATES_HZ:
        raise BadRequest(
            f"Vonage has no streams of {rate_hz} Hz.", remedy="Take 8000, 16000 or 24000."
        )
    secret = given_key(signature_secret, "VONAGE_SIGNATURE_SECRET")
    checks = [VonageToken(secret, application_id=application_id)] if secret else []
    url = given_key(public_url, PUBLIC_URL)
    admission = CarrierAdmission(url, checks, checks, passes_signed_with(secret), clock)

    def answer(handshake: Handshake) -> Answer:
        fields = webhook_fields(handshake)
        ids = {name: fields[name] for name in ("uuid", "conversation_uuid") if fields.get(name)}
        given = {**ids, **call_parameters(fields), **(parameters or {})}
        stream = admission.stream_url(handshake)
        return vonage_answer(stream, given, rate_hz=rate_hz, signed=bool(secret))

    return StreamKind(
        "vonage",
        lambda _: VonageAdapter(rate_hz),
        admission if admission.checks else None,
        needs_key="VONAGE_SIGNATURE_SECRET",
        answer=answer,
    )


class VonageAdapter(JsonAdapter):
    """Adapter of a Vonage WebSocket; its first message may change ``rate_hz``."""

    line = "vonage"
    has_marks = True
    ends_by_closing = True

    def __init__(self, rate_hz: int = 16000) -> None:
        self._payload = slin(rate_hz)
        self._started = False

    @property
    def payload(self) -> Payload:
        return self._payload

    def receive(self, message: Message, now: float) -> list[StreamEvent]:
        if not isinstance(message, str):
            return self._linear(message) if self._started else self._odd("media before start")
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
            # The payload of our notify comes back, with the mark's name in it.
            mark = text(child(found, "payload"), "name")
            return [StreamMark(mark)] if mark else self._odd("a notification without a name")
        if name in ("websocket:hangup", "websocket:disconnected", "close"):
            return [StreamStopped(text(found, "reason")[:80])]
        return self._odd("unknown event")

    def _connected(self, message: Object) -> list[StreamEvent]:
        if self._started:
            return self._odd("a second start")
        odd: list[StreamEvent] = []
        said = _RATE.search(text(message, *_OWN_FIELDS[1:]))
        rate = int(said[1]) if said else self._payload.sample_hz
        if rate not in RATES_HZ:
            odd += self._odd("a rate that no telephone has")
            rate = self._payload.sample_hz
        self._payload = slin(rate)
        self._started = True
        # The headers of the NCCO's endpoint stand beside, or in an object of their own.
        beside = {name: value for name, value in message.items() if name not in _OWN_FIELDS}
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

    def audio(self, payload: bytes) -> Sequence[Message]:
        return (payload,)

    def clear(self) -> Sequence[Message]:
        return ('{"action":"clear"}',)

    def mark(self, name: str) -> Sequence[Message]:
        message = {"action": "notify", "payload": {"name": name}}
        return (json.dumps(message, separators=(",", ":")),)


@dataclass(frozen=True, slots=True)
class VonageToken:
    """``Authorization: Bearer``: JSON Web Token (RFC 7519) of signed webhooks.

    HS256 with the account's secret, or RS256 with a public key; decided here, never by the token. A
    WebSocket with ``"authorization": {"type": "vonage"}`` brings the same token. ``payload_hash``
    is compared for requests with a body. Source: developer.vonage.com (signed webhooks).

    Raises BadRequest: neither or both are given, the key is no PEM, or ``cryptography`` is
    missing.
    """

    signature_secret: str = field(default="", repr=False)
    public_key_pem: str = ""
    application_id: str = ""

    def __post_init__(self) -> None:
        if bool(self.signature_secret) == bool(self.public_key_pem):
            raise BadRequest(
                "Vonage's tokens need the signature secret, or a public key, and not both.",
                remedy="The dashboard shows the signature secret in the account's settings.",
            )
        if self.public_key_pem:
            self._key()

    def check(self, request: CarrierRequest, now: float) -> bytes:
        scheme, _, token = request.header("authorization", "Vonage").partition(" ")
        parts = token.strip().split(".")
        if scheme.lower() != "bearer" or len(token) > MAX_TOKEN_CHARS or len(parts) != 3:
            raise BadSignature("The Authorization header holds no token of Vonage's.")
        header, claims = _json(parts[0]), _json(parts[1])
        algorithm = "HS256" if self.signature_secret else "RS256"
        if header.get("alg") != algorithm:
            raise BadSignature(
                f"The token is not signed by {algorithm}.",
                remedy="Check whether the signature secret or the public key is the right one.",
            )
        signed = f"{parts[0]}.{parts[1]}".encode("ascii", "replace")
        signature = _base64url(parts[2])
        if not self._is_signed(signed, signature):
            raise BadSignature(
                "The token's signature is not Vonage's.",
                remedy="Check the signature secret: the dashboard shows it under API settings.",
            )
        self._check_claims(claims, request, now)
        return signature

    def _is_signed(self, signed: bytes, signature: bytes) -> bool:
        if self.signature_secret:
            expected = hmac.digest(self.signature_secret.encode(), signed, "sha256")
            return hmac.compare_digest(signature, expected)
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            self._key().verify(signature, signed, PKCS1v15(), SHA256())
        except InvalidSignature:
            return False
        return True

    def _check_claims(self, claims: dict[str, Any], request: CarrierRequest, now: float) -> None:
        issued, expires, begins = (_time(claims, name) for name in ("iat", "exp", "nbf"))
        if issued is None and expires is None:
            raise BadSignature("The token does not say when it was made.")
        late = expires is not None and now > expires + TOLERANCE_S
        late = late or (expires is None and issued is not None and now > issued + TOLERANCE_S)
        early = any(each is not None and each > now + TOLERANCE_S for each in (issued, begins))
        if late or early:
            raise BadSignature(
                "The token is of another time.",
                remedy="It is a replayed request, or a clock is wrong: check this machine's.",
            )
        if self.application_id and claims.get("application_id") != self.application_id:
            raise BadSignature("The token is of another application.")
        claimed = claims.get("payload_hash")
        if request.body and isinstance(claimed, str):
            actual = hashlib.sha256(request.body).hexdigest()
            if not hmac.compare_digest(actual.encode(), claimed.lower().encode()):
                raise BadSignature("The body differs from what Vonage has signed.")

    def _key(self) -> Any:
        require_cryptography("Vonage's tokens with a public key")
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            key = load_pem_public_key(self.public_key_pem.encode())
        except ValueError:
            key = None
        if not isinstance(key, RSAPublicKey):
            raise BadRequest(
                "The public key for Vonage's tokens is no RSA key in PEM.",
                remedy="It begins with -----BEGIN PUBLIC KEY-----.",
            )
        return key


def _base64url(part: str) -> bytes:
    if any(character in part for character in "+/="):
        return b""
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


def _json(part: str) -> dict[str, Any]:
    try:
        found = json.loads(_base64url(part))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadSignature("The Authorization header holds no token of Vonage's.")
    return found


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    # NaN and infinity compare as no time does.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise BadSignature(f"The token's {name} is no time.")
    return float(value)


def vonage_answer(
    url: str,
    parameters: Mapping[str, str] | None = None,
    *,
    rate_hz: int = 16000,
    signed: bool = False,
) -> Answer:
    """Return an NCCO; ``signed`` requests the webhooks' token."""
    endpoint: dict[str, object] = {
        "type": "websocket",
        "uri": url,
        "content-type": f"audio/l16;rate={rate_hz}",
        "headers": dict(parameters or {}),
    }
    if signed:
        endpoint["authorization"] = {"type": "vonage"}
    return JSON, json.dumps([{"action": "connect", "endpoint": [endpoint]}])
