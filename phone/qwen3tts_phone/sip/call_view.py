"""What a program can read of a call: who, where, which headers, how far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qwen3tts_phone.sip.call_headers import CallHeaders
from qwen3tts_phone.sip.call_state import CallState
from qwen3tts_phone.sip.incoming import IncomingCall
from qwen3tts_phone.sip.outgoing import OutgoingCall

if TYPE_CHECKING:
    from qwen3tts_phone.sip.sip_call import SipCall


class CallView:
    """The facts of one call, as they are now."""

    def __init__(self, core: OutgoingCall | IncomingCall) -> None:
        self._core = core

    @property
    def core(self) -> OutgoingCall | IncomingCall:
        """The call without I/O. For the endpoint."""
        return self._core

    @property
    def direction(self) -> str:
        """``in`` or ``out``."""
        return self._core.direction

    @property
    def state(self) -> CallState:
        """Where the call stands."""
        return self._core.state

    @property
    def offer(self) -> str | None:
        """The offer of a call that came in; None where it leaves the offer to us."""
        return self._core.offer if isinstance(self._core, IncomingCall) else None

    @property
    def call_id(self) -> str:
        """The Call-ID."""
        return self._core.call_id

    @property
    def local_sdp(self) -> str | None:
        """What we last described, offer or answer, as far as it holds."""
        return self._core.local_sdp

    @property
    def remote_uri(self) -> str:
        """Whom we talk to: the far end's From, or the address called."""
        return self._core.remote_uri

    @property
    def dialled_uri(self) -> str:
        """The address that was called, by them or by us."""
        return self._core.dialled_uri

    @property
    def local_host(self) -> str:
        """Our own address as the far end of this call is told; good for the SDP as well."""
        return self._core.local_host

    @property
    def local_uri(self) -> str:
        """Who we are in this call: our From, or the To that they called."""
        return self._core.local_uri

    @property
    def display_name(self) -> str:
        """The name that the caller gives; empty on a call of ours, or where there is none."""
        core = self._core
        return core.request.from_.name if isinstance(core, IncomingCall) else ""

    @property
    def transport(self) -> str:
        """``udp``, ``tcp`` or ``tls``: how the INVITE went, or came."""
        return self._core.hop.transport

    @property
    def remote_address(self) -> tuple[str, int]:
        """Host and port that the INVITE went to, or that answers to it go to."""
        return self._core.hop.host, self._core.hop.port

    @property
    def user_agent(self) -> str:
        """What the far end says it is; empty where it does not."""
        return self._core.remote_agent

    @property
    def headers(self) -> CallHeaders:
        """The header lines of their INVITE; empty on a call of ours."""
        return self._core.headers

    @property
    def answer_headers(self) -> CallHeaders:
        """The header lines of their answer; empty before it, and on a call that came in."""
        return self._core.answer_headers

    @property
    def asserted_identity(self) -> str | None:
        """Who their network says they are (P-Asserted-Identity, RFC 3325), as a URI.

        None unless it came from a server of an account or a trusted network: of a stranger it is
        no more than the From.
        """
        if not self._core.is_vouched_for:
            return None
        theirs = self.headers if self.direction == "in" else self.answer_headers
        return theirs.uri("P-Asserted-Identity")

    @property
    def diversion(self) -> str | None:
        """Who sent the call on to us (Diversion, RFC 5806), as a URI: the last one to do so."""
        return self.headers.uri("Diversion")

    @property
    def replaces(self) -> SipCall | None:
        """The call whose place this one takes when it is answered (RFC 3891), or None."""
        core = self._core
        replaced = core.replaced if isinstance(core, IncomingCall) else None
        return replaced.owner if replaced is not None else None

    @property
    def replaced_by(self) -> SipCall | None:
        """The call that took the place of this one, or None."""
        new = self._core.replaced_by
        return new.owner if new is not None else None

    @property
    def can_send_early_media(self) -> bool:
        """Whether :meth:`ringing` may describe early media.

        Not where the caller leaves the offer to us and does not acknowledge provisional answers.
        """
        core = self._core
        return isinstance(core, IncomingCall) and core.can_send_early_media

    def allows(self, method: str) -> bool:
        """Whether the far end allows a method; True where it has not said."""
        return self._core.may_allow(method)
