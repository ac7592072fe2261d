"""Dialogs (RFC 3261 section 12), Replaces (RFC 3891) and session timers (RFC 4028)."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal
from urllib.parse import quote, unquote

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.message.fields import (
    MAX_FIELD_CHARS,
    delta_seconds,
    parse_address,
    parse_uri,
    uri_parameter,
)
from qwen3tts_phone.sip.message.message import BRANCH_COOKIE, Request, Response
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.message.via import observed_source

MAX_ROUTES = 32
"""Most entries of a route set."""

TARGETING = frozenset({"INVITE", "UPDATE", "REFER", "NOTIFY"})
"""Target refresh methods (RFC 3261 section 12.2, 3311, 3515, 6665)."""

DialogId = tuple[str, str, str]
"""Call-ID, local tag, remote tag."""


def new_tag() -> str:
    """Return a From or To tag (RFC 3261 section 19.3: at least 32 random bits)."""
    return secrets.token_hex(8)


def new_branch() -> str:
    """Return a branch for Via (RFC 3261 section 8.1.1.7)."""
    return BRANCH_COOKIE + secrets.token_hex(12)


def new_call_id() -> str:
    return secrets.token_hex(16)


@dataclass(slots=True)
class Dialog:
    """Dialog state (RFC 3261 section 12)."""

    call_id: str
    local_tag: str
    remote_tag: str
    local: str
    """Our From or To value, tag included."""
    remote: str
    """Their From or To value with tag."""
    target: str
    """Remote target: the URI of their Contact."""
    routes: list[str]
    """Route set, nearest first, as received."""
    local_cseq: int
    remote_cseq: int | None
    contact: str = ""
    """Our Contact value in requests of this dialog."""
    flow: int = 0
    """TCP connection of the dialog, for an unreachable Contact."""
    seen: Hop | None = None
    """Source of a private Contact."""
    first_hop: str = ""
    """Initial `next_hop`; later sources are unverified."""

    def __post_init__(self) -> None:
        self.first_hop = self.next_hop

    @classmethod
    def of_caller(cls, request: Request, response: Response) -> Dialog:
        """Return the UAC's dialog (section 12.1.2)."""
        contact = response.contact
        # Section 12.1.2: reversed, since the nearest proxy added its entry first.
        routes = list(reversed(response.values("Record-Route")))
        _check_routes(routes)
        return cls(
            call_id=request.call_id,
            local_tag=request.from_.tag or "",
            remote_tag=response.to.tag or "",
            local=request.require("From"),
            remote=response.require("To"),
            target=contact.uri if contact else request.uri,
            routes=routes,
            local_cseq=request.cseq,
            remote_cseq=None,
            contact=request.get("Contact") or "",
            flow=response.flow,
            seen=observed_source(response),
        )

    @classmethod
    def of_callee(cls, request: Request, tag: str, contact: str) -> Dialog:
        """Return the UAS's dialog (section 12.1.1)."""
        theirs = request.contact
        if theirs is None:
            raise BadSip("The INVITE has no Contact, so nothing could be sent back to the caller.")
        parse_uri(theirs.uri)
        routes = request.values("Record-Route")
        _check_routes(routes)
        return cls(
            call_id=request.call_id,
            local_tag=tag,
            remote_tag=request.from_.tag or "",
            local=f"{request.require('To')};tag={tag}",
            remote=request.require("From"),
            target=theirs.uri,
            routes=list(routes),
            local_cseq=secrets.randbelow(2**16) + 1,
            remote_cseq=request.cseq,
            contact=contact,
            flow=request.flow,
            seen=observed_source(request),
        )

    @property
    def id(self) -> DialogId:
        return (self.call_id, self.local_tag, self.remote_tag)

    def confirm(self, answered: Dialog, response: Response) -> None:
        """Take target and route of the 2xx (section 13.2.2.4)."""
        self.routes = answered.routes
        self.flow = answered.flow or self.flow
        self.remote = answered.remote
        self.local_cseq = max(self.local_cseq, answered.local_cseq)
        if response.contact is not None:
            self.target, self.seen = answered.target, answered.seen
        self.first_hop = answered.first_hop

    def next_cseq(self) -> int:
        self.local_cseq += 1
        return self.local_cseq

    def accept_cseq(self, number: int) -> bool:
        """Return False for a request out of order (500, section 12.2.2)."""
        if self.remote_cseq is not None and number <= self.remote_cseq:
            return False
        self.remote_cseq = number
        return True

    def request(self, method: str, cseq: int | None = None) -> Request:
        """Return a request (section 12.2.1.1), without Via."""
        routes = list(self.routes)
        uri = self.target
        if routes:
            first = parse_address(routes[0]).uri
            if uri_parameter(parse_uri(first), "lr") is None:
                # A strict router of RFC 2543 takes its own address as the Request-URI.
                uri = first
                routes = [*routes[1:], f"<{self.target}>"]
        request = Request(method, uri)
        request.add("Max-Forwards", "70")
        request.add("From", self.local)
        request.add("To", self.remote)
        request.add("Call-ID", self.call_id)
        request.add("CSeq", f"{self.next_cseq() if cseq is None else cseq} {method}")
        for route in routes:
            request.headers.add("Route", route)
        if self.contact and method in TARGETING:
            request.add("Contact", self.contact)
        return request

    @property
    def next_hop(self) -> str:
        return parse_address(self.routes[0]).uri if self.routes else self.target


