"""Access to the page: token, guess limit, origins, proxies (pure)."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from qwen3tts_phone.sip.message.network import address_of, in_networks, networks
from qwen3tts_phone.softphone.settings import PORTS, is_loopback, origin_of, plain_host
from qwen3tts_phone.softphone.webrtc.settings import HOST
from qwen3tts_wire.errors import SpeechError

TOKEN_BYTES = 18
FREE_FAILURES = 5
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
FORGET_S = 600.0
"""An address without a wrong token for this time starts over."""
MAX_ADDRESSES = 4096
MAX_PROXIES = 8


class BadToken(SpeechError):
    code = "bad_token"

    def __init__(self) -> None:
        super().__init__(
            "This page has no valid access token.",
            remedy="Open the address that the softphone printed when it was started, all of it.",
        )


class SlowDown(SpeechError):
    code = "slow_down"
    retryable = True

    def __init__(self, wait_s: float) -> None:
        super().__init__(
            "Too many wrong access tokens came from here.",
            remedy=f"Wait {max(1, round(wait_s))} s, then open the printed address again.",
        )
        self.wait_s = wait_s


class WrongPlace(SpeechError):
    code = "wrong_place"

    def __init__(self) -> None:
        super().__init__(
            "This server does not answer under that name, or to pages of other sites.",
            remedy="Open the printed address; name further hosts of yours with --name.",
        )


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


class TokenCheck:
    """Access token check; an address's wait doubles with each wrong one."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def __repr__(self) -> str:
        return "Access()"

    def wait_s(self, address: str, now: float) -> float:
        count, at = self._failures.get(address, (0, now))
        over = count - FREE_FAILURES
        if over < 0 or now - at >= FORGET_S:
            return 0.0
        penalty = min(LONGEST_WAIT_S, FIRST_WAIT_S * float(1 << min(over, 16)))
        return max(0.0, at + penalty - now)

    def admits(self, token: str, address: str, now: float) -> bool:
        """Return whether the token is right, in constant time.

        The right one passes also while its address, perhaps shared (NAT), has to wait.
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
    kind, _, token = (header or "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


class BrowserRequest(NamedTuple):
    """Scheme and host as in the browser's address bar, and its address."""

    scheme: str
    host: str
    address: str


class ProxyHeaders:
    """Evaluation of trusted reverse proxies' ``X-Forwarded-*``.

    Args:
        scheme: the softphone's own, ``http`` or ``https``.
        public_url: origin under which pages reach the proxy; empty = as the headers say.
        trusted_proxies: their addresses or networks.
    """

    def __init__(
        self, scheme: str, public_url: str = "", trusted_proxies: Iterable[str] = ()
    ) -> None:
        self._scheme = scheme
        self.public_url = public_url
        self._public = origin_of(public_url)
        self._trusted = networks(trusted_proxies, "trusted_proxies")

    def origin_of_request(self, peer: str, headers: Mapping[str, str]) -> BrowserRequest:
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
        return in_networks(address_of(peer), self._trusted)

    def is_public(self, origin: str | None) -> bool:
        return self._public is not None and origin_of(origin or "") == self._public

    def _client(self, peer: str, headers: Mapping[str, str]) -> str:
        listed = ",".join(_lines(headers, "X-Forwarded-For")).split(",")
        for text in reversed(listed[-MAX_PROXIES:]):
            address = address_of(text.strip())
            if address is None:
                break
            if not in_networks(address, self._trusted):
                return str(address)
        return peer


class AllowedHosts:
    """Allowed host names (DNS rebinding); any address beyond loopback."""

    def __init__(self, host: str, names: Iterable[str] = ()) -> None:
        self._loopback = is_loopback(host)
        self._names = {plain_host(name) for name in names} | {plain_host(host)}

    def admits(self, header: str | None) -> bool:
        found = HOST.fullmatch(header or "")
        if found is None:
            return False
        host = plain_host(found[1])
        if is_loopback(host) or host in self._names:
            return True
        return not self._loopback and _is_address(host)

    def same_origin(self, origin: str | None, header: str | None, scheme: str) -> bool:
        theirs, ours = origin_of(origin or ""), origin_of(f"{scheme}://{header or ''}")
        return theirs is not None and theirs == ours


def _lines(headers: Mapping[str, str], name: str) -> list[str]:
    all_lines = getattr(headers, "getall", None)
    return list(all_lines(name, [""])) if all_lines is not None else [headers.get(name, "")]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
