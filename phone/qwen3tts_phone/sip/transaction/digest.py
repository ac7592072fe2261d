"""Digest authentication of a client (RFC 2617, RFC 7616, RFC 8760).

MD5, SHA-256 and SHA-512-256 with ``-sess``; qop ``auth``, ``auth-int`` or none (RFC 2069). Of
one realm the strongest challenge is answered, the topmost of equals.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.message.fields import parse_uri
from qwen3tts_phone.sip.message.message import Request, Response
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_wire.errors import log_text

MAX_CHALLENGES = 8
"""Challenges of a response, and remembered ones."""
MAX_REALMS = 16
"""Most realms whose strongest challenge is remembered."""

_PARAMETER = re.compile(
    r"\s*(?P<name>[A-Za-z0-9\-.!%*_+`'~]+)\s*=\s*"
    r'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<token>[^\s,"]+))\s*(?:,|$)',
    re.S,
)
_HASHES = {"MD5": "md5", "SHA-256": "sha256", "SHA-512-256": "sha512_256"}
"""RFC 7616 section 6.1, weakest first, with hashlib's names."""
ALGORITHMS = tuple(
    f"{name}{variant}"
    for name, known in _HASHES.items()
    if known in hashlib.algorithms_available
    for variant in ("", "-SESS")
)
"""Available algorithms, weakest first."""


@dataclass(slots=True)
class Challenge:
    """Digest challenge with the use count of its nonce."""

    realm: str
    nonce: str
    algorithm: str
    """In capitals; MD5 when absent."""
    qop: str
    """``auth``, ``auth-int`` or empty."""
    opaque: str | None
    stale: bool
    proxy: bool
    """True for a proxy's (407)."""
    algorithm_text: str | None = None
    """Algorithm as spelt, to be echoed."""
    uses: int = 0
    cnonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def space(self) -> tuple[bool, str]:
        return (self.proxy, self.realm)

    @property
    def is_md5(self) -> bool:
        return self.algorithm.startswith("MD5")

    @property
    def grade(self) -> int:
        return (0 if self.is_md5 else 2) + bool(self.qop)


def parse_parameters(text: str) -> dict[str, str] | None:
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
    scheme, _, rest = value.strip().partition(" ")
    if scheme.lower() != "digest" or len(value) > 4096:
        return None
    parameters = parse_parameters(rest.strip())
    if not parameters or "realm" not in parameters or not parameters.get("nonce"):
        return None
    algorithm = parameters.get("algorithm")
    if (algorithm or "MD5").upper() not in ALGORITHMS:
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


def _strength(challenge: Challenge) -> tuple[int, bool]:
    base = challenge.algorithm.removesuffix("-SESS")
    return list(_HASHES).index(base), bool(challenge.qop)


class ChallengePolicy:
    """Policy of answered challenges; this one allows any place.

    An answer is never weaker than earlier ones to the realm: an attacker between could remove
    stronger challenges (RFC 8760 section 4).
    """

    def __init__(self) -> None:
        self._grades: dict[str, int] = {}
        """Best answered grade by realm."""

    def address(self, request: Request, hop: Hop) -> Hop | str:
        return hop

    def unasked(self, request: Request, hop: Hop) -> bool:
        return True

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
        """Return why a challenge is not answered; else empty.

        ``reached``: another response came before from the request's end; ``relayed``: a
        provisional one, from there or a proxy; ``passed``: realms of proxies already answered.
        """
        best = self._grades.get(challenge.realm, 0)
        if challenge.grade < best:
            return (
                f"the realm '{log_text(challenge.realm)}' asked for a stronger digest before than "
                f"{challenge.algorithm}{'' if challenge.qop else ' without qop'}"
            )
        return ""

    def answered(self, request: Request, challenge: Challenge) -> None:
        best = max(challenge.grade, self._grades.pop(challenge.realm, 0))
        self._grades[challenge.realm] = best
        if len(self._grades) > MAX_REALMS:
            del self._grades[next(iter(self._grades))]


