"""Listening sockets, their choice by hop, and our address there."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from qwen3tts_phone.errors import PortBusy
from qwen3tts_phone.sip.core.settings import Listener, SipSettings
from qwen3tts_phone.sip.message.message import PING
from qwen3tts_phone.sip.message.network import Hop, address_of
from qwen3tts_phone.sip.transport.dns import Family
from qwen3tts_phone.sip.transport.stream import StreamTransport
from qwen3tts_phone.sip.transport.tls import TlsContexts, load_contexts
from qwen3tts_phone.sip.transport.udp import TransportCallbacks, UdpTransport

IP_RECVERR = 11
"""Linux: ICMP errors of an unconnected socket with their address."""
IPV6_RECVERR = 25
ATTEMPTS = 20
"""Attempts at a port free for all transports."""
WILDCARDS = ("0.0.0.0", "::")


def bind_sockets(host: str, port: int, transports: Sequence[str]) -> dict[str, socket.socket]:
    """Return sockets on one port; 0: one free for all transports."""
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
"""Receive buffer (net.core.rmem_max): an INVITE takes 2 to 4 kB of it."""


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
            # Immediately: until then another program could bind the port as well.
            sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock


def local_address_towards(host: str) -> str | None:
    """Return our address that routes there, or None; sends nothing."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None


log = logging.getLogger(__name__)

ELSEWHERE = {False: "192.0.2.1", True: "2001:db8::1"}
"""Addresses of the default route by IPv6 (RFC 5737, RFC 3849); nothing is sent."""
LOOPBACK = {False: "127.0.0.1", True: "::1"}
MAX_ADDRESSES = 1000


@dataclass(slots=True)
class BoundListener:
    listener: Listener
    udp: UdpTransport | None = None
    streams: dict[str, StreamTransport] = field(default_factory=dict)
    """By transport: tcp, tls."""
    ports: dict[str, int] = field(default_factory=dict)
    """By transport, TLS also without a certificate."""

    def has(self, transport: str) -> bool:
        return self.udp is not None if transport == "udp" else transport in self.streams


