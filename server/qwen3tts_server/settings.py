"""What a server may be told, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from qwen3tts_server.access import AccessSettings
from qwen3tts_server.dialects.openai_settings import OpenAISettings
from qwen3tts_server.dialects.runvnc_settings import RunvncSettings
from qwen3tts_server.dialects.vllm_omni_settings import VllmOmniSettings
from qwen3tts_server.voices.settings import VoiceSettings
from qwen3tts_wire.messages import MIN_WINDOW_MS, Limits


@dataclass(frozen=True)
class ServerSettings:
    """Settings of one server; ValueError for one that cannot be."""

    host: str = "127.0.0.1"
    """Address to listen on; nothing else is bound."""
    port: int = 8765
    """TCP port; 0 lets the system choose."""
    max_connections: int = 256
    """Connections at once; further ones are closed with 1013."""
    limits: Limits = field(default_factory=Limits)
    """Bounds told to every client."""
    pause_flush_ms: float = 250.0
    """A pause in a context's text of this length is a flush; 0 never is."""
    pause_flush_lead_ms: float = 500.0
    """While the listener has at least this much to hear, a pause in the text does not flush."""
    ahead_ms: float = 1000.0
    """Audio of one context kept here beyond the client's credit; then its engine waits."""
    frame_ms: float = 100.0
    """Longest audio message."""
    max_voice_loads: int = 4
    """Voices that one connection may have made ready at once."""
    done_kept: int = 64
    """Contexts of a connection that are done and may still be cancelled."""
    done_kept_chars: int = 1_000_000
    """Their text together."""
    backlog_bytes: int = 1 << 20
    """Messages waiting for a slow client before its own messages are no longer read."""
    drain_timeout_s: float = 30.0
    """Time that open contexts have to finish when the server stops."""
    ping_interval_s: float = 10.0
    """WebSocket pings."""
    ping_timeout_s: float = 10.0
    """A client that does not answer one for so long is gone."""
    first_message_s: float = 30.0
    """Time for the first message of a connection; 0 is any."""
    idle_s: float = 600.0
    """Time without a message or an open context; then the connection is closed. 0 is any."""
    profiler: bool = False
    """Whether ``/start_profile`` and ``/stop_profile`` exist."""
    profile_folder: str = "profiles"
    """Where profiles are written."""
    access: AccessSettings = field(default_factory=AccessSettings)
    """Who may connect."""
    voices: VoiceSettings = field(default_factory=VoiceSettings)
    """Names and stores of voices."""
    openai: OpenAISettings = field(default_factory=OpenAISettings)
    """OpenAI's routes."""
    vllm_omni: VllmOmniSettings = field(default_factory=VllmOmniSettings)
    """vLLM-Omni's WebSocket."""
    runvnc: RunvncSettings = field(default_factory=RunvncSettings)
    """The runvnc protocol."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, (int, float)) and (value < 0 or not math.isfinite(value)):
                raise ValueError(f"{each.name}={value} must not be negative")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port={self.port} must be from 0 to 65535")
        if not 5 <= self.frame_ms <= 1000:
            raise ValueError(f"frame_ms={self.frame_ms} must be from 5 to 1000")
        most = Limits(max_contexts=self.limits.max_contexts)
        for each in fields(most):
            if not 1 <= getattr(self.limits, each.name) <= getattr(most, each.name):
                raise ValueError(f"limits.{each.name} must be from 1 to {getattr(most, each.name)}")
        if self.limits.max_window_ms < MIN_WINDOW_MS:
            raise ValueError(f"limits.max_window_ms must be at least {MIN_WINDOW_MS}")
        for name in (
            "max_connections",
            "max_voice_loads",
            "ping_interval_s",
            "ping_timeout_s",
            "ahead_ms",
        ):
            if getattr(self, name) == 0:
                raise ValueError(f"{name} must be more than 0")
