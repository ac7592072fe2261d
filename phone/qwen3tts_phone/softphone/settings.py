"""Settings of the softphone."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qwen3tts_codecs.table import BROWSER_CODECS
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.sip.message.network import networks
from qwen3tts_phone.softphone.webrtc.settings import HOST, IceServer
from qwen3tts_speech.link import VoiceOptions
from qwen3tts_speech.record_sinks import endpoint_of

PORTS = {"http": 80, "https": 443}


def plain_host(host: str) -> str:
    return host.strip().strip("[]").rstrip(".").lower()


def origin_of(text: str) -> tuple[str, str, int] | None:
    scheme, separator, rest = text.partition("://")
    found = HOST.fullmatch(rest)
    if not separator or scheme not in PORTS or found is None:
        return None
    return scheme, plain_host(found[1]), int(found[2] or PORTS[scheme])


LOOPBACK = "127.0.0.1"
SERVER = "ws://127.0.0.1:8765/v1/speech"
MAX_ENGINES = 32
MAX_ICE_SERVERS = 8


@dataclass(frozen=True, slots=True)
class EngineSettings:
    url: str
    name: str = ""
    """Shown name; empty = the server's own."""


@dataclass(frozen=True, slots=True)
class SoftphoneSettings:
    """Settings of `Softphone`. Raises ValueError whose text begins with the name of the field."""

    host: str = LOOPBACK
    port: int = 0
    engines: tuple[EngineSettings, ...] = (EngineSettings(SERVER),)
    """Speech servers; the first one is the default."""
    voice: str | None = None
    language: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    token: str = field(default="", repr=False)
    """Access token; empty = a random one at each start."""
    https: bool | None = None
    """TLS; None = unless bound to this machine alone."""
    certificate: Path | None = None
    """PEM with a certificate and its chain; None = a self-signed one."""
    key: Path | None = None
    insecure: bool = False
    names: tuple[str, ...] = ()
    public_url: str = ""
    """Origin of the page at a reverse proxy, such as ``https://phone.example.org``."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose ``X-Forwarded-*`` headers count."""
    ice_servers: tuple[IceServer, ...] = ()
    """STUN and TURN servers of the page and this side; no others are used."""
    codecs: tuple[str, ...] = ("opus", "PCMU")
    """Accepted codecs, the preferred one first."""
    listen: ListenSettings = field(default_factory=ListenSettings)
    max_calls: int = 8
    max_call_s: float = 7200.0
    max_sessions: int = 32
    text_chars: int = 20_000
    message_bytes: int = 131_072
    upload_bytes: int = 1_500_000
    """Largest reference recording; the speech server may have a lower limit."""
    upload_s: float = 30.0
    hello_s: float = 5.0
    resume_s: float = 8.0
    """Time in which a page may resume its session and call."""
    recording: bool = True
    recordings: Path | None = None
    """Folder of recordings; None = a private one that is deleted at the end."""
    records: RecordSettings | None = None
    """Call records, and the notice before a recording."""
    latency_log: Path | None = None
    otel: str | None = None
    """Collector that gets a span of each utterance (OpenTelemetry), such as http://127.0.0.1:4318;
    ``1``: that of the ``OTEL_*`` variables."""
    freeze_heap: bool = True

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
        if self.https is None:
            return self.certificate is not None or not (is_loopback(self.host) or self.insecure)
        return self.https

    @property
    def public_names(self) -> tuple[str, ...]:
        origin = origin_of(self.public_url)
        return () if origin is None else (origin[1],)

    @property
    def speech(self) -> VoiceOptions:
        return VoiceOptions(self.voice, self.language, dict(self.options))


def is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_token(text: str) -> bool:
    return text.isascii() and all(each.isalnum() or each in "-._~" for each in text)
