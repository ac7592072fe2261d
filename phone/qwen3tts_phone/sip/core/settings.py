"""Settings of a SIP endpoint: listeners, TLS, DNS, timers and the gate."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from qwen3tts_phone.sip.message.network import networks
from qwen3tts_phone.sip.transaction.state_machine import Timers

Nat = Literal["off", "learn"]
TRANSPORTS = ("udp", "tcp", "tls")

LOOPBACK = ("127.0.0.0/8", "::1/128")
SCANNERS = (
    *("friendly-scanner", "friendly-request", "sipvicious", "sipsak", "sundayddr", "sip-scan"),
    *("sipcli", "vaxsipuseragent", "vaxasip", "pplsip", "sipptk", "siparmyknife", "smap/"),
)
"""User-Agents of scanners and toll-fraud tools."""


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Limits for sources that are not trusted."""

    requests_per_s: float = 20.0
    """Requests outside calls from one source, beyond the burst; excess is dropped."""
    burst: int = 60
    """Requests outside calls that one source may send in one burst."""
    invites_per_s: float = 2.0
    """New calls from one source, beyond the burst; excess is answered 503."""
    invite_burst: int = 20
    """New calls that one source may make in one burst."""
    messages_per_s: float = 500.0
    """Messages of any kind from one source that are parsed; its burst is twice that."""
    total_per_s: float = 500.0
    """Requests outside calls from all untrusted sources, beyond the burst, so that a flood from
    forged addresses leaves time for others. Excess is dropped."""
    total_burst: int = 1000
    """Requests outside calls that all those sources may send in one burst."""
    max_calls_per_source: int = 50
    """Concurrent incoming calls of a source; further ones are answered 486."""
    max_connections_per_source: int = 32
    """Connections by TCP and TLS; a further one is closed immediately."""
    max_sources: int = 4096
    """Sources remembered, least recently seen forgotten first."""
    allow: tuple[str, ...] | None = None
    """Networks that may send requests, as ``192.0.2.0/24``; None = all."""
    deny: tuple[str, ...] = ()
    """Networks that may not, even where they are allowed or trusted."""
    trusted: tuple[str, ...] = LOOPBACK
    """Networks exempt from the limits, and believed when they say who a caller is
    (P-Asserted-Identity). What a proxy at a loopback address passes on is judged by the address
    that it came to the proxy from. Write ``[]`` where a tunnel or port forwarder, which is no SIP
    proxy, brings requests to a loopback address."""
    users: tuple[str, ...] | None = None
    """User parts that can be called, with ``*`` and ``?`` as wildcards; None = any."""
    hosts: tuple[str, ...] = ()
    """Host names of ours, besides our own addresses."""
    quiet: bool = False
    """True if untrusted sources get no response instead of a refusal, and none to OPTIONS."""
    ban_after: int = 20
    """Refused requests after which a source is banned; 0 = never."""
    ban_s: float = 300.0
    """Duration of a ban in seconds; also the time in which the refusals count."""
    scanners: tuple[str, ...] = SCANNERS
    """Substrings of User-Agents that get no response, in any case."""

    def __post_init__(self) -> None:
        for name in ("allow", "deny", "trusted"):
            networks(getattr(self, name) or (), name)
        for name in (
            *("requests_per_s", "invites_per_s", "messages_per_s", "total_per_s", "ban_s"),
            *("burst", "invite_burst", "total_burst"),
            *("max_calls_per_source", "max_connections_per_source", "max_sources"),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name}={value} must be above 0")
        if self.ban_after < 0:
            raise ValueError(f"ban_after={self.ban_after} must not be negative")
        for name in ("users", "hosts", "scanners"):
            if any(not each.strip() for each in getattr(self, name) or ()):
                raise ValueError(f"{name} holds an empty text")


