"""Dialogs, RFC 3261 section 12: what two ends remember of each other between requests."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.fields import parse_address, parse_uri, uri_parameter
from qwen3tts_phone.sip.hop import Hop
from qwen3tts_phone.sip.message import BRANCH_COOKIE, Request, Response
from qwen3tts_phone.sip.nat import seen_at

MAX_ROUTES = 32
"""Most entries of a route set."""

TARGETING = frozenset({"INVITE", "UPDATE", "REFER", "NOTIFY"})
"""Methods that tell the far end where our end is (RFC 3261 section 12.2, 3311, 3515, 6665)."""

DialogId = tuple[str, str, str]
"""Call-ID, local tag, remote tag."""


def new_tag() -> str:
    """A tag for From or To (RFC 3261 section 19.3: at least 32 random bits)."""
    return secrets.token_hex(8)


def new_branch() -> str:
    """A branch for Via (RFC 3261 section 8.1.1.7)."""
    return BRANCH_COOKIE + secrets.token_hex(12)


def new_call_id() -> str:
    """A Call-ID."""
    return secrets.token_hex(16)


@dataclass(slots=True)
class Dialog:
    """One dialog."""

    call_id: str
    local_tag: str
    remote_tag: str
    local: str
    """Our From or To value, tag included."""
    remote: str
    """Their From or To value, tag included, as it came."""
    target: str
    """Remote target: the URI of their Contact."""
    routes: list[str]
    """The route set, nearest first, as it came."""
    local_cseq: int
    remote_cseq: int | None
    contact: str = ""
    """Our Contact value in requests of this dialog."""
    flow: int = 0
    """The TCP connection that the dialog came by; the last resort when their Contact is deaf."""
    seen: Hop | None = None
    """Where their Contact came from, if it is of no use from outside their network."""
    first_hop: str = ""
    """`next_hop` as the dialog began: no later request, whose source is not proven, moves it."""

    def __post_init__(self) -> None:
        self.first_hop = self.next_hop

    @classmethod
    def of_caller(cls, request: Request, response: Response) -> Dialog:
        """The caller's side (section 12.1.2), from its request and a response with a tag."""
        contact = response.contact
        # Section 12.1.2: in reverse order, since the nearest proxy added its entry first of all.
        routes = list(reversed(response.values("Record-Route")))
        _check_routes(routes)
        return cls(
            call_id=request.call_id,
            local_tag=request.from_.tag or "",
            remote_tag=response.to.tag or "",
            local=request.need("From"),
            remote=response.need("To"),
            target=contact.uri if contact else request.uri,
            routes=routes,
            local_cseq=request.cseq,
            remote_cseq=None,
            contact=request.get("Contact") or "",
            flow=response.flow,
            seen=seen_at(response),
        )

    @classmethod
    def of_callee(cls, request: Request, tag: str, contact: str) -> Dialog:
        """The callee's side (section 12.1.1), from the request and the tag we give it."""
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
            local=f"{request.need('To')};tag={tag}",
            remote=request.need("From"),
            target=theirs.uri,
            routes=list(routes),
            local_cseq=secrets.randbelow(2**16) + 1,
            remote_cseq=request.cseq,
            contact=contact,
            flow=request.flow,
            seen=seen_at(request),
        )

    @property
    def id(self) -> DialogId:
        """What a request of this dialog is found by."""
        return (self.call_id, self.local_tag, self.remote_tag)

    def confirm(self, answered: Dialog, response: Response) -> None:
        """An early dialog is answered: target and route are those of the 2xx (section 13.2.2.4)."""
        self.routes = answered.routes
        self.flow = answered.flow or self.flow
        self.remote = answered.remote
        self.local_cseq = max(self.local_cseq, answered.local_cseq)
        if response.contact is not None:
            self.target, self.seen = answered.target, answered.seen
        self.first_hop = answered.first_hop

    def next_cseq(self) -> int:
        """The number of our next request."""
        self.local_cseq += 1
        return self.local_cseq

    def accept_cseq(self, number: int) -> bool:
        """Section 12.2.2: a request out of order is refused (500); gaps are not errors."""
        if self.remote_cseq is not None and number <= self.remote_cseq:
            return False
        self.remote_cseq = number
        return True

    def request(self, method: str, cseq: int | None = None) -> Request:
        """A request of this dialog (section 12.2.1.1), still without Via."""
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
        """The URI whose host gets our requests (section 8.1.2)."""
        return parse_address(self.routes[0]).uri if self.routes else self.target


def _check_routes(routes: list[str]) -> None:
    if len(routes) > MAX_ROUTES:
        raise BadSip(f"{len(routes)} Record-Route entries are over the bound of {MAX_ROUTES}.")
    for route in routes:
        parse_uri(parse_address(route).uri)
