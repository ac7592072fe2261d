"""What may be set of voices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qwen3tts_server.voices.names import KNOWN_NAMES, key_of
from qwen3tts_settings.constraints import bounded, check_fields


@dataclass(frozen=True)
class VoiceSettings:
    """What may be set of voices. ValueError for what cannot be."""

    default: str | None = None
    """What speaks where a request names neither voice nor language; None: the engine's choice."""
    openai_voices: Mapping[str, str] = field(default_factory=dict)
    """What OpenAI's voices and Qwen3-TTS's speakers are here, by any name; OpenAI's that are left
    out are spread over the engine's."""
    store: str | None = None
    """Where uploaded voices are kept: a folder, or any fsspec URL; None: in memory only."""
    refresh_s: float = bounded(above=0, default=2.0)
    """How soon voices are known that another replica has stored."""
    max_voices: int = bounded(1, default=1000)
    """Voices with a name."""
    max_bytes: int = bounded(1, default=10 << 20)
    """Of one recording."""
    max_seconds: float = bounded(above=0, default=60.0)
    """Of one recording."""
    max_store_bytes: int = bounded(1, default=1 << 30)
    """All recordings together."""
    keep_references: bool = True
    """Recordings that came without a name are kept too, so that their voices are found again by
    their ids, on any replica; the oldest go first."""
    reference_days: float = bounded(above=0, default=7.0)
    """How long."""
    max_loads: int = bounded(1, default=8)
    """Voices being made ready at once; more wait."""
    max_waiting: int = bounded(0, default=64)
    """Requests that wait for one; further ones are refused."""
    fetch: bool = False
    """Whether references may be web addresses; only public ones are ever asked."""
    fetch_hosts: tuple[str, ...] = ()
    """Hosts that may be asked (``*.example.com``: and all below it); none named: any."""
    fetch_ports: tuple[int, ...] = bounded(1, 65_535, default=(80, 443))
    """Ports that may be asked."""
    fetch_timeout_s: float = bounded(above=0, default=10.0)
    """For all of it: names, redirects and content."""
    fetch_redirects: int = bounded(0, default=3)
    """Redirects followed."""
    file_folders: tuple[str, ...] = ()
    """Folders whose files may be named by ``file:`` addresses; none: no file may."""

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
