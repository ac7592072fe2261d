"""Call for programs: operations, facts and events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from qwen3tts_phone.errors import CalleeUnreachable, CallError, WrongState
from qwen3tts_phone.sdp.session import Direction, Negotiated, SdpSession
from qwen3tts_phone.sip.call.call import Call
from qwen3tts_phone.sip.call.incoming import IncomingCall
from qwen3tts_phone.sip.call.modification import Method, Offer
from qwen3tts_phone.sip.call.outgoing import OutgoingCall
from qwen3tts_phone.sip.call.state import (
    DEFAULT_DURATION_MS,
    DTMF_RELAY,
    Answered,
    CallEvent,
    CallState,
    EarlyAnswer,
    Ended,
    ReferReceived,
    ReinviteReceived,
    dtmf_relay,
)
from qwen3tts_phone.sip.call.transfer import OutgoingRefer, Transfer
from qwen3tts_phone.sip.core.failure import call_refused
from qwen3tts_phone.sip.message.fields import CallHeaders, check_headers, parse_uri
from qwen3tts_phone.sip.message.message import Response
from qwen3tts_phone.sip.transaction.client_request import OutcomeListener
from qwen3tts_phone.sip.transaction.dialog import ReferTo, Replaces
from qwen3tts_phone.sip.transaction.transaction import Failure

MAX_UNREAD_EVENTS = 64
"""Unread events; beyond it session changes are refused."""


class CallHost(Protocol):
    def now(self) -> float: ...

    def flush(self) -> None: ...

    async def until_over(self, call: Call) -> None: ...


class SipCall:
    """Call in either direction. Made by :class:`SipEndpoint`."""

    def __init__(self, host: CallHost, core: OutgoingCall | IncomingCall) -> None:
        self._host = host
        self._core = core
        self._queue: asyncio.Queue[CallEvent] = asyncio.Queue()
        self._answered: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self.ended: Ended | None = None
        """End of the call, once reached."""
        self.remote_sdp: str | None = core.offer if isinstance(core, IncomingCall) else None
        """The far end's last SDP."""
        core.notify = self._notify
        core.owner = self

    @property
    def events(self) -> AsyncIterator[CallEvent]:
        """Events for one reader; ends after :class:`Ended`."""
        return self._events()

    async def _events(self) -> AsyncIterator[CallEvent]:
        while not (self._over.is_set() and self._queue.empty()):
            event = await self._queue.get()
            yield event
            if isinstance(event, Ended):
                return

    # Facts

    @property
    def core(self) -> OutgoingCall | IncomingCall:
        return self._core

    @property
    def direction(self) -> str:
        """``in`` or ``out``."""
        return self._core.direction

    @property
    def state(self) -> CallState:
        return self._core.state

    @property
    def offer(self) -> str | None:
        """Offer of an incoming call, or None."""
        return self._core.offer if isinstance(self._core, IncomingCall) else None

    @property
    def call_id(self) -> str:
        return self._core.call_id

    @property
    def local_sdp(self) -> str | None:
        return self._core.local_sdp

    @property
    def remote_uri(self) -> str:
        return self._core.remote_uri

    @property
    def dialled_uri(self) -> str:
        return self._core.dialled_uri

    @property
    def local_host(self) -> str:
        return self._core.local_host

    @property
    def local_uri(self) -> str:
        return self._core.local_uri

    @property
    def display_name(self) -> str:
        core = self._core
        return core.request.from_.name if isinstance(core, IncomingCall) else ""

    @property
    def transport(self) -> str:
        """Transport of the INVITE: ``udp``, ``tcp`` or ``tls``."""
        return self._core.hop.transport

    @property
    def remote_address(self) -> tuple[str, int]:
        return self._core.hop.host, self._core.hop.port

    @property
    def user_agent(self) -> str:
        return self._core.remote_agent

    @property
    def headers(self) -> CallHeaders:
        return self._core.headers

    @property
    def answer_headers(self) -> CallHeaders:
        return self._core.answer_headers

    @property
    def asserted_identity(self) -> str | None:
        """P-Asserted-Identity URI (RFC 3325) from a trusted source, or None."""
        if not self._core.is_identity_trusted:
            return None
        theirs = self.headers if self.direction == "in" else self.answer_headers
        return theirs.uri("P-Asserted-Identity")

    @property
    def diversion(self) -> str | None:
        """The last Diversion (RFC 5806) as a URI."""
        return self.headers.uri("Diversion")

    @property
    def replaces(self) -> SipCall | None:
        """Call replaced by the answer (RFC 3891), or None."""
        core = self._core
        return _owner_of(core.replaced if isinstance(core, IncomingCall) else None)

    @property
    def replaced_by(self) -> SipCall | None:
        """Call that replaced this one, or None."""
        return _owner_of(self._core.replaced_by)

    @property
    def can_send_early_media(self) -> bool:
        """True if :meth:`ringing` may have SDP: offer or 100rel."""
        core = self._core
        return isinstance(core, IncomingCall) and core.can_send_early_media

    def allows(self, method: str) -> bool:
        """Return whether the far end allows a method; True where it has not said."""
        return self._core.may_allow(method)

    # Caller

    async def answered(self) -> str | None:
        return await asyncio.shield(self._answered)

    async def cancel(self) -> None:
        core = self._core
        if not isinstance(core, OutgoingCall):
            raise WrongState("Only a call of ours can be cancelled; reject this one.")
        core.cancel(self._host.now())
        self._host.flush()
        await self.wait_ended()

    # Callee

    def ringing(
        self,
        sdp: str | None = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send 180, 183 with early media, or ``status`` (180 to 199)."""
        self._callee().ring(self._host.now(), sdp, status, headers)
        self._host.flush()

    async def answer(self, sdp: str, headers: Mapping[str, str] | None = None) -> None:
        """Send 200, after the PRACK of early media. ``Answered`` follows with the ACK."""
        self._callee().answer(sdp, self._host.now(), headers)
        self._host.flush()

    async def reject(
        self, status: int = 486, reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Refuse the call with a status of 300 to 699."""
        self._callee().reject(status, self._host.now(), reason, headers)
        self._host.flush()

    # Both sides

    async def bye(self, headers: Mapping[str, str] | None = None) -> None:
        """Hang up by BYE, CANCEL or 480, and wait for the response."""
        self._core.hang_up(self._host.now(), headers)
        self._host.flush()
        await self._host.until_over(self._core)

    async def wait_ended(self) -> Ended:
        await self._over.wait()
        if self.ended is None:
            raise WrongState("The endpoint was closed.")
        return self.ended

    async def reinvite(self, offer: Offer) -> str:
        """Offer a changed session; return the answer. Raises CallError.

        A function makes the offer on sending, which may follow a change of theirs.
        """
        return await self._offer(offer, "INVITE")

    async def update(self, offer: Offer) -> str:
        """Offer by UPDATE (RFC 3311), also before the answer."""
        return await self._offer(offer, "UPDATE")

    async def _offer(self, offer: Offer, method: Method) -> str:
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def finish(result: str | CallError) -> None:
            if done.done():
                return
            if isinstance(result, CallError):
                done.set_exception(result)
            else:
                done.set_result(result)

        self._core.modification.start(offer, finish, self._host.now(), method)
        self._host.flush()
        answer = await done
        self.remote_sdp = answer
        return answer

    # Requests without effect on the session

    async def info(self, content_type: str, body: bytes) -> None:
        """Send an INFO (RFC 6086) with a body; raises CallRefused."""
        outcome = await self._ask("INFO", content_type, body)
        if isinstance(outcome, Failure):
            raise CalleeUnreachable("The far end did not answer to the INFO.", why="session")
        if outcome.status >= 300:
            raise call_refused(outcome, self._core.digest, what="INFO")

    async def send_dtmf_info(self, digit: str, duration_ms: int = DEFAULT_DURATION_MS) -> None:
        """Send a key by INFO (``application/dtmf-relay``); raises CallRefused."""
        await self.info(DTMF_RELAY, dtmf_relay(digit, duration_ms))

    async def probe(self) -> bool:
        """Send OPTIONS in the dialog; False on 481 or timeout."""
        outcome = await self._ask("OPTIONS")
        return isinstance(outcome, Response) and outcome.status not in (408, 481)

    async def _ask(
        self, method: str, content_type: str = "", body: bytes = b""
    ) -> Response | Failure:
        core = self._core
        dialog = core.session_dialog()
        if dialog is None or core.state in (CallState.ENDING, CallState.ENDED):
            raise WrongState(f"There is no dialog to send the {method} in.")
        request = dialog.request(method)
        core.agent.describe(request)
        if body:
            request.add("Content-Type", content_type)
            request.body = body
        done: asyncio.Future[Response | Failure] = asyncio.get_running_loop().create_future()

        def told(outcome: Response | Failure, now: float) -> None:
            if not done.done():
                done.set_result(outcome)

        core.send_in_dialog(request, OutcomeListener(told), self._host.now(), dialog)
        self._host.flush()
        return await done

    async def refer(
        self,
        target: str,
        *,
        replaces: SipCall | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Transfer:
        """Transfer the far end to ``target`` (REFER), until accepted.

        ``replaces``: our call with the target (attended transfer).

        Raises:
            CallRefused: the REFER was refused.
            BadSip: unusable target.
            WrongState: the call is not up.
        """
        core = self._core
        if core.state is not CallState.UP:
            raise WrongState("Only a call that is up can be handed on.")
        parse_uri(target)
        refer_to = ReferTo(target, replaces.as_replaced() if replaces is not None else None)
        transfer = Transfer()
        OutgoingRefer(core, refer_to, transfer, check_headers(headers), self._host.now())
        self._host.flush()
        await transfer.accepted()
        return transfer

    def as_replaced(self) -> Replaces:
        """Return this call's Replaces value for its far end; raises WrongState."""
        dialog = self._core.dialog
        if dialog is None or self._core.state is not CallState.UP:
            raise WrongState("Only a call that is up can be replaced.")
        return Replaces(dialog.call_id, dialog.remote_tag, dialog.local_tag)

    async def hold(self, session: SdpSession) -> Negotiated:
        return await self._change(session, session.holding)

    async def resume(self, session: SdpSession) -> Negotiated:
        return await self._change(session, "sendrecv")

    async def _change(self, session: SdpSession, direction: Direction) -> Negotiated:
        before = session.direction_wanted
        try:
            return session.accept(await self.reinvite(lambda: session.offer(direction)))
        except BaseException:
            # Cancelled or refused: restore the wanted direction.
            session.direction_wanted = before
            raise

    def _callee(self) -> IncomingCall:
        if not isinstance(self._core, IncomingCall):
            raise WrongState("This is a call of ours; the far end answers it.")
        return self._core

    def _notify(self, event: CallEvent) -> None:
        if self._queue.qsize() >= MAX_UNREAD_EVENTS:
            # No reader: the far end must not fill the memory with changes and early media.
            if isinstance(event, ReinviteReceived):
                event.respond(None)
            elif isinstance(event, ReferReceived):
                event.refuse(603)
            if not isinstance(event, Ended):
                return
        if isinstance(event, Answered):
            if event.sdp is not None:
                self.remote_sdp = event.sdp
            if not self._answered.done():
                self._answered.set_result(event.sdp)
        elif isinstance(event, EarlyAnswer):
            self.remote_sdp = event.sdp
        elif isinstance(event, ReinviteReceived) and event.offer is not None:
            self.remote_sdp = event.offer
        elif isinstance(event, Ended):
            self.ended = event
            if not self._answered.done():
                error = event.error or WrongState(
                    f"The call ended before it was answered ({event.by})."
                )
                self._answered.set_exception(error)
                # Retrieved, so that asyncio logs nothing.
                self._answered.exception()
            self._over.set()
        self._queue.put_nowait(event)


log = logging.getLogger(__name__)


def _owner_of(call: Call | None) -> SipCall | None:
    owner = call.owner if call is not None else None
    return owner if isinstance(owner, SipCall) else None
