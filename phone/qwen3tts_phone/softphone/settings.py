"""Addresses of web pages and of ICE servers, as settings and headers write them (pure)."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qwen3tts_codecs.table import BROWSER_CODECS
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.sip.message.network import networks
from qwen3tts_speech.spans import endpoint_of
from qwen3tts_speech.utterance import VoiceOptions

HOST = re.compile(r"([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?", re.ASCII)
"""A host and its port (RFC 9110 section 7.2), no more than that."""
PORTS = {"http": 80, "https": 443}
_ICE = re.compile(
    rf"(?P<scheme>stuns?|turns?):{HOST.pattern}(?P<query>\?transport=(?:udp|tcp))?", re.ASCII
)


def plain_host(host: str) -> str:
    """Return a host name in one spelling, without brackets."""
    return host.strip().strip("[]").rstrip(".").lower()


def origin_of(text: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an origin (RFC 6454 section 6.2); None if it is none."""
    scheme, separator, rest = text.partition("://")
    found = HOST.fullmatch(rest)
    if not separator or scheme not in PORTS or found is None:
        return None
    return scheme, plain_host(found[1]), int(found[2] or PORTS[scheme])


@dataclass(frozen=True, slots=True)
class IceServer:
    """A STUN or TURN server, for both ends of a call (RFC 7064, RFC 7065).

    Raises:
        ValueError: the URL is none of those, or a TURN server has no user or no password.
    """

    url: str
    """Such as ``stun:stun.example.org:3478`` or ``turn:turn.example.org?transport=tcp``."""
    username: str = ""
    credential: str = field(default="", repr=False)
    """Long-term password of a TURN server."""

    def __post_init__(self) -> None:
        found = _ICE.fullmatch(self.url)
        if found is None:
            raise ValueError(
                f"url={self.url!r} is no STUN or TURN server, such as stun:stun.example.org:3478"
                " or turn:turn.example.org:3478?transport=udp"
            )
        relay = found["scheme"].startswith("turn")
        if found["query"] and not relay:
            raise ValueError(f"url={self.url!r}: only a TURN server has ?transport=")
        if relay and not (self.username and self.credential):
            raise ValueError(f"url={self.url!r} needs username and credential")
        if not relay and (self.username or self.credential):
            raise ValueError(f"url={self.url!r}: a STUN server has no username and no credential")


LOOPBACK = "127.0.0.1"
SERVER = "ws://127.0.0.1:8765/v1/speech"
MAX_ENGINES = 32
MAX_ICE_SERVERS = 8


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One speech server that the page may choose."""

    url: str
    """Its ``ws://`` or ``wss://`` address."""
    name: str = ""
    """What people are shown; empty = what it calls itself."""


