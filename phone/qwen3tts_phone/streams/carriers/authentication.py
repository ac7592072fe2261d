"""Authentication of a carrier's webhooks and streams.

Few carriers sign streams, and a URL's signature can be replayed. So the answer to a signed webhook
puts a one-time pass into the stream's path; a repeated webhook gets the same one.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from qwen3tts_phone.streams.carriers.adapter import Handshake, Refused
from qwen3tts_phone.streams.carriers.http import (
    BadSignature,
    CarrierRequest,
    carrier_request,
    stream_url,
)
from qwen3tts_wire.errors import BadRequest

PUBLIC_URL = "MR_QWEN3TTS_PUBLIC_URL"
TOLERANCE_S = 300.0
PASS_S = 60
PASS_PATH = "/pass/"
ANSWER_PATH = "/answer"
MAX_WEBHOOKS = 20_000
SCHEMES = ("https", "wss", "http", "ws")

WallClock = Callable[[], float]
"""Seconds since 1970."""


class RequestCheck(Protocol):
    def check(self, request: CarrierRequest, now: float) -> bytes:
        """Return a signed request's identity, at least its signature; empty for a password.

        Raises BadSignature. ``now``: seconds since 1970.
        """


@dataclass(frozen=True, slots=True)
class BasicPassword:
    """``Authorization: Basic`` (RFC 7617), as of Exotel and jambonz."""

    user: str
    password: str = field(repr=False)
    carrier: str = "the carrier"

    def check(self, request: CarrierRequest, now: float) -> bytes:
        scheme, _, given = request.header("authorization", self.carrier).partition(" ")
        expected = f"{self.user}:{self.password}".encode()
        if scheme.lower() != "basic" or not hmac.compare_digest(decoded_base64(given), expected):
            raise BadSignature(
                "User or password of the request are wrong.",
                remedy=f"Give {self.carrier} the same ones that are set here.",
            )
        return b""


@dataclass(frozen=True, slots=True)
class HeaderToken:
    """Token in a header, such as Telnyx' ``x-telnyx-streaming-auth-token``."""

    token: str = field(repr=False)
    header: str = "x-telnyx-streaming-auth-token"
    carrier: str = "Telnyx"

    def check(self, request: CarrierRequest, now: float) -> bytes:
        given = request.header(self.header, self.carrier)
        if given[:7].lower() == "bearer ":
            given = given[7:].strip()
        if not hmac.compare_digest(encoded(given), self.token.encode()):
            raise BadSignature(
                f"The {self.header} of the request differs from the one set here.",
                remedy="Give the same token to the carrier when the stream is requested.",
            )
        return b""


def check_timestamp(signed_at: str, now: float, carrier: str) -> None:
    if not (signed_at.isascii() and signed_at.isdecimal() and len(signed_at) <= 12):
        raise BadSignature(f"The time that {carrier} has signed is no number.")
    if abs(now - int(signed_at)) > TOLERANCE_S:
        raise BadSignature(
            f"The signature is of another time ({now - int(signed_at):+.0f} s).",
            remedy="It is a replayed request, or a clock is wrong: check that of this machine.",
        )


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def decoded_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def require_cryptography(feature: str) -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise BadRequest(
            f"{feature} need the cryptography package.", remedy="pip install cryptography"
        ) from None


def given_key(given: str | None, variable: str, environ: Mapping[str, str] | None = None) -> str:
    if given is not None:
        return given
    return (os.environ if environ is None else environ).get(variable, "").strip()


