"""Who may open a carrier's stream, and who may ask for its start answer.

Webhooks are signed by most carriers, streams only by some, and a signature of the URL alone has no
time: it can be shown again. So the start answer gives the stream a pass in its path, which is good
once and for a minute: it was handed to the carrier that signed the webhook. The same webhook gets
the same pass again, so that a carrier may repeat it and a replay opens nothing. A stream whose path
has a pass is let in by that pass and by nothing else.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from qwen3tts_phone.streams.adapter import Handshake, Refused
from qwen3tts_phone.streams.carrier_request import BadSignature, RequestCheck, request_of
from qwen3tts_wire.errors import BadRequest

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
