"""Authentication of a carrier's webhooks and streams: signatures, passwords, one-time passes."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from qwen3tts_phone.streams.adapter import Handshake, Refused
from qwen3tts_phone.streams.carriers.http import (
    BadSignature,
    CarrierRequest,
    RequestCheck,
    request_of,
    same_addresses,
)
from qwen3tts_wire.errors import BadRequest

TOLERANCE_S = 300.0
"""How old a signed time may be, and how far ahead its clock."""


@dataclass(frozen=True, slots=True)
class TwilioSignature:
    """``X-Twilio-Signature``: HMAC-SHA1 of the URL and the posted fields, base64.

    Source: twilio.com/docs/usage/security, and its own libraries for what the page leaves open. The
    URL is signed as Twilio wrote it, and its libraries disagree about a port and a slash at its
    end; so each way of writing the *same* address is tried.
    """

    auth_token: str = field(repr=False)

    def check(self, request: CarrierRequest, now: float) -> bytes:
        """See `carrier_request.RequestCheck`."""
        given = _base64(request.header("x-twilio-signature", "Twilio"))
        fields = "".join(name + value for name, value in _sorted_fields(request.form()))
        self._check_body(request)
        key = self.auth_token.encode()
        if not any(
            hmac.compare_digest(given, hmac.digest(key, _bytes(url + fields), "sha1"))
            for url in same_addresses(request.url)
        ):
            raise BadSignature(
                "The Twilio signature is not that of this request.",
                remedy="Check that the auth token is that of the account which owns the number,"
                " and that public_url is what stands in the TwiML.",
            )
        return given

    def _check_body(self, request: CarrierRequest) -> None:
        # A body that is no form is covered by a hash in the query, and the query by the signature.
        claimed = parse_qs(request.url.partition("?")[2]).get("bodySHA256", [])
        if request.body and claimed and not request.form():
            actual = hashlib.sha256(request.body).hexdigest()
            if not hmac.compare_digest(actual.encode(), _bytes(claimed[0].lower())):
                raise BadSignature("The body is not the one that Twilio has signed.")


@dataclass(frozen=True, slots=True)
class PlivoSignature:
    """``X-Plivo-Signature-V3``: HMAC-SHA256 of URL, sorted fields and a nonce, base64; or V2.

    Source: plivo.com/docs (signature validation), plivo-python's ``signature_v3``. Several
    signatures may stand in one header, divided by commas. Whether Plivo signs the opening of a
    stream, its users disagree about; the pass of the start answer stands in for it (`admission`).
    """

    auth_token: str = field(repr=False)

    def check(self, request: CarrierRequest, now: float) -> bytes:
        """See `carrier_request.RequestCheck`."""
        # The second version signs neither query nor body: it proves nothing where there are any.
        bare = not request.body and "?" not in request.url
        version = "v2" if bare and "x-plivo-signature-v2" in request.headers else "v3"
        if "x-plivo-signature-v3" in request.headers:
            version = "v3"
        names = (f"x-plivo-signature-{version}", f"x-plivo-signature-ma-{version}")
        if names[1] not in request.headers:
            request.header(names[0], "Plivo")
        nonce = request.header(f"x-plivo-signature-{version}-nonce", "Plivo")
        given = [
            _base64(each)
            for name in names
            for each in request.headers.get(name, "").split(",")
            if each.strip()
        ]
        key = self.auth_token.encode()
        for url in same_addresses(request.url):
            base = _plivo_v3(url, request) + "." if version == "v3" else _without_query(url)
            expected = hmac.digest(key, _bytes(base + nonce), "sha256")
            if any(hmac.compare_digest(each, expected) for each in given):
                return expected
        raise BadSignature(
            "The Plivo signature is not that of this request.",
            remedy="Check that the auth token is that of the account or subaccount which owns the"
            " number, and that public_url is what stands in the answer XML.",
        )


@dataclass(frozen=True, slots=True)
class JambonzSignature:
    """``Jambonz-Signature: t=…,v1=…``: HMAC-SHA256 of the time, a dot and the body, in hex.

    For webhooks; the WebSocket of a ``listen`` verb carries a user and a password instead
    (`BasicPassword`). Source: jambonz' node-client and python library.
    """

    secret: str = field(repr=False)

    def check(self, request: CarrierRequest, now: float) -> bytes:
        """See `carrier_request.RequestCheck`."""
        parts = [
            part.strip().partition("=")
            for part in request.header("jambonz-signature", "jambonz").split(",")
        ]
        times = [value for name, _, value in parts if name == "t"]
        given = [_bytes(value.lower()) for name, _, value in parts if name == "v1"]
        if len(times) != 1 or not given:
            raise BadSignature("The Jambonz-Signature header has no time or no signature.")
        check_age(times[0], now, "jambonz")
        text = times[0].encode() + b"." + request.body
        expected = hmac.new(self.secret.encode(), text, "sha256").hexdigest().encode()
        if not any(hmac.compare_digest(each, expected) for each in given):
            raise BadSignature(
                "The jambonz signature is not that of this request.",
                remedy="Check the webhook secret of the account in the portal.",
            )
        # Of a GET only the second is signed: calls of one second differ in the query alone.
        return expected + request.url.encode()


@dataclass(frozen=True, slots=True)
class BasicPassword:
    """``Authorization: Basic``: a user and a password (RFC 7617), as Exotel and jambonz send."""

    user: str
    password: str = field(repr=False)
    whose: str = "the carrier"

    def check(self, request: CarrierRequest, now: float) -> bytes:
        """See `carrier_request.RequestCheck`."""
        scheme, _, given = request.header("authorization", self.whose).partition(" ")
        expected = f"{self.user}:{self.password}".encode()
        if scheme.lower() != "basic" or not hmac.compare_digest(_base64(given), expected):
            raise BadSignature(
                "User or password of the request are wrong.",
                remedy=f"Give {self.whose} the same ones that are set here.",
            )
        return b""


@dataclass(frozen=True, slots=True)
class HeaderToken:
    """A token in a header, such as Telnyx' ``x-telnyx-streaming-auth-token``."""

    token: str = field(repr=False)
    header: str = "x-telnyx-streaming-auth-token"
    whose: str = "Telnyx"

    def check(self, request: CarrierRequest, now: float) -> bytes:
        """See `carrier_request.RequestCheck`."""
        given = request.header(self.header, self.whose)
        if given[:7].lower() == "bearer ":
            given = given[7:].strip()
        if not hmac.compare_digest(_bytes(given), self.token.encode()):
            raise BadSignature(
                f"The {self.header} of the request is not the one that is set here.",
                remedy="Give the same token to the carrier when the stream is asked for.",
            )
        return b""


