"""A call's two sockets as its halves use them: both families of addresses, plain or encrypted."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from qwen3tts_phone.media.source import NOWHERE, Address
from qwen3tts_phone.media.srtp import Opener, Sealer
from qwen3tts_phone.media.types import RemoteMedia, family

_MAPPED = "::ffff:"


def numeric(host: str) -> str:
    """An address as sockets write it, so that two forms of one compare equal."""
    kind = family(host)
    if kind is None:
        return host
    return plain_host(socket.inet_ntop(kind, socket.inet_pton(kind, host)))


def plain_host(host: str) -> str:
    """An IPv4 address that a socket of both families wrote as one of IPv6, as itself."""
    return host[7:] if host.startswith(_MAPPED) and "." in host else host


class Wire:
    """The way out and in of one leg; ``rtp`` and ``rtcp`` are bound sockets of one family."""

    def __init__(self, rtp: socket.socket, rtcp: socket.socket) -> None:
        self.rtp = rtp
        self.rtcp = rtcp
        self.sendto: Callable[[bytes, Any], int] = rtp.sendto
        """Sends a packet of RTP; OSError when it cannot be sent."""
        self.direct = rtp.family == socket.AF_INET
        """Whether a datagram is what it seems; False = it must go through `open`."""
        self.bare = True
        """Whether what comes is not encrypted."""
        self._six = rtp.family == socket.AF_INET6
        # One of them alone, or both families (it is bound to :: then).
        self._both = self._six and not rtp.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        # Kept when encryption ends, too: should the key come back, no number is used twice.
        self._sealer: Sealer | None = None
        self._sealing = False
        self._opener: Opener | None = None

    def update(self, remote: RemoteMedia, now: float) -> None:
        """Keys and family as agreed; ValueError when they cannot be, and nothing has changed."""
        if remote.host not in NOWHERE:
            self.target((remote.host, remote.port))
        key, sealer = remote.srtp_send, self._sealer
        if key is not None and (sealer is None or sealer.key != key):
            sealer = Sealer(key)
        if remote.srtp_receive is not None:
            if self._opener is not None:
                self._opener.change(remote.srtp_receive, now)
            else:
                self._opener = Opener(remote.srtp_receive)
        self.bare = remote.srtp_receive is None
        self.direct = self.bare and not self._six
        self._sealer, self._sealing = sealer, key is not None
        # No method of its own: that would be a cycle, and nobody collects them in this process.
        self.sendto = self.rtp.sendto
        if key is not None and sealer is not None:
            self.sendto = partial(_sealed, self.rtp.sendto, sealer.seal)

    def target(self, address: Address) -> Address:
        """What to give `sendto` for an address; ValueError for one of another family."""
        host, port = address
        version = family(host)
        if version == socket.AF_INET:
            if not self._six:
                return address
            if self._both:
                return _MAPPED + host, port
        elif self._six:
            return address
        raise ValueError(
            f"host={host!r} is of another family than {self.rtp.getsockname()[0]}, where this "
            "call's sockets are bound; open the leg on an address of its family, or on ::"
        )

    def open(
        self, data: bytes, address: tuple[Any, ...], now: float, *, report: bool
    ) -> tuple[bytes, Address] | None:
        """The packet in a datagram, and where it came from; None = dropped, and counted."""
        source = (plain_host(address[0]), address[1]) if self._six else (address[0], address[1])
        opener = self._opener
        if self.bare or opener is None:
            return data, source
        opened = opener.open_report(data, now) if report else opener.open(data, now)
        return None if opened is None else (opened, source)

    def send_report(self, data: bytes, address: Address, *, muxed: bool) -> None:
        """Send RTCP, on the port of RTP or on its own; OSError when it cannot be sent."""
        if self._sealing and self._sealer is not None:
            data = self._sealer.seal_report(data)
        (self.rtp if muxed else self.rtcp).sendto(data, self.target(address))

    @property
    def failed(self) -> int:
        """Packets dropped because they did not authenticate."""
        return self._opener.failed if self._opener is not None else 0

    @property
    def replayed(self) -> int:
        """Packets dropped because they had come before."""
        return self._opener.replayed if self._opener is not None else 0


def _sealed(
    sendto: Callable[[bytes, Any], int], seal: Callable[[bytes], bytes], packet: bytes, address: Any
) -> int:
    return sendto(seal(packet), address)