def _check_routes(routes: list[str]) -> None:
    if len(routes) > MAX_ROUTES:
        raise BadSip(f"{len(routes)} Record-Route entries are over the bound of {MAX_ROUTES}.")
    for route in routes:
        parse_uri(parse_address(route).uri)


MAX_PART_CHARS = 512
_METHOD = re.compile(r";method=[^;]*", re.I)


@dataclass(frozen=True, slots=True)
class Replaces:
    """Dialog to replace (RFC 3891); tags as the called side has them."""

    call_id: str
    to_tag: str
    """Tag of the side that receives the INVITE."""
    from_tag: str
    """Tag of the other side of that dialog."""
    early_only: bool = False
    """Replace it only while it is an early dialog."""

    @classmethod
    def parse(cls, value: str) -> Replaces:
        call_id, *parameters = (part.strip() for part in value.split(";"))
        found: dict[str, str] = {}
        for parameter in parameters:
            name, _, text = parameter.partition("=")
            name = name.strip().lower()
            if name in found:
                raise BadSip(f"The header Replaces names {name[:20]} twice.")
            found[name] = text.strip()
        to_tag, from_tag = found.get("to-tag", ""), found.get("from-tag", "")
        for part in (call_id, to_tag, from_tag):
            if not part or len(part) > MAX_PART_CHARS or any(char.isspace() for char in part):
                raise BadSip("The header Replaces names no dialog.")
        return cls(call_id, to_tag, from_tag, "early-only" in found)

    @property
    def value(self) -> str:
        early = ";early-only" if self.early_only else ""
        return f"{self.call_id};to-tag={self.to_tag};from-tag={self.from_tag}{early}"


@dataclass(frozen=True, slots=True)
class ReferTo:
    target: str
    """The URI, without headers."""
    replaces: Replaces | None = None
    """Dialog to replace (attended transfer)."""

    @classmethod
    def parse(cls, value: str) -> ReferTo:
        whole = parse_address(value).uri
        uri_text, _, headers = whole.partition("?")
        uri = parse_uri(uri_text)
        method = uri_parameter(uri, "method")
        if method and method.upper() != "INVITE":
            raise BadSip(f"Refer-To asks for {method[:20]!r}; only calls can be made.")
        replaces = None
        for header in headers.split("&"):
            name, _, text = header.partition("=")
            if unquote(name).strip().lower() == "replaces":
                if replaces is not None:
                    raise BadSip("Refer-To names two dialogs to replace.")
                replaces = Replaces.parse(unquote(text))
        # RFC 3261 section 19.1.1: a Request-URI has no method parameter.
        return cls(_METHOD.sub("", uri_text), replaces)

    @property
    def value(self) -> str:
        parse_uri(self.target)
        if len(self.target) > MAX_FIELD_CHARS or any(char in '<>"?' for char in self.target):
            raise BadSip("The target of the transfer cannot be written into a header.")
        if self.replaces is None:
            return f"<{self.target}>"
        # RFC 3261 section 19.1.1: reserved characters are escaped in a URI's header.
        return f"<{self.target}?Replaces={quote(self.replaces.value, safe='')}>"


