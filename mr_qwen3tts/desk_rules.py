"""Who may be called: addresses as a model writes them, emergency numbers, the allow list (pure)."""

from __future__ import annotations

import re
import unicodedata
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from urllib.parse import quote, unquote

MAX_CHARS = 256
"""Of a destination."""
KEYS = frozenset("0123456789*#ABCD")
"""The keys of a phone (RFC 4733 section 3.2)."""
MAX_KEYS = 64
"""In one go; a card number has 19."""

# 3GPP TS 22.101 section 10.1.1: what a phone without a SIM takes for an emergency call.
EMERGENCY_EVERYWHERE = frozenset({"112", "911", "000", "08", "110", "999", "118", "119"})
_NATIONAL = """
15 17 18 060 061 062 065 066 091 092 100 101 102 108 111 113 114 115 117 120 122 123 140 141 143 144
155 158 166 171 180 190 191 192 193 194 195 197 198 199 988 990 991 992 993 994 995 996 997 998 1122
10111 10177
"""
EMERGENCY_SOMEWHERE = frozenset(_NATIONAL.split())
"""Emergency numbers of single countries. They are extensions elsewhere, so one that is written out
in the allow list may be called."""
OUTSIDE_LINES = ("0", "9")
"""What is dialled first behind many switchboards."""
OUTSIDE = frozenset({"112", "911", "999", "000"})
"""Looked for behind it: others would be extensions of four digits more often than not."""

USER_CHARS = "-_.!~*'()&=+$,"
"""What stands as it is in the user part besides letters and digits (RFC 3261 section 25.1)."""

_NUMBER = re.compile(r"\+?[0-9*#]{1,32}")
_SEPARATORS = str.maketrans("", "", " -./()\u00a0")
_PAUSE = re.compile(r"[,;:pwPW]")
# GSM 02.30: a service code before the number, such as *31# (hide mine) or *67.
_SERVICE_CODE = re.compile(r"[*#]{1,2}[0-9]{2}[*#]?")


class Refused(Exception):
    """It is not called; the message is a sentence for the model."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Whom to call."""

    uri: str
    """The SIP address that is dialled: user, host, port and transport, nothing else."""
    number: str
    """The number in it, without separators; empty where it is a name."""
    at_home: bool
    """Whether it is at the server that numbers are called at."""
    names: tuple[str, ...]
    """What patterns of the allow list are compared with, in lower case."""

    @property
    def key(self) -> str:
        """The same for all ways of writing it."""
        return self.number or self.uri


def destination(text: object, server: str | None = None) -> Destination:
    """Read a destination: a number, a name at the server, or a SIP address.

    Raises:
        Refused: it is none, or a number without a server that would know it.
    """
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise Refused("No destination was given: a number, or a SIP address as sip:USER@HOST.")
    written = unicodedata.normalize("NFKC", str(text)).strip()
    if not written or len(written) > MAX_CHARS or not written.isprintable():
        raise Refused("That is no destination: give a number, or an address as sip:USER@HOST.")
    bare = written[4:] if written.lower().startswith("tel:") else written
    plain = number_of(bare.partition(";")[0])
    if plain or ("@" not in bare and not bare.lower().startswith(("sip:", "sips:"))):
        user = plain or bare
        if server is None:
            raise Refused(
                f"{_shown(user)} can be called only through a telephone server, and none is set "
                "up (MR_QWEN3TTS_SIP_SERVER). A SIP address, sip:USER@HOST, can be called."
            )
        here = _parse(server_uri(server))
        return _at(user, here.host, here.port, here.transport, here)
    home = _parse(server_uri(server)) if server is not None else None
    there = _parse(bare if bare.lower().startswith(("sip:", "sips:")) else f"sip:{bare}")
    return _at(there.user, there.host, there.port, there.transport, home, there.scheme)


def check(there: Destination, allow: Collection[str]) -> None:
    """Raise Refused for an emergency number, and for what the allow list does not hold."""
    patterns = {pattern.strip().lower() for pattern in allow} - {""}
    if is_emergency(there.number, at_home=False):
        raise Refused(f"{there.number} is an emergency number; it is not called from here.")
    if is_emergency(there.number, at_home=there.at_home, written_out=patterns):
        raise Refused(
            f"{there.number} is an emergency number in some countries; it is not called from here. "
            "(An extension of that number can be written out in MR_QWEN3TTS_SIP_ALLOW.)"
        )
    if patterns and not any(_fits(name, each) for name in there.names for each in patterns):
        raise Refused(f"{_shown(there.key)} is not among the numbers that may be called.")