class Listeners:
    """All listeners; raises BadCertificate before, PortBusy while binding."""

    def __init__(self, settings: SipSettings, callbacks: TransportCallbacks) -> None:
        self.bound: list[BoundListener] = []
        self._settings = settings
        self._callbacks = callbacks
        self._tls: TlsContexts | None = None
        self._addresses: dict[str, str] = {}
        """Cache of our address towards others."""
        self._learnt: dict[tuple[str, str], tuple[str, int]] = {}
        """Mapped host and port by transport and server."""

    @property
    def families(self) -> tuple[Family, ...]:
        both: list[Family] = [6 if one.ipv6 else 4 for one in self._settings.listening()]
        return tuple(dict.fromkeys(both))

    async def start(self) -> None:
        settings = self._settings
        if settings.tls is not None:
            hosts = {one.advertised_host for one in settings.listening()} - {""}
            self._tls = load_contexts(settings.tls, sorted(hosts))
            for warning in self._tls.warnings:
                log.warning("%s", warning)
        try:
            flows = itertools.count(1)
            for number, listener in enumerate(settings.listening()):
                bound = BoundListener(listener)
                self.bound.append(bound)
                self._bind(bound, -number, flows)
            for bound in self.bound:
                for stream in bound.streams.values():
                    await stream.start()
        except BaseException:
            await self.close()
            raise

    def _bind(self, bound: BoundListener, flow: int, flows: itertools.count[int]) -> None:
        listener = bound.listener
        plain = [t for t in listener.transports if t != "tls"]
        sockets = self._sockets(listener, plain) if plain else {}
        bound.ports = {t: sock.getsockname()[1] for t, sock in sockets.items()}
        from_here = "" if listener.host in WILDCARDS or _is_loopback(listener) else listener.host
        if "udp" in sockets:
            bound.udp = UdpTransport(sockets["udp"], self._callbacks, flow)
        for transport in ("tcp", "tls"):
            if transport not in listener.transports:
                continue
            sock = sockets.get(transport)
            tls = self._tls if transport == "tls" else None
            if tls is not None:
                bound.ports["tls"] = listener.tls_port or 5061
                if tls.server is not None:
                    sock = bind_sockets(listener.host, listener.tls_port, ("tls",))["tls"]
                    bound.ports["tls"] = sock.getsockname()[1]
            bound.streams[transport] = StreamTransport(
                sock, self._callbacks, tls=tls, flows=flows, local_host=from_here
            )

    def _sockets(self, listener: Listener, transports: list[str]) -> dict[str, socket.socket]:
        first = next(iter(self.bound[0].ports.values()), 0)
        if not listener.port and first and not self._settings.listeners:
            with contextlib.suppress(PortBusy):
                return bind_sockets(listener.host, first, transports)
        return bind_sockets(listener.host, listener.port, transports)

    async def close(self) -> None:
        for bound in self.bound:
            if bound.udp is not None:
                bound.udp.close()
            for stream in bound.streams.values():
                await stream.close()
        self.bound.clear()

    def port(self, transport: str = "") -> int:
        """Return the first port of the transport, or any; 0: none."""
        for bound in self.bound:
            if not transport:
                return next(iter(bound.ports.values()), 0)
            if transport in bound.ports:
                return bound.ports[transport]
        return 0

    # Sending

    def send(self, data: bytes, hop: Hop) -> None:
        bound = self._choose(hop)
        if bound is None:
            self._callbacks.failed(hop, None)
        elif hop.transport == "udp" and bound.udp is not None:
            bound.udp.send(data, hop)
        else:
            bound.streams[hop.transport].send(data, hop)

    def ping(self, hop: Hop) -> bool:
        """Send a CRLF keepalive (RFC 5626); False: no connection."""
        bound = self._choose(hop)
        if bound is None:
            return False
        if hop.transport == "udp" and bound.udp is not None:
            bound.udp.send(PING, hop)
            return True
        return bound.streams[hop.transport].ping(hop)

    def heard_at(self, hop: Hop) -> float | None:
        bound = self._choose(hop)
        stream = bound.streams.get(hop.transport) if bound is not None else None
        return stream.heard_at(hop) if stream is not None else None

    def reached(self, hop: Hop) -> Hop:
        if hop.transport == "udp":
            return hop
        bound = self._choose(hop)
        stream = bound.streams.get(hop.transport) if bound is not None else None
        used = stream.find(hop) if stream is not None else None
        if used is None:
            return replace(hop, flow=0, by_flow=False)
        return replace(hop, host=used.host, port=used.port, flow=used.flow, by_flow=True)

    def abort(self, hop: Hop) -> None:
        bound = self._choose(hop)
        stream = bound.streams.get(hop.transport) if bound is not None else None
        if stream is not None:
            stream.abort(hop)

    def _choose(self, hop: Hop) -> BoundListener | None:
        able = [bound for bound in self.bound if bound.has(hop.transport)]
        for bound in able:
            stream = bound.streams.get(hop.transport)
            if hop.flow > 0 and stream is not None and stream.has_flow(hop.flow):
                return bound
        family = _family(hop.host)
        if family is not None:
            able = [bound for bound in able if bound.listener.ipv6 == family]
        for bound in able:
            if hop.flow < 0 and hop.transport == "udp" and bound.udp and bound.udp.flow == hop.flow:
                return bound
        if len(able) > 1:
            ours = self._towards(hop.host, ipv6=able[0].listener.ipv6)
            able.sort(key=lambda bound: bound.listener.host not in (*WILDCARDS, ours))
        return able[0] if able else None

    # Our addresses

    def local(self, hop: Hop) -> tuple[str, int]:
        if not self.bound:
            # Not started, or closed: as configured.
            first = self._settings.listening()[0]
            return first.advertised_host or first.host, first.advertised_port or first.port
        bound = self._choose(hop) or self.bound[0]
        listener = bound.listener
        tls = hop.transport == "tls"
        port = bound.ports.get(hop.transport) or next(iter(bound.ports.values()), 0)
        if listener.advertised_host:
            said = listener.advertised_tls_port if tls else listener.advertised_port
            return listener.advertised_host, said or port
        learnt = self._learnt.get((hop.transport, hop.host))
        if learnt is not None:
            return learnt
        said = listener.advertised_tls_port if tls else listener.advertised_port
        host = listener.host
        if host in WILDCARDS:
            host = self._towards(hop.host, ipv6=listener.ipv6)
        return host, said or port

    def is_ours(self, host: str) -> bool:
        address = address_of(host)
        host = str(address) if address is not None else host.strip("[]").lower()
        said = {bound.listener.advertised_host.lower() for bound in self.bound} - {""}
        bound = {bound.listener.host for bound in self.bound}
        if host in said | bound or host in {address for address, _ in self._learnt.values()}:
            return True
        if address is None or not bound & set(WILDCARDS):
            return False
        # Bound to all addresses: a route to oneself begins and ends at the same one.
        return address.is_loopback or local_address_towards(str(address)) == str(address)

    def learn(self, hop: Hop, host: str, port: int) -> bool:
        key = (hop.transport, hop.host)
        if self._learnt.get(key) == (host, port):
            return False
        news = self.local(hop) != (host, port)
        if len(self._learnt) >= MAX_ADDRESSES:
            self._learnt.clear()
        self._learnt[key] = (host, port)
        return news and self.local(hop) == (host, port)

    def forget_addresses(self) -> None:
        self._addresses.clear()

    @property
    def may_move(self) -> bool:
        return any(one.host in WILDCARDS for one in self._settings.listening())

    def _towards(self, host: str, *, ipv6: bool) -> str:
        if _family(host) is not ipv6:
            # A name without a look-up, which would block here.
            host = ELSEWHERE[ipv6]
        known = self._addresses.get(host)
        if known is None:
            if len(self._addresses) >= MAX_ADDRESSES:
                self._addresses.clear()
            known = self._addresses[host] = local_address_towards(host) or LOOPBACK[ipv6]
        return known


def _family(host: str) -> bool | None:
    try:
        return ipaddress.ip_address(host.strip("[]")).version == 6
    except ValueError:
        return None


def _is_loopback(listener: Listener) -> bool:
    return listener.host == "localhost" or ipaddress.ip_address(listener.host).is_loopback
