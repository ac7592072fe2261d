"""The SIP user agent without I/O: bytes and ``now`` in; bytes to send and events out.

After every call into it the shell drains ``outbox`` (what to send) and asks ``next_deadline``.
Requests are checked in the order of RFC 3261 section 8.2.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.auth import Digest
from qwen3tts_phone.sip.call import Call
from qwen3tts_phone.sip.call_state import CallState
from qwen3tts_phone.sip.dialog import Dialog, DialogId, new_branch, new_call_id, new_tag
from qwen3tts_phone.sip.exchange import Exchange, Listener
from qwen3tts_phone.sip.fields import parse_uri, uri_parameter
from qwen3tts_phone.sip.incoming import IncomingCall
from qwen3tts_phone.sip.layer import TransactionLayer
from qwen3tts_phone.sip.message import (
    Request,
    Response,
    UnusableRequest,
    WrongBody,
    parse_message,
    reply,
)
from qwen3tts_phone.sip.outgoing import OutgoingCall
from qwen3tts_phone.sip.refusals import ALLOW, refusal, refuse
from qwen3tts_phone.sip.settings import SipSettings
from qwen3tts_phone.sip.transaction import Hop, Send, Transaction
from qwen3tts_phone.sip.via import bracketed, loose, reply_hop, stamp_via

ACK_WITHIN_T1 = 4
"""Times T1 after which an answer without ACK gives way to another caller, when there is no room."""


class Timed(Protocol):
    """Something besides calls that waits for its time: a registration."""

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is next needed."""

    def tick(self, now: float) -> None:
        """Do what is due."""


