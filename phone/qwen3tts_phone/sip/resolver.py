"""Host names to addresses, without holding the event loop up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

from qwen3tts_phone.sip.fields import is_ip

KEPT_S = 60.0
"""How long an answer is good without asking again."""
MAX_NAMES = 1000


@dataclass(slots=True)
class _Answer:
    addresses: list[str]
    until: float
    """Seconds on the resolver's clock."""
    turn: int = 0
    """Which of the addresses is used."""

    @property
    def address(self) -> str:
        return self.addresses[self.turn]


class Resolver:
    """Looks names up in the loop's threads and remembers the answers for a while."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: dict[str, _Answer] = {}

    def known(self, host: str) -> str | None:
        """The address of a host, if no look-up is needed."""
        if is_ip(host):
            return host
        answer = self._known.get(host)
        return answer.address if answer is not None and self._now() < answer.until else None

    def names_of(self, address: str) -> list[str]:
        """The host names that led to an address."""
        return [name for name, answer in self._known.items() if answer.address == address]

    def turn_to_next(self, host: str) -> bool:
        """Use the next address of a host; False when all have been tried: back to the first."""
        answer = self._known[host]
        answer.turn = (answer.turn + 1) % len(answer.addresses)
        return answer.turn > 0

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
                return self._known[host].address
            raise OSError(f"{host[:80]!r} cannot be looked up: {error}") from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if len(self._known) >= MAX_NAMES:
            self._known.clear()
        self._known[host] = answer = _Answer(addresses, self._now() + KEPT_S)
        return answer.address
