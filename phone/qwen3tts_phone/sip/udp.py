"""UDP for SIP, on the loop's readers: datagrams in with their hop, datagrams out, failures told."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Callable

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.transaction import Hop

log = logging.getLogger(__name__)

MSG_ERRQUEUE = 0x2000
UNREACHABLE = {
    *(errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN),
}
"""ICMP errors that mean that nobody is there; a datagram that was too long is not among them."""
MAX_BURST = 64
"""Most datagrams read before other tasks get a turn."""

Receive = Callable[[bytes, Hop], None]
Failed = Callable[[Hop, CallError | None], None]


class UdpTransport:
    """One datagram socket; ``flow`` is its number, 0 or below."""

    def __init__(
        self, sock: socket.socket, receive: Receive, failed: Failed, flow: int = 0
    ) -> None:
        self.flow = flow
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
                self._loop.call_soon(self._failed, hop, None)
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
                self._receive(data, Hop("udp", address[0], address[1], self.flow))

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
