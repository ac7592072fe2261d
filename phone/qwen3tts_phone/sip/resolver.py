"""Host names to addresses, without holding the event loop up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from qwen3tts_phone.sip.fields import is_ip

KEPT_S = 60.0
"""How long an answer is good without asking again."""
MAX_NAMES = 1000


class Resolver:
    """Looks names up in the loop's threads and remembers the answers for a while."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: dict[str, tuple[str, float]] = {}

    def known(self, host: str) -> str | None:
        """The address of a host, if no look-up is needed."""
        if is_ip(host):
            return host
        address, until = self._known.get(host, ("", 0.0))
        return address if address and self._now() < until else None

    def names_of(self, address: str) -> list[str]:
        """The host names that led to an address."""
        return [name for name, (known, _) in self._known.items() if known == address]

    async def resolve(self, host: str, *, ipv6: bool = False) -> str:
        """The address of a host; raises OSError. An old answer is better than none."""
        known = self.known(host)
        if known is not None:
            return known
        family = socket.AF_INET6 if ipv6 else socket.AF_INET
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, None, family=family, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError) as error:
            if host in self._known:
                return self._known[host][0]
            raise OSError(f"{host[:80]!r} cannot be looked up: {error}") from error
        address = str(found[0][4][0])
        if len(self._known) >= MAX_NAMES:
            self._known.clear()
        self._known[host] = (address, self._now() + KEPT_S)
        return address
