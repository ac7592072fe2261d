"""User agent core: our addresses, and requests inside and outside dialogs."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_phone.sip.message.fields import (
    check_secure,
    is_ip,
    parse_address,
    parse_uri,
    uri_parameter,
)
from qwen3tts_phone.sip.message.message import Request, Response
from qwen3tts_phone.sip.message.network import DnsLookup, Hop
from qwen3tts_phone.sip.message.via import bracketed, contact_hop
from qwen3tts_phone.sip.transaction.client_request import (
    ClientRequest,
    ResponseListener,
    ServerHealth,
)
from qwen3tts_phone.sip.transaction.dialog import Dialog, new_branch
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.transaction.layer import TransactionLayer
from qwen3tts_phone.sip.transaction.transaction import OutboundMessage

ALLOW = "INVITE, ACK, CANCEL, BYE, OPTIONS, PRACK, UPDATE, INFO, REFER, NOTIFY"


class Timed(Protocol):
    """Owner of a timer, such as a registration."""

    def next_deadline(self) -> float | None: ...

    def tick(self, now: float) -> None: ...


class UserAgentCore:
    """User agent core (RFC 3261 section 6).

    ``local`` gives our address towards a hop; ``flush`` sends the outbox.
    """

    def __init__(
        self,
        settings: SipSettings,
        *,
        now: Callable[[], float],
        local: Callable[[Hop], tuple[str, int]],
        rng: random.Random | None = None,
        flush: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.now = now
        self.flush = flush
        self.random = rng or random.SystemRandom()
        self.layer = TransactionLayer(settings.timers)
        self.timed: list[Timed] = []
        self.health = ServerHealth()
        self.digest_for: Callable[[Account], Digest | None] = lambda account: Digest(
            account.auth_user or account.user, account.password
        )
        """Credentials for challenges to an account's own requests."""
        self.trusts: Callable[[str, Request | None], bool] = lambda host, request: True
        """Trust in a source (account server or trusted network): it may replace and transfer
        others' calls, and assert a caller's identity."""
        self._local = local

    @property
    def outbox(self) -> deque[OutboundMessage]:
        return self.layer.outbox

    # Addresses

    def hop(self, uri_text: str, flow: int = 0, transport: str = "") -> Hop:
        """Return the hop to a URI; raises BadSip.

        ``transport`` counts where the URI names none, and is then not looked up.
        """
        uri = parse_uri(uri_text)
        if uri.scheme not in ("sip", "sips"):
            raise BadSip(
                f"{uri_text!r} needs a gateway, which is not available here.",
                remedy="Use a sip: address.",
            )
        check_secure(uri_text)
        secure = uri.scheme == "sips"
        enabled = self.settings.enabled
        named = (uri_parameter(uri, "transport") or transport).lower()
        # RFC 3261 section 26.2.2: sips:...;transport=tcp is TLS over TCP.
        wanted = "tls" if secure and named in ("", "tcp", "tls") else named or enabled[0]
        if wanted not in enabled or (secure and wanted != "tls"):
            raise BadSip(
                f"The transport {wanted!r} of {uri_text!r} is not enabled.",
                remedy="Give the tls settings."
                if wanted == "tls"
                else f"Use one of: {', '.join(enabled)}.",
            )
        host = uri.host.strip("[]").lower()
        lookup: DnsLookup = "srv" if named or secure else "naptr"
        if uri.port is not None or is_ip(host):
            lookup = "address"
        port = uri.port or (5061 if wanted == "tls" else 5060)
        return Hop(
            wanted, host, port, flow, name=host, lookup=lookup, secure=secure, fixed=bool(named)
        )

    def tcp_hop(self, hop: Hop, size: int) -> Hop | None:
        """Return the TCP hop for a request too large for UDP; None: stay."""
        # RFC 3261 section 18.1.1: larger ones would be fragmented, which many NATs lose.
        most = self.settings.udp_most_bytes
        if hop.transport != "udp" or hop.fixed or not most or size <= most:
            return None
        if "tcp" not in self.settings.enabled:
            return None
        lookup: DnsLookup = "srv" if hop.lookup == "naptr" else hop.lookup
        return replace(hop, transport="tcp", flow=max(0, hop.flow), lookup=lookup, others=())

    def via(self, hop: Hop) -> str:
        host, port = self._local(hop)
        return f"SIP/2.0/{hop.transport.upper()} {bracketed(host)}:{port}"

    def uri(self, hop: Hop, user: str = "") -> str:
        host, port = self._local(hop)
        scheme = "sips" if hop.secure else "sip"
        return f"{scheme}:{user or self.settings.user}@{bracketed(host)}:{port}"

    def local(self, hop: Hop) -> tuple[str, int]:
        return self._local(hop)

    def local_host(self, hop: Hop) -> str:
        return self._local(hop)[0]

    def contact(self, hop: Hop, *, user: str = "") -> str:
        # A sips: address implies TLS (RFC 3261 section 26.2.2).
        plain = hop.transport == "udp" or hop.secure
        return f"<{self.uri(hop, user)}{'' if plain else f';transport={hop.transport}'}>"

    def named(self, name: str = "") -> str:
        name = name or self.settings.display_name
        if not name:
            return ""
        return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '" '

    # Requests

    def send_request(
        self,
        request: Request,
        hop: Hop,
        listener: ResponseListener,
        now: float,
        *,
        next_cseq: Callable[[], int],
        digest: Digest | None,
    ) -> ClientRequest:
        exchange = ClientRequest(
            self,
            request,
            hop,
            listener,
            next_cseq=next_cseq,
            digest=digest,
            max_retries=self.settings.max_redials,
        )
        exchange.start(now)
        return exchange

    def in_dialog_hop(self, dialog: Dialog) -> Hop:
        hop = self.hop(dialog.next_hop, dialog.flow)
        for uri in (dialog.target, *(parse_address(route).uri for route in dialog.routes)):
            check_secure(uri)
        if dialog.routes or not self.settings.nat_contacts:
            return hop
        return contact_hop(hop, dialog.seen)

    def ack(
        self, dialog: Dialog, invite: Request, cseq: int, sent_to: Hop, digest: Digest | None
    ) -> tuple[Request, Hop]:
        """Return the ACK to a 2xx (RFC 3261 section 13.2.2.4), along the route set."""
        # It has the INVITE's credentials only where it goes to ``sent_to`` and no further: the
        # servers between need not remove them.
        request = dialog.request("ACK", cseq)
        hop = self.in_dialog_hop(dialog)
        where = digest.policy.address(request, hop) if digest is not None else ""
        unasked = digest is not None and digest.policy.unasked(request, hop)
        same = (
            unasked
            and isinstance(where, Hop)
            and (where.host, where.port) == (sent_to.host, sent_to.port)
        )
        if isinstance(where, Hop) and same:
            hop = where
        ack = Request("ACK", request.uri)
        ack.add("Via", f"{self.via(hop)};branch={new_branch()};rport")
        ack.copy_headers(request)
        for name in ("Authorization", "Proxy-Authorization") if same else ():
            for value in invite.headers.getlist(name):
                ack.headers.add(name, value)
        return ack, hop

    def describe(self, message: Request | Response, *options: str) -> None:
        """Add Allow, Supported with ``options``, User-Agent or Server."""
        message.add("Allow", ALLOW)
        message.add("Supported", ", ".join(filter(None, ("timer", "replaces", *options))))
        if self.settings.user_agent:
            name = "User-Agent" if isinstance(message, Request) else "Server"
            message.add(name, self.settings.user_agent)
