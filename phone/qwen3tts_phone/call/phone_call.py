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
from qwen3tts_phone.facts import link_successor
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.stats import LegStats
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
        return self._sip.call_id

    @property
    def direction(self) -> str:
        return self._sip.direction

    @property
    def remote_uri(self) -> str:
        return self._sip.remote_uri

    @property
    def dialled_uri(self) -> str:
        return self._sip.dialled_uri

    @property
    def identity(self) -> str:
        return self._sip.asserted_identity or self._sip.remote_uri

    @property
    def display_name(self) -> str:
        return self._sip.display_name

    @property
    def headers(self) -> CallHeaders:
        return self._sip.headers

    @property
    def answer_headers(self) -> CallHeaders:
        return self._sip.answer_headers

    @property
    def replaces(self) -> PhoneCall | None:
        """Call that this one replaces and ends (attended transfer, RFC 3891)."""
        replaced = self._phone.call_of(self._sip.replaces)
        return replaced if isinstance(replaced, PhoneCall) else None

    @property
    def succession_awaited(self) -> bool:
        return self._core.succession.awaited

    @property
    def encrypted(self) -> bool:
        agreed = self._media.agreed
        return agreed is not None and agreed.srtp_send is not None

    @property
    def sip(self) -> SipCall:
        return self._sip

    def end_by(self, until: float) -> None:
        self._core.start(self._control.end_by(until), "longest time")

    def failed(self, error: SpeechError) -> None:
        self._core.error = error

    def stats(self) -> LegStats:
        return self._leg.stats()

    # --- taking it

    def ringing(self, *, early_media: bool = False) -> asyncio.Future[None]:
        """Send 180 for an incoming call.

        ``early_media``: the caller hears our speech instead of a ringing tone; await the result,
        which raises as :meth:`answer`. A caller that cannot acknowledge our offer hears the tone.
        """
        if early_media:
            return asyncio.ensure_future(self._control.speak_early())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sip.ringing()
        done.set_result(None)
        return done

    async def answer(self, headers: Mapping[str, str] | None = None) -> None:
        """Answer an incoming call; sound flows when it returns.

        Raises:
            NoCommonCodec: no common codec or encryption; it was refused with 488.
            BadSdp: the caller's offer cannot be used; it was refused with 488.
            WrongState: the call is over, or an outgoing one.
        """
        self.claim()
        await self.take(headers)

    async def take(self, headers: Mapping[str, str] | None = None) -> None:
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
        link_successor(self.facts, replaced.facts)
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
        await self._sip.reject(status, reason, headers)

    # --- speaking

    async def send_dtmf(
        self, keys: str, *, method: str = "auto", duration_ms: int = 160, gap_ms: int = 80
    ) -> None:
        """Send keys while speech waits; returns after the last one.

        ``method``: ``rfc4733`` (with the media), ``info`` (SIP INFO), or ``auto``: the phone's
        setting, and where that is ``auto`` too, INFO for a far end that takes no events.

        Raises CallError, as WrongState without media.
        """
        self._core.check_up()
        chosen = self._phone.settings.dtmf if method == "auto" else method
        await self._control.keys.press(keys, chosen, duration_ms, gap_ms)

    async def send_info(self, content_type: str, body: bytes) -> None:
        """Send a SIP INFO (RFC 6086); raises CallError on a refusal."""
        await self._sip.info(content_type, body)

    # --- changing and ending it

    async def hold(self) -> None:
        await self._control.agree(await self._sip.hold(self._session))

    async def resume(self) -> None:
        await self._control.agree(await self._sip.resume(self._session))

    async def transfer(self, target: str, *, headers: dict[str, str] | None = None) -> None:
        """Transfer to ``target`` (blind): the far end calls it, and we hang up.

        `TransferProgress` events report on it.

        Raises:
            CallNotAllowed: the guard forbids that target.
            CallRefused: the far end does not take transfers.
            TransferFailed: the target was not reached; the call goes on.
        """
        target = self._phone.address_of(target, self.account)
        await self._control.transfers.transfer(target, headers=headers)
        await self.hangup()

    async def transfer_to(self, other: PhoneCall) -> None:
        """Join the far ends of this and another call (attended transfer).

        Both of our calls end. Raises as :meth:`transfer`; both go on then.
        """
        other._core.check_up()
        await self._control.transfers.transfer(other.remote_uri, replaces=other._sip)
        await asyncio.gather(self.hangup(), other.hangup())

    async def hangup(self, headers: Mapping[str, str] | None = None) -> None:
        if not self._core.over.is_set():
            await self._linger()
            with contextlib.suppress(CallError, TimeoutError):
                async with asyncio.timeout(HANGUP_S):
                    await self._sip.bye(headers)
        await self.ended()

    async def ended(self) -> str:
        await asyncio.shield(self._control.task)
        return self._core.cause
