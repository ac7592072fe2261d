"""Accounts at a registrar or trunk, and the challenge policy for their passwords.

A far end steers in-dialog requests by Contact and Record-Route, and could relay a challenge to
the registrar. So credentials go only to the account's servers and realms, and no request that
could begin a call takes them past a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.core.settings import TRANSPORTS, Nat
from qwen3tts_phone.sip.message.fields import (
    check_headers,
    check_secure,
    is_ip,
    parse_address,
    parse_uri,
)
from qwen3tts_phone.sip.message.message import Request
from qwen3tts_phone.sip.message.network import Hop, Network, address_of, in_networks, networks
from qwen3tts_phone.sip.transaction.digest import Challenge, ChallengePolicy, Digest
from qwen3tts_wire.errors import log_text

KeepaliveMethod = Literal["options", "crlf"]
Srtp = Literal["off", "accept", "require"]
DigestAlgorithms = Literal["any", "sha256"]

MAX_REALM_CHARS = 256


@dataclass(frozen=True, slots=True)
class Account:
    """Account at a registrar or trunk; its ``repr`` has no password.

    Raises:
        BadSip: a field cannot be used.
    """

    registrar: str
    """``sip:host[:port][;transport=tcp]`` or ``sips:host``: the registrar, or a trunk's server."""
    user: str
    """User part of our address there; a trunk (``register=False``) may have none."""
    password: str = field(default="", repr=False)
    expires: int = 300
    """Expiry asked for, in seconds; the registrar may grant another."""
    auth_user: str = ""
    """User name for the digest where it differs from ``user``."""
    proxy: str = ""
    """Outbound proxy, as a SIP URI; empty = none."""
    name: str = ""
    """Name here; empty = ``user@host``. Unique in an endpoint."""
    register: bool = True
    """True to register; False for trunks that know us by our address."""
    failover: tuple[str, ...] = ()
    """Further servers, as SIP URIs, tried in order where the first does not answer."""
    keepalive_s: float = 0.0
    """Seconds between keepalives; 0 = none."""
    keepalive: KeepaliveMethod = "options"
    """``options`` asks and knows the answer's round trip; ``crlf`` (RFC 5626) costs next to
    nothing; over UDP it only keeps a NAT open and never tells whether the registrar is there. A
    registrar that answers again after it did not gets a new registration within 3 s, and at most
    one in 30 s: with ``options``, or with ``crlf`` over TCP or TLS."""
    follow_redirects: bool | None = None
    """True if its calls follow the addresses of a 3xx answer (RFC 3261 section 8.1.3.4), five at
    most, each within the guard's rules; None = trunks do, registering accounts as the endpoint."""
    display_name: str = ""
    """Display name in our calls; empty = the endpoint's."""
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Header fields for each call that we place with this account."""
    allowed_sources: tuple[str, ...] = ()
    """Networks (``192.0.2.0/24``) that its calls may come from, beside its servers' addresses."""
    transport: str = ""
    """``udp``, ``tcp`` or ``tls``, where the registrar's URI does not say; empty = as DNS says."""
    srtp: Srtp | None = None
    """SRTP for its calls' audio; None = as the phone has it."""
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
        choices = {
            "keepalive": KeepaliveMethod,
            "srtp": Srtp,
            "nat": Nat,
            "digest": DigestAlgorithms,
        }
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
        if isinstance(self.realm, str):
            return (self.realm,) if self.realm else ()
        return tuple(self.realm)

    @property
    def servers(self) -> tuple[str, ...]:
        """SIP URIs, best first: proxy or registrar, then ``failover``."""
        return (self.proxy or self.registrar, *self.failover)

    @property
    def hosts(self) -> tuple[str, ...]:
        return (self.registrar, *((self.proxy,) if self.proxy else ()), *self.failover)

    def networks(self) -> tuple[Network, ...]:
        try:
            return networks(self.allowed_sources, "allowed_sources")
        except ValueError as error:
            raise BadSip(
                f"{error}.",
                remedy="Write addresses or networks: 192.0.2.7, 192.0.2.0/24, 2001:db8::/32.",
            ) from error