MIN_SE_S = 90
"""The smallest interval (section 4)."""
MAX_SE_S = 24 * 3600

Role = Literal["uac", "uas"]
"""Refresher: the client or the server of the request."""


class Due(Enum):
    NOTHING = auto()
    REFRESH = auto()
    EXPIRE = auto()


def session_expires(message: Request | Response) -> tuple[int, Role | None] | None:
    value = message.get("Session-Expires")
    if value is None:
        return None
    seconds = delta_seconds(value, MAX_SE_S)
    if seconds is None:
        return None
    role: Role | None = None
    for parameter in value.split(";")[1:]:
        name, _, text = parameter.partition("=")
        if name.strip().lower() == "refresher":
            role = "uac" if text.strip().lower() == "uac" else "uas"
    return seconds, role


def min_se(message: Request | Response) -> int:
    least = delta_seconds(message.get("Min-SE"), MAX_SE_S)
    return MIN_SE_S if least is None else least


def too_brief(request: Request) -> bool:
    """Return whether the interval is too small (section 9: 422)."""
    asked = session_expires(request)
    return asked is not None and asked[0] < MIN_SE_S and supports_timer(request)


def supports_timer(message: Request | Response) -> bool:
    options = (*message.values("Supported"), *message.values("Require"))
    return any(option.lower() == "timer" for option in options)


class SessionTimer:
    """Session timer (RFC 4028); off until both sides agree.

    One side refreshes at half the interval; the other hangs up shortly before its end.
    """

    def __init__(self, wanted_s: int) -> None:
        self.interval_s = 0
        """Seconds; 0 = off."""
        self.refresher = False
        """True if we refresh."""
        self._wanted_s = wanted_s
        self._refresh_at: float | None = None
        self._expires_at: float | None = None

    def ask(self, request: Request) -> None:
        """Add Session-Expires to a request (section 7.1)."""
        seconds = self.interval_s or self._wanted_s
        if not seconds:
            return
        # On a refresh the roles stay as they are (section 7.4).
        role = f";refresher={'uac' if self.refresher else 'uas'}" if self.interval_s else ""
        request.add("Session-Expires", f"{seconds}{role}")
        request.add("Min-SE", str(min(seconds, MIN_SE_S)))

    def answered(self, response: Response, now: float) -> None:
        """Apply their 2xx (section 7.2)."""
        agreed = session_expires(response)
        if agreed is None:
            self.stop()
            return
        # Section 4: none is below 90 s, whatever the far end says, or we would refresh
        # continuously. Without a refresher, section 7.2 leaves it to the caller.
        self._start(agreed[0] and max(agreed[0], MIN_SE_S), agreed[1] != "uas", now)

    def answer(self, request: Request, response: Response, now: float) -> None:
        """Complete our 2xx (section 9)."""
        asked = session_expires(request)
        if asked is None or asked[0] < MIN_SE_S:
            self.stop()
            return
        able = supports_timer(request)
        # A peer without the extension cannot be asked to refresh.
        role: Role = (asked[1] or "uac") if able else "uas"
        if role == "uac":
            response.add("Require", "timer")
        response.add("Session-Expires", f"{asked[0]};refresher={role}")
        self._start(asked[0], role == "uas", now)

    def refresh_failed(self, now: float) -> None:
        if self._expires_at is not None:
            self._refresh_at = now + max(5.0, (self._expires_at - now) / 2)

    def stop(self) -> None:
        self.interval_s = 0
        self._refresh_at = self._expires_at = None

    def next_deadline(self) -> float | None:
        known = [at for at in (self._refresh_at, self._expires_at) if at is not None]
        return min(known, default=None)

    def due(self, now: float) -> Due:
        if self._expires_at is not None and now >= self._expires_at:
            self.stop()
            return Due.EXPIRE
        if self._refresh_at is not None and now >= self._refresh_at:
            self._refresh_at = None
            return Due.REFRESH
        return Due.NOTHING

    def _start(self, seconds: int, refresher: bool, now: float) -> None:
        if not seconds:
            self.stop()
            return
        self.interval_s, self.refresher = seconds, refresher
        # Section 10: refresh at half the interval; BYE the smaller of 32 s and a third before its
        # end.
        self._refresh_at = now + seconds / 2 if refresher else None
        self._expires_at = now + seconds - min(32.0, seconds / 3)
