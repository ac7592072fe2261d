"""UDP and TCP for SIP, on asyncio's readers: bytes in with their hop, bytes out, failures told."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import struct
from collections.abc import Callable, Coroutine

from qwen3tts_phone.errors import BadSip, PortBusy
from qwen3tts_phone.sip.framing import PONG, StreamFramer
from qwen3tts_phone.sip.transaction import Hop

log = logging.getLogger(__name__)

IP_RECVERR = 11
"""Linux: report ICMP errors on an unconnected socket, with the address they are about."""
IPV6_RECVERR = 25
MSG_ERRQUEUE = 0x2000
UNREACHABLE = {
    *(errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN),
}
"""ICMP errors that mean that nobody is there; a datagram that was too long is not among them."""
MAX_BURST = 64
"""Most datagrams read before other tasks get a turn."""
MAX_CONNECTIONS = 256
"""Connections at once; one more makes that one go that has been silent for longest."""
MAX_UNSENT_BYTES = 1 << 20
"""Bytes that one connection may hold back before it is closed."""
CONNECT_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 0.5
IDLE_LIMIT_S = 900.0
"""A connection that has been silent for so long is closed."""

Receive = Callable[[bytes, Hop], None]
Failed = Callable[[Hop], None]


def bind_pair(host: str, port: int, transports: tuple[str, ...]) -> dict[str, socket.socket]:
    """Sockets on one port for the transports; with port 0, on a port free for all of them."""
    attempts = 1 if port else 20
    for attempt in range(attempts):
        sockets: dict[str, socket.socket] = {}
        wanted = port
        try:
            for transport in transports:
                sockets[transport] = _bound(host, wanted, transport)
                wanted = sockets[transport].getsockname()[1]
            return sockets
        except OSError as error:
            for sock in sockets.values():
                sock.close()
            if attempt + 1 == attempts:
                raise PortBusy(
                    f"Cannot listen for SIP at {host}:{port} ({error.strerror or error}).",
                    remedy="Another program has the port: choose another, or 0 for any free one."
                    if port
                    else "Check that the address belongs to this machine.",
                ) from error
    raise PortBusy(f"No port at {host} is free for {' and '.join(transports)}.")


def _bound(host: str, port: int, transport: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kind = socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM
    sock = socket.socket(family, kind)
    try:
        sock.setblocking(False)
        if transport == "udp":
            with contextlib.suppress(OSError):
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
                else:
                    sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        else:
            # Connections of an earlier run in TIME_WAIT do not keep the port.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        if transport == "tcp":
            # At once: until somebody listens, another program could bind the port as well.
            sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock


class UdpTransport:
    """One datagram socket."""

    def __init__(self, sock: socket.socket, receive: Receive, failed: Failed) -> None:
        self._sock = sock
        self._receive = receive
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._readable)

    def send(self, data: bytes, hop: Hop) -> None:
        """Send a datagram to an IP address."""
        for _ in range(2):
            try:
                self._sock.sendto(data, (hop.host, hop.port))
                return
            except ConnectionRefusedError:
                # An earlier datagram's ICMP error is reported here; read it and send again.
                self._drain_errors()
            except (BlockingIOError, InterruptedError):
                # The kernel has no room; retransmission mends it.
                return
            except OSError as error:
                log.warning("UDP to %s:%d failed: %s", hop.host, hop.port, error.strerror)
                self._loop.call_soon(self._failed, hop)
                return

    def close(self) -> None:
        """Stop and close the socket."""
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def _readable(self) -> None:
        # Errors first: while one is queued, the socket counts as readable.
        self._drain_errors()
        for _ in range(MAX_BURST):
            try:
                data, address = self._sock.recvfrom(65536)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._drain_errors()
                continue
            if data.strip(b"\r\n\0"):
                self._receive(data, Hop("udp", address[0], address[1]))

    def _drain_errors(self) -> None:
        for _ in range(MAX_BURST):
            try:
                _, ancillary, _, address = self._sock.recvmsg(0, 512, MSG_ERRQUEUE)
            except OSError:
                return
            for _level, _kind, value in ancillary:
                code = struct.unpack_from("=I", value)[0] if len(value) >= 4 else 0
                if code in UNREACHABLE and address:
                    self._loop.call_soon(self._failed, Hop("udp", address[0], address[1]))


class _Connection:
    """One TCP connection."""

    def __init__(self, flow: int, host: str, port: int, writer: asyncio.StreamWriter) -> None:
        self.flow = flow
        self.host = host
        self.port = port
        self.writer = writer


class TcpTransport:
    """A listener, and the connections made from both sides."""

    def __init__(self, sock: socket.socket, receive: Receive, failed: Failed) -> None:
        self._sock = sock
        self._receive = receive
        self._failed = failed
        self._server: asyncio.Server | None = None
        self._connections: dict[int, _Connection] = {}
        """By flow; the one that has been silent for longest comes first."""
        self._waiting: dict[tuple[str, int], list[tuple[bytes, Hop]]] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._accepted_tasks: set[asyncio.Task[None]] = set()
        self._next_flow = 1

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accepted, sock=self._sock)

    def send(self, data: bytes, hop: Hop) -> None:
        """Send by the connection that is there, or make one."""
        connection = self._find(hop)
        if connection is not None:
            self._write(connection, data)
            return
        key = (hop.host, hop.port)
        waiting = self._waiting.get(key)
        if waiting is not None:
            if len(waiting) < 256:
                waiting.append((data, hop))
            return
        if len(self._waiting) >= MAX_CONNECTIONS:
            asyncio.get_running_loop().call_soon(self._failed, hop)
            return
        self._waiting[key] = [(data, hop)]
        self._run(self._connect(key))

    async def close(self) -> None:
        """Close the listener and all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connecting):
            task.cancel()
        for connection in list(self._connections.values()):
            connection.writer.close()
        serving = [*self._connecting, *self._accepted_tasks]
        if serving:
            # What was written last goes out first; a peer that does not read is not waited for.
            await asyncio.wait(serving, timeout=CLOSE_TIMEOUT_S)
            for connection in list(self._connections.values()):
                connection.writer.transport.abort()
            await asyncio.gather(*serving, return_exceptions=True)
        self._connections.clear()
        self._sock.close()

    def _find(self, hop: Hop) -> _Connection | None:
        """The connection for a hop, unless it is closing."""
        by_flow = self._connections.get(hop.flow)
        there = (hop.host, hop.port)
        fits = [c for c in self._connections.values() if (c.host, c.port) == there]
        if by_flow is not None and (hop.by_flow or by_flow in fits):
            fits.insert(0, by_flow)
        return next((c for c in fits if not c.writer.transport.is_closing()), None)

    def _write(self, connection: _Connection, data: bytes) -> None:
        transport = connection.writer.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            log.warning("closing a SIP connection whose peer does not read")
            transport.abort()
            return
        connection.writer.write(data)

    async def _connect(self, key: tuple[str, int]) -> None:
        host, port = key
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError):
            for data, hop in self._waiting.pop(key, []):
                # The dialog's own connection is the last resort where their Contact is deaf.
                old = self._connections.get(hop.flow)
                if old is not None:
                    self._write(old, data)
                else:
                    self._failed(hop)
            return
        connection = self._add(host, port, writer)
        for data, _ in self._waiting.pop(key, []):
            self._write(connection, data)
        await self._serve(connection, reader)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        if peer is None:
            writer.close()
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            # Idle ones must not keep a caller out; a call survives the loss of its connection.
            oldest = next(iter(self._connections))
            self._connections.pop(oldest).writer.transport.abort()
        task = asyncio.current_task()
        if task is not None:
            self._accepted_tasks.add(task)
            task.add_done_callback(self._accepted_tasks.discard)
        await self._serve(self._add(peer[0], peer[1], writer), reader)

    def _add(self, host: str, port: int, writer: asyncio.StreamWriter) -> _Connection:
        sock = writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(self._next_flow, host, port, writer)
        self._next_flow += 1
        self._connections[connection.flow] = connection
        return connection

    async def _serve(self, connection: _Connection, reader: asyncio.StreamReader) -> None:
        framer = StreamFramer()
        hop = Hop("tcp", connection.host, connection.port, connection.flow)
        try:
            while True:
                async with asyncio.timeout(IDLE_LIMIT_S):
                    data = await reader.read(65536)
                if not data or self._connections.pop(connection.flow, None) is None:
                    return
                self._connections[connection.flow] = connection
                for message in framer.push(data):
                    self._receive(message, hop)
                while framer.pings:
                    framer.pings -= 1
                    self._write(connection, PONG)
        except (OSError, TimeoutError):
            return
        except BadSip as error:
            log.warning("closing a SIP connection: %s", error.message)
        finally:
            self._connections.pop(connection.flow, None)
            connection.writer.close()
            # What is under way by a newer connection to the same place has not failed.
            if self._find(hop) is None and (hop.host, hop.port) not in self._waiting:
                self._failed(hop)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
