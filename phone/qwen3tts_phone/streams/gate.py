"""Who may open a stream: addresses, tokens, numbers of calls (pure)."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import ipaddress
from collections import Counter
from urllib.parse import parse_qs

from qwen3tts_phone.media.admission import PacingAdmission
from qwen3tts_phone.streams.adapter import Handshake, Refused
from qwen3tts_phone.streams.settings import StreamSettings

LEAST_CALLS = 20
"""Below so many streams none is refused by load: 46 to 69 a core were measured with agents."""
LATE_MOST = 0.1
"""Share of late ticks in a second above which the event loop is too late: 5 of 50. A far end has a
few frames queued, so single ones delay nothing."""


class StreamGate:
    """One server's; counts the calls that have begun."""

    def __init__(self, settings: StreamSettings) -> None:
        self.draining = False
        """Whether nobody is let in any more."""
        self.pacing = PacingAdmission(LEAST_CALLS, LATE_MOST)
        """Whether this process can pace another one; see `watch_pacing`."""
        self.open = 0
        """Calls that have begun, and are not over."""
        self._settings = settings
        self._networks = [ipaddress.ip_network(each) for each in settings.allow]
        self._by_host: Counter[str] = Counter()

    def check(self, handshake: Handshake, *, token: bool = True) -> None:
        """Raise Refused unless it may come in. ``token``: whether it must show one."""
        settings, host = self._settings, handshake.peer
        if self._networks and not self._allowed(host):
            raise Refused(403, f"{host} is not among the addresses of allow")
        if token and settings.token and not _shows(handshake, settings.token):
            raise Refused(401, f"{host} shows no token, or a wrong one")
        self.check_room(host)

    def check_room(self, host: str) -> None:
        """Raise Refused where no further call may begin."""
        settings = self._settings
        if self.draining:
            raise Refused(503, "this server is being stopped")
        if self.open >= settings.max_calls:
            raise Refused(503, f"{self.open} calls are the most at a time")
        if not self.pacing.admits(self.open):
            raise Refused(503, f"this process cannot pace another call ({self.pacing.figures})")
        if settings.max_per_address and self._by_host[host] >= settings.max_per_address:
            raise Refused(429, f"{host} has too many calls")

    def enter(self, host: str) -> None:
        """A call has begun."""
        self.open += 1
        self._by_host[host] += 1

    def leave(self, host: str) -> None:
        """It is over."""
        self.open -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _allowed(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


def _shows(handshake: Handshake, token: str) -> bool:
    """Whether a handshake has the token: in the query, or in an Authorization header."""
    shown = parse_qs(handshake.query).get("token", [])
    scheme, _, value = handshake.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        shown.append(value.strip())
    elif scheme.lower() == "basic":
        with contextlib.suppress(binascii.Error, ValueError):
            shown.append(base64.b64decode(value, validate=True).decode().partition(":")[2])
    return any(
        hmac.compare_digest(each.encode("utf-8", "replace"), token.encode()) for each in shown
    )
