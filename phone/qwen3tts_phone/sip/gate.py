"""Admission of requests: limits by source, overload control by queueing delay (pure).

Strangers must not get processing time, callable names, or call after call. UDP sources can be
forged: bans are short and never hold for trusted sources.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum, auto
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.limits import RecentSources, TokenBucket
from qwen3tts_phone.sip.core.settings import GateSettings
from qwen3tts_phone.sip.message.fields import parse_uri
from qwen3tts_phone.sip.message.message import Request
from qwen3tts_phone.sip.message.network import (
    Hop,
    Network,
    address_of,
    in_networks,
    networks,
    site_of,
)
from qwen3tts_phone.sip.message.via import origin_of

log = logging.getLogger(__name__)

OUT_OF_DIALOG_METHODS = frozenset({"INVITE", "OPTIONS", "ACK", "CANCEL"})
"""Allowed from untrusted sources."""
LINE_EVERY_S = 10.0
"""A flood from many addresses must not fill the log."""


class Drop(Enum):
    DROP = auto()


DROP: Final = Drop.DROP


class Refusal(NamedTuple):
    status: int
    headers: tuple[tuple[str, str], ...] = ()


Verdict = Refusal | Drop | None
"""None: accepted."""


class Gate(Protocol):
    """Admission policy of user agent and transports."""

    def message(self, data: bytes, source: Hop, now: float) -> bool: ...

    def unreadable(self, source: Hop, now: float, request: Request | None = None) -> bool:
        """Return whether an unusable message gets 400; ``request``: as far as parsed."""

    def request(
        self,
        request: Request,
        source: Hop,
        now: float,
        *,
        known: bool = False,
        callers: Iterable[str] = (),
    ) -> Verdict:
        """Return whether a request is processed.

        ``known``: it belongs to a dialog or transaction; ``callers``: source of each open
        incoming call, read only for a new one.
        """

    def connection(self, host: str, hosts: Iterable[str], now: float) -> bool:
        """Return whether a connection is accepted; ``hosts``: of the open ones."""


class _Standing(NamedTuple):
    site: str
    trusted: bool
    denied: bool


class _Source:
    __slots__ = ("banned_until", "invites", "messages", "requests", "strikes")

    def __init__(self, settings: GateSettings, now: float) -> None:
        self.messages = TokenBucket(settings.messages_per_s, 2 * settings.messages_per_s, now)
        self.requests = TokenBucket(settings.requests_per_s, settings.burst, now)
        self.invites = TokenBucket(settings.invites_per_s, settings.invite_burst, now)
        self.strikes = TokenBucket(settings.ban_after / settings.ban_s, settings.ban_after, now)
        self.banned_until = -math.inf


class SourceGate:
    """Gate with limits by source.

    Args:
        settings: the limits.
        own: tests a host (lower case, no brackets) and port for being ours; None: requests for
            any host are accepted.
    """

    def __init__(
        self,
        settings: GateSettings | None = None,
        *,
        own: Callable[[str, int | None], bool] | None = None,
    ) -> None:
        self.settings = settings or GateSettings()
        self.counts: Counter[str] = Counter()
        """Refused and dropped messages by reason."""
        self._own = own
        self._allow = None if self.settings.allow is None else networks(self.settings.allow)
        self._deny = networks(self.settings.deny)
        self._trusted: dict[str, tuple[Network, ...]] = {"": networks(self.settings.trusted)}
        users = self.settings.users
        self._users = None if users is None else tuple(each.lower() for each in users)
        self._hosts = frozenset(each.lower() for each in self.settings.hosts)
        self._scanners = tuple(each.lower() for each in self.settings.scanners)
        self._sources = RecentSources(self._new_source, self.settings.max_sources)
        self._standings = RecentSources(self._new_standing, self.settings.max_sources)
        self._total: TokenBucket | None = None
        self._lines: TokenBucket | None = None

    def __len__(self) -> int:
        return len(self._sources)

    def trust(self, name: str, hosts: Iterable[str]) -> None:
        """Replace the trusted addresses and networks of an account; raises ValueError."""
        self._trusted[name] = networks(hosts, "trusted")
        self._standings.clear()

    def trusts(self, host: str, request: Request | None = None) -> bool:
        if request is not None:
            host = self._origin_host(request, host)
        return self._standing(host).trusted

    def banned(self, host: str, now: float) -> bool:
        standing = self._standing(host)
        return not standing.trusted and self._sources.of(standing.site, now).banned_until > now

    def connection(self, host: str, hosts: Iterable[str], now: float) -> bool:
        # It counts as a request: a handshake costs more than most of them.
        site, trusted, denied = self._standing(host)
        if denied:
            self.counts["network"] += 1
            return False
        most = self.settings.max_connections_per_source
        if not trusted and self._of_site(site, hosts) >= most:
            self.counts["connections"] += 1
            return False
        if not trusted and not self._sources.of(site, now).requests.take(now):
            self.counts["rate"] += 1
            return False
        return True

    def message(self, data: bytes, source: Hop, now: float) -> bool:
        standing = self._standing(source.host)
        if standing.trusted or data[:4].upper() == b"SIP/":
            return True
        if self._sources.of(standing.site, now).messages.take(now):
            return True
        self.counts["messages"] += 1
        return False

    def unreadable(self, source: Hop, now: float, request: Request | None = None) -> bool:
        self.counts["unreadable"] += 1
        if request is not None and self._is_scanner(request):
            return False
        site, trusted, denied = self._standing(source.host)
        if trusted:
            return True
        stranger = self._sources.of(site, now)
        if denied or stranger.banned_until > now:
            return False
        self._strike(stranger, source.host, now)
        return stranger.requests.take(now) and not self.settings.quiet

    def request(
        self,
        request: Request,
        source: Hop,
        now: float,
        *,
        known: bool = False,
        callers: Iterable[str] = (),
    ) -> Verdict:
        if known:
            # A source that knows the tags of a call takes part in it, whatever its address is.
            return None
        host = self._origin_host(request, source.host)
        site, trusted, denied = self._standing(host)
        if denied:
            return self._refuse("network", 403, request)
        stranger = None if trusted else self._sources.of(site, now)
        if stranger is not None:
            dropped = self._over_limit(stranger, request, now)
            if dropped:
                # No answer: it would go to the owner of a forged address.
                return self._drop(dropped)
        if self._is_scanner(request):
            self._strike(stranger, host, now)
            return self._drop("scanner")
        outside = request.to.tag is None
        # In-dialog requests of a call that is over get 481 from the user agent.
        wrong = self._no_such_target(request, trusted=trusted) if outside else ""
        if wrong:
            self._strike(stranger, host, now)
            return self._refuse(wrong, 404, request)
        if request.method == "ACK":
            return self._drop("stray")
        if stranger is not None and request.method == "INVITE" and outside:
            return self._admit_call(stranger, site, callers, now)
        return None

    def _over_limit(self, stranger: _Source, request: Request, now: float) -> str:
        settings = self.settings
        if self._total is None:
            self._total = TokenBucket(settings.total_per_s, settings.total_burst, now)
        if stranger.banned_until > now:
            return "banned"
        if not stranger.requests.take(now):
            return "rate"
        if not self._total.take(now):
            return "total"
        if request.method == "OPTIONS" and settings.quiet:
            return "quiet"
        return ""

    def _no_such_target(self, request: Request, *, trusted: bool) -> str:
        if request.method not in OUT_OF_DIALOG_METHODS:
            # The same for all names, so that scanners do not learn which exist.
            return "" if trusted else "method"
        try:
            uri = parse_uri(request.uri)
        except BadSip:
            return ""
        if uri.scheme in ("sip", "sips") and not trusted and not self._is_ours(uri.host, uri.port):
            return "host"
        if request.method == "INVITE" and self._users is not None:
            user = unquote((uri.user or uri.host or "").partition(";")[0]).lower()
            if not any(fnmatchcase(user, pattern) for pattern in self._users):
                return "user"
        return ""

    def _is_ours(self, host: str, port: int | None) -> bool:
        host = host.strip("[]").lower().rstrip(".")
        return self._own is None or host in self._hosts or self._own(host, port)

    def _admit_call(
        self, stranger: _Source, site: str, callers: Iterable[str], now: float
    ) -> Verdict:
        if self._of_site(site, callers) >= self.settings.max_calls_per_source:
            self.counts["calls"] += 1
            return Refusal(486, (("Retry-After", "10"),))
        if not stranger.invites.take(now):
            self.counts["invites"] += 1
            return Refusal(503, (("Retry-After", str(math.ceil(stranger.invites.wait_s(now)))),))
        return None

    def _is_scanner(self, request: Request) -> bool:
        name = (request.get("User-Agent") or "").lower()
        return bool(name) and any(each in name for each in self._scanners)

    def _of_site(self, site: str, hosts: Iterable[str]) -> int:
        return sum(self._standing(each).site == site for each in hosts)

    def _standing(self, host: str) -> _Standing:
        return self._standings.of(host, 0.0)

    def _new_standing(self, host: str, _now: float) -> _Standing:
        address = address_of(host)
        trusted = any(in_networks(address, each) for each in self._trusted.values())
        denied = in_networks(address, self._deny)
        if self._allow is not None and not trusted:
            denied = denied or not in_networks(address, self._allow)
        return _Standing(site_of(host), trusted, denied)

    def _origin_host(self, request: Request, host: str) -> str:
        address = address_of(host)
        if any(in_networks(address, each) for name, each in self._trusted.items() if name):
            return host
        return origin_of(request, host)

    def _strike(self, stranger: _Source | None, host: str, now: float) -> None:
        if stranger is None or not self.settings.ban_after or stranger.strikes.take(now):
            return
        stranger.banned_until = now + self.settings.ban_s
        if self._lines is None:
            self._lines = TokenBucket(1 / LINE_EVERY_S, 1, now)
        if self._lines.take(now):
            log.warning(
                "SIP requests from %s get no answer for %.0f s: too many had to be refused",
                host,
                self.settings.ban_s,
            )

    def _refuse(self, reason: str, status: int, request: Request) -> Verdict:
        if self.settings.quiet or request.method == "ACK":
            return self._drop(reason)
        self.counts[reason] += 1
        return Refusal(status)

    def _drop(self, reason: str) -> Drop:
        self.counts[reason] += 1
        return DROP

    def _new_source(self, _key: str, now: float) -> _Source:
        return _Source(self.settings, now)


WAIT_MOST_S = 0.4
"""Least delay of an undrained window; callers retransmit soon (T1 is 0.5 s, RFC 3261 section
17.1.1.1)."""
WAIT_CALM_S = 0.02
"""Least delay of a drained window."""
WINDOW_S = 0.25
BEHIND_WINDOWS = 6
"""Consecutive undrained windows before refusals: more than a burst or a stall."""
CALM_WINDOWS = 2
"""Consecutive drained or empty windows before new calls."""
BUSY_S = 10
"""Retry-After in seconds."""


class OverloadState(Enum):
    OPEN = "open"
    SHEDDING = "shedding"


class OverloadControl:
    """Overload control by queueing delay, seconds."""

    # Above the rate that this process can set up, messages queue in the socket until the kernel
    # drops them, and callers retransmit. So while the queue does not drain (its least delay tells,
    # as in CoDel, RFC 8289), an INVITE gets 503 with Retry-After (RFC 3261 section 21.5.4). A
    # socket buffer of the common size (net.core.rmem_max of 212,992) holds 100 to 185 INVITEs,
    # which are read sooner than that: there the kernel's count of dropped datagrams tells.

    def __init__(self) -> None:
        self.state = OverloadState.OPEN
        self.shed = 0
        """Calls refused."""
        self._until = 0.0  # the end of the window
        self._least_s: float | None = None  # of the window; None = no message came
        self._lost = 0  # in the window
        self._behind = 0
        self._calm = 0

    def waited(self, wait_s: float, now: float, lost: int = 0) -> bool:
        """Record a queueing delay; True on a change of state.

        ``lost``: messages dropped by the kernel before it.
        """
        before = self.state
        self._pass(now)
        self._lost += lost
        self._least_s = wait_s if self._least_s is None else min(self._least_s, wait_s)
        return self.state is not before

    def admits(self, now: float) -> bool:
        self._pass(now)
        if self.state is OverloadState.OPEN:
            return True
        self.shed += 1
        return False

    def _pass(self, now: float) -> None:
        if now < self._until:
            return
        empty = int((now - self._until) / WINDOW_S)
        least_s, self._least_s = self._least_s, None
        # The kernel counts wrong checksums too; only a queue that does not empty drops others.
        most_s = WAIT_CALM_S if self._lost else WAIT_MOST_S
        self._lost = 0
        self._until = now + WINDOW_S
        self._behind = self._behind + 1 if least_s is not None and least_s > most_s else 0
        self._calm = self._calm + 1 if least_s is None or least_s <= WAIT_CALM_S else 0
        if empty:
            self._behind = 0
            self._calm += empty
        if self._behind >= BEHIND_WINDOWS:
            self.state = OverloadState.SHEDDING
        elif self._calm >= CALM_WINDOWS:
            self.state = OverloadState.OPEN


class CallAdmission:
    """Admission of another call (`UserAgent.busy`).

    Args:
        now: the clock.
        full: a limit elsewhere is reached.
    """

    def __init__(self, now: Callable[[], float], full: Callable[[], bool]) -> None:
        self.overload = OverloadControl()
        self._now = now
        self._full = full

    def waited(self, wait_s: float, lost: int) -> None:
        if not self.overload.waited(wait_s, self._now(), lost):
            return
        if self.overload.state is OverloadState.SHEDDING:
            log.warning("more calls come than can be set up: new ones get 503 for a while")
        else:
            log.info("calls are set up again; %d were refused so far", self.overload.shed)

    def busy_s(self) -> int:
        """Return the Retry-After in seconds; 0 = there is room."""
        return BUSY_S if self._full() or not self.overload.admits(self._now()) else 0
