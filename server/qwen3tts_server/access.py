"""Who may connect, how, and for how long without a word."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from qwen3tts_settings.constraints import bounded, check_fields, one_of

OPEN_PATHS = frozenset({"/health", "/ready"})
"""What asks for no key: whoever looks after the process has none."""


@dataclass(frozen=True)
class AccessSettings:
    """Who may connect, and how. ValueError for what cannot be."""

    api_keys: tuple[str, ...] = field(default=(), repr=False, metadata={"secret": True})
    """Keys of the role ``speak``; with no key and no file of keys the server is open."""
    voices_keys: tuple[str, ...] = field(default=(), repr=False, metadata={"secret": True})
    """Keys of the role ``voices``: they also manage the voices that other keys have uploaded."""
    admin_keys: tuple[str, ...] = field(default=(), repr=False, metadata={"secret": True})
    """Keys of the role ``admin``: they may do everything."""
    api_key_file: Path | None = None
    """Further keys, one a line, with the role behind a key that has another than ``speak``; read
    again when it changes."""
    open_paths: tuple[str, ...] = ()
    """Paths that ask for no key, besides ``/health`` and ``/ready``; such as ``/metrics``."""
    origins: tuple[str, ...] = ()
    """Web pages that may connect, as ``https://example.org``; ``*``: all. A client that names no
    origin is no browser and is not held up; nor is a page of this server under its bare address."""
    max_connections_per_address: int = bounded(0, default=0)
    """Connections and requests under way from one address; 0 is any number."""
    max_sockets: int = bounded(0, default=2048)
    """TCP connections at once, idle ones too; 0 is any number."""
    max_sockets_per_address: int = bounded(0, default=0)
    """The same from one address; 0 is any number."""
    head_timeout_s: float = bounded(above=0, default=10.0)
    """Time for TLS to be agreed upon, and then for a complete head of a request."""
    body_timeout_s: float = bounded(above=0, default=60.0)
    """Time for a complete body of a request."""
    unread_timeout_s: float = bounded(above=0, default=60.0)
    """A client that takes nothing of what it is sent for so long is gone."""
    keep_alive_s: float = bounded(above=0, default=30.0)
    """Time between two requests of an HTTP connection; longer than clients keep theirs."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose ``X-Forwarded-For`` is believed."""
    tls_cert: Path | None = None
    """Certificate chain (PEM); with it only TLS is spoken."""
    tls_key: Path | None = None
    """Its private key (PEM); None: in the same file."""
    tls_key_world_readable: bool = False
    """Whether every user of the machine may read the file of the private key; refused otherwise."""
    tls_min: Literal["1.2", "1.3"] = one_of(("1.2", "1.3"), default="1.2")
    """Oldest version of TLS."""

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
        """Whether a key is needed."""
        return bool(
            self.api_keys or self.voices_keys or self.admin_keys or self.api_key_file is not None
        )


def good_key(key: str) -> bool:
    """Whether a header can hold a key."""
    return bool(key) and all("!" <= char <= "~" for char in key)
