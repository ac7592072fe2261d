"""Digest authentication as a client: RFC 2617, RFC 7616 and RFC 8760, for 401 and 407 alike.

MD5, MD5-sess, SHA-256 and SHA-256-sess; qop ``auth`` and ``auth-int``, or none (RFC 2069). Of
several challenges for one realm the strongest that we know is answered.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from qwen3tts_phone.sip.message import Response

MAX_CHALLENGES = 8
"""Most challenges of one response that are looked at, and most realms that are remembered."""

_PARAMETER = re.compile(
    r"\s*(?P<name>[A-Za-z0-9\-.!%*_+`'~]+)\s*=\s*"
    r'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<token>[^\s,"]+))\s*(?:,|$)',
    re.S,
)
_STRENGTH = ("MD5", "MD5-SESS", "SHA-256", "SHA-256-SESS")
"""Algorithms, weakest first (RFC 8760 section 2.4 wants the strongest answered)."""


@dataclass(slots=True)
class Challenge:
    """One Digest challenge and how often its nonce has been used."""

    realm: str
    nonce: str
    algorithm: str
    """In capitals, one of those known; MD5 when absent."""
    qop: str
    """``auth``, ``auth-int`` or empty."""
    opaque: str | None
    stale: bool
    proxy: bool
    """Whether a proxy (407) asked."""
    algorithm_text: str | None = None
    """The algorithm as it was spelt, to be echoed."""
    uses: int = 0
    cnonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def space(self) -> tuple[bool, str]:
        """The protection space: who asks, and for which realm."""
        return (self.proxy, self.realm)


def parse_parameters(text: str) -> dict[str, str] | None:
    """The comma-separated parameters of a challenge, names in lower case; None if malformed."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _PARAMETER.match(text, position)
        if match is None:
            return None
        quoted = match["quoted"]
        value = match["token"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        found.setdefault(match["name"].lower(), value)
        position = match.end()
    return found


def parse_challenge(value: str, *, proxy: bool = False) -> Challenge | None:
    """A Digest challenge that can be answered, or None."""
    scheme, _, rest = value.strip().partition(" ")
    if scheme.lower() != "digest" or len(value) > 4096:
        return None
    parameters = parse_parameters(rest.strip())
    if not parameters or "realm" not in parameters or not parameters.get("nonce"):
        return None
    algorithm = parameters.get("algorithm")
    if (algorithm or "MD5").upper() not in _STRENGTH:
        return None
    offered = [word.strip().lower() for word in parameters.get("qop", "").split(",")]
    qop = next((word for word in ("auth", "auth-int") if word in offered), "")
    if "qop" in parameters and not qop:
        return None
    return Challenge(
        realm=parameters["realm"],
        nonce=parameters["nonce"],
        algorithm=(algorithm or "MD5").upper(),
        qop=qop,
        opaque=parameters.get("opaque"),
        stale=parameters.get("stale", "").lower() == "true",
        proxy=proxy,
        algorithm_text=algorithm,
    )


def challenges(response: Response) -> list[Challenge]:
    """The best challenge of each realm in a 401 or 407."""
    best: dict[tuple[bool, str], Challenge] = {}
    for name, proxy in (("WWW-Authenticate", False), ("Proxy-Authenticate", True)):
        for value in response.headers.getlist(name)[:MAX_CHALLENGES]:
            challenge = parse_challenge(value, proxy=proxy)
            if challenge is None:
                continue
            known = best.get(challenge.space)
            if known is None or _strength(challenge) > _strength(known):
                best[challenge.space] = challenge
    return list(best.values())


def _strength(challenge: Challenge) -> int:
    return _STRENGTH.index(challenge.algorithm)


class Digest:
    """What one account knows about the realms that have asked it."""

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self._password = password
        self._known: dict[tuple[bool, str], Challenge] = {}

    def learn(self, response: Response) -> list[Challenge]:
        """Remember the challenges of a 401 or 407 and give those that can be answered."""
        fresh = challenges(response)
        for challenge in fresh:
            old = self._known.get(challenge.space)
            if old is not None and old.nonce == challenge.nonce:
                # RFC 7616 section 3.4: the count goes on for as long as the nonce lasts.
                challenge.uses, challenge.cnonce = old.uses, old.cnonce
            self._known.pop(challenge.space, None)
            self._known[challenge.space] = challenge
        while len(self._known) > MAX_CHALLENGES:
            del self._known[next(iter(self._known))]
        return fresh

    def headers(self, method: str, uri: str, body: bytes) -> list[tuple[str, str]]:
        """The credentials for one request, as (header name, value), for each realm known."""
        return [
            (
                "Proxy-Authorization" if challenge.proxy else "Authorization",
                self._answer(challenge, method, uri, body),
            )
            for challenge in self._known.values()
        ]

    def _answer(self, challenge: Challenge, method: str, uri: str, body: bytes) -> str:
        challenge.uses += 1
        count = f"{challenge.uses:08x}"
        digest = response_digest(
            challenge, self.user, self._password, method=method, uri=uri, body=body, count=count
        )
        parts = [
            f"username={_quoted(self.user)}",
            f"realm={_quoted(challenge.realm)}",
            f"nonce={_quoted(challenge.nonce)}",
            f"uri={_quoted(uri)}",
            f'response="{digest}"',
        ]
        if challenge.algorithm_text is not None:
            parts.append(f"algorithm={challenge.algorithm_text}")
        if challenge.opaque is not None:
            parts.append(f"opaque={_quoted(challenge.opaque)}")
        if challenge.qop or challenge.algorithm.endswith("-SESS"):
            parts.append(f'cnonce="{challenge.cnonce}"')
        if challenge.qop:
            parts += [f"qop={challenge.qop}", f"nc={count}"]
        return "Digest " + ", ".join(parts)


def response_digest(
    challenge: Challenge,
    user: str,
    password: str,
    *,
    method: str,
    uri: str,
    body: bytes,
    count: str,
) -> str:
    """The request digest of RFC 7616 section 3.4.1, in hexadecimal."""
    digest = _hash(challenge.algorithm)
    secret = digest(f"{user}:{challenge.realm}:{password}".encode())
    if challenge.algorithm.endswith("-SESS"):
        secret = digest(f"{secret}:{challenge.nonce}:{challenge.cnonce}".encode())
    what = f"{method}:{uri}"
    if challenge.qop == "auth-int":
        what = f"{what}:{digest(body)}"
    what = digest(what.encode())
    if not challenge.qop:
        return digest(f"{secret}:{challenge.nonce}:{what}".encode())
    middle = f"{challenge.nonce}:{count}:{challenge.cnonce}:{challenge.qop}"
    return digest(f"{secret}:{middle}:{what}".encode())


def _hash(algorithm: str) -> Callable[[bytes], str]:
    if algorithm.startswith("SHA-256"):
        return lambda data: hashlib.sha256(data).hexdigest()
    return lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
