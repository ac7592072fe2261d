"""Listening sockets that count what they accept, for asyncio's servers and those built on them.

    door = Door(PendingLimits(64, 32, 10.0), clock)
    for sock in door.listen(host, port):
        await asyncio.start_server(connection, sock=sock)
    door.begun(writer.get_extra_info("peername"))       # it has shown what it is for

A server of asyncio accepts by the ``accept`` of its socket, before TLS and before any protocol: so
a connection counts from there on, whatever it speaks.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Hashable
from typing import Any, Final

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.pending import PendingConnections, PendingLimits
from qwen3tts_phone.rates import Bucket

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.5
"""How often deadlines are looked at."""
MOST_CLOSING: Final = 64
"""Connections that are being closed; with more no further one is accepted for the moment."""
BACKLOG: Final = 128
LINE_EVERY_S: Final = 10.0


class Door:
    """The connections of one or more listening sockets."""

    def __init__(self, limits: PendingLimits, clock: Clock) -> None:
        self._pending = PendingConnections(limits)
        self._clock = clock
        self._sockets: dict[Hashable, _Accepted] = {}
        self._closing: set[Hashable] = set()
        self._lines = Bucket(1 / LINE_EVERY_S, 1, clock.now())

    @property
    def open_sockets(self) -> int:
        """Accepted sockets that are not closed."""
        return len(self._sockets)

    @property
    def waiting(self) -> int:
        """Those that have not shown what they are for."""
        return len(self._pending)

    def listen(self, host: str, port: int) -> list[socket.socket]:
        """Return a listening socket for each address of ``host``, on one port; raises OSError.

        A name may have addresses that this machine lacks, as ``localhost`` without IPv6: of these
        there is no socket, as long as there is another one.
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
        """Note that the connection from ``address`` has shown what it is for."""
        self._pending.left(address)

    async def keep_time(self) -> None:
        """Close connections whose time is over, until it is cancelled."""
        while True:
            await self._clock.sleep_until(self._clock.now() + LOOK_S)
            for key in self._pending.overdue(self._clock.now()):
                self._shut(key)

    # --- for its sockets

    def room(self) -> bool:
        """Return whether a further connection may be accepted at this moment."""
        return len(self._closing) < MOST_CLOSING

    def accepted(self, sock: _Accepted, address: Any) -> None:
        """Count a connection, and make room for it."""
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
    def __init__(self, door: Door, family: int, kind: int) -> None:
        super().__init__(family, kind)
        self._door = door

    def accept(self) -> tuple[socket.socket, Any]:
        """As for any socket; raises BlockingIOError where none may be accepted now, too."""
        if not self._door.room():
            raise BlockingIOError
        sock, address = super().accept()
        accepted = _Accepted(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self._door.accepted(accepted, address)
        return accepted, address


class _Accepted(socket.socket):
    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        """Close it, and count it no more."""
        super().close()
        if self.on_close is not None:
            on_close, self.on_close = self.on_close, None
            on_close()
