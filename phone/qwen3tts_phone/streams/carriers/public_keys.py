"""Whether a request comes from a carrier that signs with a key of its own: Telnyx, Vonage.

Both may need the ``cryptography`` package (Ed25519, RS256). It is imported when such a check is
made, so a start fails with a clear error and no call does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import Any

from qwen3tts_phone.streams.carriers.authentication import TOLERANCE_S, check_age
from qwen3tts_phone.streams.carriers.http import BadSignature, CarrierRequest
from qwen3tts_wire.errors import BadRequest

MOST_TOKEN = 8192
"""Longest token that is looked at, characters."""


@dataclass(frozen=True, slots=True)
class TelnyxSignature:
    """``telnyx-signature-ed25519``: Ed25519 of the time, a bar and the body, base64.

    Of webhooks of Call Control and TeXML. The WebSocket carries ``stream_auth_token`` instead
    (`signatures.HeaderToken`). Source: developers.telnyx.com, telnyx-python.

    Args:
        public_key: the account's, base64 of its 32 bytes, as the portal shows it.

    Raises:
        BadRequest: it is no such key, or ``cryptography`` is not installed.
    """

    public_key: str

    def __post_init__(self) -> None:
        self._key()

    def check(self, request: CarrierRequest, now: float) -> bytes:
        """See `carrier_request.RequestCheck`."""
        from cryptography.exceptions import InvalidSignature

        given = request.header("telnyx-signature-ed25519", "Telnyx")
        signed_at = request.header("telnyx-timestamp", "Telnyx")
        check_age(signed_at, now, "Telnyx")
        try:
            signature = base64.b64decode(given, validate=True)
            self._key().verify(signature, signed_at.encode() + b"|" + request.body)
        except (InvalidSignature, binascii.Error, ValueError):
            raise BadSignature(
                "The Telnyx signature is not that of this request.",
                remedy="Check the public key: the portal shows it under Keys & Credentials.",
            ) from None
        # Of a GET only the second is signed: calls of one second differ in the query alone.
        return signature + request.url.encode()

    def _key(self) -> Any:
        _need("Telnyx' signatures")
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            return Ed25519PublicKey.from_public_bytes(
                base64.b64decode(self.public_key, validate=True)
            )
        except (binascii.Error, ValueError):
            raise BadRequest(
                "The Telnyx public key is not base64 of 32 bytes.",
                remedy="Copy it from the portal, Keys & Credentials, Public Key.",
            ) from None


@dataclass(frozen=True, slots=True)
class VonageToken:
    """``Authorization: Bearer``: the JSON Web Token (RFC 7519) of Vonage's signed webhooks.

    HS256 with the account's signature secret, or RS256 with a public key; which one is decided by
    what is set here, never by what the token says. The same token comes with a WebSocket whose
    endpoint has ``"authorization": {"type": "vonage"}``. Source: developer.vonage.com (signed
    webhooks). ``payload_hash`` is compared for requests with a body.

    Raises:
        BadRequest: neither or both are given, the key is no PEM, or ``cryptography`` is missing.
    """

    signature_secret: str = field(default="", repr=False)
    public_key_pem: str = ""
    application_id: str = ""
    """Refuses tokens of other applications; empty = of any."""

    def __post_init__(self) -> None:
        if bool(self.signature_secret) == bool(self.public_key_pem):
            raise BadRequest(
                "Vonage's tokens need the signature secret, or a public key, and not both.",
                remedy="The dashboard shows the signature secret in the account's settings.",
            )
        if self.public_key_pem:
            self._key()

    def check(self, request: CarrierRequest, now: float) -> bytes:
        """See `carrier_request.RequestCheck`."""
        scheme, _, token = request.header("authorization", "Vonage").partition(" ")
        parts = token.strip().split(".")
        if scheme.lower() != "bearer" or len(token) > MOST_TOKEN or len(parts) != 3:
            raise BadSignature("The Authorization header holds no token of Vonage's.")
        header, claims = _json(parts[0]), _json(parts[1])
        wanted = "HS256" if self.signature_secret else "RS256"
        if header.get("alg") != wanted:
            raise BadSignature(
                f"The token is not signed by {wanted}.",
                remedy="Check whether the signature secret or the public key is the right one.",
            )
        signed = f"{parts[0]}.{parts[1]}".encode("ascii", "replace")
        signature = _bytes(parts[2])
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
                remedy="It is an old request again, or a clock is wrong: check this machine's.",
            )
        if self.application_id and claims.get("application_id") != self.application_id:
            raise BadSignature("The token is of another application.")
        claimed = claims.get("payload_hash")
        if request.body and isinstance(claimed, str):
            actual = hashlib.sha256(request.body).hexdigest()
            if not hmac.compare_digest(actual.encode(), claimed.lower().encode()):
                raise BadSignature("The body is not the one that Vonage has signed.")

    def _key(self) -> Any:
        _need("Vonage's tokens with a public key")
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


def _need(what: str) -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise BadRequest(
            f"{what} need the cryptography package.", remedy="pip install cryptography"
        ) from None


def _bytes(part: str) -> bytes:
    """A part of a token, base64url without padding; nothing for what is none."""
    if any(character in part for character in "+/="):
        return b""
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


def _json(part: str) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(part))
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
