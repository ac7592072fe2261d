"""Who may open a carrier's stream, and who may ask for its start answer.

Webhooks are signed by most carriers, streams only by some. So the start answer gives the stream a
pass in its path, which is good for two minutes: whoever was handed it by a carrier's signed webhook
is that carrier.
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from qwen3tts_phone.streams.adapter import Handshake, Refused
from qwen3tts_phone.streams.carrier_request import BadSignature, RequestCheck, request_of
from qwen3tts_wire.errors import BadRequest

PASS_S = 120
"""How long a stream may take to follow its start answer, seconds."""
PASS_PATH = "/pass/"
ANSWER_PATH = "/answer"
PUBLIC_URL = "MR_QWEN3TTS_PUBLIC_URL"
"""The variable that says under which address carriers know this server."""

SCHEMES = ("https", "wss", "http", "ws")

WallClock = Callable[[], float]
"""Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class StreamPass:
    """Makes passes and knows them again; with the same key on every replica."""

    key: bytes = field(repr=False)

    def path(self, now: float) -> str:
        """What is put after the stream's path: ``/pass/EXPIRES-SIGNATURE``."""
        expires = int(now) + PASS_S
        return f"{PASS_PATH}{expires}-{self._signature(str(expires))}"

    def holds(self, path: str, now: float) -> bool:
        """Whether a path has a pass at its end that is good ``now``."""
        expires, _, given = path.rpartition(PASS_PATH)[2].rstrip("/").partition("-")
        if not (expires.isascii() and expires.isdecimal() and len(expires) <= 12):
            return False
        expected = self._signature(expires).encode()
        is_ours = hmac.compare_digest(given.encode("utf-8", "replace"), expected)
        return is_ours and now <= int(expires)

    def _signature(self, expires: str) -> str:
        return hmac.new(self.key, b"stream pass " + expires.encode(), "sha256").hexdigest()[:32]


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
        if not webhook and self._passed(handshake, now):
            return
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

    def with_pass(self, url: str) -> str:
        """A stream's URL for the start answer, with a pass where webhooks are checked."""
        if self.passes is None or not self.webhooks:
            return url
        return url + self.passes.path(self.clock())

    def _passed(self, handshake: Handshake, now: float) -> bool:
        # Where anybody may ask for the start answer, its pass proves nothing.
        if self.passes is None or not self.webhooks:
            return False
        return self.passes.holds(handshake.path, now)


def passes_by(*keys: str) -> StreamPass:
    """Passes signed with the first key that there is; else with one that only this process has."""
    key = next(filter(None, keys), "")
    return StreamPass(key.encode() if key else os.urandom(32))


def key_of(given: str | None, variable: str, environ: Mapping[str, str] | None = None) -> str:
    """A key that was given, or the one in the environment; or nothing."""
    if given is not None:
        return given
    return (os.environ if environ is None else environ).get(variable, "").strip()
