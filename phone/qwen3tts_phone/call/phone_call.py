"""A call over SIP: signalling, media and speech joined."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from qwen3tts_phone.call.call import Call
from qwen3tts_phone.call.control import CallControl
from qwen3tts_phone.call.core import CallCore
from qwen3tts_phone.call.transfers import CallHost
from qwen3tts_phone.errors import CallError, WrongState
from qwen3tts_phone.facts import follows
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.types import LegStats
from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.sip.message.fields import CallHeaders
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_wire.errors import SpeechError

HANGUP_S = 40.0
"""Longest wait for the far end to take note that we hang up (RFC 3261: 64*T1 is 32 s)."""


class PhoneCall(Call):
    """A call over SIP in either direction; made by `Phone`."""

    def __init__(
        self,
        phone: CallHost,
        sip: SipCall,
        leg: MediaLeg,
        session: SdpSession,
        core: CallCore,
    ) -> None:
        super().__init__(core)
        self._phone = phone
        self._sip = sip
        self._leg = leg
        self._session = session
        self._control = CallControl(phone, sip, leg, session, core)
        self._media = self._control.media

    # --- what it is

    @property
    def id(self) -> str:
        """The SIP Call-ID."""
        return self._sip.call_id

    @property
    def direction(self) -> str:
        """``in`` or ``out``."""
        return self._sip.direction

    @property
    def remote_uri(self) -> str:
        """Whom we talk to."""
        return self._sip.remote_uri

    @property
    def dialled_uri(self) -> str:
        """The address that was called, by them or by us."""
        return self._sip.dialled_uri

    @property
    def identity(self) -> str:
        """Whom a server says the far end is (P-Asserted-Identity), else what it says itself."""
        return self._sip.asserted_identity or self._sip.remote_uri

    @property
    def display_name(self) -> str:
        """The name that the far end gives itself; empty = none."""
        return self._sip.display_name

    @property
    def headers(self) -> CallHeaders:
        """The header lines of a caller's INVITE; names in any case."""
        return self._sip.headers

    @property
    def answer_headers(self) -> CallHeaders:
        """Those of the far end's answer to a call of ours."""
        return self._sip.answer_headers

    @property
    def replaces(self) -> PhoneCall | None:
        """The call whose place this one takes (an attended transfer, RFC 3891); it ends with the
        answer of this one."""
        replaced = self._phone.call_of(self._sip.replaces)
        return replaced if isinstance(replaced, PhoneCall) else None

    @property
    def succession_awaited(self) -> bool:
        """Whether a program goes on with the call that follows this one. For `Phone`."""
        return self._core.succession.awaited

    @property
    def encrypted(self) -> bool:
        """Whether its media is SRTP."""
        agreed = self._media.agreed
        return agreed is not None and agreed.srtp_send is not None

    @property
    def sip(self) -> SipCall:
        """Its signalling."""
        return self._sip

    def end_by(self, until: float) -> None:
        """Hang up at a time of the phone's clock. For `Phone`."""
        self._core.start(self._control.end_by(until), "longest time")

    def failed(self, error: SpeechError) -> None:
        """Note why the call is about to be ended. For `Phone`."""
        self._core.error = error

    def stats(self) -> LegStats:
        """Counters of the media: packets, loss, jitter, starvations."""
        return self._leg.stats()

    # --- taking it

    def ringing(self, *, early_media: bool = False) -> asyncio.Future[None]:
        """Let it ring at the caller; for a call that came in.

        ``early_media``: it hears what is said before the answer instead of a ringing tone. Then
        await what this returns; it raises as :meth:`answer`. A caller that leaves the offer to us
        and cannot acknowledge ours hears the ringing tone all the same.
        """
        if early_media:
            return asyncio.ensure_future(self._control.speak_early())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sip.ringing()
        done.set_result(None)
        return done

    async def answer(self, headers: Mapping[str, str] | None = None) -> None:
        """Take a call that came in; sound flows when it returns.

        Raises:
            NoCommonCodec: none of the caller's codecs is ours, or one side wants encryption that
                the other has not; it was refused with 488.
            BadSdp: the caller's offer cannot be used; it was refused with 488.
            WrongState: it is over, the caller has hung up already; or it is a call of ours.
        """
        self.claim()
        await self.take(headers)

    async def take(self, headers: Mapping[str, str] | None = None) -> None:
        """Answer without taking it over from the call that it replaces. For `Phone`."""
        self._core.check_up()
        if self._sip.direction != "in":
            raise WrongState("This is a call of ours; the far end answers it.")
        replaced = self.replaces
        if replaced is None:
            await self._sip.answer(await self._control.describe(), headers)
            await self.answered()
            return
        # Our answer ends the other call: before that it is known that this one follows it.
        succession = replaced._core.succession
        succession.begin()
        follows(self.facts, replaced.facts)
        try:
            await self._sip.answer(await self._control.describe(), headers)
            await self.answered()
        except BaseException:
            succession.failed()
            raise
        succession.goes_on(self)

    async def reject(
        self, status: int = 486, reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Refuse a call that came in."""
        await self._sip.reject(status, reason, headers)

    # --- speaking

    async def send_dtmf(
        self, keys: str, *, method: str = "auto", duration_ms: int = 160, gap_ms: int = 80
    ) -> None:
        """Press keys; speech waits meanwhile. Returns when the last is out.

        ``method``: ``rfc4733`` (with the media), ``info`` (SIP INFO), or ``auto``: the phone's
        setting, and where that is ``auto`` too, INFO for a far end that takes no events.

        Raises CallError, as WrongState where there is no sound yet or any more.
        """
        self._core.check_up()
        chosen = self._phone.settings.dtmf if method == "auto" else method
        await self._control.keys.press(keys, chosen, duration_ms, gap_ms)

    async def send_info(self, content_type: str, body: bytes) -> None:
        """Send a SIP INFO (RFC 6086); raises CallError when the far end refuses it."""
        await self._sip.info(content_type, body)

    # --- changing and ending it

    async def hold(self) -> None:
        """Put the far end on hold; raises CallError when it refuses."""
        await self._control.agree(await self._sip.hold(self._session))

    async def resume(self) -> None:
        """Take the far end back; raises CallError when it refuses."""
        await self._control.agree(await self._sip.resume(self._session))

    async def transfer(self, target: str, *, headers: dict[str, str] | None = None) -> None:
        """Hand the call on to ``target`` (blind): the far end calls it, and we hang up.

        ``TransferProgress`` events tell how it goes.

        Raises:
            CallNotAllowed: a rule of ours forbids that target.
            CallRefused: the far end does not take transfers.
            TransferFailed: the target was not reached; the call goes on.
        """
        target = self._phone.address_of(target, self.account)
        await self._control.transfers.hand_on(target, headers=headers)
        await self.hangup()

    async def transfer_to(self, other: PhoneCall) -> None:
        """Hand the far end on to that of another call of this phone (attended); both of ours end.

        Raises as :meth:`transfer`; both calls go on then.
        """
        other._core.check_up()
        await self._control.transfers.hand_on(other.remote_uri, replaces=other._sip)
        await asyncio.gather(self.hangup(), other.hangup())

    async def hangup(self, headers: Mapping[str, str] | None = None) -> None:
        """End it, whatever its state: BYE, CANCEL or a refusal. Harmless when it is over.

        What is being said is interrupted; what has been said is let out of the far end's buffer.
        """
        if not self._core.over.is_set():
            await self._linger()
            with contextlib.suppress(CallError, TimeoutError):
                async with asyncio.timeout(HANGUP_S):
                    await self._sip.bye(headers)
        await self.ended()

    async def ended(self) -> str:
        """Wait until it is over and cleared away; why, in plain words."""
        await asyncio.shield(self._control.task)
        return self._core.cause
