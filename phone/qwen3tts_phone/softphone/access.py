"""Who may use the page: the token, how often it may be guessed, and from where (pure)."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable

from qwen3tts_phone.softphone.settings import is_loopback

TOKEN_BYTES = 18
FREE_FAILURES = 5
"""So many wrong tokens of one address cost nothing."""
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
FORGET_S = 600.0
"""An address that has shown no wrong token for so long begins anew."""
MOST_ADDRESSES = 4096
HOST = re.compile(r"([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?", re.ASCII)
"""A host and its port (RFC 9110 section 7.2), no more than that."""
PORTS = {"http": 80, "https": 443}


def new_token() -> str:
    """A token that cannot be guessed: 144 bits."""
    return secrets.token_urlsafe(TOKEN_BYTES)


class Access:
    """Checks tokens; one that is wrong too often has to wait, twice as long each time.

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
        """How long this address has to wait before its token is looked at; 0 = not at all."""
        count, at = self._failures.get(address, (0, now))
        over = count - FREE_FAILURES
        if over < 0 or now - at >= FORGET_S:
            return 0.0
        penalty = min(LONGEST_WAIT_S, FIRST_WAIT_S * float(1 << min(over, 16)))
        return max(0.0, at + penalty - now)

    def admits(self, token: str, address: str, now: float) -> bool:
        """Whether the token is right; takes the same time for every wrong one.

        While the address has to wait, no token is right.
        """
        if self.wait_s(address, now):
            return False
        if hmac.compare_digest(token.encode("utf-8", "replace"), self._token):
            self._failures.pop(address, None)
            return True
        count, at = self._failures.pop(address, (0, now))
        self._failures[address] = (1 if now - at >= FORGET_S else count + 1, now)
        while len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)
        return False


def bearer(header: str | None) -> str:
    """The token of an Authorization header (RFC 6750 section 2.1); empty = there is none."""
    kind, _, token = (header or "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


class Hosts:
    """Under which names the page may be asked for, so that no other site's name leads here.

    A page of another site whose name is made to point at this machine (DNS rebinding) sends its
    own name. Addresses cannot be rebound: any is taken where the server is open to others.

    Args:
        host: the address that is bound.
        names: host names that are ours.
    """

    def __init__(self, host: str, names: Iterable[str] = ()) -> None:
        self._loopback = is_loopback(host)
        self._names = {_plain(name) for name in names} | {_plain(host)}

    def admits(self, header: str | None) -> bool:
        """Whether a Host header names us."""
        found = HOST.fullmatch(header or "")
        if found is None:
            return False
        host = _plain(found[1])
        if is_loopback(host) or host in self._names:
            return True
        return not self._loopback and _is_address(host)

    def same_origin(self, origin: str | None, header: str | None, scheme: str) -> bool:
        """Whether a page of this server asks: its Origin is the Host that it asked for.

        ``origin`` = None: it was no page of a browser that asks for itself; that is none of ours.
        """
        theirs, ours = _address(origin or ""), _address(f"{scheme}://{header or ''}")
        return theirs is not None and theirs == ours


def _address(origin: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of an origin (RFC 6454 section 6.2); None = it is none."""
    scheme, separator, rest = origin.partition("://")
    found = HOST.fullmatch(rest)
    if not separator or scheme not in PORTS or found is None:
        return None
    return scheme, _plain(found[1]), int(found[2] or PORTS[scheme])


def _plain(host: str) -> str:
    return host.strip().strip("[]").rstrip(".").lower()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
