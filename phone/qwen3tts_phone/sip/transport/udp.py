"""UDP transport with ICMP errors and queueing delays."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.message.network import Hop

log = logging.getLogger(__name__)

MSG_ERRQUEUE = 0x2000
UNREACHABLE = {
    *(errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN),
}
"""ICMP errors of an unreachable peer, not of oversized datagrams."""
MAX_BURST = 64
"""Most datagrams read in one callback."""
MAX_TURN_S = 0.004
"""Longest run of a callback."""

SO_TIMESTAMPNS = 35
"""Linux: kernel receive time, as a control message of the same number."""
STAMP = struct.Struct("@qq")
SO_RXQ_OVFL = 40
"""Linux: count of dropped datagrams; absent before the first."""
DROPPED = struct.Struct("@I")
ANCILLARY = socket.CMSG_SPACE(STAMP.size) + socket.CMSG_SPACE(DROPPED.size)
WAIT_BELIEVED_S = 60.0
"""Beyond it the wall clock was set."""

Receive = Callable[[bytes, Hop], None]
Failed = Callable[[Hop, CallError | None], None]
Waited = Callable[[float, int], None]
"""Receives delay in seconds, and datagrams dropped before."""


Admit = Callable[[str, Iterable[str]], bool]
"""Admission by address, given the open connections'."""


@dataclass(frozen=True, slots=True)
class TransportCallbacks:
    """Receiver of transport reports, and their clock."""

    receive: Receive
    failed: Failed
    closed: Callable[[Hop], None] = lambda hop: None
    admit: Admit = lambda host, hosts: True
    waited: Waited = lambda wait_s, lost: None
    now: Callable[[], float] = lambda: 0.0


class UdpTransport:
    """Datagram socket; ``flow``: its number, 0 or below."""

    def __init__(self, sock: socket.socket, callbacks: TransportCallbacks, flow: int = 0) -> None:
        self.flow = flow
        self._now = callbacks.now
        self._waited = callbacks.waited
        self._sock = sock
        self._receive = callbacks.receive
        self._failed = callbacks.failed
        self._loop = asyncio.get_running_loop()
        self._dropped = 0
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        self._loop.add_reader(sock.fileno(), self._readable)

    def send(self, data: bytes, hop: Hop) -> None:
        for _ in range(2):
            try:
                self._sock.sendto(data, (hop.host, hop.port))
                return
            except ConnectionRefusedError:
                # ICMP error of an earlier datagram; read it and send again.
                self._drain_errors()
            except (BlockingIOError, InterruptedError):
                # The send buffer is full; retransmission recovers.
                return
            except OSError as error:
                log.warning("UDP to %s:%d failed: %s", hop.host, hop.port, error.strerror)
                self._loop.call_soon(self._failed, hop, None)
                return

    def close(self) -> None:
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def _readable(self) -> None:
        # Errors first: while one is queued, the socket counts as readable.
        self._drain_errors()
        until = self._now() + MAX_TURN_S
        for _ in range(MAX_BURST):
            try:
                data, ancillary, _, address = self._sock.recvmsg(65536, ANCILLARY)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._drain_errors()
                continue
            self._tell_waited({kind: value for _, kind, value in ancillary})
            if data.strip(b"\r\n\0"):
                self._receive(data, Hop("udp", address[0], address[1], self.flow))
            if self._now() >= until:
                # The rest makes the socket readable in the next turn of the loop.
                return

    def _tell_waited(self, control: Mapping[int, bytes]) -> None:
        if SO_TIMESTAMPNS not in control:
            return
        seconds, nanoseconds = STAMP.unpack_from(control[SO_TIMESTAMPNS])
        wait_s = time.time() - seconds - nanoseconds / 1e9
        if not 0.0 <= wait_s < WAIT_BELIEVED_S:
            return
        lost = 0
        if SO_RXQ_OVFL in control:
            (dropped,) = DROPPED.unpack_from(control[SO_RXQ_OVFL])
            lost, self._dropped = (dropped - self._dropped) % 2**32, dropped
        self._waited(wait_s, lost)

    def _drain_errors(self) -> None:
        for _ in range(MAX_BURST):
            try:
                _, ancillary, _, address = self._sock.recvmsg(0, 512, MSG_ERRQUEUE)
            except OSError:
                return
            for _level, _kind, value in ancillary:
                code = struct.unpack_from("=I", value)[0] if len(value) >= 4 else 0
                if code in UNREACHABLE and address:
                    hop = Hop("udp", address[0], address[1])
                    self._loop.call_soon(self._failed, hop, None)