def check_age(signed_at: str, now: float, whose: str) -> None:
    """Raises BadSignature for a signed time, seconds since 1970, that is not about ``now``."""
    if not (signed_at.isascii() and signed_at.isdecimal() and len(signed_at) <= 12):
        raise BadSignature(f"The time that {whose} has signed is no number.")
    if abs(now - int(signed_at)) > TOLERANCE_S:
        raise BadSignature(
            f"The signature is of another time ({now - int(signed_at):+.0f} s).",
            remedy="It is an old request again, or a clock is wrong: check that of this machine.",
        )


def _sorted_fields(fields: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    # Of a name that comes several times, Twilio signs each value once, sorted.
    return iter(sorted(set(fields)))


def _without_query(url: str) -> str:
    return url.partition("?")[0]


def _plivo_v3(url: str, request: CarrierRequest) -> str:
    """What Plivo's third version signs, without the nonce."""
    base, _, query = url.partition("?")
    try:
        asked = parse_qs(query, keep_blank_values=True, max_num_fields=500)
    except ValueError:
        raise BadSignature("The query of the request cannot be read.") from None
    text = "&".join(f"{name}={value}" for name in sorted(asked) for value in sorted(asked[name]))
    posted = "".join(name + value for name, value in sorted(request.form()))
    if not posted:
        return base + ("?" + text if text else "")
    return base + "?" + (text + "." if text else "") + posted


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _base64(text: str) -> bytes:
    """The bytes; nothing for what is no base64, which no signature equals."""
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


PASS_S = 60
"""How long a stream may take to follow its start answer, seconds."""
PASS_PATH = "/pass/"
ANSWER_PATH = "/answer"
PUBLIC_URL = "MR_QWEN3TTS_PUBLIC_URL"
"""The variable that says under which address carriers know this server."""

MOST_WEBHOOKS = 20_000
"""Signed webhooks that are remembered; the oldest are forgotten first."""

SCHEMES = ("https", "wss", "http", "ws")

WallClock = Callable[[], float]
"""Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class StreamPass:
    """Makes passes and takes each of them once.

    With the same key, replicas take each other's passes; which were used, each knows for itself.
    """

    key: bytes = field(repr=False)
    _used: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    """Numbers of passes that were taken and have not expired, and when they do."""
    _given: dict[bytes, str] = field(default_factory=dict, repr=False, compare=False)
    """Paths that were given, by the signature of the webhook."""

    def path(self, now: float) -> str:
        """What is put after the stream's path: ``/pass/EXPIRES-NUMBER-SIGNATURE``."""
        named = f"{int(now) + PASS_S}-{secrets.token_hex(8)}"
        return f"{PASS_PATH}{named}-{self._signature(named)}"

    def path_for(self, signature: bytes, now: float) -> str:
        """Return the path of a signed webhook: the same one whenever it is shown."""
        if signature not in self._given:
            if len(self._given) >= MOST_WEBHOOKS:
                del self._given[next(iter(self._given))]
            self._given[signature] = self.path(now)
        return self._given[signature]

    def take(self, path: str, now: float) -> bool:
        """Whether a path has a pass at its end that is good ``now``; it is not good again."""
        named, _, given = path.rpartition(PASS_PATH)[2].rstrip("/").rpartition("-")
        expires = named.partition("-")[0]
        if not (expires.isascii() and expires.isdecimal() and len(expires) <= 12):
            return False
        expected = self._signature(named).encode()
        is_ours = hmac.compare_digest(given.encode("utf-8", "replace"), expected)
        if not is_ours or now > int(expires) or named in self._used:
            return False
        for old in [each for each, until in self._used.items() if until < now]:
            del self._used[old]
        self._used[named] = int(expires)
        return True

    def _signature(self, named: str) -> str:
        signed = b"stream pass " + named.encode("utf-8", "replace")
        return hmac.new(self.key, signed, "sha256").hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Admission:
    """The check of one kind of stream: a `StreamKind.check`.

    Args:
        public_url: under which address the carrier knows this server; see `public_url_of`.
        streams: any one of these must let a stream in; empty = a pass, or anybody.
        webhooks: any one of these must let a webhook in; empty = anybody.
        clock: where the time comes from.
    """

    public_url: str = ""
    streams: Sequence[RequestCheck] = ()
    webhooks: Sequence[RequestCheck] = ()
    passes: StreamPass | None = None
    clock: WallClock = time.time

    def __post_init__(self) -> None:
        """Raises BadRequest where ``public_url`` is no address."""
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
        """Whether anything at all is checked where a stream is opened."""
        return bool(self.streams or self.webhooks)

    def __call__(self, handshake: Handshake) -> None:
        """Raises Refused for a request that is not the carrier's."""
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
        request = request_of(handshake, self.public_url, websocket=not webhook)
        for each in checks:
            try:
                each.check(request, now)
            except BadSignature as error:
                reason = str(error)
            else:
                return
        raise Refused(403, reason)

    def with_pass(self, url: str, handshake: Handshake) -> str:
        """Return a stream's URL for the start answer, with a pass where webhooks are checked."""
        if self.passes is None or not self.webhooks:
            return url
        now, signature = self.clock(), b""
        request = request_of(handshake, self.public_url, websocket=False)
        for each in self.webhooks:
            with contextlib.suppress(BadSignature):
                signature = signature or each.check(request, now)
        return url + (self.passes.path_for(signature, now) if signature else self.passes.path(now))

    def _has_pass(self, handshake: Handshake) -> bool:
        # Where anybody may ask for the start answer, its pass proves nothing.
        return self.passes is not None and bool(self.webhooks) and PASS_PATH in handshake.path


def passes_by(*keys: str) -> StreamPass:
    """Passes signed with the first key that there is; else with one that only this process has."""
    key = next(filter(None, keys), "")
    return StreamPass(key.encode() if key else os.urandom(32))


def key_of(given: str | None, variable: str, environ: Mapping[str, str] | None = None) -> str:
    """A key that was given, or the one in the environment; or nothing."""
    if given is not None:
        return given
    return (os.environ if environ is None else environ).get(variable, "").strip()
