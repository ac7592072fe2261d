"""A request as a carrier has made it, which behind a proxy is not quite the one that arrives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from qwen3tts_phone.streams.adapter import Handshake
from qwen3tts_wire.errors import SpeechError

MOST_BYTES = 1 << 16
"""Longest body that a webhook may have."""
_PORTS = {"wss": 443, "https": 443, "ws": 80, "http": 80}
_SISTERS = {"wss": "https", "https": "wss", "ws": "http", "http": "ws"}


class BadSignature(SpeechError):
    """A request claims to come from a carrier, and nothing proves it; nobody is let in."""

    code = "bad_signature"


@dataclass(frozen=True, slots=True)
class CarrierRequest:
    """A request as the carrier has made it: the opening of a WebSocket, or a webhook."""

    url: str = field(repr=False)
    """With scheme, host and query, as the carrier knows it; a query may hold a token."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Names in lower case."""
    method: str = "GET"
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str, whose: str) -> str:
        """The value of a header. Raises BadSignature where it is missing."""
        value = self.headers.get(name, "").strip()
        if not value:
            raise BadSignature(
                f"The request has no {name} header.",
                remedy=f"Only {whose} may connect; a proxy in between must pass the header on.",
            )
        return value

    def form(self) -> list[tuple[str, str]]:
        """The fields of a form that was posted; none for another kind of body."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if self.method != "POST" or kind != "application/x-www-form-urlencoded":
            return []
        if len(self.body) > MOST_BYTES:
            raise BadSignature(f"The form is longer than {MOST_BYTES} bytes.")
        try:
            return parse_qsl(self.body.decode("utf-8"), keep_blank_values=True, max_num_fields=500)
        except ValueError:
            raise BadSignature("The form that was posted cannot be read.") from None


class RequestCheck(Protocol):
    """Tells a carrier's request from anybody else's."""

    def check(self, request: CarrierRequest, now: float) -> bytes:
        """Return what identifies a signed request, its signature at least; empty for a password.

        Args:
            request: as the carrier made it.
            now: seconds of the wall clock since 1970.

        Raises:
            BadSignature: it is not the carrier's, or that cannot be decided.
        """


def request_of(
    handshake: Handshake, public_url: str = "", *, websocket: bool = True
) -> CarrierRequest:
    """The request as the carrier made it; ``public_url``: see `public_url_of`."""
    return CarrierRequest(
        public_url_of(handshake, public_url, websocket=websocket),
        handshake.headers,
        getattr(handshake, "method", "GET"),
        getattr(handshake, "body", b""),
    )


def public_url_of(handshake: Handshake, public_url: str = "", *, websocket: bool = True) -> str:
    """The URL that the carrier asked for.

    Args:
        handshake: what arrived here.
        public_url: scheme and host under which the carrier knows this server, and the part of the
            path that a proxy takes off, such as ``https://voice.example.com/calls``. Left out, it
            is taken from the Host header, and TLS is assumed: carriers insist on it, and where a
            proxy ends it, nothing here can see it.
        websocket: whether the scheme is ``wss`` or ``https``.
    """
    secure, scheme = True, ""
    host, prefix = handshake.headers.get("host", "").strip(), ""
    if public_url:
        parts = urlsplit(public_url)
        scheme, host, prefix = parts.scheme, parts.netloc, parts.path.rstrip("/")
        secure = scheme in ("https", "wss")
    kind = "ws" if websocket else "http"
    query = f"?{handshake.query}" if handshake.query else ""
    return f"{kind}{'s' if secure else ''}://{host}{prefix}{handshake.path}{query}"


def same_addresses(url: str) -> list[str]:
    """The ways in which one address may be written: scheme, default port, slash at the end.

    None of them is another address, so whoever holds a signature for one of them was meant.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return []
    bare = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc
    names: dict[str, None] = {}
    for scheme in (parts.scheme, _SISTERS.get(parts.scheme, parts.scheme)):
        default = _PORTS.get(scheme)
        hosts = [parts.netloc]
        if default is not None and port in (None, default):
            hosts = [bare, f"{bare}:{default}"]
        for each in hosts:
            for path in _paths(parts.path):
                names[urlunsplit((scheme, each, path, parts.query, ""))] = None
    return list(names)


def _paths(path: str) -> Iterable[str]:
    stripped = path.rstrip("/")
    return dict.fromkeys((path, stripped, stripped + "/"))