@dataclass(frozen=True, slots=True)
class SoftphoneSettings:
    """Where the page is served, with which voices, and what a page may do.

    Raises ValueError whose text begins with the name of the field.
    """

    host: str = LOOPBACK
    """Address to bind; 0.0.0.0 for all."""
    port: int = 0
    """0 = any free one."""
    engines: tuple[EngineSettings, ...] = (EngineSettings(SERVER),)
    """The speech servers, the first one chosen at first."""
    voice: str | None = None
    language: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of ``context.open``, such as ``mode`` or ``instructions``."""
    token: str = field(default="", repr=False)
    """What a page must show; empty = one is made at each start."""
    https: bool | None = None
    """Whether to speak TLS; None = wherever others than this machine can reach it."""
    certificate: Path | None = None
    """PEM with a certificate of one's own and its chain; None = one is made."""
    key: Path | None = None
    """Its private key; None = it stands in the same file."""
    insecure: bool = False
    """Whether plain HTTP may be served beyond this machine."""
    names: tuple[str, ...] = ()
    """Further host names under which the page is reached."""
    public_url: str = ""
    """Origin under which a reverse proxy serves the page, such as ``https://phone.example.org``."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose ``X-Forwarded-*`` headers are believed."""
    ice_servers: tuple[IceServer, ...] = ()
    """STUN and TURN servers for the page and for this side; none is asked unless named here."""
    codecs: tuple[str, ...] = ("opus", "PCMU")
    """Those that are offered, the preferred one first."""
    listen: ListenSettings = field(default_factory=ListenSettings)
    """When a caller's voice counts as what."""
    max_calls: int = 8
    max_call_s: float = 7200.0
    """A page's call ends after so long."""
    max_sessions: int = 32
    text_chars: int = 20_000
    """The longest typed utterance."""
    message_bytes: int = 131_072
    """A longer message ends the page's connection."""
    upload_bytes: int = 1_500_000
    """The largest reference recording; what the speech server takes bounds it as well."""
    upload_s: float = 30.0
    """The longest one."""
    hello_s: float = 5.0
    """A connection that has not said hello by then is closed."""
    resume_s: float = 8.0
    """A call outlives its page's connection for so long."""
    recording: bool = True
    """Whether a page may have its calls recorded."""
    recordings: Path | None = None
    """Where recordings stay; None = in a private folder that is deleted at the end."""
    records: RecordSettings | None = None
    """Call records, and what is heard before a recording begins."""
    latency_log: Path | None = None
    """One JSON line an utterance is appended here."""
    otel: str | None = None
    """Collector that gets a span of each utterance (OpenTelemetry), such as http://127.0.0.1:4318;
    ``1``: the one that the ``OTEL_*`` variables name."""
    freeze_heap: bool = True
    """Whether the garbage collector leaves alone, while this is open, what was loaded before."""

    def __post_init__(self) -> None:
        endpoint_of(self.otel)
        if not 0 <= self.port < 65536:
            raise ValueError(f"port={self.port} is not between 0 and 65535")
        if self.public_url and origin_of(self.public_url) is None:
            raise ValueError(
                f"public_url={self.public_url!r} is no origin, such as https://phone.example.org"
                " (no path, no slash at its end)"
            )
        networks(self.trusted_proxies, "trusted_proxies")
        if len(self.ice_servers) > MAX_ICE_SERVERS:
            raise ValueError(f"ice_servers: {len(self.ice_servers)} are over {MAX_ICE_SERVERS}")
        if not 1 <= len(self.engines) <= MAX_ENGINES:
            raise ValueError(f"engines: 1 to {MAX_ENGINES} are needed, not {len(self.engines)}")
        if self.token and not (8 <= len(self.token) <= 512 and _is_token(self.token)):
            raise ValueError(
                "token has 8 to 512 letters, digits or - . _ ~, which need no quoting in an address"
            )
        for name, least, most in (
            ("max_calls", 1, 1000),
            ("max_sessions", 1, 10_000),
            ("text_chars", 1, 100_000),
            ("message_bytes", 16_384, 4_194_304),
            ("upload_bytes", 1, 64_000_000),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name}={getattr(self, name)} is not {least} to {most}")
        for name in ("upload_s", "hello_s", "resume_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0 < value <= 3600):
                raise ValueError(f"{name}={value} is no time in seconds")
        if not (math.isfinite(self.max_call_s) and self.max_call_s > 0):
            raise ValueError(f"max_call_s={self.max_call_s} is no time in seconds")
        if not self.codecs or set(self.codecs) - set(BROWSER_CODECS):
            raise ValueError(f"codecs={self.codecs}: one or several of {', '.join(BROWSER_CODECS)}")
        if self.key is not None and self.certificate is None:
            raise ValueError("key is given without certificate")
        if self.certificate is not None and self.https is False:
            raise ValueError("certificate is given, and https is off")
        if self.https is False and not self.insecure and not is_loopback(self.host):
            raise ValueError(
                f"https is off, and host={self.host} is not this machine alone: a browser gives no"
                " microphone to such a page; give insecure=True if a proxy before it has TLS"
            )

    @property
    def tls(self) -> bool:
        """Whether it speaks TLS."""
        if self.https is None:
            return self.certificate is not None or not (is_loopback(self.host) or self.insecure)
        return self.https

    @property
    def public_names(self) -> tuple[str, ...]:
        """The host name of ``public_url``, if there is one."""
        origin = origin_of(self.public_url)
        return () if origin is None else (origin[1],)

    @property
    def speech(self) -> VoiceOptions:
        """How is spoken where the page says nothing else."""
        return VoiceOptions(self.voice, self.language, dict(self.options))


@dataclass(frozen=True, slots=True)
class WebRtcSettings:
    """How long a browser is waited for. Seconds; raises ValueError that begins with the name."""

    connect_s: float = 15.0
    """Longest wait for the connection after our answer."""
    silent_s: float = 2.0
    """Nothing has come for so long: `WebCall.state` is ``lost``, and `MediaSilent` is told."""
    vanished_s: float = 20.0
    """Nothing at all has come for so long: the call is over."""
    ice_servers: tuple[IceServer, ...] = ()
    """STUN and TURN servers; none is asked unless it is named here."""

    def __post_init__(self) -> None:
        for name in ("connect_s", "silent_s", "vanished_s"):
            value = getattr(self, name)
            if not 0.1 <= value <= 3600.0:
                raise ValueError(f"{name}={value!r} is not between 0.1 and 3600 seconds")
        if self.vanished_s <= self.silent_s:
            raise ValueError(f"vanished_s={self.vanished_s} must be more than {self.silent_s}")


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine alone."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_token(text: str) -> bool:
    return text.isascii() and all(each.isalnum() or each in "-._~" for each in text)
