"""Rate limits by source, and limits of pending connections."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from qwen3tts_pacer.clock import Clock

logger = logging.getLogger(__name__)


T = TypeVar("T")


POLL_INTERVAL_S: Final = 0.5
"""Interval of checking deadlines."""
MAX_CLOSING: Final = 64
"""Connections that are being closed; with more no further one is accepted for the moment."""
BACKLOG: Final = 128
LOG_INTERVAL_S: Final = 10.0


class TokenBucket:
    """Token bucket: ``burst`` first, then ``per_s`` a second."""

    __slots__ = ("_at", "_left", "burst", "per_s")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self.per_s = per_s
        self.burst = burst
        self._left = burst
        self._at = now

    def take(self, now: float) -> bool:
        self._refill(now)
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def wait_s(self, now: float) -> float:
        self._refill(now)
        return max(0.0, (1.0 - self._left) / self.per_s) if self.per_s > 0 else 0.0

    def _refill(self, now: float) -> None:
        # A clock that steps back takes nothing away.
        self._left = min(self.burst, self._left + max(0.0, now - self._at) * self.per_s)
        self._at = max(self._at, now)


class RecentSources(Generic[T]):
    """State of the ``most`` sources seen last."""

    def __init__(self, make: Callable[[str, float], T], most: int) -> None:
        self._make = make
        self._most = most
        self._kept: OrderedDict[str, T] = OrderedDict()

    def of(self, key: str, now: float) -> T:
        known = self._kept.get(key)
        if known is None:
            known = self._kept[key] = self._make(key, now)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return known

    def clear(self) -> None:
        self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)


@dataclass(frozen=True, slots=True)
class PendingLimits:
    """Limits of connections without a call."""

    total: int
    per_host: int
    wait_s: float
    """Seconds from the acceptance on."""
    is_proxy: Callable[[str], bool] = lambda host: False
    """True if an address stands for many others: ``per_host`` is not asked of it."""


class PendingConnections:
    """Connections of one port that have not begun a call (pure).

    Beyond the limit, the oldest one of the address with the most is closed: one address cannot keep
    others out.
    """

    def __init__(self, limits: PendingLimits) -> None:
        self._limits = limits
        self._waiting: dict[Hashable, tuple[str, float]] = {}
        """Address and deadline, oldest first."""
        self._by_host: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def accepted(self, key: Hashable, host: str, now: float) -> Hashable | None:
        """Count a connection; return one to close, if there are too many."""
        self.left(key)
        victim: Hashable | None = None
        if self._by_host[host] >= self._limits.per_host and not self._limits.is_proxy(host):
            victim = self._oldest_of(host)
        elif len(self._waiting) >= self._limits.total:
            victim = self._oldest_of(max(self._by_host, key=self._by_host.__getitem__))
        if victim is not None:
            self.left(victim)
        self._waiting[key] = (host, now + self._limits.wait_s)
        self._by_host[host] += 1
        return victim

    def left(self, key: Hashable) -> None:
        found = self._waiting.pop(key, None)
        if found is None:
            return
        self._by_host[found[0]] -= 1
        if not self._by_host[found[0]]:
            del self._by_host[found[0]]

    def overdue(self, now: float) -> list[Hashable]:
        found = []
        for key, (_, deadline) in self._waiting.items():
            if deadline > now:
                break
            found.append(key)
        for key in found:
            self.left(key)
        return found

    def _oldest_of(self, host: str) -> Hashable:
        return next(key for key, (each, _) in self._waiting.items() if each == host)


class ConnectionLimiter:
    """Listening sockets whose connections are counted and bounded.

    asyncio accepts by the ``accept`` of its socket, before TLS and any protocol.
    """

    def __init__(self, limits: PendingLimits, clock: Clock) -> None:
        self._pending = PendingConnections(limits)
        self._clock = clock
        self._sockets: dict[Hashable, _Accepted] = {}
        self._closing: set[Hashable] = set()
        self._lines = TokenBucket(1 / LOG_INTERVAL_S, 1, clock.now())

    @property
    def open_sockets(self) -> int:
        return len(self._sockets)

    @property
    def waiting(self) -> int:
        return len(self._pending)

    def listen(self, host: str, port: int) -> list[socket.socket]:
        """Return a listening socket for each address of ``host``, on one port; raises OSError.

        Addresses that this machine lacks, as of ``localhost`` without IPv6, are left out if there
        is another.
        """
        flags = socket.AI_PASSIVE
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
        listeners: list[_Listener] = []
        lacking: OSError | None = None
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                listeners.append(self._listener(family, (address[0], port, *address[2:])))
            except OSError as error:
                lacking = error
                if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    continue
                for listener in listeners:
                    listener.close()
                raise
            port = port or listeners[0].getsockname()[1]
        if not listeners and lacking is not None:
            raise lacking
        return [*listeners]

    def _listener(self, family: int, address: tuple[Any, ...]) -> _Listener:
        listener = _Listener(self, family, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener

    def begun(self, address: Hashable) -> None:
        self._pending.left(address)

    async def keep_time(self) -> None:
        while True:
            await self._clock.sleep_until(self._clock.now() + POLL_INTERVAL_S)
            for key in self._pending.overdue(self._clock.now()):
                self._shut(key)

    # --- for its sockets

    def room(self) -> bool:
        return len(self._closing) < MAX_CLOSING

    def accepted(self, sock: _Accepted, address: Any) -> None:
        now = self._clock.now()
        sock.on_close = lambda: self._closed(address, sock)
        self._sockets[address] = sock
        victim = self._pending.accepted(address, str(address[0]), now)
        if victim is not None:
            if self._lines.take(now):
                logger.warning("too many connections wait before a call; the oldest are closed")
            self._shut(victim)

    def _shut(self, key: Hashable) -> None:
        sock = self._sockets.get(key)
        if sock is None:
            return
        self._closing.add(key)
        with contextlib.suppress(OSError):  # it is gone already
            sock.shutdown(socket.SHUT_RDWR)  # its server reads the end, and closes it

    def _closed(self, address: Hashable, sock: _Accepted) -> None:
        if self._sockets.get(address) is sock:
            del self._sockets[address]
            self._closing.discard(address)
            self._pending.left(address)


class _Listener(socket.socket):
    def __init__(self, door: ConnectionLimiter, family: int, kind: int) -> None:
        super().__init__(family, kind)
        self._door = door

    def accept(self) -> tuple[socket.socket, Any]:
        if not self._door.room():
            raise BlockingIOError
        sock, address = super().accept()
        accepted = _Accepted(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self._door.accepted(accepted, address)
        return accepted, address


class _Accepted(socket.socket):
    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        super().close()
        if self.on_close is not None:
            on_close, self.on_close = self.on_close, None
            on_close()
