"""User agent server (RFC 3261 section 8.2)."""

from __future__ import annotations

import random
from collections.abc import Callable

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.call.call import Call, CallRegistry, ReferSubscription
from qwen3tts_phone.sip.call.incoming import IncomingCall
from qwen3tts_phone.sip.call.state import DTMF, DTMF_RELAY, CallState, InfoReceived, read_dtmf
from qwen3tts_phone.sip.call.transfer import IncomingRefer
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_phone.sip.core.ua_core import ALLOW, UserAgentCore
from qwen3tts_phone.sip.gate import BUSY_S, DROP, Gate
from qwen3tts_phone.sip.message.fields import check_secure, parse_address, parse_uri
from qwen3tts_phone.sip.message.message import Request, Response, UnsupportedBody, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.message.via import origin_of, response_hop, stamp_via
from qwen3tts_phone.sip.transaction.dialog import MIN_SE_S, Dialog, Replaces, new_tag, too_brief
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.transaction.transaction import Transaction

MAX_INFO_BYTES = 8192
"""Largest body of an INFO that is reported."""


def receive_in_dialog(
    call: Call, request: Request, transaction: Transaction, dialog: Dialog, now: float
) -> None:
    """Dispatch an in-dialog request (RFC 3261 section 12.2.2)."""
    method = request.method
    early = call.dialog is not dialog
    if method == "BYE" and not early:
        call.remote_bye(request, transaction, now)
    elif method in ("INVITE", "UPDATE"):
        call.modification.receive(request, transaction, dialog, now)
    elif method == "PRACK":
        call.receive_prack(request, transaction, dialog, now)
    elif method == "INFO":
        _receive_info(call, request, transaction, now)
    elif method == "REFER":
        IncomingRefer.receive(call, request, transaction, dialog, now)
    elif method == "BYE":
        # Section 15: a callee that has not answered yet cannot hang up.
        transaction.send_response(reply(request, 481), now)
    else:
        response = reply(request, 405)
        response.add("Allow", ALLOW)
        transaction.send_response(response, now)


def _receive_info(call: Call, request: Request, transaction: Transaction, now: float) -> None:
    if call.state is CallState.ENDING:
        transaction.send_response(reply(request, 481), now)
        return
    if request.get("Info-Package") is not None:
        # RFC 6086 section 4.2.2: a package that we have not announced.
        response = reply(request, 469, "Bad INFO Package")
        response.add("Recv-Info", "")
        transaction.send_response(response, now)
        return
    if len(request.body) > MAX_INFO_BYTES:
        transaction.send_response(reply(request, 413, "Request Entity Too Large"), now)
        return
    kind = (request.get("Content-Type") or "").partition(";")[0].strip().lower()
    if kind in (DTMF_RELAY, DTMF):
        try:
            key = read_dtmf(kind, request.body)
        except BadSip:
            transaction.send_response(reply(request, 400), now)
            return
        transaction.send_response(reply(request, 200), now)
        call.notify(key)
        return
    body = request.body
    transaction.send_response(reply(request, 200), now)
    call.notify(InfoReceived(kind if body else "", body))


EXTENSIONS = frozenset({"timer", "100rel", "replaces", "norefersub"})
"""Option tags that a request may require."""
_KNOWN = {
    *("INVITE", "ACK", "CANCEL", "BYE", "OPTIONS", "REGISTER", "PRACK", "UPDATE", "INFO"),
    *("SUBSCRIBE", "NOTIFY", "PUBLISH", "MESSAGE", "REFER"),
}


def refuse(request: Request, status: int, *headers: tuple[str, str]) -> Response:
    response = reply(request, status, to_tag=new_tag())
    for name, value in headers:
        response.add(name, value)
    return response


