"""Which web addresses may be asked for a recording: public ones, as the settings say. Pure."""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from dataclasses import dataclass

from qwen3tts_server.voices.settings import VoiceSettings
from qwen3tts_wire.errors import BadRequest

_HOST = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be asked for."""

    secure: bool
    host: str
    """A name or an IP address, without brackets."""
    port: int
    path: str
    """With the query."""

    @property
    def authority(self) -> str:
        """For the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def target_of(url: str, settings: VoiceSettings) -> Target:
    """Read an address.

    Raises:
        BadRequest: it is none, or may not be asked.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        secure = parts.scheme.lower() == "https"
        port = parts.port if parts.port is not None else (443 if secure else 80)
        host = (parts.hostname or "").rstrip(".")
        named = "@" in parts.netloc
    except ValueError:
        raise _no_address() from None
    if parts.scheme.lower() not in ("http", "https") or named or not url.isascii():
        raise _no_address()
    if not (_is_ip(host) or (len(host) <= 253 and _HOST.fullmatch(host))):
        raise _no_address()
    if port not in settings.fetch_ports:
        raise BadRequest(
            f"The reference's address has the port {port}.",
            remedy=f"Ports that are asked: {', '.join(map(str, settings.fetch_ports))}.",
        )
    if settings.fetch_hosts and not any(_fits(host, rule) for rule in settings.fetch_hosts):
        raise BadRequest(
            "The reference's host is none that this server asks.",
            remedy="Send the sound file itself, or add the host to voices.fetch_hosts.",
        )
    path = urllib.parse.quote(parts.path or "/", safe="/%:@!$&'()*+,;=-._~")
    query = urllib.parse.quote(parts.query, safe="/?%:@!$&'()*+,;=-._~")
    return Target(secure, host, port, f"{path}?{query}" if query else path)


def redirected(url: str, location: str) -> str:
    """Where a redirect leads.

    Raises:
        BadRequest: nowhere, or from a secure address to one that is not.
    """
    try:
        joined = urllib.parse.urljoin(url, location)
    except ValueError:
        raise _no_address() from None
    if url.lower().startswith("https:") and not joined.lower().startswith("https:"):
        raise BadRequest(
            "The reference's address leads to one that is not secure.",
            remedy="Give the address of the sound file itself.",
        )
    return joined


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _fits(host: str, rule: str) -> bool:
    rule = rule.lower().rstrip(".")
    if rule.startswith("*."):
        return host.endswith(rule[1:])
    return host == rule


def _no_address() -> BadRequest:
    return BadRequest(
        "The reference's address cannot be used.",
        remedy="Write https://HOST/PATH, without a user's name, in plain ASCII.",
    )
