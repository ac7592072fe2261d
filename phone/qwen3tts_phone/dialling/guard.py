"""Toll fraud guard: allowed numbers, addresses, rates and durations (pure).

It applies to every call that we make or cause: dialling, transfers in both directions,
redirections. A number is judged by every reading that a switchboard may give it.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import quote

from qwen3tts_phone.dialling.numbers import (
    SURELY_INTERNATIONAL,
    international,
    is_emergency,
    number_of,
    premium_prefix,
    readings,
)
from qwen3tts_phone.errors import BadSip, CallNotAllowed
from qwen3tts_phone.sip.message.fields import parse_address, parse_uri, uri_parameter
from qwen3tts_settings.constraints import bounded, check_fields, matching

__all__ = ["Admission", "CallNotAllowed", "Callee", "Guard", "GuardSettings"]

MINUTE_S = 60.0
HOUR_S = 3600.0
_BRACKETED = re.compile(r"@\[([0-9a-f:.*]+)\]")
USER_CHARS = "-_.!~*'()&=+$,"
"""Characters of a user part that are not escaped (RFC 3261 section 25.1)."""
NOT_EMPTY = r"(?s).*\S.*"


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """Rules and limits of outgoing calls.

    A pattern is a number (``+4930*``; ``+49`` alone is a prefix), a user name, or an address
    (``bob@pbx.example.org``; ``@pbx.example.org`` is the whole host); ``*`` and ``?`` are
    wildcards. Numbers are compared in their international form where known.
    """

    allowed: tuple[str, ...] = matching(NOT_EMPTY, "a pattern", default=())
    """Patterns of which one must fit; empty = everybody who is not denied. Number patterns hold
    at ``home`` only."""
    denied: tuple[str, ...] = matching(NOT_EMPTY, "a pattern", default=())
    """Patterns of which none may fit; they hold at any host, and over ``allowed``."""
    emergency: bool = False
    """Allow emergency numbers: only where they know the line's place."""
    premium: bool = False
    """Allow premium-rate and satellite numbers. A pattern in ``allowed`` that
    writes such a prefix out (``+4990012345``) allows what it fits."""
    home: tuple[str, ...] = matching(NOT_EMPTY, "a host", default=())
    """Hosts at which numbers are telephone numbers: the servers of our accounts; empty = all."""
    international_prefixes: tuple[str, ...] = matching(
        "[0-9]+", "digits, such as 00", default=("00", "011")
    )
    """Prefixes of a country code, besides ``+``."""
    country: str = matching("[0-9]*", "digits, such as 49", default="")
    """Our country code, as ``49``: so ``030...`` is known as ``+4930...``."""
    max_calls_per_minute: int = bounded(0, default=0)
    """Calls begun in any 60 s; 0 = no limit."""
    max_calls_per_hour: int = bounded(0, default=0)
    """Calls begun in any 3600 s; 0 = no limit."""
    max_concurrent: int = bounded(0, default=0)
    """Concurrent outgoing calls; 0 = no limit."""
    max_minutes: float = bounded(0, default=0.0)
    """Longest call, from its beginning; 0 = no limit."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Callee:
    shown: str
    """For messages."""
    number: str
    """Without separators; empty where it is a name."""
    names: tuple[str, ...]
    """User, ``user@host`` and ``user@host:port``, in lower case."""
    at_home: bool = True
    """True if a number is called where numbers are telephone numbers."""


class Admission:
    """An admitted call, counted until ``over``."""

    __slots__ = ("_guard", "until")

    def __init__(self, guard: Guard, until: float | None) -> None:
        self._guard: Guard | None = guard
        self.until = until
        """Latest end of the call, by the caller's clock; None = no limit."""

    def over(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.concurrent -= 1


class Guard:
    """Rules and the last hour's calls; ``home``: hosts with telephone numbers."""

    def __init__(self, settings: GuardSettings | None = None, *, home: Iterable[str] = ()) -> None:
        self.settings = settings or GuardSettings()
        self.concurrent = 0
        """Admitted calls that are not over."""
        self._home = frozenset(_host_of(each) for each in (*self.settings.home, *home))
        self._begun: deque[float] = deque()

    def check(self, target: str, now: float) -> None:
        """Raise CallNotAllowed for a target; does not count it.

        ``target``: a SIP or tel address, in any notation, or a bare number.
        """
        self.check_callee(self.callee(target))
        settings = self.settings
        if settings.max_concurrent and self.concurrent >= settings.max_concurrent:
            raise CallNotAllowed(
                f"There are {self.concurrent} concurrent calls already; no more are allowed.",
                rule="concurrent",
                remedy="Wait until one has ended, or raise max_concurrent.",
            )
        for most, within_s, name in (
            (settings.max_calls_per_minute, MINUTE_S, "minute"),
            (settings.max_calls_per_hour, HOUR_S, "hour"),
        ):
            if not most or len(self._begun) < most:
                continue
            wait_s = self._begun[-most] + within_s - now
            if wait_s > 0:
                raise CallNotAllowed(
                    f"{most} calls were made within the last {name}; no more are allowed.",
                    rule="rate",
                    remedy=f"Call again in {math.ceil(wait_s)} s, or raise max_calls_per_{name}.",
                )

    def admit(self, target: str, now: float) -> Admission:
        self.check(target, now)
        kept = max(self.settings.max_calls_per_minute, self.settings.max_calls_per_hour)
        if kept:
            self._begun.append(now)
        while len(self._begun) > kept:
            self._begun.popleft()
        self.concurrent += 1
        minutes = self.settings.max_minutes
        return Admission(self, now + minutes * MINUTE_S if minutes else None)

    def callee(self, target: str) -> Callee:
        return callee_of(target, self._home)

    def check_callee(self, callee: Callee) -> None:
        check_callee(callee, self.settings)


def callee_of(target: str, home: frozenset[str] = frozenset()) -> Callee:
    """Parse a target; raises CallNotAllowed for one that cannot be judged.

    ``home``: hosts with telephone numbers, empty = all.
    """
    text = target.strip()
    if text.lower().startswith("urn:service:sos"):
        # RFC 5031: an emergency service by its name.
        return Callee(_quoted(text), "112", ())
    if "@" not in text and (number := number_of(text)):
        return Callee(number, number, (number,))
    try:
        if "<" in text:
            text = parse_address(text).uri
        uri = parse_uri(text)
    except BadSip as error:
        raise _unreadable(f"{_quoted(text)} cannot be called: it is no SIP address.") from error
    if not text.isprintable() or uri.scheme not in ("sip", "sips", "tel"):
        raise _unreadable(f"{_quoted(text)} cannot be called: it is no SIP address.")
    if "@" in text.partition("?")[2]:
        # RFC 3261 section 25.1: a user part may hold "?". Others read another host than we do.
        raise _unreadable(f"{_quoted(text)} cannot be called: its host can be read in two ways.")
    if uri_parameter(uri, "maddr") is not None:
        # RFC 3261 section 19.1.1: it would go to another host than the checked one.
        raise _unreadable(f"{_quoted(text)} is sent elsewhere by its parameter maddr.")
    host = _host_of(uri.host)
    user = (uri.user or "").partition(";")[0]
    at_home = uri.scheme == "tel" or not home or host in home
    number = number_of(user) or (number_of(host) if not user else "")
    if uri.scheme == "tel" and not number:
        raise _unreadable(f"{_quoted(text)} holds no telephone number.")
    # An "@" in the user part must not look like the host's.
    user = quote(user, safe=USER_CHARS).lower()
    names = [user, f"{user}@{host}"] if host else [user, number]
    if uri.port is not None:
        names.append(f"{user}@{host}:{uri.port}")
    shown = number or _quoted(f"{user}@{host}" if user else host)
    return Callee(shown, number, tuple(name for name in names if name), at_home)


def check_callee(callee: Callee, settings: GuardSettings) -> None:
    allowed = _patterns(settings.allowed)
    number = callee.number
    if number and not settings.emergency:
        _check_emergency(callee, allowed)
    prefixes, country = settings.international_prefixes, settings.country
    every = readings(number, prefixes=prefixes, country=country)
    for pattern in _patterns(settings.denied):
        if _matches(callee.names, every, pattern):
            raise CallNotAllowed(
                f"{callee.shown} may not be called: {pattern!r} is denied.",
                rule="denied",
                remedy="Take the pattern out of denied if such calls are wanted.",
            )
    if not settings.premium:
        every = readings(number, prefixes=prefixes, country=country, bare=SURELY_INTERNATIONAL)
        for prefix in filter(None, map(premium_prefix, sorted(every))):
            if not any(pattern.startswith(prefix) for pattern in allowed):
                raise CallNotAllowed(
                    f"{callee.shown} may not be called: {prefix} is a premium-rate prefix.",
                    rule="premium",
                    remedy="Write the number out in allowed, or set premium.",
                )
    names: tuple[str, ...] = tuple(name for name in callee.names if "@" in name)
    numbers: frozenset[str] = frozenset()
    if callee.at_home:
        names = callee.names
        known = international(number, prefixes=prefixes, country=country)
        numbers = frozenset({number, known} - {""})
    if allowed and not any(_matches(names, numbers, pattern) for pattern in allowed):
        raise CallNotAllowed(
            f"{callee.shown} is not among the numbers and addresses that may be called.",
            rule="not_allowed",
            remedy="Add it to allowed if it is wanted.",
        )


def refuse_emergency(target: str) -> None:
    """Raise CallNotAllowed for every network's emergency numbers, at any host.

    For a phone without a guard; ``GuardSettings.emergency`` allows them.
    """
    if is_emergency(callee_of(target).number, at_home=False):
        raise _emergency(_quoted(target))


def _emergency(shown: str) -> CallNotAllowed:
    return CallNotAllowed(
        f"{shown} is an emergency number; it is not called from here.",
        rule="emergency",
        remedy="Use a telephone whose place the emergency service knows.",
    )


def _check_emergency(callee: Callee, allowed: Iterable[str]) -> None:
    if is_emergency(callee.number, at_home=False):
        raise _emergency(callee.shown)
    if is_emergency(callee.number, at_home=callee.at_home, written_out=frozenset(allowed)):
        raise CallNotAllowed(
            f"{callee.shown} is an emergency number in some countries; it is not called from here.",
            rule="emergency_somewhere",
            remedy="An extension of that number can be written out in allowed.",
        )


def _patterns(texts: Iterable[str]) -> tuple[str, ...]:
    found = []
    for text in texts:
        pattern = text.strip().lower().removeprefix("sips:").removeprefix("sip:")
        pattern = _BRACKETED.sub(r"@\1", pattern.removeprefix("tel:"))
        found.append(f"*{pattern}" if pattern.startswith("@") else pattern)
    return tuple(found)


def _matches(names: Iterable[str], numbers: Iterable[str], pattern: str) -> bool:
    if pattern == "*":
        return True
    if pattern.startswith("+") and pattern[1:].isdigit():
        pattern += "*"
    # A pattern for numbers ("+49*") must not take an address at any host ("+49...@elsewhere").
    whole = "@" in pattern
    return any(("@" in name) == whole and fnmatchcase(name, pattern) for name in names) or (
        not whole and any(fnmatchcase(number, pattern) for number in numbers)
    )


def _host_of(text: str) -> str:
    text = text.strip().lower()
    if text.startswith(("sip:", "sips:")):
        try:
            text = parse_uri(text).host
        except BadSip:
            return text
    return text.strip("[]").rstrip(".")


def _unreadable(message: str) -> CallNotAllowed:
    return CallNotAllowed(
        message, rule="address", remedy="Write it as sip:USER@HOST, or as a number with +."
    )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
