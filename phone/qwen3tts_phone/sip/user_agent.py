"""User agent without I/O: bytes and ``now`` in, bytes and events out.

Drain ``outbox`` after each call and heed ``next_deadline``. Checks follow RFC 3261 section 8.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from qwen3tts_phone.errors import BadSip, CallError
from qwen3tts_phone.sip.call.outgoing import OutgoingCall
from qwen3tts_phone.sip.core.account import Account, address_of_record
from qwen3tts_phone.sip.core.ua_core import Timed
from qwen3tts_phone.sip.gate import SourceGate
from qwen3tts_phone.sip.message.fields import check_headers, check_secure, parse_uri
from qwen3tts_phone.sip.message.message import (
    CALL_ID,
    MAX_HEAD_BYTES,
    InvalidRequest,
    Request,
    Response,
    parse_message,
)
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.message.via import loose_route
from qwen3tts_phone.sip.transaction.dialog import new_call_id, new_tag
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.uas import UserAgentServer


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """Identity of an outgoing call; empty: the endpoint's."""

    identity: str = ""
    """Address of record in From."""
    user: str = ""
    """User part of our Contact."""
    display_name: str = ""
    proxy: str = ""
    """Outbound proxy as a SIP URI."""

    @classmethod
    def of(cls, account: Account | None) -> CallOrigin:
        if account is None:
            return cls()
        identity = address_of_record(account) if account.user else ""
        return cls(identity, account.user, account.display_name, account.proxy)


class UserAgent(UserAgentServer):
    """SIP user agent between the transports and the calls."""

    # Called by the shell

    def receive(self, data: bytes, source: Hop, now: float) -> None:
        if self.gate is not None and not self.gate.message(data, source, now):
            return
        if data[:4].upper() == b"SIP/":
            # The gate lets responses of any source pass: a flood of them must cost little.
            wanted = self.layer.may_match(data)
        else:
            wanted = not self._banned(source, data, now)
        if not wanted:
            self.rejected += 1
            return
        try:
            message = parse_message(data)
            message.flow, message.source = source.flow, source
            if isinstance(message, Response):
                self.receive_response(message, now)
            else:
                self.receive_request(message, source, now)
        except InvalidRequest as error:
            self.rejected += 1
            if self.gate is None or self.gate.unreadable(source, now, error.request):
                self.refuse_statelessly(error.request, source, error.status)
        except BadSip:
            self.rejected += 1
            if self.gate is not None:
                self.gate.unreadable(source, now)

    def _banned(self, source: Hop, data: bytes, now: float) -> bool:
        gate = self.gate
        if not isinstance(gate, SourceGate) or not gate.banned(source.host, now):
            return False
        if self._concerns_call(data):
            return False
        gate.counts["banned"] += 1
        return True

    def _concerns_call(self, data: bytes) -> bool:
        found = CALL_ID.search(data, 0, MAX_HEAD_BYTES)
        if found is None:
            return False
        return self.registry.has_dialog_of(found[1].decode("utf-8", "replace").strip(" \t"))

    def transport_failed(self, hop: Hop, now: float, cause: CallError | None = None) -> None:
        self.layer.transport_failed(hop, now, cause)

    def next_deadline(self) -> float | None:
        deadlines = [self.layer.next_deadline()]
        deadlines += [timed.next_deadline() for timed in self._timed()]
        return min((at for at in deadlines if at is not None), default=None)

    def tick(self, now: float) -> None:
        self.layer.tick(now)
        for timed in self._timed():
            deadline = timed.next_deadline()
            if deadline is not None and deadline <= now:
                timed.tick(now)

    def _timed(self) -> tuple[Timed, ...]:
        return (*self.calls, *self.registry.usages, *self.timed)

    def place(
        self,
        target: str,
        sdp: str,
        now: float,
        *,
        digest: Digest | None = None,
        origin: CallOrigin | None = None,
        headers: Mapping[str, str] | None = None,
        hop: Hop | None = None,
    ) -> OutgoingCall:
        """Place a call; ``hop`` is the located proxy or target.

        Raises:
            BadSip: target, proxy or header cannot be used.
        """
        origin = origin or CallOrigin()
        proxy = origin.proxy
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
            request.add("Route", f"<{loose_route(proxy)}>")
        sender = f"{self.named(origin.display_name)}<{origin.identity or self.uri(hop)}>"
        request.add("From", f"{sender};tag={new_tag()}")
        request.add("To", f"<{target}>")
        request.add("Call-ID", new_call_id())
        request.add("CSeq", "1 INVITE")
        request.add("Contact", self.contact(hop, user=origin.user))
        # RFC 3262 section 4: without an offer of ours the answer would have to go into a PRACK.
        self.describe(request, "100rel" if sdp else "")
        request.add_all(check_headers(headers))
        request.set_body(sdp)
        call = OutgoingCall(self, self.registry, request, hop, digest, now)
        self.registry.calls.add(call)
        call.start(now)
        return call

    def close(self) -> None:
        self.registry.close()
