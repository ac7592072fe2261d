"""Sockets to listen with, and which of our addresses leads where."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence

from qwen3tts_phone.errors import PortBusy

IP_RECVERR = 11
"""Linux: report ICMP errors on an unconnected socket, with the address they are about."""
IPV6_RECVERR = 25
ATTEMPTS = 20
"""Times another free port is looked for that all transports can have."""
WILDCARDS = ("0.0.0.0", "::")


def bind_pair(host: str, port: int, transports: Sequence[str]) -> dict[str, socket.socket]:
    """Sockets on one port for the transports; with port 0, on a port free for all of them."""
    attempts = 1 if port else ATTEMPTS
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
                    remedy=PortBusy.remedy_for(error),
                ) from error
    raise PortBusy(f"No port at {host} is free for {' and '.join(transports)}.")


RECEIVE_BYTES = 4 << 20
"""Room for datagrams while this process is busy, as far as the system gives it
(net.core.rmem_max): in the kernel's count an INVITE takes 2 to 4 kB."""


def _bound(host: str, port: int, transport: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kind = socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM
    sock = socket.socket(family, kind)
    try:
        sock.setblocking(False)
        if family == socket.AF_INET6:
            # One family each, so that 0.0.0.0 and :: can both be bound.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if transport == "udp":
            with contextlib.suppress(OSError):
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
                else:
                    sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        else:
            # Connections of an earlier run in TIME_WAIT do not keep the port.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        if transport != "udp":
            # At once: until somebody listens, another program could bind the port as well.
            sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock


def address_towards(host: str) -> str | None:
    """Which of our addresses routes to an IP address; connecting a datagram socket sends nothing.

    None where no route leads there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None