_Domain = tuple[str, ...]
"""Protection domain of a nonce: hop; for a 401 also the Request-URI's host and port."""


class Digest:
    """Nonces of one call or registration."""

    def __init__(self, user: str, password: str, policy: ChallengePolicy | None = None) -> None:
        self.user = user
        self.policy = policy or ChallengePolicy()
        self._password = password
        self._known: dict[tuple[bool, str], tuple[Challenge, _Domain]] = {}

    def answerable(
        self,
        response: Response,
        request: Request,
        hop: Hop,
        *,
        reached: bool = False,
        relayed: bool = False,
        passed: frozenset[str] = frozenset(),
    ) -> list[Challenge]:
        """Remember and return the challenges that may be answered.

        ``response.unanswered`` gets the reason of another; ``hop``: where the request was sent.
        """
        asked: list[Challenge] = []
        # Strongest first: then the policy withholds an answer from a weaker one.
        for challenge in sorted(challenges(response), key=lambda each: -each.grade):
            why = self.policy.objection(
                request, hop, challenge, reached=reached, relayed=relayed, passed=passed
            )
            if why:
                response.unanswered = why
                continue
            self.policy.answered(request, challenge)
            asked.append(challenge)
        where = self.policy.address(request, hop)
        if isinstance(where, str):
            response.unanswered = response.unanswered or where
            return []
        self._remember(asked, request.uri, where)
        return asked

    def learn(self, response: Response) -> list[Challenge]:
        fresh = challenges(response)
        self._remember(fresh, "", None)
        return fresh

    def _remember(self, fresh: list[Challenge], uri: str, hop: Hop | None) -> None:
        for challenge in fresh:
            old, _ = self._known.pop(challenge.space, (None, ()))
            if old is not None and old.nonce == challenge.nonce:
                # RFC 7616 section 3.4: nc continues as long as the nonce lasts.
                challenge.uses, challenge.cnonce = old.uses, old.cnonce
            self._known[challenge.space] = challenge, _domain(challenge, uri, hop)
        while len(self._known) > MAX_CHALLENGES:
            del self._known[next(iter(self._known))]

    def authorize(self, request: Request, hop: Hop, *, asked: bool = True) -> Hop:
        """Add credentials; return the request's hop.

        ``asked``: it was challenged; else earlier nonces are used.
        """
        # Only nonces of the same realm, hop and protection domain are used (RFC 3261 section 22.2,
        # RFC 7616 section 3.5). The hop is then an address, so that no later look-up leads
        # elsewhere.
        where = self.policy.address(request, hop)
        if isinstance(where, str) or not (asked or self.policy.unasked(request, hop)):
            return hop
        lines = [
            self._line(challenge, request.method, request.uri, request.body)
            for challenge, domain in self._known.values()
            if domain == _domain(challenge, request.uri, where)
        ]
        request.add_all(lines)
        return where if lines else hop

    def headers(self, method: str, uri: str, body: bytes) -> list[tuple[str, str]]:
        return [
            self._line(challenge, method, uri, body)
            for challenge, domain in self._known.values()
            if not domain
        ]

    def _line(self, challenge: Challenge, method: str, uri: str, body: bytes) -> tuple[str, str]:
        name = "Proxy-Authorization" if challenge.proxy else "Authorization"
        return name, self._answer(challenge, method, uri, body)

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
    """Return the digest of RFC 7616 section 3.4.1, hexadecimal."""
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
    name = _HASHES[algorithm.removesuffix("-SESS")]
    return lambda data: hashlib.new(name, data, usedforsecurity=False).hexdigest()


def _domain(challenge: Challenge, uri: str, hop: Hop | None) -> _Domain:
    if hop is None:
        return ()
    there = (hop.transport, hop.host, str(hop.port))
    if challenge.proxy:
        return there
    try:
        root = parse_uri(uri)
    except BadSip:
        return (*there, uri)
    return (*there, root.host.lower(), str(root.port or ""))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
