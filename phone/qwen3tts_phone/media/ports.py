"""Local ports of a call's media: RTP on an even one, RTCP on the next (RFC 3550 section 11)."""

from __future__ import annotations

import contextlib
import errno
import random
import socket

from qwen3tts_phone.errors import PortBusy
from qwen3tts_phone.media.receiver import SO_TIMESTAMPNS

TRIES = 64
EXPEDITED = 0xB8
"""Type of service: DSCP EF (RFC 3246)."""
RECEIVE_BYTES = 256 * 1024
"""Socket buffer, so that a stall of the machine loses nothing; the kernel may grant less."""


def open_pair(
    host: str, port_range: tuple[int, int] = (0, 0)
) -> tuple[socket.socket, socket.socket]:
    """Bind non-blocking RTP and RTCP sockets. Raises PortBusy.

    In a range, pairs are tried from a random one on, so that a port is not reused immediately.
    """
    low, high = port_range
    if (low, high) == (0, 0):
        for _ in range(TRIES):
            pair = _try(host, 0)
            if pair is not None:
                return pair
        raise PortBusy(f"The system gave no pair of UDP ports on {host} in {TRIES} tries.")
    evens = list(range(low + low % 2, high, 2))
    start = random.randrange(len(evens)) if evens else 0
    for port in evens[start:] + evens[:start]:
        pair = _try(host, port)
        if pair is not None:
            return pair
    raise PortBusy(
        f"No even UDP port with a free one above it on {host} from {low} to {high}.",
        remedy="End the program that uses them, or choose a wider range of RTP ports.",
    )


def _try(host: str, port: int) -> tuple[socket.socket, socket.socket] | None:
    with contextlib.ExitStack() as stack:
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            rtp = stack.enter_context(socket.socket(kind, socket.SOCK_DGRAM))
            rtcp = stack.enter_context(socket.socket(kind, socket.SOCK_DGRAM))
            if kind == socket.AF_INET6:  # :: stands for both families, any other for its own
                for sock in (rtp, rtcp):
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
            rtp.bind((host, port))
            port = rtp.getsockname()[1]
            if port % 2 or port == 65535:
                return None
            rtcp.bind((host, port + 1))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            exhausted = error.errno in (errno.EMFILE, errno.ENFILE)
            raise PortBusy(
                f"UDP port {port} on {host} cannot be opened: {error.strerror}.",
                remedy="Raise the limit of open files (ulimit -n, LimitNOFILE)."
                if exhausted
                else "Give an address of this machine, and ports above 1023.",
            ) from error
        rtp.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        for sock in (rtp, rtcp):
            sock.setblocking(False)
            if kind == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, EXPEDITED)
            if kind == socket.AF_INET or host == "::":
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, EXPEDITED)
        rtp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        stack.pop_all()
        return rtp, rtcp
    raise AssertionError("unreachable")
