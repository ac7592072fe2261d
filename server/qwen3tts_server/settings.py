"""Settings of the server, its access control, its voices and its dialects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from qwen3tts_server.voices.names import KNOWN_NAMES, key_of
from qwen3tts_settings.constraints import bounded, check_fields, one_of
from qwen3tts_wire.messages import MIN_WINDOW_MS, Limits

OPEN_PATHS = frozenset({"/health", "/ready"})
"""Paths without a key, for the supervision of the process."""


@dataclass(frozen=True)
class AccessSettings:
    """Settings of access control. Raises ValueError for an invalid one."""

    api_keys: tuple[str, ...] = field(default=(), repr=False, metadata={"secret": True})
    """Keys of the role ``speak``; with no key and no file of keys the server is open."""
    voices_keys: tuple[str, ...] = field(default=(), repr=False, metadata={"secret": True})
    """Keys of the role ``voices``: they also manage the voices that other keys have uploaded."""
    admin_keys: tuple[str, ...] = field(default=(), repr=False, metadata={"secret": True})
    """Keys of the role ``admin``: they may do everything."""
    api_key_file: Path | None = None
    """File of further keys, one a line, each with its role unless ``speak``; reloaded on change."""
    open_paths: tuple[str, ...] = ()
    """Paths without a key, besides ``/health`` and ``/ready``; such as ``/metrics``."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may connect, as ``https://example.org``; ``*``: all. Clients
    without an origin (no browsers) may, and pages of this server under its bare address."""
    max_connections_per_address: int = bounded(0, default=0)
    """Concurrent connections and requests per address; 0 is unbounded."""
    max_sockets: int = bounded(0, default=2048)
    """Concurrent TCP connections, idle ones too; 0 is unbounded."""
    max_sockets_per_address: int = bounded(0, default=0)
    """Concurrent TCP connections per address; 0 is unbounded."""
    head_timeout_s: float = bounded(above=0, default=10.0)
    """Timeout of the TLS handshake, and then of a request's head."""
    body_timeout_s: float = bounded(above=0, default=60.0)
    """Timeout of a request's body."""
    unread_timeout_s: float = bounded(above=0, default=60.0)
    """Time after which a client that reads nothing is disconnected."""
    keep_alive_s: float = bounded(above=0, default=30.0)
    """Keep-alive of an HTTP connection; longer than clients keep theirs."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose ``X-Forwarded-For`` is trusted."""
    tls_cert: Path | None = None
    """Certificate chain (PEM); enables TLS, and TLS only."""
    tls_key: Path | None = None
    """Its private key (PEM); None: in the same file."""
    tls_key_world_readable: bool = False
    """True accepts a private key readable by every user."""
    tls_min: Literal["1.2", "1.3"] = one_of(("1.2", "1.3"), default="1.2")
    """Minimum TLS version."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("api_keys", "voices_keys", "admin_keys"):
            if not all(map(good_key, getattr(self, name))):
                raise ValueError(f"{name} must be of visible ASCII characters, without spaces")
        if not all(path.startswith("/") for path in self.open_paths):
            raise ValueError("open_paths must begin with /")
        for origin in self.origins:
            if origin not in ("*", "null") and ("://" not in origin or origin.endswith("/")):
                raise ValueError(f"origins: {origin!r} must look like https://example.org")
        if self.tls_key is not None and self.tls_cert is None:
            raise ValueError("tls_key needs tls_cert beside it")

    @property
    def has_keys(self) -> bool:
        return bool(
            self.api_keys or self.voices_keys or self.admin_keys or self.api_key_file is not None
        )


def good_key(key: str) -> bool:
    return bool(key) and all("!" <= char <= "~" for char in key)


@dataclass(frozen=True)
class OpenAISettings:
    """Settings of the OpenAI routes. Raises ValueError for an invalid one."""

    stream_default: Literal["raw", "sse"] = one_of(("raw", "sse"), default="raw")
    """Meaning of ``stream: true`` alone: raw audio, as OpenAI's clients expect, or server-sent
    events, as vLLM-Omni since its change 4679."""
    default_format: Literal["wav", "pcm", "flac", "mp3", "opus", "aac"] = one_of(
        ("wav", "pcm", "flac", "mp3", "opus", "aac"), default="mp3"
    )
    """``response_format`` where a request has none; OpenAI's is mp3, vLLM-Omni's wav."""
    max_input_chars: int = bounded(1, default=4096)
    """Characters of ``input``."""
    max_body_bytes: int = bounded(1, default=16 << 20)
    """Size of a speech request, its reference audio included."""
    max_batch_items: int = bounded(1, default=32)
    """Texts of one ``POST /v1/audio/speech/batch``."""
    max_batch_chars: int = bounded(1, default=32_768)
    """Characters of all texts of a batch."""
    batch_slots: int = bounded(1, default=4)
    """Concurrent texts of all batches; calls have the rest of the engine."""
    whisper: str | None = "auto"
    """Whisper model (folder, size or hub id) of ``POST /v1/audio/transcriptions``; ``auto``: the
    engine's (``engine.qwen3.whisper``), else one that the extra ``stt-offline`` or
    ``stt-offline-languages`` brought; None: the engine's alone."""
    max_recording_bytes: int = bounded(1, default=25 << 20)
    """Size of a recording to transcribe."""
    max_recording_s: float = bounded(0.1, 3600, default=600.0)
    """Duration of a recording to transcribe."""
    send_timeout_s: float = bounded(above=0, default=60.0)
    """Time after which a client that reads nothing is disconnected."""
    model_aliases: tuple[str, ...] = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
    """Further names of the model, each also with a date suffix as OpenAI's."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.whisper == "":
            raise ValueError("whisper must name a model, or be null")
        aliases: object = self.model_aliases
        if isinstance(aliases, str) or not all(self.model_aliases):
            raise ValueError("model_aliases must be a list of names")


@dataclass(frozen=True)
class RunvncSettings:
    """Settings of the runvnc protocol. Raises ValueError for an invalid one."""

    max_init_bytes: int = bounded(1, default=12 * 1024 * 1024)
    """Bytes of ``init`` with its reference audio."""
    max_message_chars: int = bounded(1, default=256 * 1024)
    """Characters of any other message."""
    max_waiting: int = bounded(1, default=64)
    """Queued messages while a voice is being loaded."""
    generate_frame_ms: float = bounded(0, default=10.0)
    """Interval between 20 ms frames of ``generate``, as clients expect; 0: unpaced.
    ``generate_stream`` and ``text`` are never paced."""
    default_voice: str | None = None
    """Voice before any ``init``; None: ``init`` or ``voice_id`` is required."""
    xvector_fallback: bool = True
    """Fallback of ``auto_transcribe`` without a recogniser to the speaker embedding (x-vector),
    stated in ``ready``; False: an error."""
    idle_s: float = bounded(0, default=3600.0)
    """Idle timeout while nothing is spoken; 0 is unbounded."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class VllmOmniSettings:
    """Settings of vLLM-Omni's WebSocket. Raises ValueError for an invalid one."""

    config_timeout_s: float = bounded(0, default=10.0)
    """Timeout of the first ``session.config``; 0 is unbounded."""
    idle_timeout_s: float = bounded(0, default=30.0)
    """Idle timeout while nothing is spoken; 0 is unbounded."""
    max_config_chars: int = bounded(1, default=4 * 1024 * 1024)
    """Characters of ``session.config``."""
    max_message_chars: int = bounded(1, default=128 * 1024)
    """Characters of any other message."""
    max_waiting_chars: int = bounded(1, default=256 * 1024)
    """Characters of a connection's text waiting to be spoken."""
    max_waiting_answers: int = bounded(1, default=1000)
    """Answers waiting for the current speech."""
    max_file_s: float = bounded(above=0, default=600.0)
    """Longest audio of a unit sent as one file, in seconds; it is buffered here."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_waiting_chars < self.max_message_chars:
            raise ValueError(
                f"max_waiting_chars={self.max_waiting_chars} must be at least "
                f"max_message_chars={self.max_message_chars}"
            )


@dataclass(frozen=True)
class VoiceSettings:
    """Settings of voices. Raises ValueError for an invalid one."""

    default: str | None = None
    """Voice of a request that names neither voice nor language; None: the engine's choice."""
    openai_voices: Mapping[str, str] = field(default_factory=dict)
    """Voices for OpenAI's voice names and Qwen3-TTS's speakers; missing ones of OpenAI are spread
    over the engine's."""
    store: str | None = None
    """Store of uploaded voices: a folder, or any fsspec URL; None: memory."""
    refresh_s: float = bounded(above=0, default=2.0)
    """Interval at which voices stored by other replicas are read."""
    max_voices: int = bounded(1, default=1000)
    """Named voices."""
    max_bytes: int = bounded(1, default=10 << 20)
    """Size of one recording."""
    max_seconds: float = bounded(above=0, default=60.0)
    """Duration of one recording."""
    max_store_bytes: int = bounded(1, default=1 << 30)
    """Size of all recordings together."""
    keep_references: bool = True
    """Storage of unnamed recordings too, so that any replica finds their voices by id; the oldest
    are evicted first."""
    reference_days: float = bounded(above=0, default=7.0)
    """Retention of unnamed recordings."""
    max_loads: int = bounded(1, default=8)
    """Concurrent loads of voices; more wait."""
    max_waiting: int = bounded(0, default=64)
    """Requests waiting for a load; further ones are refused."""
    fetch: bool = False
    """References at web addresses; only public addresses are contacted."""
    fetch_hosts: tuple[str, ...] = ()
    """Allowed hosts (``*.example.com``: with all subdomains); empty: any."""
    fetch_ports: tuple[int, ...] = bounded(1, 65_535, default=(80, 443))
    """Allowed ports."""
    fetch_timeout_s: float = bounded(above=0, default=10.0)
    """Timeout of a download: name resolution, redirects and content."""
    fetch_redirects: int = bounded(0, default=3)
    """Maximum of redirects."""
    file_folders: tuple[str, ...] = ()
    """Folders readable by ``file:`` addresses; empty: none."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("fetch_hosts", "file_folders"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a list")
        for host in self.fetch_hosts:
            bare = host.removeprefix("*.")
            if not bare or any(char in bare for char in "*/:@ "):
                raise ValueError(f"fetch_hosts: {host!r} is not a host name")
        for folder in self.file_folders:
            if not folder.startswith("/"):
                raise ValueError(f"file_folders: {folder!r} must be an absolute path")
        if self.store == "":
            raise ValueError("store is empty; leave it out, or name a folder")
        for name in self.openai_voices:
            if key_of(name) not in KNOWN_NAMES:
                raise ValueError(f"openai_voices: {name!r} must be one of {', '.join(KNOWN_NAMES)}")


@dataclass(frozen=True)
class ServerSettings:
    """Settings of one server. Raises ValueError for an invalid one."""

    host: str = "127.0.0.1"
    """Address to listen on; nothing else is bound."""
    port: int = bounded(0, 65_535, default=8765)
    """TCP port; 0 lets the system choose."""
    max_connections: int = bounded(1, default=256)
    """Concurrent connections; further ones are closed with 1013."""
    limits: Limits = field(default_factory=Limits)
    """Bounds announced to every client."""
    pause_flush_ms: float = bounded(0, default=250.0)
    """A pause in a context's text of this length is a flush; 0 never is."""
    pause_flush_lead_ms: float = bounded(0, default=500.0)
    """While the listener has at least this much to hear, a pause in the text does not flush."""
    ahead_ms: float = bounded(above=0, default=1000.0)
    """Audio of one context buffered beyond the client's credit; then its engine waits."""
    frame_ms: float = bounded(5, 1000, default=100.0)
    """Longest audio message."""
    max_voice_loads: int = bounded(1, default=4)
    """Voices that one connection may load concurrently."""
    done_kept: int = bounded(0, default=64)
    """Done contexts of a connection kept for a late cancel."""
    done_kept_chars: int = bounded(0, default=1_000_000)
    """Characters of their texts together."""
    backlog_bytes: int = bounded(0, default=1 << 20)
    """Unwritten answers above which a client's messages are no longer read (backpressure)."""
    drain_timeout_s: float = bounded(0, default=30.0)
    """Time for open contexts to finish when the server stops."""
    ping_interval_s: float = bounded(above=0, default=10.0)
    """Interval of WebSocket pings."""
    ping_timeout_s: float = bounded(above=0, default=10.0)
    """Timeout of a WebSocket ping."""
    first_message_s: float = bounded(0, default=30.0)
    """Timeout of a connection's first message; 0 is unbounded."""
    idle_s: float = bounded(0, default=600.0)
    """Idle timeout without a message or speech; 0 is unbounded."""
    profiler: bool = False
    """Routes ``/start_profile`` and ``/stop_profile``."""
    profile_folder: str = "profiles"
    """Folder of profiles."""
    access: AccessSettings = field(default_factory=AccessSettings)
    """Access control."""
    voices: VoiceSettings = field(default_factory=VoiceSettings)
    """Names and stores of voices."""
    openai: OpenAISettings = field(default_factory=OpenAISettings)
    """OpenAI's routes."""
    vllm_omni: VllmOmniSettings = field(default_factory=VllmOmniSettings)
    """vLLM-Omni's WebSocket."""
    runvnc: RunvncSettings = field(default_factory=RunvncSettings)
    """The runvnc protocol."""
    dialects: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of further dialects, by their names."""

    def __post_init__(self) -> None:
        check_fields(self)
        most = Limits(max_contexts=self.limits.max_contexts)
        for each in fields(most):
            low = MIN_WINDOW_MS if each.name == "max_window_ms" else 1
            high = getattr(most, each.name)
            if not low <= getattr(self.limits, each.name) <= high:
                raise ValueError(f"limits.{each.name} must be from {low} to {high}")