def validate_request(request: Request, local: Callable[[Hop], tuple[str, int]]) -> Response | None:
    """Return the refusal by general checks, or None; BadSip: 400.

    ``local``: our host and port towards a hop.
    """
    method = request.method
    if method not in ALLOW.split(", "):
        return refuse(request, 405 if method in _KNOWN else 501, ("Allow", ALLOW))
    if request.uri.partition(":")[0].lower() not in ("sip", "sips", "tel"):
        return refuse(request, 416)
    parse_uri(request.uri)
    if request.uri[:5].lower() == "sips:" and request.via.transport.upper() == "UDP":
        # Section 26.2.2: sips: is TLS on each hop.
        return refuse(request, 416)
    for name in ("Contact", "Route", "Record-Route"):
        for value in request.values(name):
            if "sips:" in value.lower():
                check_secure(parse_address(value).uri)
    forwards = request.get("Max-Forwards")
    if forwards is not None:
        if not (forwards.isascii() and forwards.isdigit() and len(forwards) <= 5):
            raise BadSip("Max-Forwards is not a number.")
        # Section 16.3: a request without hops left that is not for us.
        if int(forwards) == 0 and not _is_ours(request, local):
            return refuse(request, 483)
    required = [name for name in request.values("Require") if name.lower() not in EXTENSIONS]
    if required and method != "CANCEL":
        return refuse(request, 420, ("Unsupported", ", ".join(required)))
    if method in ("INVITE", "UPDATE") and too_brief(request):
        return refuse(request, 422, ("Min-SE", str(MIN_SE_S)))
    encoding = request.get("Content-Encoding")
    if encoding and encoding.strip().lower() != "identity":
        return refuse(request, 415, ("Accept-Encoding", "identity"))
    return None


def _is_ours(request: Request, local: Callable[[Hop], tuple[str, int]]) -> bool:
    uri = parse_uri(request.uri)
    via = request.via
    host, port = local(Hop(via.transport.lower(), via.host, via.port or 5060))
    return uri.host.strip("[]").lower() == host and (uri.port or 5060) == port


CONFIRMED = (CallState.ANSWERED, CallState.UP)
OURS_EARLY = (CallState.CALLING, CallState.PROCEEDING)


def call_to_replace(registry: CallRegistry, request: Request) -> Call | int | None:
    """Return the call to replace (RFC 3891 section 3), a status to refuse, or None.

    Raises:
        BadSip: the header names no dialog, or several.
    """
    values = request.headers.getlist("Replaces")
    if not values:
        return None
    if len(values) > 1 or len(request.values("Replaces")) > 1:
        raise BadSip("An INVITE replaces one dialog.")
    wanted = Replaces.parse(values[0])
    found = registry.find(wanted.call_id, wanted.to_tag, wanted.from_tag)
    if found is None:
        return 481
    call, dialog = found
    if not call.may_be_steered_by(request, dialog):
        # RFC 3891 section 8: knowing the tags is not enough.
        return 403
    if call.state in CONFIRMED and call.dialog is dialog:
        return 486 if wanted.early_only else call
    if call.state in OURS_EARLY:
        return call
    # An early dialog that they began cannot be replaced; one that is over is declined.
    return 603 if call.state in (CallState.ENDING, CallState.LEAVING) else 481


ACK_WITHIN_T1 = 4
"""T1 without ACK after which an answered call yields to another, when full."""