class Agent:
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
    ) -> None:
        self.settings = settings
        self.now = now
        self.flush = flush
        self.random = rng or random.SystemRandom()
        self.layer = TransactionLayer(settings.timers)
        self.timed: list[Timed] = []
        self.calls: set[Call] = set()
        self.rejected = 0
        """Messages dropped because they could not be used."""
        self._local = local
        self._on_call = on_call
        self._dialogs: dict[DialogId, Call] = {}
        self._invites: dict[Transaction, IncomingCall] = {}

    @property
    def outbox(self) -> deque[Send]:
        """What is to be sent."""
        return self.layer.outbox

    # What the shell calls

    def receive(self, data: bytes, source: Hop, now: float) -> None:
        """A datagram, or one message of a stream. Garbage is counted and dropped, or gets 400."""
        try:
            message = parse_message(data)
            message.flow = source.flow
            if isinstance(message, Response):
                self._receive_response(message, now)
            else:
                self._receive_request(message, source, now)
        except UnusableRequest as error:
            self.rejected += 1
            self._refuse_alone(error.request, source, error.status)
        except BadSip:
            self.rejected += 1

    def transport_failed(self, hop: Hop, now: float) -> None:
        """Nothing could be delivered to that hop."""
        self.layer.transport_failed(hop, now)

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
        headers: dict[str, str] | None = None,
    ) -> OutgoingCall:
        """Call someone. ``identity`` is our address of record, by default the endpoint's own.

        Raises BadSip when the target, the proxy or a header cannot be used.
        """
        target = target.strip()
        uri = parse_uri(target)
        if uri.scheme == "tel" and not proxy:
            raise BadSip(
                f"{target!r} is a telephone number.",
                remedy="Say which server shall connect it: sip:NUMBER@SERVER.",
            )
        hop = self.hop(proxy or target)
        request = Request("INVITE", target)
        request.add("Max-Forwards", "70")
        if proxy:
            request.add("Route", f"<{loose(proxy)}>")
        request.add("From", f"{self._name()}<{identity or self.uri(hop)}>;tag={new_tag()}")
        request.add("To", f"<{target}>")
        request.add("Call-ID", new_call_id())
        request.add("CSeq", "1 INVITE")
        request.add("Contact", self.contact(hop))
        self.describe(request)
        for name, value in (headers or {}).items():
            if not name.replace("-", "").isalnum() or not name.isascii():
                raise BadSip(f"{name!r} is not the name of a header.")
            request.add(name, value)
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
        )
        exchange.start(now)
        return exchange

    def ack(self, dialog: Dialog, invite: Request, cseq: int) -> tuple[Request, Hop]:
        """The ACK to a 2xx (RFC 3261 section 13.2.2.4): along the route set, same credentials."""
        request = dialog.request("ACK", cseq)
        hop = self.hop(dialog.next_hop, dialog.flow)
        ack = Request("ACK", request.uri)
        ack.add("Via", f"{self.via(hop)};branch={new_branch()};rport")
        ack.take(request)
        for name in ("Authorization", "Proxy-Authorization"):
            for value in invite.headers.getlist(name):
                ack.headers.add(name, value)
        return ack, hop

    def hop(self, uri_text: str, flow: int = 0) -> Hop:
        """Where requests to a URI go; raises BadSip for what we cannot speak."""
        uri = parse_uri(uri_text)
        if uri.scheme != "sip":
            raise BadSip(
                f"{uri_text!r} needs {'TLS' if uri.scheme == 'sips' else 'a gateway'}, which is "
                "not available here.",
                remedy="Use a sip: address.",
            )
        transport = (uri_parameter(uri, "transport") or self.settings.transports[0]).lower()
        if transport not in self.settings.transports:
            raise BadSip(
                f"The transport {transport!r} of {uri_text!r} is not enabled.",
                remedy=f"Use one of: {', '.join(self.settings.transports)}.",
            )
        return Hop(transport, uri.host.strip("[]").lower(), uri.port or 5060, flow)

    def via(self, hop: Hop) -> str:
        """The start of our Via for a hop; the branch is the caller's."""
        host, port = self._local(hop)
        return f"SIP/2.0/{hop.transport.upper()} {bracketed(host)}:{port}"

    def uri(self, hop: Hop) -> str:
        """Our own address as seen from a hop."""
        host, port = self._local(hop)
        user = self.settings.user
        return f"sip:{user}@{bracketed(host)}:{port}"

    def local_host(self, hop: Hop) -> str:
        """Our own host as seen from a hop."""
        return self._local(hop)[0]

    def contact(self, hop: Hop) -> str:
        """Our Contact value for a hop, with its transport where it is not UDP."""
        suffix = "" if hop.transport == "udp" else f";transport={hop.transport}"
        return f"<{self.uri(hop)}{suffix}>"

    def describe(self, message: Request | Response) -> None:
        """Say what we are and what we allow."""
        message.add("Allow", ALLOW)
        message.add("Supported", "timer")
        name = "User-Agent" if isinstance(message, Request) else "Server"
        message.add(name, self.settings.user_agent)

    def remember(self, call: Call) -> None:
        """The call has a dialog: requests inside it are the call's."""
        self.calls.add(call)
        if call.dialog is not None:
            self._dialogs[call.dialog.id] = call

    def forget(self, call: Call) -> None:
        """The call is over."""
        self.calls.discard(call)
        if call.dialog is not None and self._dialogs.get(call.dialog.id) is call:
            del self._dialogs[call.dialog.id]
        if isinstance(call, IncomingCall):
            self._invites.pop(call.transaction, None)

    # Messages that come in

    def _receive_response(self, response: Response, now: float) -> None:
        # RFC 3261 section 18.1.2: one Via, and it is ours (else it is somebody else's answer).
        # A response that belongs to no transaction is dropped (RFC 6026 section 8.9).
        if len(response.values("Via")) == 1:
            self.layer.receive_response(response, now)

    def _receive_request(self, request: Request, source: Hop, now: float) -> None:
        stamp_via(request, source)
        hop = reply_hop(request, source)
        known = self.layer.find(request)
        if known is None and request.method == "ACK":
            self._receive_ack(request, now)
            return
        transaction = self.layer.receive_request(request, hop, now)
        if transaction is None:
            return
        try:
            self._dispatch(request, transaction, now)
        except BadSip as error:
            self.rejected += 1
            wrong_body = isinstance(error, WrongBody)
            response = refuse(request, 415 if wrong_body else 400)
            if wrong_body:
                response.add("Accept", "application/sdp")
            transaction.send_response(response, now)

    def _dispatch(self, request: Request, transaction: Transaction, now: float) -> None:
        method = request.method
        refused = refusal(request, self._local)
        if refused is not None:
            transaction.send_response(refused, now)
            return
        if method == "CANCEL":
            self._receive_cancel(request, transaction, now)
            return
        local_tag = request.to.tag
        if local_tag is not None:
            self._receive_inside(request, transaction, local_tag, now)
        elif self.layer.is_merged(request):
            transaction.send_response(refuse(request, 482), now)
        elif method == "OPTIONS":
            transaction.send_response(self._capabilities(request), now)
        elif method == "INVITE":
            self._receive_invite(request, transaction, now)
        else:
            transaction.send_response(refuse(request, 481), now)

    def _receive_cancel(self, request: Request, transaction: Transaction, now: float) -> None:
        invite = self.layer.cancelled_by(request)
        call = self._invites.get(invite) if invite is not None else None
        if invite is None:
            transaction.send_response(refuse(request, 481), now)
            return
        tag = invite.response.to.tag if invite.response is not None else None
        if tag is None and call is not None and call.dialog is not None:
            tag = call.dialog.local_tag
        transaction.send_response(reply(request, 200, to_tag=tag or new_tag()), now)
        if call is not None:
            call.cancelled(invite, now)
            return
        for inside in self.calls:
            if inside.modification.cancelled(invite, now):
                return

    def _receive_inside(
        self, request: Request, transaction: Transaction, local_tag: str, now: float
    ) -> None:
        call = self._dialogs.get((request.call_id, local_tag, request.from_.tag or ""))
        if call is None or call.dialog is None:
            transaction.send_response(refuse(request, 481), now)
            return
        # Section 12.2.2: order is checked before anything else is believed.
        if not call.dialog.accept_cseq(request.cseq):
            transaction.send_response(refuse(request, 500), now)
        elif request.method == "OPTIONS":
            transaction.send_response(self._capabilities(request), now)
        else:
            call.receive(request, transaction, now)

    def _receive_ack(self, request: Request, now: float) -> None:
        local_tag = request.to.tag
        if local_tag is None:
            return
        call = self._dialogs.get((request.call_id, local_tag, request.from_.tag or ""))
        if call is not None:
            call.receive_ack(request, now)

    def _receive_invite(self, request: Request, transaction: Transaction, now: float) -> None:
        if self._is_full() and not self._made_room(now):
            transaction.send_response(refuse(request, 486, ("Retry-After", "10")), now)
            return
        call = IncomingCall(self, request, transaction, now)
        self._invites[transaction] = call
        self.remember(call)
        self._on_call(call)

    def _capabilities(self, request: Request) -> Response:
        """RFC 3261 section 11.2: what an INVITE would get."""
        status = 486 if self._is_full() and request.to.tag is None else 200
        response = reply(request, status, to_tag=new_tag())
        response.add("Accept", "application/sdp")
        self.describe(response)
        return response

    def _is_full(self) -> bool:
        """Whether there are as many calls as there may be; those that are ending do not count."""
        if len(self.calls) < self.settings.max_calls:
            return False
        going = sum(call.state is not CallState.ENDING for call in self.calls)
        return going >= self.settings.max_calls

    def _made_room(self, now: float) -> bool:
        """Give up the call whose answer has been without its ACK for longest, if for too long.

        So callers that never complete a call cannot keep the others out.
        """
        waiting = [
            (since, call)
            for call in self.calls
            if isinstance(call, IncomingCall)
            and (since := call.unacknowledged_since()) is not None
            and now - since >= ACK_WITHIN_T1 * self.settings.timers.t1
        ]
        if not waiting:
            return False
        min(waiting, key=lambda pair: pair[0])[1].no_ack(now)
        return True

    def _refuse_alone(self, request: Request, source: Hop, status: int) -> None:
        if request.method == "ACK":
            return
        try:
            stamp_via(request, source)
            self.layer.send_alone(refuse(request, status), reply_hop(request, source))
        except BadSip:
            self.rejected += 1

    def _name(self) -> str:
        name = self.settings.display_name
        if not name:
            return ""
        return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '" '