MAX_CALLS = 250
"""Default limit of concurrent calls."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Certificates for SIP over TLS (RFC 5922), PEM.

    Without a certificate and key the endpoint only calls and registers.
    """

    certificate: str | Path = ""
    """Our certificate with its chain."""
    key: str | Path = ""
    """Its private key; empty = it stands in the certificate's file."""
    ca: str | Path = ""
    """Authorities that we trust, for peers of both directions; empty = the system's."""
    verify: bool = True
    """True if servers that we connect to must show a certificate that fits their name."""
    port: int = 5061
    """Port to listen at; 0 = any free one."""
    require_client_certificate: bool = False
    """True if a client that connects to us must show a certificate of ``ca``."""
    client_certificate: str | Path = ""
    """Our certificate towards servers; empty = ``certificate``."""
    client_key: str | Path = ""
    """Its private key; empty = it stands in the same file."""
    key_password: str = field(default="", repr=False, metadata={"secret": True})
    """Password of the private keys, where they have one."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ValueError(f"tls.port={self.port} is not between 0 and 65535")
        if self.key and not self.certificate:
            raise ValueError("tls.key is given without tls.certificate")
        if self.client_key and not self.client_certificate:
            raise ValueError("tls.client_key is given without tls.client_certificate")
        if self.require_client_certificate and not self.ca:
            raise ValueError("tls.require_client_certificate needs tls.ca, the authority of those")

    @property
    def listens(self) -> bool:
        return bool(self.certificate)


@dataclass(frozen=True, slots=True)
class DnsSettings:
    """Look-up of a domain's servers (RFC 3263)."""

    nameservers: tuple[str, ...] = ()
    """``address`` or ``address:port``, IPv6 as ``[address]:port``; empty = the system's."""
    srv: bool = True
    """True for NAPTR and SRV queries; False = addresses only."""
    timeout_s: float = 3.0
    """Time limit of one query, over all name servers."""

    def __post_init__(self) -> None:
        for text in self.nameservers:
            split_nameserver(text)
        if self.timeout_s <= 0:
            raise ValueError(f"dns.timeout_s={self.timeout_s:g} must be above 0")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to listen at."""

    host: str = "127.0.0.1"
    """Address to bind; 0.0.0.0 or :: for all of that family."""
    port: int = 0
    """Port for UDP and TCP; 0 = any free one, the same for both."""
    transports: tuple[str, ...] = ("udp", "tcp")
    """udp, tcp and tls."""
    tls_port: int = 0
    """Port for TLS where that is among ``transports``; 0 = any free one."""
    advertised_host: str = ""
    """Host in Via, Contact and SDP; empty = the bound one, or ours that routes to the peer."""
    advertised_port: int = 0
    """Port in Via and Contact of UDP and TCP; 0 = the bound one."""
    advertised_tls_port: int = 0
    """The same for TLS."""

    def __post_init__(self) -> None:
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            if self.host != "localhost":
                raise ValueError(f"host={self.host!r} is not an IP address to bind") from None
        unknown = set(self.transports) - set(TRANSPORTS)
        if unknown or not self.transports:
            raise ValueError(f"transports={self.transports!r}: each must be udp, tcp or tls")
        for name in ("port", "tls_port", "advertised_port", "advertised_tls_port"):
            if not 0 <= getattr(self, name) < 65536:
                raise ValueError(f"{name}={getattr(self, name)} is not between 0 and 65535")

    @property
    def ipv6(self) -> bool:
        return ":" in self.host


@dataclass(frozen=True, slots=True)
class SipSettings:
    """Addresses, names and limits of an endpoint."""

    host: str | tuple[str, ...] = "127.0.0.1"
    """Address to bind, or several: ``("0.0.0.0", "::")`` is all of both families."""
    port: int = 0
    """Port for UDP and TCP; 0 = any free one, the same for both."""
    transports: tuple[str, ...] = ("udp", "tcp")
    """The first is the default where neither the address nor DNS says one. TLS is enabled by
    ``tls``."""
    user: str = "agent"
    """User part of our own address where no account has one."""
    display_name: str = ""
    """Display name of our address."""
    user_agent: str = "mr-qwen3tts"
    """User-Agent and Server; empty = neither is sent."""
    advertised_host: str = ""
    """Host in Via and Contact; empty = the bound one, or our address that routes to the peer."""
    max_calls: int = MAX_CALLS
    """Concurrent calls; further ones are answered 486."""
    follow_redirects: bool = False
    """True if calls without an account follow the addresses of a 3xx answer, each within the
    guard's rules; trunks do unless they say otherwise."""
    ring_timeout_s: float = 180.0
    """Ringing time of our call, after which it is cancelled."""
    session_expires_s: int = 1800
    """Interval of session timers (RFC 4028) that our calls ask for; 0 = none."""
    max_redials: int = 3
    """Most retries of one request because of challenges."""
    timers: Timers = field(default_factory=Timers)
    tls: TlsSettings | None = None
    advertised_port: int = 0
    """Port in Via and Contact of UDP and TCP; 0 = the bound one."""
    nat: Nat = "off"
    """``learn``: our Contact is the address that servers see (``received`` and ``rport`` of
    responses); an advertised host goes before it."""
    listeners: tuple[Listener, ...] = ()
    """Addresses to listen at, where one port for all hosts is not enough; replaces ``host``,
    ``port``, ``transports`` and the advertised ones."""
    dns: DnsSettings = field(default_factory=DnsSettings)
    gate: GateSettings | None = field(default_factory=GateSettings)
    """Limits for untrusted sources; None = none at all."""
    nat_contacts: bool = True
    """True if in-dialog requests to a peer behind a NAT go to its source address instead of its
    Contact."""
    udp_most_bytes: int = 1300
    """Requests longer than this go by TCP where it is enabled and the target does not say
    ``transport=udp`` (RFC 3261 section 18.1.1), by UDP where TCP is refused; 0 = never."""
    drain_retry_after_s: int = 120
    """Retry-After while the endpoint drains, in seconds."""

    def __post_init__(self) -> None:
        if not self.ring_timeout_s > 0:
            raise ValueError(f"ring_timeout_s={self.ring_timeout_s} must be above 0 seconds")
        for name in ("port", "advertised_port"):
            if not 0 <= getattr(self, name) < 65536:
                raise ValueError(f"{name}={getattr(self, name)} is not between 0 and 65535")
        unknown = set(self.transports) - set(TRANSPORTS)
        if unknown or not self.transports:
            raise ValueError(f"transports={self.transports!r}: each must be udp, tcp or tls")
        if self.tls is None and "tls" in self.enabled:
            raise ValueError("transports: tls needs the tls settings")
        for name in ("user", "display_name", "user_agent", "advertised_host"):
            if any(ord(char) < 32 or ord(char) == 127 for char in getattr(self, name)):
                raise ValueError(f"{name} holds a control character")
        if self.session_expires_s and self.session_expires_s < 90:
            raise ValueError(f"session_expires_s={self.session_expires_s} is below 90 (RFC 4028)")
        if self.max_calls < 1:
            raise ValueError(f"max_calls={self.max_calls} must be at least 1")
        if self.udp_most_bytes < 0:
            raise ValueError(f"udp_most_bytes={self.udp_most_bytes} must be 0 or above")
        if self.nat not in get_args(Nat):
            raise ValueError(f"nat={self.nat!r} must be one of {', '.join(get_args(Nat))}")
        if not self.hosts and not self.listeners:
            raise ValueError("host: there must be at least one address")

    @property
    def hosts(self) -> tuple[str, ...]:
        """Addresses to bind, where ``listeners`` is empty."""
        return (self.host,) if isinstance(self.host, str) else self.host

    @property
    def enabled(self) -> tuple[str, ...]:
        named = [t for listener in self.listeners for t in listener.transports] or self.transports
        return tuple(dict.fromkeys([*named, *(("tls",) if self.tls is not None else ())]))

    def listening(self) -> tuple[Listener, ...]:
        tls = self.tls
        return self.listeners or tuple(
            Listener(
                host,
                self.port,
                self.enabled,
                tls.port if tls is not None else 0,
                self.advertised_host,
                self.advertised_port,
            )
            for host in self.hosts
        )


def split_nameserver(text: str) -> tuple[str, int]:
    """Return address and port of a name server; raises ValueError."""
    host, port = text, 53
    if text.startswith("["):
        host, _, tail = text[1:].partition("]")
        port = int(tail[1:]) if tail[:1] == ":" and tail[1:].isdigit() else 53 if not tail else -1
    elif text.count(":") == 1:
        host, _, tail = text.partition(":")
        port = int(tail) if tail.isdigit() else -1
    try:
        ipaddress.ip_address(host)
    except ValueError:
        port = -1
    if not 0 < port < 65536:
        raise ValueError(f"dns.nameservers: {text!r} is not an address or address:port")
    return host, port