class UserAgentServer(UserAgentCore):
    """Dispatcher of messages to transaction, dialog or call."""

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
        super().__init__(settings, now=now, local=local, rng=rng, flush=flush)
        self.registry = CallRegistry()
        self.draining = 0
        """Retry-After while draining, seconds; 0: not."""
        self.busy: Callable[[], int] = lambda: 0
        """Retry-After while full, seconds; 0: not."""
        self.rejected = 0
        """Dropped unusable messages."""
        self.on_call = on_call
        self.digest_of: Callable[[IncomingCall], Digest | None] = lambda call: None
        """Credentials inside incoming dialogs."""
        self.gate = gate

    @property
    def calls(self) -> set[Call]:
        return self.registry.calls

    def receive_response(self, response: Response, now: float) -> None:
        # RFC 3261 section 18.1.2: exactly one Via, ours. A response without a transaction is
        # dropped (RFC 6026 section 8.9).
        if len(response.values("Via")) == 1:
            self.layer.receive_response(response, now)

    def knows(self, request: Request, source: Hop) -> bool:
        if self.layer.find(request) is not None:
            return True
        if request.method == "CANCEL" and self.layer.invite_of_cancel(request, source):
            return True
        tag = request.to.tag
        if tag is None:
            return False
        return self.registry.find(request.call_id, tag, request.from_.tag or "") is not None

    def receive_request(self, request: Request, source: Hop, now: float) -> None:
        stamp_via(request, source)
        hop = response_hop(request, source)
        if self.gate is not None:
            known = self.knows(request, source)
            incoming = (c for c in self.calls if isinstance(c, IncomingCall))
            callers = (origin_of(c.request, c.hop.host) for c in incoming)
            verdict = self.gate.request(request, source, now, known=known, callers=callers)
            if verdict is DROP:
                return
            if verdict is not None:
                # Statelessly: a flood of refusals must not fill the memory.
                if request.method != "ACK":
                    response = refuse(request, verdict.status, *verdict.headers)
                    self.layer.send_statelessly(response, hop)
                return
        if request.method == "ACK" and self.layer.find(request) is None:
            self._receive_ack(request, now)
            return
        if request.method == "CANCEL" and not self.knows(request, source):
            # Statelessly: the matching CANCEL may still come, and looks the same.
            self.layer.send_statelessly(refuse(request, 481), hop)
            return
        if (again_s := self._retry_after_s(request)) > 0:
            # Statelessly: a short response leaves time for the calls that there are.
            busy = ("Retry-After", str(again_s))
            self.layer.send_statelessly(refuse(request, 503, busy), hop)
            return
        transaction = self.layer.receive_request(request, hop, now)
        if transaction is None:
            return
        try:
            self._dispatch(request, transaction, now)
        except BadSip as error:
            self.rejected += 1
            wrong_body = isinstance(error, UnsupportedBody)
            response = refuse(request, 415 if wrong_body else 400)
            if wrong_body:
                response.add("Accept", "application/sdp")
            transaction.send_response(response, now)

    def _dispatch(self, request: Request, transaction: Transaction, now: float) -> None:
        method = request.method
        refused = validate_request(request, self.local)
        if refused is not None:
            transaction.send_response(refused, now)
            return
        if method == "CANCEL":
            self._receive_cancel(request, transaction, now)
            return
        local_tag = request.to.tag
        if local_tag is not None:
            self._receive_in_dialog(request, transaction, local_tag, now)
        elif self.layer.is_merged(request):
            transaction.send_response(refuse(request, 482), now)
        elif method == "OPTIONS":
            transaction.send_response(self._capabilities(request), now)
        elif method == "INVITE":
            self._receive_invite(request, transaction, now)
        else:
            # A REFER or NOTIFY without a call is refused (no open relay).
            status = 403 if method == "REFER" else 481
            transaction.send_response(refuse(request, status), now)

    def _retry_after_s(self, request: Request) -> int:
        if request.method == "ACK" or self.layer.find(request) is not None:
            return 0
        new_call = request.method == "INVITE" and request.to.tag is None
        if new_call and request.get("Replaces") is None and (again_s := self.busy()):
            return again_s
        return 0 if self.layer.has_room(self.now()) else BUSY_S

    def _receive_cancel(self, request: Request, transaction: Transaction, now: float) -> None:
        invite = self.layer.invite_of_cancel(request, transaction.hop)
        if invite is None:
            transaction.send_response(refuse(request, 481), now)
            return
        owner = invite.server_owner
        call = owner if isinstance(owner, IncomingCall) else None
        tag = invite.response.to.tag if invite.response is not None else None
        if tag is None and call is not None and call.dialog is not None:
            tag = call.dialog.local_tag
        transaction.send_response(reply(request, 200, to_tag=tag or new_tag()), now)
        if call is not None:
            call.cancelled(invite, now, request)
            return
        for inside in self.calls:
            if inside.modification.cancelled(invite, now):
                return

    def _receive_in_dialog(
        self, request: Request, transaction: Transaction, local_tag: str, now: float
    ) -> None:
        found = self.registry.find(request.call_id, local_tag, request.from_.tag or "")
        transfer = (
            self.registry.subscription_of(request, local_tag)
            if request.method == "NOTIFY"
            else None
        )
        if found is None and transfer is None:
            transaction.send_response(refuse(request, 481), now)
            return
        dialog = found[1] if found is not None else transfer.dialog if transfer else None
        # Section 12.2.2: order is checked before anything else is believed. A PRACK is
        # matched by its RAck, and may have been overtaken by later requests of its sender.
        in_order = dialog is not None and dialog.accept_cseq(request.cseq)
        if not in_order and request.method != "PRACK":
            transaction.send_response(refuse(request, 500), now)
        elif request.method == "NOTIFY":
            self._receive_notify(request, transaction, transfer, now)
        elif request.method == "OPTIONS":
            transaction.send_response(self._capabilities(request), now)
        elif found is not None:
            receive_in_dialog(found[0], request, transaction, found[1], now)

    def _receive_notify(
        self,
        request: Request,
        transaction: Transaction,
        transfer: ReferSubscription | None,
        now: float,
    ) -> None:
        event = (request.get("Event") or request.get("o") or "").partition(";")[0].strip().lower()
        if event != "refer":
            transaction.send_response(refuse(request, 489, ("Allow-Events", "refer")), now)
        elif transfer is None:
            transaction.send_response(refuse(request, 481), now)
        else:
            transfer.receive(request, transaction, now)

    def _receive_ack(self, request: Request, now: float) -> None:
        local_tag = request.to.tag
        if local_tag is None:
            return
        found = self.registry.find(request.call_id, local_tag, request.from_.tag or "")
        if found is not None:
            found[0].receive_ack(request, now)

    def _receive_invite(self, request: Request, transaction: Transaction, now: float) -> None:
        replaced = call_to_replace(self.registry, request)
        if isinstance(replaced, int):
            transaction.send_response(refuse(request, replaced), now)
            return
        if self.draining and replaced is None:
            busy = ("Retry-After", str(self.draining))
            transaction.send_response(refuse(request, 503, busy), now)
            return
        # A replacement needs no room of its own.
        if replaced is None and self._is_full() and not self._make_room(now):
            transaction.send_response(refuse(request, 486, ("Retry-After", "10")), now)
            return
        call = IncomingCall(self, self.registry, request, transaction, now, replaced)
        if call.dialog is not None:
            self.registry.remember(call, call.dialog)
        call.digest = self.digest_of(call)
        self.on_call(call)

    def _capabilities(self, request: Request) -> Response:
        # Return the response to OPTIONS: what an INVITE would get (section 11.2).
        status = 486 if self._is_full() and request.to.tag is None else 200
        again_s = self.draining or self.busy()
        if again_s and request.to.tag is None:
            status = 503
        response = reply(request, status, to_tag=new_tag())
        if status == 503:
            response.add("Retry-After", str(again_s))
        response.add("Accept", "application/sdp")
        self.describe(response, "100rel")
        return response

    def _is_full(self) -> bool:
        if len(self.calls) < self.settings.max_calls:
            return False
        going = sum(call.state is not CallState.ENDING for call in self.calls)
        return going >= self.settings.max_calls

    def _make_room(self, now: float) -> bool:
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

    def refuse_statelessly(self, request: Request, source: Hop, status: int) -> None:
        if request.method == "ACK":
            return
        try:
            stamp_via(request, source)
            self.layer.send_statelessly(refuse(request, status), response_hop(request, source))
        except BadSip:
            self.rejected += 1