@dataclass(frozen=True, slots=True)
class StreamPasses:
    """One-time passes, signed with a key that replicas may share."""

    key: bytes = field(repr=False)
    _used: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    _issued: dict[bytes, str] = field(default_factory=dict, repr=False, compare=False)

    def path(self, now: float) -> str:
        """Return a path suffix: ``/pass/EXPIRES-NUMBER-SIGNATURE``."""
        named = f"{int(now) + PASS_S}-{secrets.token_hex(8)}"
        return f"{PASS_PATH}{named}-{self._signature(named)}"

    def path_for(self, signature: bytes, now: float) -> str:
        if signature not in self._issued:
            if len(self._issued) >= MAX_WEBHOOKS:
                del self._issued[next(iter(self._issued))]
            self._issued[signature] = self.path(now)
        return self._issued[signature]

    def take(self, path: str, now: float) -> bool:
        """Use up the pass at a path's end; False: invalid, expired or used."""
        named, _, given = path.rpartition(PASS_PATH)[2].rstrip("/").rpartition("-")
        expires = named.partition("-")[0]
        if not (expires.isascii() and expires.isdecimal() and len(expires) <= 12):
            return False
        expected = self._signature(named).encode()
        is_ours = hmac.compare_digest(encoded(given), expected)
        if not is_ours or now > int(expires) or named in self._used:
            return False
        for old in [each for each, until in self._used.items() if until < now]:
            del self._used[old]
        self._used[named] = int(expires)
        return True

    def _signature(self, named: str) -> str:
        signed = b"stream pass " + encoded(named)
        return hmac.new(self.key, signed, "sha256").hexdigest()[:32]


def passes_signed_with(*keys: str) -> StreamPasses:
    key = next(filter(None, keys), "")
    return StreamPasses(key.encode() if key else os.urandom(32))


@dataclass(frozen=True, slots=True)
class CarrierAdmission:
    """Admission of one carrier's requests, as a `StreamKind.check`.

    Args:
        public_url: URL under which the carrier knows this server; see `requested_url`.
        streams: one of these must pass for a stream; empty = a pass, or anybody.
        webhooks: one of these must pass for a webhook; empty = anybody.
    """

    public_url: str = ""
    streams: Sequence[RequestCheck] = ()
    webhooks: Sequence[RequestCheck] = ()
    passes: StreamPasses | None = None
    clock: WallClock = time.time

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.public_url)
            bad = bool(self.public_url) and not (parts.scheme in SCHEMES and parts.hostname)
        except ValueError:
            bad = True
        if bad:
            raise BadRequest(
                "public_url is no address.", remedy="Write it as https://HOST, with a path or not."
            )

    @property
    def checks(self) -> bool:
        return bool(self.streams or self.webhooks)

    def __call__(self, handshake: Handshake) -> None:
        now = self.clock()
        # A WebSocket at the webhook's path is a stream like any other.
        webhook = handshake.path.endswith(ANSWER_PATH) and "upgrade" not in handshake.headers
        checks = self.webhooks if webhook else self.streams
        if not webhook and self._has_pass(handshake):
            assert self.passes is not None
            if self.passes.take(handshake.path, now):
                return
            raise Refused(403, "The pass of the start answer has expired, or was used already.")
        if not checks and (webhook or not self.webhooks):
            return
        reason = "The stream has neither a signature nor a pass of its start answer."
        request = carrier_request(handshake, self.public_url, websocket=not webhook)
        for each in checks:
            try:
                each.check(request, now)
            except BadSignature as error:
                reason = str(error)
            else:
                return
        raise Refused(403, reason)

    def stream_url(self, handshake: Handshake) -> str:
        """Return a start answer's stream URL, with a pass where webhooks are checked."""
        url = stream_url(handshake, self.public_url)
        if self.passes is None or not self.webhooks:
            return url
        now, signature = self.clock(), b""
        request = carrier_request(handshake, self.public_url, websocket=False)
        for each in self.webhooks:
            with contextlib.suppress(BadSignature):
                signature = signature or each.check(request, now)
        return url + (self.passes.path_for(signature, now) if signature else self.passes.path(now))

    def _has_pass(self, handshake: Handshake) -> bool:
        # A pass proves nothing where anybody may request the start answer.
        return self.passes is not None and bool(self.webhooks) and PASS_PATH in handshake.path
