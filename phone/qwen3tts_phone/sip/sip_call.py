"""A call as a program sees it: awaitable operations and a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from qwen3tts_phone.errors import CalleeUnreachable, CallError, WrongState
from qwen3tts_phone.sdp.session import Direction, Negotiated, SdpSession
from qwen3tts_phone.sip.asked import Asked
from qwen3tts_phone.sip.call_headers import check_headers
from qwen3tts_phone.sip.call_state import (
    Answered,
    CallEvent,
    CallState,
    EarlyAnswer,
    Ended,
    ReinviteReceived,
)
from qwen3tts_phone.sip.call_view import CallView
from qwen3tts_phone.sip.fields import parse_uri
from qwen3tts_phone.sip.incoming import IncomingCall
from qwen3tts_phone.sip.info import DEFAULT_DURATION_MS, DTMF_RELAY, dtmf_relay
from qwen3tts_phone.sip.message import Response
from qwen3tts_phone.sip.modification import Method, Offer
from qwen3tts_phone.sip.outgoing import OutgoingCall
from qwen3tts_phone.sip.refused import refused
from qwen3tts_phone.sip.replaces import ReferTo, Replaces
from qwen3tts_phone.sip.sip_transfer import Transfer
from qwen3tts_phone.sip.transaction import Failure
from qwen3tts_phone.sip.transfer import TransferCore
from qwen3tts_phone.sip.transfer_events import ReferReceived

if TYPE_CHECKING:
    from qwen3tts_phone.sip.endpoint import SipEndpoint

MAX_UNREAD_EVENTS = 64
"""Events that wait for a reader; beyond it changes of the session are refused."""


class SipCall(CallView):
    """One call, in either direction. Made by :class:`SipEndpoint`.

    ``events`` may be iterated by one reader; it ends after :class:`Ended`.
    """

    def __init__(self, endpoint: SipEndpoint, core: OutgoingCall | IncomingCall) -> None:
        self._endpoint = endpoint
        super().__init__(core)
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

    # The caller's side

    async def answered(self) -> str | None:
        """Wait until the call is up; gives the far end's SDP, raises CallError when it ends."""
        return await asyncio.shield(self._answered)

    async def cancel(self) -> None:
        """Stop a call that has not been answered, and wait until it is over."""
        core = self._core
        if not isinstance(core, OutgoingCall):
            raise WrongState("Only a call of ours can be cancelled; reject this one.")
        core.cancel(self._endpoint.now())
        self._endpoint.flush()
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
        self._callee().ring(self._endpoint.now(), sdp, status, headers)
        self._endpoint.flush()

    async def answer(self, sdp: str, headers: Mapping[str, str] | None = None) -> None:
        """Take the call; returns when the answer is sent. ``Answered`` follows with the ACK.

        Where early media has not been acknowledged yet, the answer waits for that.
        """
        self._callee().answer(sdp, self._endpoint.now(), headers)
        self._endpoint.flush()

    async def reject(
        self, status: int = 486, reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Refuse the call with a status of 300 to 699."""
        self._callee().reject(status, self._endpoint.now(), reason, headers)
        self._endpoint.flush()

    # Both

    async def bye(self, headers: Mapping[str, str] | None = None) -> None:
        """Hang up, whatever the state: BYE, CANCEL or 480; waits until that is answered."""
        self._core.hang_up(self._endpoint.now(), headers)
        self._endpoint.flush()
        await self._endpoint.until_over(self._core)

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

        self._core.modification.start(offer, finish, self._endpoint.now(), method)
        self._endpoint.flush()
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
            raise refused(outcome, self._core.digest, what="INFO")

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
        dialog = core.dialog_of_session()
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

        core.send_inside(request, Asked(told), self._endpoint.now(), dialog)
        self._endpoint.flush()
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
        TransferCore(core, refer_to, transfer, check_headers(headers), self._endpoint.now())
        self._endpoint.flush()
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