def _is_realm(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= MAX_REALM_CHARS and text.isprintable()


def address_of_record(account: Account, user: str = "") -> str:
    """Return ``sip:user@domain`` of an account, or of another user of its registrar."""
    registrar = parse_uri(account.registrar)
    host = registrar.host if registrar.port is None else f"{registrar.host}:{registrar.port}"
    named = user or account.user
    return f"{registrar.scheme}:{named}@{host}" if named else f"{registrar.scheme}:{host}"


MAX_GUESSED_REALMS = 4
"""Realms learnt from first challenges, without a ``realm``."""
MAX_SERVERS = 32
"""Most remembered server addresses of an account."""
BEGINS_CALLS = frozenset({"INVITE", "REFER"})
DEFAULT_PORTS = (5060, 5061)

Resolve = Callable[[Hop], Hop | None]
"""Resolves a hop to address and open connection; None if unknown."""


class AccountCredentials(ChallengePolicy):
    """Challenge policy of one account."""

    def __init__(self, account: Account, resolve: Resolve) -> None:
        super().__init__()
        self.servers: tuple[Hop, ...] = ()
        """The account's servers, latest look-up first."""
        self._account = account
        self._resolve = resolve
        self._networks = account.networks()
        self._realms: frozenset[str] = frozenset(account.realms)
        self._registered: set[str] = set()
        """Realms that challenged a REGISTER."""
        self._guessed: set[str] = set()
        self._hosts = _hosts(account)

    def digest(self) -> Digest | None:
        account = self._account
        if not account.password:
            return None
        return Digest(account.auth_user or account.user, account.password, self)

    def trusts(self, hop: Hop) -> bool:
        return self._server(hop) is not None

    def found(self, servers: Iterable[Hop]) -> None:
        self.servers = tuple(dict.fromkeys((*servers, *self.servers)))[:MAX_SERVERS]

    # ChallengePolicy

    def address(self, request: Request, hop: Hop) -> Hop | str:
        server = self._server(hop)
        if server is None:
            return f"{log_text(hop.words)} is no server of the account {self._account.name!r}"
        if _inside(request) and request.method in BEGINS_CALLS and not self._stays(request, hop):
            return "the route of the call leads past the account's servers"
        return server

    def unasked(self, request: Request, hop: Hop) -> bool:
        return not _inside(request) or self._ends_here(request, hop)

    def objection(
        self,
        request: Request,
        hop: Hop,
        challenge: Challenge,
        *,
        reached: bool,
        relayed: bool = False,
        passed: frozenset[str] = frozenset(),
    ) -> str:
        where = self.address(request, hop)
        if isinstance(where, str):
            return where
        if challenge.is_md5 and self._account.digest == "sha256":
            return f"it offers {challenge.algorithm} alone, and the account has digest: sha256"
        if reached:
            return "it came after the far end of the call had answered"
        if not challenge.proxy and challenge.realm in passed:
            return "a 401 from behind the proxy that asked for the same realm is the far end's"
        if _inside(request) and not self._ends_here(request, hop):
            if not challenge.proxy:
                # RFC 3261 section 22.3: proxies challenge with 407.
                return "a 401 inside the call comes from its far end"
            if relayed:
                # A proxy challenges before it forwards, and sends 100 when it does (section 16.2).
                return "it came after a proxy had taken the request"
        return self._wrong_realm(request, challenge.realm) or super().objection(
            request, hop, challenge, reached=reached, relayed=relayed, passed=passed
        )

    def answered(self, request: Request, challenge: Challenge) -> None:
        super().answered(request, challenge)
        if request.method == "REGISTER":
            self._registered.add(challenge.realm)
        else:
            self._guessed.add(challenge.realm)

    # Rules

    def _wrong_realm(self, request: Request, realm: str) -> str:
        named = f"'{log_text(realm)}'"
        if self._realms:
            if realm in self._realms:
                return ""
            own = ", ".join(map(repr, sorted(self._realms)))
            return f"the realm {named} is not the account's ({own})"
        if realm in self._registered or realm in self._guessed or realm.lower() in self._hosts:
            return ""
        if request.method == "REGISTER":
            return ""
        if self._registered:
            known = ", ".join(f"'{log_text(each)}'" for each in sorted(self._registered))
            return f"the realm {named} is not the registrar's ({known})"
        if _inside(request):
            return f"no server of the account has named the realm {named}"
        if len(self._guessed) >= MAX_GUESSED_REALMS:
            return f"the realm {named} is one of too many"
        return ""

    def _server(self, hop: Hop) -> Hop | None:
        real = self._resolve(hop)
        if real is None or not is_ip(real.host):
            return None
        secure = bool(self.servers) and all(each.transport == "tls" for each in self.servers)
        if secure and real.transport != "tls":
            return None
        if (
            self._is_known(real.host, real.port)
            or self._is_named(hop)
            or in_networks(address_of(real.host), self._networks)
        ):
            return replace(
                hop,
                transport=real.transport,
                host=real.host,
                port=real.port,
                flow=real.flow,
                by_flow=real.by_flow,
                lookup="address",
            )
        return None

    def _is_known(self, host: str, port: int) -> bool:
        known = any((each.host, each.port) == (host, port) for each in self.servers)
        return known or port in self._hosts.get(host, ())

    def _is_named(self, hop: Hop) -> bool:
        if is_ip(hop.host):
            return False
        ports = self._hosts.get(hop.host.lower(), ())
        return hop.port in ports or (bool(ports) and hop.lookup != "address")

    def _stays(self, request: Request, hop: Hop) -> bool:
        try:
            routes = [parse_address(value).uri for value in request.values("Route")]
            if routes and parse_uri(routes[0]).host.strip("[]").lower() in (hop.host, hop.name):
                # The hop itself, which has been checked by its address.
                del routes[0]
        except BadSip:
            return False
        return all(map(self._names_server, routes))

    def _ends_here(self, request: Request, hop: Hop) -> bool:
        if not request.values("Route"):
            return True
        return self._stays(request, hop) and self._names_server(request.uri)

    def _names_server(self, text: str) -> bool:
        try:
            uri = parse_uri(text)
        except BadSip:
            return False
        if any(name.lower() == "maddr" for name in uri.parameters):
            # It leads elsewhere, whatever the host (RFC 3261 section 19.1.1).
            return False
        host = uri.host.strip("[]").lower()
        port = uri.port or (5061 if uri.scheme == "sips" else 5060)
        address = address_of(host)
        if address is not None and address.is_loopback:
            return self._is_known(host, port)
        hosts = {each.host for each in self.servers} | set(self._hosts)
        return host in hosts or in_networks(address, self._networks)


def _inside(request: Request) -> bool:
    return request.to.tag is not None


def _hosts(account: Account) -> dict[str, tuple[int, ...]]:
    hosts: dict[str, tuple[int, ...]] = {}
    for text in account.hosts:
        uri = parse_uri(text)
        ports = (uri.port,) if uri.port is not None else DEFAULT_PORTS
        host = uri.host.strip("[]").lower()
        hosts[host] = (*hosts.get(host, ()), *ports)
    return hosts
