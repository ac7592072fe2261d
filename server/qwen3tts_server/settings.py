"""What a server may be told, checked once."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from qwen3tts_server.access import AccessSettings
from qwen3tts_server.dialects.openai_settings import OpenAISettings
from qwen3tts_server.dialects.runvnc_settings import RunvncSettings
from qwen3tts_server.dialects.vllm_omni_settings import VllmOmniSettings
from qwen3tts_server.voices.settings import VoiceSettings
from qwen3tts_settings.constraints import bounded, check_fields
from qwen3tts_wire.messages import MIN_WINDOW_MS, Limits


@dataclass(frozen=True)
class ServerSettings:
    """Settings of one server; ValueError for one that cannot be."""

    host: str = "127.0.0.1"
    """Address to listen on; nothing else is bound."""
    port: int = bounded(0, 65_535, default=8765)
    """TCP port; 0 lets the system choose."""
    max_connections: int = bounded(1, default=256)
    """Connections at once; further ones are closed with 1013."""
    limits: Limits = field(default_factory=Limits)
    """Bounds told to every client."""
    pause_flush_ms: float = bounded(0, default=250.0)
    """A pause in a context's text of this length is a flush; 0 never is."""
    pause_flush_lead_ms: float = bounded(0, default=500.0)
    """While the listener has at least this much to hear, a pause in the text does not flush."""
    ahead_ms: float = bounded(above=0, default=1000.0)
    """Audio of one context kept here beyond the client's credit; then its engine waits."""
    frame_ms: float = bounded(5, 1000, default=100.0)
    """Longest audio message."""
    max_voice_loads: int = bounded(1, default=4)
    """Voices that one connection may have made ready at once."""
    done_kept: int = bounded(0, default=64)
    """Contexts of a connection that are done and may still be cancelled."""
    done_kept_chars: int = bounded(0, default=1_000_000)
    """Their text together."""
    backlog_bytes: int = bounded(0, default=1 << 20)
    """Messages waiting for a slow client before its own messages are no longer read."""
    drain_timeout_s: float = bounded(0, default=30.0)
    """Time that open contexts have to finish when the server stops."""
    ping_interval_s: float = bounded(above=0, default=10.0)
    """WebSocket pings."""
    ping_timeout_s: float = bounded(above=0, default=10.0)
    """A client that does not answer one for so long is gone."""
    first_message_s: float = bounded(0, default=30.0)
    """Time for the first message of a connection; 0 is any."""
    idle_s: float = bounded(0, default=600.0)
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
        check_fields(self)
        most = Limits(max_contexts=self.limits.max_contexts)
        for each in fields(most):
            low = MIN_WINDOW_MS if each.name == "max_window_ms" else 1
            high = getattr(most, each.name)
            if not low <= getattr(self.limits, each.name) <= high:
                raise ValueError(f"limits.{each.name} must be from {low} to {high}")
