"""The SIP user agent without I/O: bytes and ``now`` in; bytes to send and events out.

After every call into it the shell drains ``outbox`` (what to send) and asks ``next_deadline``.
Requests are checked in the order of RFC 3261 section 8.2.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from qwen3tts_phone.errors import BadSip, CallError
from qwen3tts_phone.sip.account import Account
from qwen3tts_phone.sip.call.call import Call, DialogTable
from qwen3tts_phone.sip.call.incoming import IncomingCall
from qwen3tts_phone.sip.call.outgoing import OutgoingCall
from qwen3tts_phone.sip.call.transfer import Referral, TransferCore
from qwen3tts_phone.sip.dialog import Dialog, new_branch, new_call_id, new_tag
from qwen3tts_phone.sip.gate import Gate, SourceGate
from qwen3tts_phone.sip.message.fields import check_headers, check_secure, parse_address, parse_uri
from qwen3tts_phone.sip.message.message import (
    CALL_ID,
    MAX_HEAD_BYTES,
    Request,
    Response,
    UnusableRequest,
    parse_message,
)
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.message.via import hop_by, loose
from qwen3tts_phone.sip.settings import SipSettings
from qwen3tts_phone.sip.transaction.client_request import Exchange, Health, Listener
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.transaction.transaction import Send, TransactionLayer
from qwen3tts_phone.sip.ua_core import ALLOW, Addresses
from qwen3tts_phone.sip.uas import Inbound


class Timed(Protocol):
    """Something besides calls that waits for its time: a registration."""

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""

    def tick(self, now: float) -> None:
        """Do what is due."""


class Agent(Addresses):
    """Everything between the wire and the calls."""

    def __init__(
        self,
        settings: SipSettings,
        *,
        now: Callable[[], float],
        local: Callable[[Hop], tuple[str, int]],
        on_call: Callable[[IncomingCall], None],
        rng: random.Random | None = None,
        flush: Callable[[], None] = lambda: None,
        gate: Gate | None = None,
    ) -> None:
        super().__init__(settings, local)
        self.now = now
        self.flush = flush
        self.random = rng or random.SystemRandom()
        self.layer = TransactionLayer(settings.timers)
        self.timed: list[Timed] = []
        self.calls: set[Call] = set()
        self.health = Health()
        self.draining = 0
        """Seconds after which callers may come again, while no new calls are taken; 0 = taken."""
        self.busy: Callable[[], int] = lambda: 0
        """The same while there is no room for another call at the moment; 0 = there is."""
        self.rejected = 0
        """Messages dropped because they could not be used."""
        self.on_call = on_call
        self.digest_of: Callable[[IncomingCall], Digest | None] = lambda call: None
        """The credentials for challenges inside the dialog of a call that came in."""
        self.digest_for: Callable[[Account], Digest | None] = lambda account: Digest(
            account.auth_user or account.user, account.password
        )
        """The credentials for challenges to an account's own requests."""
        self.trusts: Callable[[str, Request | None], bool] = lambda host, request: True
        """Whether a source is an account's server or in a trusted network: it may replace and
        transfer the calls of others, and say who a caller is."""
        self.dialogs = DialogTable()
        self.gate = gate
        self._inbound = Inbound(self, self.dialogs)

    @property
    def outbox(self) -> deque[Send]:
        """What is to be sent."""
        return self.layer.outbox

    # What the shell calls

    def receive(self, data: bytes, source: Hop, now: float) -> None:
        """A datagram, or one message of a stream. Garbage is counted and dropped, or gets 400."""
        if self.gate is not None and not self.gate.message(data, source, now):
            return
        if data[:4].upper() == b"SIP/":
            # The gate lets answers pass whoever sends them: a flood of them must cost little.
            wanted = self.layer.may_await(data)
        else:
            wanted = not self._banned(source, data, now)
        if not wanted:
            self.rejected += 1
            return
        try:
            message = parse_message(data)
            message.flow, message.source = source.flow, source
            if isinstance(message, Response):
                self._inbound.response(message, now)
            else:
                self._inbound.request(message, source, now)
        except UnusableRequest as error:
            self.rejected += 1
            if self.gate is None or self.gate.unreadable(source, now, error.request):
                self._inbound.refuse_alone(error.request, source, error.status)
        except BadSip:
            self.rejected += 1
            if self.gate is not None:
                self.gate.unreadable(source, now)

    def _banned(self, source: Hop, data: bytes, now: float) -> bool:
        """Whether a request is dropped unread: a ban holds for all that belongs to no call here."""
        gate = self.gate
        if not isinstance(gate, SourceGate) or not gate.banned(source.host, now):
            return False
        if self._concerns_call(data):
            return False
        gate.counts["banned"] += 1
        return True

    def _concerns_call(self, data: bytes) -> bool:
        """Whether the Call-ID of a message, still unread, is that of a call here."""
        found = CALL_ID.search(data, 0, MAX_HEAD_BYTES)
        if found is None:
            return False
        return self.dialogs.has_call(found[1].decode("utf-8", "replace").strip(" \t"))

    def transport_failed(self, hop: Hop, now: float, cause: CallError | None = None) -> None:
        """Nothing could be delivered to that hop; ``cause`` where more is known."""
        self.layer.transport_failed(hop, now, cause)

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""
        deadlines = [self.layer.next_deadline()]
        deadlines += [timed.next_deadline() for timed in (*self.calls, *self.timed)]
        return min((at for at in deadlines if at is not None), default=None)

    def tick(self, now: float) -> None:
        """Fire the timers that are due."""
        self.layer.tick(now)
        for timed in (*self.calls, *self.timed):
            deadline = timed.next_deadline()
            if deadline is not None and deadline <= now:
                timed.tick(now)

    def place(
        self,
        target: str,
        sdp: str,
        now: float,
        *,
        digest: Digest | None = None,
        identity: str = "",
        proxy: str = "",
        headers: Mapping[str, str] | None = None,
        hop: Hop | None = None,
        user: str = "",
        display_name: str = "",
    ) -> OutgoingCall:
        """Call someone. ``identity`` is our address of record, by default the endpoint's own.

        ``hop`` is where DNS says that the proxy or target is; ``user`` stands in our Contact.

        Raises BadSip when the target, the proxy or a header cannot be used.
        """
        target = target.strip()
        uri = parse_uri(target)
        if uri.scheme == "tel" and not proxy:
            raise BadSip(
                f"{target!r} is a telephone number.",
                remedy="Say which server shall connect it: sip:NUMBER@SERVER.",
            )
        hop = hop or self.hop(proxy or target)
        check_secure(target, hop.transport)
        if uri.scheme == "sips":
            hop = replace(hop, others=tuple(each for each in hop.others if each.transport != "udp"))
        request = Request("INVITE", target)
        request.add("Max-Forwards", "70")
        if proxy:
            request.add("Route", f"<{loose(proxy)}>")
        request.add(
            "From", f"{self.named(display_name)}<{identity or self.uri(hop)}>;tag={new_tag()}"
        )
        request.add("To", f"<{target}>")
        request.add("Call-ID", new_call_id())
        request.add("CSeq", "1 INVITE")
        request.add("Contact", self.contact(hop, user=user))
        # RFC 3262 section 4: without an offer of ours the answer would have to go into a PRACK.
        self.describe(request, "100rel" if sdp else "")
        request.add_all(check_headers(headers))
        request.set_body(sdp)
        call = OutgoingCall(self, request, hop, digest, now)
        self.calls.add(call)
        call.start(now)
        return call

    # What calls use

    def exchange(
        self,
        request: Request,
        hop: Hop,
        listener: Listener,
        now: float,
        *,
        next_cseq: Callable[[], int],
        digest: Digest | None,
    ) -> Exchange:
        """Send a request and answer its challenges."""
        exchange = Exchange(
            self.layer,
            request,
            hop,
            listener,
            via=self.via,
            next_cseq=next_cseq,
            digest=digest,
            max_retries=self.settings.max_redials,
            contact=self.contact,
            roomier=self.roomier,
            health=self.health,
        )
        exchange.start(now)
        return exchange

    def hop_inside(self, dialog: Dialog) -> Hop:
        """Where requests of a dialog go; raises BadSip."""
        hop = self.hop(dialog.next_hop, dialog.flow)
        for uri in (dialog.target, *(parse_address(route).uri for route in dialog.routes)):
            check_secure(uri)
        if dialog.routes or not self.settings.nat_contacts:
            return hop
        return hop_by(hop, dialog.seen)

    def ack(
        self, dialog: Dialog, invite: Request, cseq: int, sent_to: Hop, digest: Digest | None
    ) -> tuple[Request, Hop]:
        """The ACK to a 2xx (RFC 3261 section 13.2.2.4): along the route set.

        It has the INVITE's credentials where it goes to ``sent_to`` as the INVITE did and no
        further: the servers between need not take them out of it.
        """
        request = dialog.request("ACK", cseq)
        hop = self.hop_inside(dialog)
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
        ack.take(request)
        for name in ("Authorization", "Proxy-Authorization") if same else ():
            for value in invite.headers.getlist(name):
                ack.headers.add(name, value)
        return ack, hop

    def describe(self, message: Request | Response, *options: str) -> None:
        """Say what we are and what we allow; ``options`` are extensions besides those we use."""
        message.add("Allow", ALLOW)
        message.add("Supported", ", ".join(filter(None, ("timer", "replaces", *options))))
        if self.settings.user_agent:
            name = "User-Agent" if isinstance(message, Request) else "Server"
            message.add(name, self.settings.user_agent)

    def remember(self, call: Call, dialog: Dialog) -> None:
        """The call has a dialog: requests inside it are the call's."""
        self.calls.add(call)
        self.dialogs.remember(call, dialog)

    def keep_only(self, call: Call, dialog: Dialog) -> None:
        """The call is answered: of its dialogs only this one goes on."""
        self.dialogs.forget(call)
        self.remember(call, dialog)

    def forget(self, call: Call) -> None:
        """The call is over."""
        self.calls.discard(call)
        self.dialogs.forget(call)
        if isinstance(call, IncomingCall):
            self._inbound.forget(call)

    def watch(self, transfer: TransferCore) -> None:
        """Notices of a transfer of ours may come, even after the end of its call."""
        self.timed.append(transfer)
        self.dialogs.watch(transfer)

    def unwatch(self, transfer: TransferCore) -> None:
        """No more will come."""
        self.timed.remove(transfer)
        self.dialogs.unwatch(transfer)

    def call_ended(self, call: Call) -> None:
        """The owner has been told that a call is over; what belonged to it ends soon."""
        now = self.now()
        for timed in list(self.timed):
            if isinstance(timed, TransferCore | Referral) and timed.dialog is call.dialog:
                timed.call_over(now)

    def close(self) -> None:
        """Nothing comes or goes any more: end what still waits for notices."""
        for timed in list(self.timed):
            if isinstance(timed, TransferCore | Referral):
                timed.close()
