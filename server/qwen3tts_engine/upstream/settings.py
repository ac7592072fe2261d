"""Settings of the engine ``upstream``, and the routes of its server."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit, urlunsplit

QWEN3_LANGUAGES = (
    "zh=Chinese",
    "en=English",
    "ja=Japanese",
    "ko=Korean",
    "de=German",
    "fr=French",
    "ru=Russian",
    "pt=Portuguese",
    "es=Spanish",
    "it=Italian",
)
"""Languages of Qwen3-TTS by vLLM-Omni's names."""
OPTIONS = frozenset({"instructions", "speed", "seed", "initial_codec_chunk_frames"})
"""Fields of SynthesisRequest that an upstream server may take."""
TASKS = ("custom_voice", "voice_design", "base")
ANY_VOICE = "*"
"""Among the voices: the server judges names that it does not list."""
_KINDS = {"ws": "vllm_omni", "wss": "vllm_omni", "http": "openai", "https": "openai"}


@dataclass(frozen=True)
class UpstreamSettings:
    url: str = ""
    """Address of the server: ws(s)://… for vLLM-Omni's WebSocket, http(s)://… for OpenAI's REST."""
    model: str = ""
    """Sent with each request; empty: left out, the server has one."""
    task: str = ""
    """Task of its checkpoint, of TASKS, where known; clients may ask for it."""
    voice: str = ""
    """Voice where a request names none; empty: the first of ``voices``, or the server's
    choice."""
    voices: tuple[str, ...] = ()
    """Voices on offer; empty: those that the server lists; ANY_VOICE: others may be named too."""
    languages: tuple[str, ...] = QWEN3_LANGUAGES
    """Languages on offer: ``tag``, or ``tag=name`` where the server wants a name; empty: any,
    sent as it comes."""
    options: tuple[str, ...] | None = None
    """OPTIONS that the server takes; None: as its protocol says (docs/upstream.md)."""
    extra: str = ""
    """A JSON object: further fields of each request; null leaves a field out."""
    api_key: str = field(default="", repr=False)
    """Sent as bearer token; better by file or environment."""
    api_key_file: str = ""
    """File with the key."""
    api_key_env: str = "QWEN3TTS_UPSTREAM_API_KEY"
    """Environment variable with the key."""
    tls_ca_file: str = ""
    """Certificates to trust instead of the system's."""
    tls_verify: bool = True
    """True if the server's certificate is looked at."""
    max_connections: int = 64
    """Concurrent requests at the server; further ones wait."""
    max_waiting: int = 256
    """Requests that wait; further ones are refused."""
    max_idle: int = 8
    """Connections kept open between requests."""
    idle_s: float = 20.0
    """Seconds for which it is kept; vLLM-Omni ends one after 30 s."""
    connect_timeout_s: float = 5.0
    """Time to connect."""
    reconnect_s: float = 2.0
    """Seconds for which a request is retried while nothing answers."""
    first_audio_s: float = 30.0
    """Time from the request to its first sound, and longest wait for a free connection."""
    stall_s: float = 15.0
    """Time between two pieces of sound."""
    start_s: float = 30.0
    """Time that the server may take to be there at the start."""
    voices_refresh_s: float = 5.0
    """The list of voices is fetched again for an unknown voice, but not more often than this."""
    retries: int = 1
    """Retries of a request that failed before any sound of it came."""
    buffer_bytes: int = 4 * 1024 * 1024
    """Sound of one request read ahead of its reader; 4 MiB are 87 s."""
    max_message_bytes: int = 8 * 1024 * 1024
    """Longest message, event or answer from the server."""
    max_chars: int = 4096
    """Most code points in one request."""
    trim_silence: bool = True
    """True if silence before the first sound is left out."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            least = (
                0 if each.name in ("retries", "max_idle", "max_waiting", "reconnect_s") else None
            )
            if not math.isfinite(value) or value < 0 or (value == 0 and least is None):
                raise ValueError(f"{each.name}={value} must be above 0")
        if self.url:
            _check_url(self.url)
        unknown = set(self.options or ()) - OPTIONS
        if unknown:
            raise ValueError(f"options: {sorted(unknown)} are none of {sorted(OPTIONS)}")
        if self.task and self.task not in TASKS:
            raise ValueError(f"task={self.task!r} is not one of {', '.join(TASKS)}")
        for name in (*self.voices, self.voice):
            if len(name) > 256 or not (name.isprintable() or not name):
                raise ValueError(f"{name[:40]!r} is no name of a voice")
        self.extra_fields()

    @property
    def default_voice(self) -> str | None:
        """Voice requested where a request names none; None: none."""
        named = [name for name in self.voices if name != ANY_VOICE]
        return self.voice or (named[0] if named else None)

    @property
    def kind(self) -> str:
        return _KINDS[urlsplit(self.url).scheme.lower()]

    def extra_fields(self) -> dict[str, Any]:
        try:
            found = json.loads(self.extra or "{}")
        except ValueError as error:
            raise ValueError(f"extra is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise ValueError("extra is no JSON object")
        return found


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme.lower() in _KINDS and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that there is not
        raise ValueError("url is no address") from None
    if not good:
        raise ValueError(f"url={url!r} must begin with ws://, wss://, http:// or https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("url: no user, query or fragment may be in it; a key goes into api_key_*")


OMNI_PATH = "/v1/audio/speech/stream"
SPEECH = "/audio/speech"


@dataclass(frozen=True, slots=True)
class ServerRoutes:
    speech: str
    """Address of speech requests."""
    base: str
    """Base of ``/audio/voices`` and ``/models``."""
    shown: str
    """For people: host and port."""

    @classmethod
    def of(cls, url: str) -> ServerRoutes:
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        path = parts.path.rstrip("/")
        socket = scheme in ("ws", "wss")
        path = path.removesuffix(SPEECH + "/stream").removesuffix(SPEECH) or "/v1"
        base = urlunsplit((scheme.replace("ws", "http"), parts.netloc, path, "", ""))
        if not socket:
            return cls(f"{base}{SPEECH}", base, parts.netloc)
        # A path of another form is taken as it is; its voices may still be where they usually are.
        own = parts.path.rstrip("/")
        if own in ("", "/v1"):
            own = OMNI_PATH
        if not own.endswith(SPEECH + "/stream"):
            base = urlunsplit((scheme.replace("ws", "http"), parts.netloc, "/v1", "", ""))
        return cls(urlunsplit((scheme, parts.netloc, own, "", "")), base, parts.netloc)
