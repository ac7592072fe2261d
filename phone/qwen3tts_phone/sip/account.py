"""An account at a registrar, or a trunk: where it is, who we are there, and how it is kept."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.call_headers import check_headers
from qwen3tts_phone.sip.fields import check_secure, parse_uri

Nat = Literal["off", "learn"]
Keepalive = Literal["options", "crlf"]
Srtp = Literal["off", "accept", "require"]
DigestAlgorithms = Literal["any", "sha256"]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

TRANSPORTS = ("udp", "tcp", "tls")
MAX_REALM_CHARS = 256


@dataclass(frozen=True, slots=True)
class Account:
    """An account with a registrar or a server that asks for a password, or a trunk without one.

    Raises BadSip where a field cannot be used. The password stands in no ``repr``.
    """

    registrar: str
    """``sip:host[:port][;transport=tcp]`` or ``sips:host``: the registrar, or a trunk's server."""
    user: str
    """User part of our address there; a trunk (``register=False``) may have none."""
    password: str = field(default="", repr=False)
    expires: int = 300
    """Seconds asked for; the registrar grants what it likes."""
    auth_user: str = ""
    """User name for the digest where it differs from ``user``."""
    proxy: str = ""
    """Outbound proxy, as a SIP URI; empty = none."""
    name: str = ""
    """What it is called here; empty = ``user@host``. Each name stands once in an endpoint."""
    register: bool = True
    """Whether to register; False for trunks that know us by our address."""
    failover: tuple[str, ...] = ()
    """Further servers, as SIP URIs, tried in order where the first does not answer."""
    keepalive_s: float = 0.0
    """Seconds between keepalives; 0 = none."""
    keepalive: Keepalive = "options"
    """``options`` asks and knows the answer's round trip; ``crlf`` (RFC 5626) costs next to
    nothing; over UDP it only keeps a NAT open and never tells whether the registrar is there. A
    registrar that answers again after it did not gets a new registration within 3 s, and at most
    one in 30 s: with ``options``, or with ``crlf`` over TCP or TLS."""
    follow_redirects: bool | None = None
    """Whether its calls go on to the addresses of a 3xx answer (RFC 3261 section 8.1.3.4), five at
    most, each within the guard's rules; None = those of a trunk do, those of an account that
    registers as the endpoint has it."""
    display_name: str = ""
    """Name beside our address in calls; empty = the endpoint's."""
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Header fields for each call that we place with this account."""
    allowed_sources: tuple[str, ...] = ()
    """Networks (``192.0.2.0/24``) that its calls may come from, beside its servers' addresses."""
    transport: str = ""
    """``udp``, ``tcp`` or ``tls``, where the registrar's URI does not say; empty = as DNS says."""
    srtp: Srtp | None = None
    """Encryption of its calls' sound; None = as the phone has it."""
    codecs: tuple[str, ...] | None = None
    """Codecs of its calls in order of preference; None = as the phone has them."""
    nat: Nat | None = None
    """``learn``: our Contact is the address that the server sees; None = as the endpoint has it."""
    realm: str | tuple[str, ...] = ""
    """Realm, or realms, that the password is for; empty = those that its registrar asks with, or,
    without one, its servers."""
    digest: DigestAlgorithms = "any"
    """The least that a challenge must offer: ``any`` algorithm, or ``sha256``, so that MD5 gets no
    answer (SHA-512-256 does)."""

    def __post_init__(self) -> None:
        if not self.user and self.register:
            raise BadSip("user: the account has no user name.")
        if self.expires < 1:
            raise BadSip(f"expires={self.expires} must be at least 1 second.")
        if parse_uri(self.registrar).scheme == "tel":
            raise BadSip("registrar: it must be a sip: address.")
        named = [("proxy", self.proxy)] if self.proxy else []
        further = [("failover", uri) for uri in self.failover]
        for name, uri in (*named, *further):
            if parse_uri(uri).scheme == "tel":
                raise BadSip(f"{name}: {uri!r} must be a sip: address.")
        for name, uri in (("registrar", self.registrar), *named, *further):
            try:
                check_secure(uri, self.transport)
            except BadSip as error:
                raise BadSip(f"{name}: {error.message}", remedy=error.remedy) from error
        if self.keepalive_s < 0 or 0 < self.keepalive_s < 5:
            raise BadSip(f"keepalive_s={self.keepalive_s:g} must be 0 (off) or at least 5.")
        choices = {"keepalive": Keepalive, "srtp": Srtp, "nat": Nat, "digest": DigestAlgorithms}
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value is not None and value not in get_args(allowed):
                raise BadSip(f"{name}={value!r} must be one of {', '.join(get_args(allowed))}.")
        if self.transport and self.transport not in TRANSPORTS:
            raise BadSip(f"transport={self.transport!r} must be one of {', '.join(TRANSPORTS)}.")
        for name in ("user", "auth_user", "name", "display_name"):
            if any(ord(char) < 32 or ord(char) == 127 for char in getattr(self, name)):
                raise BadSip(f"{name}: it holds a control character.")
        if not isinstance(self.realm, str | tuple) or not all(map(_is_realm, self.realms)):
            raise BadSip(
                f"realm={self.realm!r} must be the realm's name, or several.",
                remedy="Copy it from the refusal, which names the realm that was asked with.",
            )
        try:
            check_headers(self.headers)
        except BadSip as error:
            raise BadSip(f"headers: {error.message}", remedy=error.remedy) from error
        self.networks()
        if not self.name:
            host = parse_uri(self.registrar).host
            object.__setattr__(self, "name", f"{self.user}@{host}" if self.user else host)

    @property
    def realms(self) -> tuple[str, ...]:
        """``realm`` as a list."""
        if isinstance(self.realm, str):
            return (self.realm,) if self.realm else ()
        return tuple(self.realm)

    @property
    def servers(self) -> tuple[str, ...]:
        """SIP URIs to send to, best first: the proxy or the registrar, then the others."""
        return (self.proxy or self.registrar, *self.failover)

    @property
    def hosts(self) -> tuple[str, ...]:
        """SIP URIs of all servers that the account names."""
        return (self.registrar, *((self.proxy,) if self.proxy else ()), *self.failover)

    def networks(self) -> tuple[Network, ...]:
        """``allowed_sources`` as networks; raises BadSip."""
        try:
            return tuple(ipaddress.ip_network(text, strict=False) for text in self.allowed_sources)
        except ValueError as error:
            raise BadSip(
                f"allowed_sources: {error}.",
                remedy="Write addresses or networks: 192.0.2.7, 192.0.2.0/24, 2001:db8::/32.",
            ) from error


def _is_realm(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= MAX_REALM_CHARS and text.isprintable()


def address_of_record(account: Account, user: str = "") -> str:
    """``sip:user@domain`` of an account, or of another user of its registrar."""
    registrar = parse_uri(account.registrar)
    host = registrar.host if registrar.port is None else f"{registrar.host}:{registrar.port}"
    named = user or account.user
    return f"{registrar.scheme}:{named}@{host}" if named else f"{registrar.scheme}:{host}"
