"""TCP and TLS transport of both directions."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass

from qwen3tts_phone.errors import BadSip, CalleeUnreachable, CallError, traceback_without_message
from qwen3tts_phone.limits import TokenBucket
from qwen3tts_phone.sip.message.fields import is_ip
from qwen3tts_phone.sip.message.message import PING, PONG, StreamFramer
from qwen3tts_phone.sip.message.network import Hop, behind_nat
from qwen3tts_phone.sip.transport.tls import TlsContexts, handshake_error
from qwen3tts_phone.sip.transport.udp import MAX_TURN_S, TransportCallbacks
from qwen3tts_wire.errors import MOST_SENTENCE_CHARS, log_text


@dataclass(slots=True, eq=False)
class Connection:
    """TCP or TLS connection with the far end's address."""

    flow: int
    """Its number, above 0."""
    host: str
    port: int
    writer: asyncio.StreamWriter
    name: str = ""
    """Certificate name; empty without TLS, or inbound."""
    heard_at: float = 0.0
    """Last reception or opening, seconds."""
    heard: bool = False
    """True once something was received."""
    ours: bool = False
    """True if outbound."""

    def hop(self, transport: str) -> Hop:
        return Hop(transport, self.host, self.port, self.flow, name=self.name)


log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
"""Beyond it the busiest address loses its idlest connection."""
MAX_HANDSHAKES = 64
"""TLS handshakes; one more ends the oldest."""
LOG_EVERY_S = 10.0
LOG_BURST = 5
"""Log lines on connections closed for invalid input."""
ACCEPT_AGAIN_S = 1.0
"""Wait after a failed accept."""
MAX_UNSENT_BYTES = 1 << 20
"""Unsent bytes that close a connection."""
MAX_NAMES = 1000
CONNECT_TIMEOUT_S = 5.0
"""Timeout of connecting, and of the TLS handshake."""
CLOSE_TIMEOUT_S = 0.5
IDLE_LIMIT_S = 900.0
"""Silence that closes a connection."""


