"""A call as a program sees it: awaitable operations and a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from qwen3tts_phone.errors import CallError, WrongState
from qwen3tts_phone.sdp import Direction, Negotiated, SdpSession
from qwen3tts_phone.sip.call_state import (
    Answered,
    CallEvent,
    CallState,
    Ended,
    ReinviteReceived,
)
from qwen3tts_phone.sip.incoming import IncomingCall
from qwen3tts_phone.sip.modification import Offer
from qwen3tts_phone.sip.outgoing import OutgoingCall

if TYPE_CHECKING:
    from qwen3tts_phone.sip.endpoint import SipEndpoint

MAX_UNREAD_EVENTS = 64
"""Events that wait for a reader; beyond it changes of the session are refused."""


class SipCall:
    """One call, in either direction. Made by :class:`SipEndpoint`.

    ``events`` may be iterated by one reader; it ends after :class:`Ended`.
    """

    def __init__(self, endpoint: SipEndpoint, core: OutgoingCall | IncomingCall) -> None:
        self._endpoint = endpoint
        self._core = core
        self._queue: asyncio.Queue[CallEvent] = asyncio.Queue()
        self._answered: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self.ended: Ended | None = None
        """How the call ended, once it has."""
        self.remote_sdp: str | None = core.offer if isinstance(core, IncomingCall) else None
        """What the far end last described."""
        core.notify = self._notify

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

    def ringing(self, sdp: str | None = None) -> None:
        """Let it ring at the caller; with an SDP (183) it hears our early media instead."""
        self._callee().ring(self._endpoint.now(), sdp)
        self._endpoint.flush()

    async def answer(self, sdp: str) -> None:
        """Take the call; returns when the answer is sent. ``Answered`` follows with the ACK."""
        self._callee().answer(sdp, self._endpoint.now())
        self._endpoint.flush()

    async def reject(self, status: int = 486, reason: str = "") -> None:
        """Refuse the call with a status of 300 to 699."""
        self._callee().reject(status, self._endpoint.now(), reason)
        self._endpoint.flush()

    # Both

    async def bye(self) -> None:
        """Hang up, whatever the state: BYE, CANCEL or 480; waits until that is answered."""
        self._core.hang_up(self._endpoint.now())
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
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def finish(result: str | CallError) -> None:
            if done.done():
                return
            if isinstance(result, CallError):
                done.set_exception(result)
            else:
                done.set_result(result)

        self._core.modification.start(offer, finish, self._endpoint.now())
        self._endpoint.flush()
        answer = await done
        self.remote_sdp = answer
        return answer

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
            if not isinstance(event, Ended):
                return
        if isinstance(event, Answered):
            if event.sdp is not None:
                self.remote_sdp = event.sdp
            if not self._answered.done():
                self._answered.set_result(event.sdp)
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
