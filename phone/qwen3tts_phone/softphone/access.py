"""Who may use the page: the token, how often it may be guessed, and from where (pure)."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from qwen3tts_phone.sip.message.network import address_of, in_networks, networks
from qwen3tts_phone.softphone.settings import HOST, PORTS, is_loopback, origin_of, plain_host
from qwen3tts_wire.errors import SpeechError

TOKEN_BYTES = 18
FREE_FAILURES = 5
"""So many wrong tokens of one address cost nothing."""
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
FORGET_S = 600.0
"""An address that has shown no wrong token for so long begins anew."""
MAX_ADDRESSES = 4096
MAX_PROXIES = 8
"""Entries of X-Forwarded-For that are looked at, the last ones."""


class BadToken(SpeechError):
    """The page has no token, or a wrong one."""

    code = "bad_token"

    def __init__(self) -> None:
        super().__init__(
            "This page has no valid access token.",
            remedy="Open the address that the softphone printed when it was started, all of it.",
        )


class SlowDown(SpeechError):
    """Too many wrong tokens came from that address."""

    code = "slow_down"
    retryable = True

    def __init__(self, wait_s: float) -> None:
        super().__init__(
            "Too many wrong access tokens came from here.",
            remedy=f"Wait {max(1, round(wait_s))} s, then open the printed address again.",
        )
        self.wait_s = wait_s


class WrongPlace(SpeechError):
    """A page of another site asks, or one under another name."""

    code = "wrong_place"

    def __init__(self) -> None:
        super().__init__(
            "This server does not answer under that name, or to pages of other sites.",
            remedy="Open the printed address; name further hosts of yours with --name.",
        )


def new_token() -> str:
    """A token that cannot be guessed: 144 bits."""
    return secrets.token_urlsafe(TOKEN_BYTES)


class TokenCheck:
    """Checks tokens; an address with too many wrong ones has to wait, twice as long each time.

    Args:
        token: the right one.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """How often an address was wrong, and when it last was."""

    def __repr__(self) -> str:
        return "Access()"

    def wait_s(self, address: str, now: float) -> float:
        """How long this address has to wait before another wrong token is answered as such."""
        count, at = self._failures.get(address, (0, now))
        over = count - FREE_FAILURES
        if over < 0 or now - at >= FORGET_S:
            return 0.0
        penalty = min(LONGEST_WAIT_S, FIRST_WAIT_S * float(1 << min(over, 16)))
        return max(0.0, at + penalty - now)

    def admits(self, token: str, address: str, now: float) -> bool:
        """Whether the token is right; takes the same time for every wrong one.

        The right one passes also while its address has to wait: many people may be behind it.
        """
        if hmac.compare_digest(token.encode("utf-8", "replace"), self._token):
            self._failures.pop(address, None)
            return True
        if self.wait_s(address, now):
            return False
        count, at = self._failures.pop(address, (0, now))
        self._failures[address] = (1 if now - at >= FORGET_S else count + 1, now)
        while len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)
        return False


def bearer_token(header: str | None) -> str:
    """The token of an Authorization header (RFC 6750 section 2.1); empty = there is none."""
    kind, _, token = (header or "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


class BrowserRequest(NamedTuple):
    """How a browser asked: what stands in its address bar, and its own address."""

    scheme: str
    host: str
    """The Host header, port included."""
    address: str


class ProxyHeaders:
    """What is before the softphone: nothing, or a reverse proxy that has the TLS.

    Args:
        scheme: what the softphone itself speaks, ``http`` or ``https``.
        public_url: the origin under which pages reach the proxy; empty = the headers tell.
        trusted_proxies: whose ``X-Forwarded-*`` headers are believed.
    """

    def __init__(
        self, scheme: str, public_url: str = "", trusted_proxies: Iterable[str] = ()
    ) -> None:
        self._scheme = scheme
        self.public_url = public_url
        self._public = origin_of(public_url)
        self._trusted = networks(trusted_proxies, "trusted_proxies")

    def asked(self, peer: str, headers: Mapping[str, str]) -> BrowserRequest:
        """Return how the browser asked.

        Args:
            peer: the address from which the connection came.
            headers: of the request; names in any case, as aiohttp has them.
        """
        host = headers.get("Host", "")
        if not self.trusts(peer):
            return BrowserRequest(self._scheme, host, peer)
        scheme = _lines(headers, "X-Forwarded-Proto")[-1].strip().lower()
        return BrowserRequest(
            scheme if scheme in PORTS else self._scheme,
            _lines(headers, "X-Forwarded-Host")[-1].strip() or host,
            self._client(peer, headers),
        )

    def trusts(self, peer: str) -> bool:
        """Whether an address is that of a proxy."""
        return in_networks(address_of(peer), self._trusted)

    def is_public(self, origin: str | None) -> bool:
        """Whether an Origin is that of ``public_url``."""
        return self._public is not None and origin_of(origin or "") == self._public

    def _client(self, peer: str, headers: Mapping[str, str]) -> str:
        """The last address of X-Forwarded-For that is no proxy of ours."""
        listed = ",".join(_lines(headers, "X-Forwarded-For")).split(",")
        for text in reversed(listed[-MAX_PROXIES:]):
            address = address_of(text.strip())
            if address is None:
                break
            if not in_networks(address, self._trusted):
                return str(address)
        return peer


class AllowedHosts:
    """Under which names the page may be asked for, so that no other site's name leads here.

    A page of another site whose name is made to point at this machine (DNS rebinding) sends its
    own name. Addresses cannot be rebound: any is taken where the server is open to others.

    Args:
        host: the address that is bound.
        names: host names that are ours.
    """

    def __init__(self, host: str, names: Iterable[str] = ()) -> None:
        self._loopback = is_loopback(host)
        self._names = {plain_host(name) for name in names} | {plain_host(host)}

    def admits(self, header: str | None) -> bool:
        """Whether a Host header names us."""
        found = HOST.fullmatch(header or "")
        if found is None:
            return False
        host = plain_host(found[1])
        if is_loopback(host) or host in self._names:
            return True
        return not self._loopback and _is_address(host)

    def same_origin(self, origin: str | None, header: str | None, scheme: str) -> bool:
        """Whether a page of this server asks: its Origin is the Host that it asked for.

        ``origin`` = None: it was no page of a browser that asks for itself; that is none of ours.
        """
        theirs, ours = origin_of(origin or ""), origin_of(f"{scheme}://{header or ''}")
        return theirs is not None and theirs == ours


def _lines(headers: Mapping[str, str], name: str) -> list[str]:
    """All lines of a header, the last one of the nearest proxy; an empty one where there is none.

    Some proxies add a line of their own beneath those that a client has sent.
    """
    all_lines = getattr(headers, "getall", None)
    return list(all_lines(name, [""])) if all_lines is not None else [headers.get(name, "")]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
