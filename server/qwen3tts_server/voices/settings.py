"""What may be set of voices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from .names import KNOWN_NAMES, key_of


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
    refresh_s: float = 2.0
    """How soon voices are known that another replica has stored."""
    max_voices: int = 1000
    """Voices with a name."""
    max_bytes: int = 10 << 20
    """Of one recording."""
    max_seconds: float = 60.0
    """Of one recording."""
    max_store_bytes: int = 1 << 30
    """All recordings together."""
    keep_references: bool = True
    """Recordings that came without a name are kept too, so that their voices are found again by
    their ids, on any replica; the oldest go first."""
    reference_days: float = 7.0
    """How long."""
    max_loads: int = 8
    """Voices being made ready at once; more wait."""
    max_waiting: int = 64
    """Requests that wait for one; further ones are refused."""
    fetch: bool = False
    """Whether references may be web addresses; only public ones are ever asked."""
    fetch_hosts: tuple[str, ...] = ()
    """Hosts that may be asked (``*.example.com``: and all below it); none named: any."""
    fetch_ports: tuple[int, ...] = (80, 443)
    """Ports that may be asked."""
    fetch_timeout_s: float = 10.0
    """For all of it: names, redirects and content."""
    fetch_redirects: int = 3
    """Redirects followed."""
    file_folders: tuple[str, ...] = ()
    """Folders whose files may be named by ``file:`` addresses; none: no file may."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                least = 0 if each.name in ("fetch_redirects", "max_waiting") else 1e-9
                if not (math.isfinite(value) and value >= least):
                    raise ValueError(f"voices.{each.name}={value} must be above 0")
        for name in ("fetch_hosts", "fetch_ports", "file_folders"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"voices.{name} must be a list")
        for port in self.fetch_ports:
            if not 1 <= port <= 65535:
                raise ValueError(f"voices.fetch_ports: {port} must be from 1 to 65535")
        for host in self.fetch_hosts:
            bare = host.removeprefix("*.")
            if not bare or any(char in bare for char in "*/:@ "):
                raise ValueError(f"voices.fetch_hosts: {host!r} is no host name")
        for folder in self.file_folders:
            if not folder.startswith("/"):
                raise ValueError(f"voices.file_folders: {folder!r} must be an absolute path")
        if self.store == "":
            raise ValueError("voices.store is empty; leave it out, or name a folder")
        for name in self.openai_voices:
            if key_of(name) not in KNOWN_NAMES:
                raise ValueError(
                    f"voices.openai_voices: {name!r} is none of {', '.join(KNOWN_NAMES)}"
                )