def is_emergency(number: str, *, at_home: bool = True, written_out: Collection[str] = ()) -> bool:
    """Whether a number reaches an emergency service.

    Those of every network are one at any host, whatever is ``written_out``; those of single
    countries, and those behind an outside line, are one at our own server (``at_home``).
    """
    for each in {number, _SERVICE_CODE.sub("", number, count=1)}:
        digits = each.lstrip("+")
        if digits in EMERGENCY_EVERYWHERE:
            return True
        inside = digits[1:] if digits.startswith(OUTSIDE_LINES) else ""
        national = digits in EMERGENCY_SOMEWHERE or inside in OUTSIDE
        if national and at_home and number not in written_out:
            return True
    return False


def number_of(text: str) -> str:
    """The digits of a number as people write it, up to a pause in it; empty where it is none."""
    digits = unquote(text).strip().lstrip(",;pwPW")
    first = _PAUSE.split(digits, maxsplit=1)[0].translate(_SEPARATORS)
    return first if _NUMBER.fullmatch(first) and any(c.isdigit() for c in first) else ""


def server_uri(server: str) -> str:
    """The server as a SIP URI."""
    server = server.strip()
    return server if server.lower().startswith(("sip:", "sips:")) else f"sip:{server}"


def keys_of(digits: object) -> str:
    """The keys to press; spaces and dashes are none.

    Raises:
        Refused: something that no phone has a key for, or nothing at all.
    """
    if isinstance(digits, bool) or not isinstance(digits, str | int):
        raise Refused("No keys were given; they are 0 to 9, * and #.")
    keys = str(digits).translate(_SEPARATORS).upper()
    wrong = next((key for key in keys if key not in KEYS), None)
    if wrong is not None:
        raise Refused(f"{_shown(wrong)} is no key of a phone; they are 0 to 9, * and #.")
    if not 0 < len(keys) <= MAX_KEYS:
        raise Refused(f"Between 1 and {MAX_KEYS} keys can be pressed at once.")
    return keys


def caller_shown(uri: str) -> str:
    """A caller's address for the model: he has written it himself, so only what addresses have."""
    shown = re.sub(r"[^A-Za-z0-9@:.+*#_-]", "?", uri.partition(";")[0])
    return shown[:80] or "an unknown caller"


@dataclass
class Redials:
    """Keeps a model from calling the same number over and over when nobody answers."""

    most: int = 3
    within_s: float = 600.0
    kept: int = 1000
    """Numbers remembered."""
    _failed: OrderedDict[str, list[float]] = field(default_factory=OrderedDict)

    def check(self, there: Destination, now: float) -> None:
        """Raise Refused where it was tried too often in vain."""
        tries = [at for at in self._failed.get(there.key, []) if now - at < self.within_s]
        if len(tries) >= self.most:
            minutes = max(1, round((tries[0] + self.within_s - now) / 60))
            raise Refused(
                f"It was called {len(tries)} times in vain; call again in {minutes} minutes."
            )

    def failed(self, there: Destination, now: float) -> None:
        """A call to it has not come about."""
        tries = self._failed.pop(there.key, [])
        self._failed[there.key] = [*tries, now][-self.most :]
        while len(self._failed) > self.kept:
            self._failed.popitem(last=False)

    def answered(self, there: Destination) -> None:
        """It has."""
        self._failed.pop(there.key, None)


@dataclass(frozen=True, slots=True)
class _Address:
    scheme: str
    user: str
    host: str
    port: int | None
    transport: str


def _parse(text: str) -> _Address:
    from qwen3tts_phone.errors import BadSip
    from qwen3tts_phone.sip.fields import parse_uri, uri_parameter

    try:
        uri = parse_uri(text)
    except BadSip as error:
        raise Refused(f"{error.message} {error.remedy}".strip()) from None
    transport = (uri_parameter(uri, "transport") or "").lower()
    return _Address(uri.scheme, uri.user or "", uri.host.lower(), uri.port, transport)


def _at(
    user: str,
    host: str,
    port: int | None,
    transport: str,
    home: _Address | None,
    scheme: str = "sip",
) -> Destination:
    """Put together anew, so that nothing else comes along: no parameter (``maddr``, ``method``),
    no character that would end a header."""
    place = f"{host}:{port}" if port is not None else host
    name = user.partition(";")[0].partition(":")[0]
    who = quote(name, safe=USER_CHARS)
    names = [f"{who}@{host}", f"sip:{who}@{host}"]
    if port is not None:
        names += [f"{each}:{port}" for each in names]
    number = number_of(name)
    at_home = home is not None and host == home.host
    if at_home:
        names += [name, number]
    uri = f"{scheme}:{f'{who}@' if who else ''}{place}"
    if transport in ("udp", "tcp", "tls"):
        uri += f";transport={transport}"
    return Destination(uri, number, at_home, tuple({name.lower(): None for name in names if name}))


def _fits(name: str, pattern: str) -> bool:
    # A pattern for numbers ("+49*") must not take an address at any host ("+49...@elsewhere").
    return pattern == "*" or (("@" in name) == ("@" in pattern) and fnmatchcase(name, pattern))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
