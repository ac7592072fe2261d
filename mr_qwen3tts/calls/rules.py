"""Destinations, allow list, keys and failure causes (pure)."""

from __future__ import annotations

import re
import unicodedata
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from urllib.parse import quote

_BY_STATUS = {
    401: "the telephone server does not accept our account",
    402: "the telephone server wants the account to be paid",
    403: "it is not allowed there",
    404: "there is no such number",
    407: "the telephone server does not accept our account",
    408: "no answer",
    410: "that number is no longer in use",
    480: "no one can be reached there now",
    484: "the number is not complete",
    486: "busy",
    487: "it was ended before it was answered",
    488: "the phone there does not understand our sound",
    600: "busy",
    603: "declined",
    604: "there is no such number",
    606: "the phone there does not understand our sound",
    608: "declined",
}
_BY_CLASS = {
    3: "the number has moved",
    5: "the telephone network has no room or has failed",
    6: "declined",
}
NO_ANSWER = "no answer"
MAX_CAUSE_CHARS = 200


def cause_of(error: BaseException) -> str:
    """Return the cause after a colon, not in the far end's words."""
    from qwen3tts_phone.errors import CalleeUnreachable, CallRefused
    from qwen3tts_wire.errors import SpeechError

    if isinstance(error, CallRefused):
        return (
            _BY_STATUS.get(error.status)
            or _BY_CLASS.get(error.status // 100)
            or f"it was refused with SIP status {error.status}"
        )
    if isinstance(error, CalleeUnreachable):
        # Ours to say: it rang in vain, or nothing is at that address.
        return _clause(error.message)
    if isinstance(error, SpeechError):
        return _clause(error.message)
    return "something broke here; the log says more"


def failed_call(cause: str) -> str:
    return f"The call was not answered: {cause}."


def _clause(message: str) -> str:
    text = "".join(char if char.isprintable() else "?" for char in message)[:MAX_CAUSE_CHARS]
    return text.rstrip(". ")


MAX_CHARS = 256
"""Destination length."""
KEYS = frozenset("0123456789*#ABCD")
"""Telephone keys (RFC 4733 section 3.2)."""
MAX_KEYS = 64
"""Keys a command; a card number has 19."""

USER_CHARS = "-_.!~*'()&=+$,"
"""Unescaped user characters (RFC 3261 section 25.1)."""

_SEPARATORS = str.maketrans("", "", " -./()\u00a0")

_HINTS = {
    "emergency_somewhere": "(An extension of that number can be written out in "
    "MR_QWEN3TTS_SIP_ALLOW.)",
    "premium": "(A number can be written out in MR_QWEN3TTS_SIP_ALLOW.)",
}


class Refused(Exception):
    """The call is not allowed, as a sentence for the model."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Target of a call."""

    uri: str
    """SIP URI of user, host, port and transport."""
    number: str
    """Number without separators; empty for a name."""
    at_home: bool
    """True if the configured server routes it."""
    names: tuple[str, ...]
    """Lower-case forms of the allow list."""

    @property
    def key(self) -> str:
        return self.number or self.uri


def destination(text: object, server: str | None = None) -> Destination:
    """Parse a number, name or SIP address.

    Raises:
        Refused: invalid, or a number without a server.
    """
    from qwen3tts_phone.dialling.numbers import number_of

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
    """Raise Refused by dialling guard or allow list."""
    from qwen3tts_phone.dialling.guard import Callee, CallNotAllowed, GuardSettings, check_callee

    patterns = tuple(pattern for pattern in allow if pattern.strip())
    shown = there.number or _shown(there.key)
    try:
        check_callee(
            Callee(shown, there.number, there.names, there.at_home), GuardSettings(allowed=patterns)
        )
    except CallNotAllowed as error:
        hint = _HINTS.get(error.rule, "")
        raise Refused(f"{error.message} {hint}".strip()) from None


def server_uri(server: str) -> str:
    server = server.strip()
    return server if server.lower().startswith(("sip:", "sips:")) else f"sip:{server}"


def keys_of(digits: object) -> str:
    """Return keys without spaces and dashes.

    Raises:
        Refused: no keys, or another character.
    """
    if isinstance(digits, bool) or not isinstance(digits, str | int):
        raise Refused("No keys were given; they are 0 to 9, * and #.")
    keys = str(digits).translate(_SEPARATORS).upper()
    wrong = next((key for key in keys if key not in KEYS), None)
    if wrong is not None:
        raise Refused(f"{_shown(wrong)} is no key of a phone; they are 0 to 9, * and #.")
    if not 0 < len(keys) <= MAX_KEYS:
        raise Refused(f"Between 1 and {MAX_KEYS} keys can be pressed in one command.")
    return keys


def caller_shown(uri: str) -> str:
    """Return an address for the model; the far end wrote it: address characters only."""
    shown = re.sub(r"[^A-Za-z0-9@:.+*#_-]", "?", uri.partition(";")[0])
    return shown[:80] or "an unknown caller"


@dataclass
class Redials:
    """Limit of calls to a number without answer."""

    most: int = 3
    within_s: float = 600.0
    kept: int = 1000
    _failed: OrderedDict[str, list[float]] = field(default_factory=OrderedDict)

    def check(self, there: Destination, now: float) -> None:
        """Raise Refused after too many failures."""
        tries = [at for at in self._failed.get(there.key, []) if now - at < self.within_s]
        if len(tries) >= self.most:
            minutes = max(1, round((tries[0] + self.within_s - now) / 60))
            raise Refused(
                f"It was called {len(tries)} times in vain; call again in {minutes} minutes."
            )

    def failed(self, there: Destination, now: float) -> None:
        tries = self._failed.pop(there.key, [])
        self._failed[there.key] = [*tries, now][-self.most :]
        while len(self._failed) > self.kept:
            self._failed.popitem(last=False)

    def answered(self, there: Destination) -> None:
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
    from qwen3tts_phone.sip.message.fields import parse_uri, uri_parameter

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
    from qwen3tts_phone.dialling.numbers import number_of

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


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
