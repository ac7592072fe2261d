"""Call as a program sees it: awaitable operations, facts and a stream of events."""

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
from qwen3tts_phone.sip.dialog import ReferTo, Replaces
from qwen3tts_phone.sip.message.fields import CallHeaders, check_headers, parse_uri
from qwen3tts_phone.sip.message.message import Response
from qwen3tts_phone.sip.transaction.client_request import OutcomeListener
from qwen3tts_phone.sip.transaction.digest import call_refused
from qwen3tts_phone.sip.transaction.transaction import Failure

MAX_UNREAD_EVENTS = 64
"""Events that wait for a reader; beyond it changes of the session are refused."""


class CallHost(Protocol):
    """What a call needs of its endpoint."""

    def now(self) -> float:
        """Return the clock's time in seconds."""

    def flush(self) -> None:
        """Send what is in the outbox, and set the timer."""

    async def until_over(self, call: Call) -> None:
        """Wait until the call is forgotten."""


class SipCall:
    """One call, in either direction. Made by :class:`SipEndpoint`.

    ``events`` may be iterated by one reader; it ends after :class:`Ended`.
    """

    def __init__(self, host: CallHost, core: OutgoingCall | IncomingCall) -> None:
        self._host = host
        self._core = core
        self._queue: asyncio.Queue[CallEvent] = asyncio.Queue()
        self._answered: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self.ended: Ended | None = None
        """How the call ended, once it has."""
        self.remote_sdp: str | None = core.offer if isinstance(core, IncomingCall) else None
        """What the far end last described."""
        core.notify = self._notify
        core.owner = self

    @property
    def events(self) -> AsyncIterator[CallEvent]:
        """What happens to the call, in order, to the end."""
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
        if not self._core.is_identity_trusted:
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
        return _owner_of(core.replaced if isinstance(core, IncomingCall) else None)

    @property
    def replaced_by(self) -> SipCall | None:
        """The call that took the place of this one, or None."""
        return _owner_of(self._core.replaced_by)

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

    # The caller's side

    async def answered(self) -> str | None:
        """Wait until the call is up; gives the far end's SDP, raises CallError when it ends."""
        return await asyncio.shield(self._answered)

    async def cancel(self) -> None:
        """Stop a call that has not been answered, and wait until it is over."""
        core = self._core
        if not isinstance(core, OutgoingCall):
            raise WrongState("Only a call of ours can be cancelled; reject this one.")
        core.cancel(self._host.now())
        self._host.flush()
        await self.wait_ended()

    # The callee's side

    def ringing(
        self,
        sdp: str | None = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Let it ring at the caller; with an SDP it hears our early media instead.

        ``status`` is 180 to 199, by default 180, or 183 with an SDP. Where the caller can, it is
        sent until it is acknowledged (RFC 3262).
        """
        self._callee().ring(self._host.now(), sdp, status, headers)
        self._host.flush()

    async def answer(self, sdp: str, headers: Mapping[str, str] | None = None) -> None:
        """Take the call; returns when the answer is sent. ``Answered`` follows with the ACK.

        Where early media has not been acknowledged yet, the answer waits for that.
        """
        self._callee().answer(sdp, self._host.now(), headers)
        self._host.flush()

    async def reject(
        self, status: int = 486, reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Refuse the call with a status of 300 to 699."""
        self._callee().reject(status, self._host.now(), reason, headers)
        self._host.flush()

    # Both

    async def bye(self, headers: Mapping[str, str] | None = None) -> None:
        """Hang up, whatever the state: BYE, CANCEL or 480; waits until that is answered."""
        self._core.hang_up(self._host.now(), headers)
        self._host.flush()
        await self._host.until_over(self._core)

    async def wait_ended(self) -> Ended:
        """Wait until the call is over."""
        await self._over.wait()
        if self.ended is None:
            raise WrongState("The endpoint was closed.")
        return self.ended

    async def reinvite(self, offer: Offer) -> str:
        """Offer a changed session and give the far end's answer; raises CallError.

        A function is asked for the offer when it goes out, which may be after a change of theirs.
        """
        return await self._offer(offer, "INVITE")

    async def update(self, offer: Offer) -> str:
        """The same by UPDATE (RFC 3311): also before the call is answered.

        Then it needs a first offer that has been answered reliably; else it is WrongState.
        """
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

    # Requests that change nothing

    async def info(self, content_type: str, body: bytes) -> None:
        """Send an INFO (RFC 6086) with a body; raises CallRefused where it is not taken."""
        outcome = await self._ask("INFO", content_type, body)
        if isinstance(outcome, Failure):
            raise CalleeUnreachable("The far end did not answer to the INFO.", why="session")
        if outcome.status >= 300:
            raise call_refused(outcome, self._core.digest, what="INFO")

    async def send_dtmf_info(self, digit: str, duration_ms: int = DEFAULT_DURATION_MS) -> None:
        """Press a key by INFO (``application/dtmf-relay``); raises CallRefused."""
        await self.info(DTMF_RELAY, dtmf_relay(digit, duration_ms))

    async def probe(self) -> bool:
        """Ask the far end whether it still has this call (OPTIONS inside the dialog).

        False where it says no (481), or nothing, within 32 s.
        """
        outcome = await self._ask("OPTIONS")
        return isinstance(outcome, Response) and outcome.status not in (408, 481)

    async def _ask(
        self, method: str, content_type: str = "", body: bytes = b""
    ) -> Response | Failure:
        core = self._core
        dialog = core.session_dialog()
        if dialog is None or core.state in (CallState.ENDING, CallState.ENDED):
            raise WrongState(f"There is nobody to send the {method} to.")
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
        """Ask the far end to call ``target`` (REFER); returns when it has said that it will.

        ``replaces``: a call of ours with the target, whose place the new one takes (attended
        transfer). The call goes on until somebody hangs up. Raises CallRefused, BadSip for a
        target that cannot be used, WrongState where the call is not up.
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
        """How the far end of this call knows it, for the header Replaces; raises WrongState."""
        dialog = self._core.dialog
        if dialog is None or self._core.state is not CallState.UP:
            raise WrongState("Only a call that is up can be replaced.")
        return Replaces(dialog.call_id, dialog.remote_tag, dialog.local_tag)

    async def hold(self, session: SdpSession) -> Negotiated:
        """Put the far end on hold; ``session`` is our side of the call's offers and answers.

        Raises CallError, and leaves the session as it was, when the far end refuses.
        """
        return await self._change(session, session.holding)

    async def resume(self, session: SdpSession) -> Negotiated:
        """Take the far end back; raises CallError when it refuses."""
        return await self._change(session, "sendrecv")

    async def _change(self, session: SdpSession, direction: Direction) -> Negotiated:
        before = session.direction_wanted
        try:
            return session.accept(await self.reinvite(lambda: session.offer(direction)))
        except BaseException:
            # Cancelled or refused: what we want is what it was.
            session.direction_wanted = before
            raise

    def _callee(self) -> IncomingCall:
        if not isinstance(self._core, IncomingCall):
            raise WrongState("This is a call of ours; the far end answers it.")
        return self._core

    def _notify(self, event: CallEvent) -> None:
        if self._queue.qsize() >= MAX_UNREAD_EVENTS:
            # Nobody reads; the far end must not fill the memory with changes and previews.
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
                # Nobody needs to ask.
                self._answered.exception()
            self._over.set()
        self._queue.put_nowait(event)


log = logging.getLogger(__name__)


def _owner_of(call: Call | None) -> SipCall | None:
    owner = call.owner if call is not None else None
    return owner if isinstance(owner, SipCall) else None


MOST_WAITING = 100
"""About a second of set-ups on two cores. Without a bound the queue grows above that rate, while
datagrams are read in time, until callers give up unanswered (`benchmarks/setup_rate.py`)."""


class IncomingCallQueue:
    """First come, first served; full at ``most`` calls, and until half of them are taken."""

    def __init__(self, most: int) -> None:
        self._most = min(most, MOST_WAITING)
        self._queue: asyncio.Queue[SipCall | None] = asyncio.Queue()
        self._shedding = False

    def put(self, call: SipCall) -> None:
        """Have a call wait."""
        self._queue.put_nowait(call)

    def close(self) -> None:
        """No further call comes: `calls` ends with those that wait."""
        self._queue.put_nowait(None)

    @property
    def is_full(self) -> bool:
        """Whether no further call should wait."""
        if self._queue.qsize() >= self._most:
            self._forget_ended()
        most = self._most // 2 + 1 if self._shedding else self._most
        full = self._queue.qsize() >= most
        if full and not self._shedding:
            log.warning("%d calls wait to be taken: new ones get 503", self._queue.qsize())
        elif self._shedding and not full:
            log.info("calls are set up again: %d wait to be taken", self._queue.qsize())
        self._shedding = full
        return full

    async def calls(self) -> AsyncIterator[SipCall]:
        """The calls that are not over, until it is closed."""
        while (call := await self._queue.get()) is not None:
            # Callers that gave up before anybody looked need no answer any more.
            if call.ended is None:
                yield call
        self.close()

    def _forget_ended(self) -> None:
        for _ in range(self._queue.qsize()):
            call = self._queue.get_nowait()
            if call is None or call.ended is None:
                self._queue.put_nowait(call)
