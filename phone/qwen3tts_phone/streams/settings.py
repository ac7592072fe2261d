"""Settings of the server of media streams."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qwen3tts_phone.audio.wav import check_unavailable
from qwen3tts_phone.dialling.guard import GuardSettings
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.sip.core.settings import MAX_CALLS
from qwen3tts_phone.streams.carriers import CARRIERS
from qwen3tts_phone.streams.carriers.adapter import StreamKind
from qwen3tts_phone.streams.carriers.audiosocket import TYPE_OF
from qwen3tts_speech.link import VoiceOptions
from qwen3tts_speech.record_sinks import endpoint_of

LOOPBACK = "127.0.0.1"
MAX_LEAD_MS = 400
OPEN_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Settings of `Streams`. Raises ValueError whose text begins with the name of the field."""

    kinds: tuple[str | StreamKind, ...] = ("audiosocket", "asterisk")
    """Names of `carriers.CARRIERS`, or further `StreamKind`s. ``audiosocket`` comes over TCP; all
    others share the WebSocket port, each under the path of its name."""
    host: str = LOOPBACK
    port: int = 0
    """The WebSocket port; 0 = any free one. Where ``audiosocket`` is the only kind, its port."""
    audiosocket_port: int = 0
    """The TCP port of ``audiosocket`` beside others; 0 = any free one."""
    server_url: str | None = None
    """The synthesis server; None: as ``PhoneSettings.server_url``."""
    voice: str | None = None
    language: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    lead_ms: int = 240
    """Lead of sending before playout, for a far end that has a queue: 40 to 400."""
    mark_ms: int = 100
    audiosocket_hz: int = 8000
    """Rate of AudioSocket until the far end has sent audio; then its own."""
    token: str = field(default="", repr=False)
    """Token that a WebSocket must show, as ``?token=`` or in an Authorization header (Bearer, or
    the password of Basic); empty = none."""
    insecure: bool = False
    """Serve carriers' streams without a key of the carrier or a ``token``: everybody who finds the
    address can talk at your cost, also behind a tunnel."""
    allow: tuple[str, ...] = ()
    """Networks that connections may come from, such as ``10.0.0.0/8``; empty = all."""
    certificate: Path | None = None
    """PEM with our certificate and its chain, for TLS on the WebSocket port."""
    key: Path | None = None
    max_calls: int = MAX_CALLS
    max_per_address: int = 0
    """Connections of one address at a time; 0 = as many as ``max_calls``."""
    max_pending: int = 64
    """Connections whose call is not identified yet. They do not count as calls; one more closes the
    oldest of the address that has most of them."""
    max_pending_per_address: int = 32
    max_message_bytes: int = 262_144
    start_s: float = 10.0
    """Longest time from the acceptance of a connection, TLS and handshake included, until its call
    is identified."""
    media_silent_s: float = 20.0
    """Time without inbound audio after which `MediaSilent` is reported; 0 = never."""
    vanished_s: float = 60.0
    """Time without any message, or of backpressure, after which a call ends; 0 = never."""
    ping_s: float = 20.0
    """Interval of WebSocket pings, and the time for their answer; 0 = never."""
    guard: GuardSettings | None = None
    """Rules of transfers; None = all but emergency and premium-rate numbers."""
    record_path: Path | None = None
    """Stereo WAV of both directions; further calls get ``-2``, ``-3``, ... (0600)."""
    latency_log: Path | None = None
    otel: str | None = None
    """Collector that gets a span of each utterance (OpenTelemetry), such as http://127.0.0.1:4318;
    ``1``: that of the ``OTEL_*`` variables."""
    records: RecordSettings | None = None
    unavailable_file: Path | None = None
    """WAV file (16-bit PCM) for callers while no speech server can be reached; then their stream
    ends. None: it is closed when it starts, and a carrier's webhook gets 503."""
    freeze_heap: bool = True

    def __post_init__(self) -> None:
        self._check_kinds()
        check_unavailable(self.unavailable_file)
        endpoint_of(self.otel)
        for name in ("port", "audiosocket_port"):
            if not 0 <= getattr(self, name) < 65536:
                raise ValueError(f"{name}={getattr(self, name)} is not between 0 and 65535")
        for name, least, most in (
            ("lead_ms", 40, MAX_LEAD_MS),
            ("mark_ms", 20, 2000),
            ("max_calls", 1, 100_000),
            ("max_per_address", 0, 100_000),
            ("max_pending", 1, 10_000),
            ("max_pending_per_address", 1, 10_000),
            ("max_message_bytes", 4096, 16_777_216),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name}={getattr(self, name)} is not {least} to {most}")
        for name in ("start_s", "media_silent_s", "vanished_s", "ping_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0) or (name == "start_s" and not value):
                raise ValueError(f"{name}={value} is no time in seconds")
        if self.audiosocket_hz not in TYPE_OF:
            raise ValueError(
                f"audiosocket_hz={self.audiosocket_hz}: one of {', '.join(map(str, TYPE_OF))}"
            )
        if self.key is not None and self.certificate is None:
            raise ValueError("key is given without certificate")
        for each in self.allow:
            try:
                ipaddress.ip_network(each)
            except ValueError as error:
                raise ValueError(f"allow: {each!r} is no network ({error})") from None

    def _check_kinds(self) -> None:
        if not self.kinds:
            raise ValueError("kinds is a list with at least one of " + ", ".join(CARRIERS))
        names = [each if isinstance(each, str) else each.name for each in self.kinds]
        for each in self.kinds:
            if isinstance(each, str) and each not in CARRIERS:
                raise ValueError(f"kinds: {each!r} is not one of {', '.join(CARRIERS)}")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"kinds: {twice!r} stands there twice")

    @property
    def speech(self) -> VoiceOptions:
        return VoiceOptions(self.voice, self.language, dict(self.options))

    @property
    def over_tcp(self) -> bool:
        return "audiosocket" in self.kinds
