"""Who may ask for an account's password, decided for each request by where it really goes.

A far end can steer requests inside a dialog by its Contact and Record-Route. An answer to its
challenge could be handed on to the registrar, which would take it for ours. So an answer goes only
to the account's servers, only for realms that are theirs, and no request that could begin a call
takes one past them. What a call's route leads past a server has one only when that server can have
asked: not unasked, and no re-INVITE that it had already handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.account import Account
from qwen3tts_phone.sip.auth import AnswerPolicy, Challenge, Digest
from qwen3tts_phone.sip.fields import is_ip, parse_address, parse_uri
from qwen3tts_phone.sip.hop import Hop
from qwen3tts_phone.sip.message import Request
from qwen3tts_phone.sip.networks import address_of, within
from qwen3tts_wire.errors import log_text

MAX_GUESSED_REALMS = 4
"""Most realms that an account without a pinned one takes from the answers to its first requests."""
MAX_SERVERS = 32
"""Most addresses that are remembered as an account's servers."""
BEGINS_CALLS = frozenset({"INVITE", "REFER"})
DEFAULT_PORTS = (5060, 5061)

Resolve = Callable[[Hop], Hop | None]
"""The address, and the open connection, that a hop leads to at this moment; None if unknown."""


class Credentials(AnswerPolicy):
    """One account's password, with what is known of the servers and realms that may ask for it."""

    def __init__(self, account: Account, resolve: Resolve) -> None:
        super().__init__()
        self.servers: tuple[Hop, ...] = ()
        """The account's servers, those that were looked up last first."""
        self._account = account
        self._resolve = resolve
        self._networks = account.networks()
        self._realms: frozenset[str] = frozenset(account.realms)
        self._registered: set[str] = set()
        """Realms of the REGISTER requests that were challenged."""
        self._guessed: set[str] = set()
        self._hosts = _hosts(account)

    def digest(self) -> Digest | None:
        """Return the answers for one call or registration; None without a password."""
        account = self._account
        if not account.password:
            return None
        return Digest(account.auth_user or account.user, account.password, self)

    def trusts(self, hop: Hop) -> bool:
        """Whether a hop is one of the account's servers, or in its allowed networks."""
        return self._server(hop) is not None

    def found(self, servers: Iterable[Hop]) -> None:
        """Remember the servers that a look-up gave, and the last ones before them.

        A call may still go by one that the DNS does not give this time.
        """
        self.servers = tuple(dict.fromkeys((*servers, *self.servers)))[:MAX_SERVERS]

    # AnswerPolicy

    def address(self, request: Request, hop: Hop) -> Hop | str:
        """Return the address of a server that a request with credentials goes to, or why not."""
        server = self._server(hop)
        if server is None:
            return f"{log_text(hop.words)} is no server of the account {self._account.name!r}"
        if _inside(request) and request.method in BEGINS_CALLS and not self._stays(request, hop):
            return "the route of the call leads past the account's servers"
        return server

    def unasked(self, request: Request, hop: Hop) -> bool:
        """Whether a request may use a nonce of an earlier one: none that a far end receives."""
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
        """Return why a challenge is not answered; empty where it is."""
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
                # RFC 3261 section 22.3: proxies ask by 407.
                return "a 401 inside the call comes from its far end"
            if relayed:
                # A proxy asks before it relays, and says 100 when it does (section 16.2).
                return "it came after a proxy had taken the request"
        return self._wrong_realm(request, challenge.realm) or super().objection(
            request, hop, challenge, reached=reached, relayed=relayed, passed=passed
        )

    def answered(self, request: Request, challenge: Challenge) -> None:
        """Remember a challenge that is answered: its realm is the account's from now on."""
        super().answered(request, challenge)
        if request.method == "REGISTER":
            self._registered.add(challenge.realm)
        else:
            self._guessed.add(challenge.realm)

    # Inside

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
        """The hop as an address, if that is one of the account's servers."""
        real = self._resolve(hop)
        if real is None or not is_ip(real.host):
            return None
        secure = bool(self.servers) and all(each.transport == "tls" for each in self.servers)
        if secure and real.transport != "tls":
            return None
        if (
            self._is_known(real.host, real.port)
            or self._is_named(hop)
            or within(address_of(real.host), self._networks)
        ):
            return replace(
                hop,
                transport=real.transport,
                host=real.host,
                port=real.port,
                flow=real.flow,
                by_flow=real.by_flow,
                asks="address",
            )
        return None

    def _is_known(self, host: str, port: int) -> bool:
        known = any((each.host, each.port) == (host, port) for each in self.servers)
        return known or port in self._hosts.get(host, ())

    def _is_named(self, hop: Hop) -> bool:
        """Whether a hop is a name that the account has, at its port or at those of the DNS.

        The name beside an address proves nothing: it may be that of a Contact.
        """
        if is_ip(hop.host):
            return False
        ports = self._hosts.get(hop.host.lower(), ())
        return hop.port in ports or (bool(ports) and hop.asks != "address")

    def _stays(self, request: Request, hop: Hop) -> bool:
        """Whether a request goes by the account's servers alone, up to its Request-URI."""
        try:
            routes = [parse_address(value).uri for value in request.values("Route")]
            if routes and parse_uri(routes[0]).host.strip("[]").lower() in (hop.host, hop.name):
                # The hop itself, which has been looked at by its address.
                del routes[0]
        except BadSip:
            return False
        return all(map(self._names_server, routes))

    def _ends_here(self, request: Request, hop: Hop) -> bool:
        """Whether nothing but a server of the account receives a request."""
        if not request.values("Route"):
            return True
        return self._stays(request, hop) and self._names_server(request.uri)

    def _names_server(self, text: str) -> bool:
        """Whether a URI names one of the account's hosts. On the own machine the port counts."""
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
        return host in hosts or within(address, self._networks)


def _inside(request: Request) -> bool:
    return request.to.tag is not None


def _hosts(account: Account) -> dict[str, tuple[int, ...]]:
    """The hosts that an account names, each with its ports."""
    hosts: dict[str, tuple[int, ...]] = {}
    for text in account.hosts:
        uri = parse_uri(text)
        ports = (uri.port,) if uri.port is not None else DEFAULT_PORTS
        host = uri.host.strip("[]").lower()
        hosts[host] = (*hosts.get(host, ()), *ports)
    return hosts