class StreamTransport:
    """Connections over ``tcp`` or ``tls``, with a listener.

    TLS is connected to a certificate name; another name at an address gets its own connection.
    """

    def __init__(
        self,
        sock: socket.socket | None,
        callbacks: TransportCallbacks,
        *,
        tls: TlsContexts | None = None,
        flows: Iterator[int] | None = None,
        local_host: str = "",
    ) -> None:
        self.transport = "tcp" if tls is None else "tls"
        self._sock = sock
        self._receive = callbacks.receive
        self._failed = callbacks.failed
        self._closed = callbacks.closed
        self._admit = callbacks.admit
        self._now = callbacks.now
        self._tls = tls
        self._local = (local_host, 0) if local_host else None
        """Outbound source address; None: any."""
        self._accepting: asyncio.Task[None] | None = None
        self._connections: dict[int, Connection] = {}
        """By flow, longest silent first."""
        self._waiting: dict[tuple[str, int, str], list[tuple[bytes, Hop]]] = {}
        self._names: dict[tuple[str, int], str] = {}
        """Certificate names by address."""
        self._connecting: set[asyncio.Task[None]] = set()
        self._accepted_tasks: set[asyncio.Task[None]] = set()
        self._handshakes: dict[asyncio.Task[None], str] = {}
        """Open handshakes, oldest first."""
        self._flows = flows or itertools.count(1)
        self._lines = TokenBucket(1 / LOG_EVERY_S, LOG_BURST, self._now())

    async def start(self) -> None:
        if self._sock is not None:
            self._accepting = asyncio.create_task(self._accept(self._sock), name="SIP connections")

    def send(self, data: bytes, hop: Hop) -> None:
        connection = self.find(hop)
        if connection is not None:
            self._write(connection, data)
            return
        key = (hop.host, hop.port, self._name(hop))
        waiting = self._waiting.get(key)
        if waiting is not None:
            if len(waiting) < 256:
                waiting.append((data, hop))
            return
        if len(self._waiting) >= MAX_CONNECTIONS:
            asyncio.get_running_loop().call_soon(self._failed, hop, None)
            return
        self._waiting[key] = [(data, hop)]
        self._run(self._connect(key))

    def has_flow(self, flow: int) -> bool:
        return flow in self._connections

    def ping(self, hop: Hop) -> bool:
        """Send a keepalive (RFC 5626 section 3.5.1); False: no connection."""
        connection = self.find(hop)
        if connection is None:
            return False
        self._write(connection, PING)
        return True

    def heard_at(self, hop: Hop) -> float | None:
        connection = self.find(hop)
        return connection.heard_at if connection is not None else None

    def abort(self, hop: Hop) -> None:
        connection = self.find(hop)
        if connection is not None:
            connection.writer.transport.abort()

    async def close(self) -> None:
        stopped = [self._accepting] if self._accepting is not None else []
        stopped += [*self._connecting, *self._handshakes]
        for task in stopped:
            task.cancel()
        for connection in list(self._connections.values()):
            connection.writer.close()
        serving = [*stopped, *self._accepted_tasks]
        if serving:
            # Pending writes go out first; a peer that does not read is not awaited.
            await asyncio.wait(serving, timeout=CLOSE_TIMEOUT_S)
            for connection in list(self._connections.values()):
                connection.writer.transport.abort()
            await asyncio.gather(*serving, return_exceptions=True)
        self._connections.clear()
        if self._sock is not None:
            self._sock.close()

    def find(self, hop: Hop) -> Connection | None:
        by_flow = self._connections.get(hop.flow)
        there = (hop.host, hop.port)
        name = self._name(hop)
        fits = [
            c
            for c in self._connections.values()
            if (c.host, c.port) == there and (c.name == name or not c.name)
        ]
        if by_flow is not None and (
            hop.by_flow or by_flow in fits or behind_nat(hop.host, by_flow.host)
        ):
            fits.insert(0, by_flow)
        return next((c for c in fits if not c.writer.transport.is_closing()), None)

    def _name(self, hop: Hop) -> str:
        # Return the name that the certificate must bear; empty without TLS.
        # For a bare address (a Contact) it is the name on the certificate seen there.
        if self._tls is None:
            return ""
        name = hop.name or hop.host
        return self._names.get((hop.host, hop.port), name) if is_ip(name) else name

    def _write(self, connection: Connection, data: bytes) -> None:
        transport = connection.writer.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            log.warning("closing a SIP connection whose peer does not read")
            transport.abort()
            return
        connection.writer.write(data)

    async def _connect(self, key: tuple[str, int, str]) -> None:
        host, port, name = key
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await self._open(host, port, name)
        except (OSError, TimeoutError) as error:
            hop = self._waiting[key][0][1]
            cause = _cause(error, hop)
            for data, hop in self._waiting.pop(key, []):
                # The dialog's own connection is the last resort where their Contact is unreachable.
                old = self._connections.get(hop.flow)
                if old is not None:
                    self._write(old, data)
                else:
                    self._failed(hop, cause)
            return
        if name:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            self._names[host, port] = name
        connection = self._add(host, port, writer, name, ours=True)
        for data, _ in self._waiting.pop(key, []):
            self._write(connection, data)
        await self._serve(connection, reader)

    async def _open(
        self, host: str, port: int, name: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._tls is None:
            return await asyncio.open_connection(host, port, local_addr=self._local)
        return await asyncio.open_connection(
            host,
            port,
            local_addr=self._local,
            ssl=self._tls.client,
            server_hostname=name,
            ssl_shutdown_timeout=CLOSE_TIMEOUT_S,
        )

    async def _accept(self, sock: socket.socket) -> None:
        # Accept connections.
        # Those in the handshake count as well: a client that only connects must not use up memory
        # and file handles.
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, peer = await loop.sock_accept(sock)
            except OSError as error:
                # The far end is gone again, or no file handle is left.
                if error.errno != errno.ECONNABORTED:
                    log.warning("no SIP connection can be taken: %s", error.strerror)
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            host = peer[0]
            hosts = [*(c.host for c in self._connections.values()), *self._handshakes.values()]
            if not self._admit(host, hosts):
                taken.close()
                continue
            if len(self._handshakes) >= MAX_HANDSHAKES:
                # A handshake takes a moment; long ones are suspicious.
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()
            task = loop.create_task(self._serve_accepted(taken, host, peer[1]))
            self._handshakes[task] = host
            task.add_done_callback(self._accepted_ended)
            self._accepted_tasks.add(task)
            # With a long accept queue, this lets other tasks run.
            await asyncio.sleep(0)

    def _accepted_ended(self, task: asyncio.Task[None]) -> None:
        self._accepted_tasks.discard(task)
        self._handshakes.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a SIP connection broke\n%s", traceback_without_message(error))

    async def _serve_accepted(self, sock: socket.socket, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        context = self._tls.server if self._tls is not None else None
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                sock,
                ssl=context,
                ssl_handshake_timeout=CONNECT_TIMEOUT_S if context is not None else None,
                ssl_shutdown_timeout=CLOSE_TIMEOUT_S if context is not None else None,
            )
        except OSError as error:
            log.debug("a SIP connection from %s was not made: %s", host, log_text(error))
            sock.close()
            return
        except BaseException:
            sock.close()
            raise
        finally:
            task = asyncio.current_task()
            if task is not None:
                self._handshakes.pop(task, None)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        if len(self._connections) >= MAX_CONNECTIONS and not self._make_room():
            transport.abort()
            return
        await self._serve(self._add(host, port, writer), reader)

    def _make_room(self) -> bool:
        # Abort an inbound connection of the address that has most of them.
        # Idle ones must not keep a caller out, nor a crowd end a carrier's. Outbound ones, as those
        # to registrars, stay.
        theirs = [each for each in self._connections.values() if not each.ours]
        if not theirs:
            return False
        count = Counter(each.host for each in theirs)
        # Of equals the first, which was silent for longest.
        victim = min(theirs, key=lambda each: (-count[each.host], each.heard))
        self._connections.pop(victim.flow).writer.transport.abort()
        return True

    def _add(
        self,
        host: str,
        port: int,
        writer: asyncio.StreamWriter,
        name: str = "",
        *,
        ours: bool = False,
    ) -> Connection:
        sock = writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(next(self._flows), host, port, writer, name, self._now(), ours=ours)
        self._connections[connection.flow] = connection
        return connection

    async def _serve(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        framer = StreamFramer()
        hop = Hop(self.transport, connection.host, connection.port, connection.flow)
        cause: CallError | None = None
        try:
            while True:
                async with asyncio.timeout(IDLE_LIMIT_S):
                    data = await reader.read(65536)
                if not data or self._connections.pop(connection.flow, None) is None:
                    cause = self._silent_close_error(connection)
                    return
                self._connections[connection.flow] = connection
                connection.heard_at = self._now()
                connection.heard = True
                framer.feed(data)
                until = self._now() + MAX_TURN_S
                while (message := framer.next()) is not None:
                    self._receive(message, hop)
                    if self._now() >= until:
                        await asyncio.sleep(0)
                        until = self._now() + MAX_TURN_S
                if framer.pings:
                    # Immediately: a peer that sends only pings must not delay the others.
                    self._write(connection, PONG * framer.pings)
                    framer.pings = 0
        except ssl.SSLError as error:
            # With TLS 1.3 a server refuses our certificate only after the handshake.
            cause = handshake_error(error, connection.hop(self.transport))
        except (OSError, TimeoutError):
            cause = self._silent_close_error(connection)
            return
        except BadSip as error:
            if self._lines.take(self._now()):
                log.warning(
                    "closing a SIP connection: %s", log_text(error.message, MOST_SENTENCE_CHARS)
                )
        finally:
            self._connections.pop(connection.flow, None)
            connection.writer.close()
            self._closed(hop)
            # Messages waiting for a newer connection to the same place have not failed.
            coming = any(key[:2] == (hop.host, hop.port) for key in self._waiting)
            if self.find(hop) is None and not coming:
                self._failed(hop, cause)

    def _silent_close_error(self, connection: Connection) -> CallError | None:
        if connection.heard or not connection.name:
            return None
        return CalleeUnreachable(
            f"{connection.hop(self.transport).words} closed the TLS connection without a word.",
            remedy="It may want a certificate of ours (tls.client_certificate); its log says why.",
            why="tls",
        )

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)


def _cause(error: OSError, hop: Hop) -> CallError | None:
    if isinstance(error, ssl.SSLError):
        return handshake_error(error, hop)
    if isinstance(error, TimeoutError):
        return CalleeUnreachable(
            f"{hop.words} does not answer: no connection within {CONNECT_TIMEOUT_S:g} s.",
            remedy="Check the address, the network and any firewall between.",
            why="timeout",
        )
    return None
