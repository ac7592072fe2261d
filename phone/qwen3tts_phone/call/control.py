"""Control of a SIP call: signalling and media events."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from qwen3tts_phone.call.core import CallCore
from qwen3tts_phone.call.events import (
    CallEarlyMedia,
    CallForwarded,
    CallQueued,
    CallRinging,
    InfoHeard,
    MediaBegan,
    MediaSilent,
)
from qwen3tts_phone.call.keys import DtmfExchange
from qwen3tts_phone.call.media import CallMedia, LivenessProbe
from qwen3tts_phone.call.transfers import CallHost, CallTransfers
from qwen3tts_phone.errors import (
    BadSdp,
    CalleeUnreachable,
    CallError,
    NoCommonCodec,
    NoCommonFamily,
    traceback_without_message,
)
from qwen3tts_phone.facts import EndFacts
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.types import (
    ContextPlayed,
    Dtmf,
    KeysIgnored,
    LegFailed,
    MediaStarted,
    MediaTimeout,
    SendingPaused,
    SendingResumed,
    SourceRejected,
)
from qwen3tts_phone.sdp.session import Negotiated, SdpSession
from qwen3tts_phone.sip.call.state import (
    Answered,
    DtmfInfo,
    EarlyAnswer,
    EarlyMedia,
    Ended,
    InfoReceived,
    ReferReceived,
    ReinviteConfirmed,
    ReinviteReceived,
    Ringing,
)
from qwen3tts_phone.sip.message.via import bracketed
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_wire.errors import log_text

logger = logging.getLogger(__name__)

PROVISIONAL: dict[int, type[CallRinging | CallForwarded | CallQueued]] = {
    180: CallRinging,
    181: CallForwarded,
    182: CallQueued,
}
CALLER_WITHIN_S = 2.0
"""Time that media is sent to a caller without an ACK or media of its own."""
UNUSABLE = (BadSdp, NoCommonCodec)
"""Errors of an offer that is refused with 488."""


def warning_of(error: CallError, host: str) -> dict[str, str]:
    """Return the Warning header of a 488 (RFC 3261 section 20.43), or empty."""
    if isinstance(error, NoCommonFamily):
        return {"Warning": f'301 {bracketed(host)} "Incompatible network address formats"'}
    if isinstance(error, NoCommonCodec):
        return {"Warning": f'305 {bracketed(host)} "Incompatible media format"'}
    return {}


class CallControl:
    """Control of a SIP call, from the first event to the record."""

    def __init__(
        self, phone: CallHost, sip: SipCall, leg: MediaLeg, session: SdpSession, core: CallCore
    ) -> None:
        self.sip = sip
        self.session = session
        self.core = core
        self.facts = core.facts
        core.hang_up = self.give_up
        self._phone = phone
        self._leg = leg
        self.media = CallMedia(leg, core, phone.trusts_media_of)
        self.keys = DtmfExchange(leg, sip, phone.clock, core.facts)
        self.transfers = CallTransfers(phone, sip, core)
        self._presence = LivenessProbe(
            phone.clock, sip.probe, lambda: leg.stats().received, phone.settings.vanished_s
        )
        self._early_answer: str | None = None
        """Our description as early media out has given it; the answer is the same."""
        self._ended: Ended | None = None
        self._refused_change = False
        self.task = asyncio.create_task(self._signalling(), name=f"call {sip.call_id}")
        """Ends when all is cleared away."""

    @property
    def id(self) -> str:
        return self.sip.call_id

    async def end_by(self, until: float) -> None:
        await self._phone.clock.sleep_until(until)
        self.core.error = CallError(
            "The call has reached the longest time that it may last.",
            remedy="Raise max_minutes of the guard for longer calls.",
        )
        await self.give_up()

    async def agree(self, agreed: Negotiated) -> None:
        self.facts.media.peer_host = self.sip.remote_address[0]
        if await self.media.agree(agreed):
            self.core.check_up()  # it may have ended meanwhile
            self.core.start(self._follow_media(), "media events")
            self.core.start(self.media.receiver.listen(), "inbound audio")
            if self.sip.direction == "in":
                self.core.start(self._await_caller(), "wait for the caller")

    # Pauses media to a caller without ACK: its source may be forged.
    async def _await_caller(self) -> None:
        await self._phone.clock.sleep_until(self._now() + CALLER_WITHIN_S)
        if self.core.up.done() or self.core.speaks_early or self._leg.stats().received:
            return
        await self.media.pause(True)
        await asyncio.shield(self.core.up)
        await self.media.pause(False)

    def _now(self) -> float:
        return self._phone.clock.now()

    async def describe(self) -> str:
        if self._early_answer is not None:
            return self._early_answer
        offer = self.sip.offer
        if offer is None:
            return self.session.offer()
        try:
            answer, agreed = self.session.answer(offer)
            self._note_media()
            await self.agree(agreed)
        except UNUSABLE as error:
            await self.sip.reject(488, headers=warning_of(error, self.session.host))
            raise
        self.core.check_up()
        return answer

    async def speak_early(self) -> None:
        self.core.check_up()
        if not self.sip.can_send_early_media:
            self.sip.ringing()
            return
        self._early_answer = answer = await self.describe()
        self.sip.ringing(answer)
        # Where the offer was ours, sound may flow when the answer to it has come.
        self.core.speaks_early = self.core.speaker is not None

    async def _signalling(self) -> None:
        try:
            async for event in self.sip.events:
                try:
                    await self._signalled(event)
                except CallError as error:
                    # What the far end described cannot be used: the call cannot go on.
                    self.core.error = error
                    logger.warning("call %s: %s", log_text(self.id), log_text(error))
                    self.core.start(self.give_up(), "end")
        except Exception as error:
            # The end of the task: the far end must not be left with a dead call.
            logger.error("call %s broke\n%s", log_text(self.id), traceback_without_message(error))
            self.core.cause = "it broke here; the log has the traceback"
            await self.give_up()
        finally:
            if self._ended is not None and self._ended.by == "local":
                self.transfers.call_over()
            await self._clear()

    async def give_up(self) -> None:
        with contextlib.suppress(CallError):
            await self.sip.bye()

    async def _signalled(self, event: object) -> None:
        match event:
            case Ringing(status=status):
                self._rings(status)
            case EarlyMedia(sdp=sdp):
                await self._accept(sdp)
                if self.facts.early_media_at is None:
                    self.facts.early_media_at = self._now()
                    self.core.publish(CallEarlyMedia(self._now()))
            case EarlyAnswer(sdp=sdp):
                await self._accept(sdp)
                self.core.speaks_early = True
            case Answered(sdp=sdp):
                if sdp is not None:
                    await self._accept(sdp)
                self._answered()
            case ReinviteReceived(offer=offer, respond=respond):
                await self._renegotiate(offer, respond)
            case ReinviteConfirmed(sdp=sdp):
                if sdp is not None:
                    await self._accept(sdp)
            case DtmfInfo(digit=digit, duration_ms=duration):
                self._pressed(digit, duration, "info", self._now())
            case InfoReceived(content_type=content_type, body=content):
                text = content.decode("utf-8", "replace")
                self.core.publish(InfoHeard(self._now(), content_type, text))
            case ReferReceived():
                self.transfers.on_refer(event)
            case Ended():
                self._ended = event
                self.core.error = self.core.error or event.error
                self.core.cause = self.core.cause or self._end(event).words
            case _:
                logger.debug("call %s: %s", log_text(self.id), type(event).__name__)

    def _rings(self, status: int) -> None:
        self.facts.provisional_status = status
        kind = PROVISIONAL.get(status)
        if kind is CallRinging and self.facts.ringing_at is None:
            self.facts.ringing_at = self._now()
        if kind is not None:
            self.core.publish(kind(self._now()))

    def _answered(self) -> None:
        if self.core.payload is None:
            raise BadSdp("The far end answered without describing its media.")
        self.core.answered()

    async def _accept(self, sdp: str) -> None:
        agreed = self.session.accept(sdp)
        self._note_media()
        await self.agree(agreed)

    async def _renegotiate(self, offer: str | None, respond: object) -> None:
        assert callable(respond)
        if offer is None:
            respond(self.session.offer())
            return
        saved = self.session.saved()
        try:
            answer, agreed = self.session.answer(offer)
            await self.agree(agreed)
        except UNUSABLE as error:
            # Once: the far end must not fill the log.
            level = logging.DEBUG if self._refused_change else logging.WARNING
            self._refused_change = True
            logger.log(
                level,
                "call %s: a change by the far end was refused: %s",
                log_text(self.id),
                log_text(error),
            )
            self.session.restore(saved)
            respond(None)
        else:
            respond(answer)

    def _note_media(self) -> None:
        media, remote = self.facts.media, self.session.remote
        media.our_codecs = self.session.codecs
        if remote is not None:
            media.their_codecs = tuple(each.name for each in remote.payloads if each.name)

    async def _follow_media(self) -> None:
        sink = self.media.sink
        assert sink is not None
        async for event in self._leg.events:
            match event:
                case ContextPlayed(context=context):
                    sink.context_played(context)
                case Dtmf(digit=digit, duration_ms=duration, at=at):
                    self._pressed(digit, duration, "rfc4733", at)
                case KeysIgnored():
                    logger.warning(
                        "call %s: keys come too fast, some are ignored", log_text(self.id)
                    )
                case MediaStarted(source=source, at=at):
                    self.facts.media.note_source(source, at)
                    self.facts.first_rtp_in_at = self.facts.first_rtp_in_at or at
                    self.core.publish(MediaBegan(at))
                case SourceRejected(source=source, at=at):
                    self.facts.media.note_refused(source, at)
                case SendingPaused(host=host):
                    self.facts.media.unconfirmed = host
                    logger.warning(
                        "call %s: nothing came from %s, sending is paused", log_text(self.id), host
                    )
                case SendingResumed():
                    self.facts.media.unconfirmed = ""
                case MediaTimeout(silent_s=silent, at=at):
                    self.facts.media.silent_s = silent
                    ever = self.facts.first_rtp_in_at is not None
                    self.core.publish(MediaSilent(at, silent, ever))
                    self.core.start(self._await_return(silent), "silence")
                case LegFailed(cause=cause):
                    self.facts.media.failed = cause
                    logger.error("call %s: media failed: %s", log_text(self.id), log_text(cause))
                case _:
                    logger.debug("call %s: %s", log_text(self.id), type(event).__name__)
        sink.gone()
        if not self.core.over.is_set():
            # The media process, or this call's part of it, is gone.
            self.facts.media.failed = self.facts.media.failed or "the media process ended"
            self.core.start(self.give_up(), "end")

    def _pressed(self, digit: str, duration_ms: int, by: str, at: float) -> None:
        key = self.keys.received(digit, duration_ms, by, at)
        if key is not None:
            self.core.pressed(key)

    async def _await_return(self, silent_s: float) -> None:
        if await self._presence.lost(silent_s):
            self.core.error = CalleeUnreachable(
                "The far end has vanished: it sends no media and answers no request.",
                remedy="Check the network between, then call again.",
                why="session",
            )
            await self.give_up()

    def _end(self, ended: Ended | None) -> EndFacts:
        core = self.core
        if ended is None:
            return EndFacts(by="error", reason=core.cause, error=core.error)
        return EndFacts(by=ended.by, status=ended.status, reason=ended.reason, error=core.error)

    async def _clear(self) -> None:
        core, facts, ended = self.core, self.facts, self._ended
        await core.settle()
        await self.media.close()
        facts.user_agent = self.sip.user_agent
        facts.remote_uri = self.sip.remote_uri
        facts.identity = self.sip.asserted_identity or ""
        facts.media.peer_host = self.sip.remote_address[0]
        end = self._end(ended)

        async def forgotten() -> None:
            self._phone.forget(facts)

        await core.finish(end, core.cause, before_filing=forgotten)
