"""One phone call: signalling, media and speech joined into a thing that speaks and listens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterable, AsyncIterator, Coroutine, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.call_events import (
    CallAnswered,
    CallEarlyMedia,
    CallEnded,
    CallEvent,
    CallForwarded,
    CallQueued,
    CallRinging,
    HeardFrame,
    InfoHeard,
    MediaBegan,
    MediaSilent,
)
from qwen3tts_phone.call_facts import CallFacts, EndFacts
from qwen3tts_phone.call_keys import CallKeys
from qwen3tts_phone.call_media import CallMedia, Voice
from qwen3tts_phone.call_recording import CallRecording
from qwen3tts_phone.call_transfers import CallTransfers
from qwen3tts_phone.call_words import ended_in_words
from qwen3tts_phone.errors import (
    BadSdp,
    CalleeUnreachable,
    CallError,
    NoCommonCodec,
    WrongState,
)
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.types import (
    ContextPlayed,
    Dtmf,
    LegFailed,
    LegStats,
    MediaStarted,
    MediaTimeout,
)
from qwen3tts_phone.presence import Presence
from qwen3tts_phone.sdp import Negotiated, SdpSession
from qwen3tts_phone.sip.call_headers import CallHeaders
from qwen3tts_phone.sip.call_state import (
    Answered,
    EarlyAnswer,
    EarlyMedia,
    Ended,
    ReinviteConfirmed,
    ReinviteReceived,
    Ringing,
)
from qwen3tts_phone.sip.info import DtmfInfo, InfoReceived
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_phone.sip.transfer_events import ReferReceived
from qwen3tts_speech.line import Speaker, Spoken, Utterance, VoiceOptions

if TYPE_CHECKING:
    from qwen3tts_phone.call_record import CallRecord
    from qwen3tts_phone.phone import Phone

logger = logging.getLogger(__name__)

LINGER_S = 0.2
"""Hanging up waits so long after the last frame of speech: the far end's jitter buffer still
holds the end of the sentence."""
HANGUP_S = 40.0
"""Longest wait for the far end to take note that we hang up (RFC 3261: 64*T1 is 32 s)."""
PROVISIONAL = {180: CallRinging, 181: CallForwarded, 182: CallQueued}
UNUSABLE = (BadSdp, NoCommonCodec)
"""What an offer is refused for with 488."""


class Call:
    """A call in either direction; made by `Phone`."""

    def __init__(
        self,
        phone: Phone,
        sip: SipCall,
        leg: MediaLeg,
        session: SdpSession,
        facts: CallFacts,
    ) -> None:
        self.facts = facts
        """All that is known of the call, kept up to date."""
        self.record: CallRecord | None = None
        """Its record, once it is over and its recording is done."""
        self._phone = phone
        self._sip = sip
        self._leg = leg
        self._session = session
        settings = phone.settings
        voice = Voice(phone.link, settings.speech, phone.latency_log)
        self._media = CallMedia(leg, voice, phone.clock, self.tell, facts)
        self._keys = CallKeys(leg, sip, phone.clock, facts)
        self._transfers = CallTransfers(phone, self, sip)
        self._recording = CallRecording(
            self._media,
            phone.clock,
            facts,
            phone.recording_path,
            phone.record_settings,
            self.start,
        )
        self._presence = Presence(
            phone.clock, sip.probe, lambda: leg.stats().received, settings.vanished_s
        )
        self._early_answer: str | None = None
        """Our description as early media out has given it; the answer is the same."""
        self._speaks_early = False
        self._events: asyncio.Queue[CallEvent | None] = asyncio.Queue()
        self._followers: list[asyncio.Queue[CallEvent | None]] = []
        self._up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._cause = ""
        self._error: CallError | None = None
        self._ended: Ended | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._life = asyncio.create_task(self._signalling(), name=f"call {sip.call_id}")

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
    def account(self) -> str:
        """Name of the account that it is for, or made with; empty = none."""
        return self.facts.account

    @property
    def headers(self) -> CallHeaders:
        """The header lines of a caller's INVITE; names in any case."""
        return self._sip.headers

    @property
    def answer_headers(self) -> CallHeaders:
        """Those of the far end's answer to a call of ours."""
        return self._sip.answer_headers

    @property
    def replaces(self) -> Call | None:
        """The call whose place this one takes (an attended transfer, RFC 3891); it ends with the
        answer of this one."""
        return self._phone.call_of(self._sip.replaces)

    @property
    def codec(self) -> str:
        """What we send with: PCMU, PCMA, G722 or opus; empty = nothing is agreed yet."""
        return self._media.payload.name if self._media.payload is not None else ""

    @property
    def encrypted(self) -> bool:
        """Whether its media is SRTP."""
        agreed = self._media.agreed
        return agreed is not None and agreed.srtp_send is not None

    @property
    def speaking(self) -> bool:
        """Whether something is being said, or waits to be."""
        return self._media.speaker is not None and self._media.speaker.speaking

    @property
    def speaker(self) -> Speaker | None:
        """What speaks on it, for whoever keeps account of utterances himself; None before the
        answer and after the end."""
        return self._media.speaker if self._may_speak and not self._over.is_set() else None

    @property
    def held(self) -> bool:
        """Whether the far end has put us on hold."""
        return self._media.held

    @property
    def unheard_frames(self) -> int:
        """Frames of the caller that a listener was too slow to take."""
        return self._media.ears.unheard_frames

    @property
    def events(self) -> AsyncIterator[CallEvent]:
        """What happens, in order, to its end; for one reader."""
        return self._iterate(self._events)

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
            return asyncio.ensure_future(self._speak_early())
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
        self._check_up()
        if self._sip.direction != "in":
            raise WrongState("This is a call of ours; the far end answers it.")
        await self._sip.answer(await self._describe(), headers)
        await self.answered()

    async def reject(
        self, status: int = 486, reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Refuse a call that came in."""
        await self._sip.reject(status, reason, headers)

    async def answered(self) -> None:
        """Wait until both ends agree and sound may flow.

        Raises:
            CallRefused: the far end would not take it (busy, declined, not found, ...).
            CalleeUnreachable: nobody answered at that address.
            CallError: it ended otherwise.
        """
        await asyncio.shield(self._up)

    # --- speaking

    def speak(
        self, words: str | AsyncIterable[str], options: VoiceOptions | None = None
    ) -> Utterance:
        """Begin to say something and return at once; it queues behind what is being said.

        Raises:
            WrongState: the call is not answered, or over.
        """
        return self._voice().say(words, options)

    async def say(
        self, words: str | AsyncIterable[str], options: VoiceOptions | None = None
    ) -> Spoken:
        """Say a text, or deltas as a model writes them; returns when they were heard or stopped.

        Cancelled, it stops waiting, not the speech: that is for :meth:`interrupt`.

        Raises:
            SpeechError: the words, the server or the engine failed; what had come was said.
        """
        return await self.speak(words, options).spoken()

    async def play(self, samples: NDArray[np.int16], rate_hz: int) -> bool:
        """Play samples of shape [n] as they are, behind what is being said.

        Returns True when they were heard to their end, False where something stopped them.
        """
        return await self._voice().play(samples, rate_hz).played()

    def interrupt(self) -> list[Utterance]:
        """Fall silent with the next frame; each utterance's ``outcome()`` tells what was heard."""
        return self._media.speaker.interrupt() if self._media.speaker is not None else []

    async def send_dtmf(
        self, keys: str, *, method: str = "auto", duration_ms: int = 160, gap_ms: int = 80
    ) -> None:
        """Press keys; speech waits meanwhile. Returns when the last is out.

        ``method``: ``rfc4733`` (with the media), ``info`` (SIP INFO), or ``auto``: the phone's
        setting, and where that is ``auto`` too, INFO for a far end that takes no events.
        """
        chosen = self._phone.settings.dtmf if method == "auto" else method
        await self._keys.press(keys, chosen, duration_ms, gap_ms)

    async def send_info(self, content_type: str, body: bytes) -> None:
        """Send a SIP INFO (RFC 6086); raises CallError when the far end refuses it."""
        await self._sip.info(content_type, body)

    # --- listening

    def audio(self, *, steady: bool = False) -> AsyncIterator[HeardFrame]:
        """What the far end says, frame by frame, until the call ends; for any number of readers.

        As it comes, at once; ``steady``: on our clock, one frame for each packet time, without
        holes, behind an adaptive jitter buffer.
        """
        return self._media.ears.audio(steady=steady)

    # --- changing and ending it

    async def hold(self) -> None:
        """Put the far end on hold; raises CallError when it refuses."""
        await self._media.agree(await self._sip.hold(self._session))

    async def resume(self) -> None:
        """Take the far end back; raises CallError when it refuses."""
        await self._media.agree(await self._sip.resume(self._session))

    async def transfer(self, target: str, *, headers: dict[str, str] | None = None) -> None:
        """Hand the call on to ``target`` (blind): the far end calls it, and we hang up.

        ``TransferProgress`` events tell how it goes.

        Raises:
            CallNotAllowed: a rule of ours forbids that target.
            CallRefused: the far end does not take transfers.
            TransferFailed: the target was not reached; the call goes on.
        """
        target = self._phone.address_of(target, self.account)
        await self._transfers.hand_on(target, headers=headers)
        await self.hangup()

    async def transfer_to(self, other: Call) -> None:
        """Hand the far end on to that of another call of this phone (attended); both of ours end.

        Raises as :meth:`transfer`; both calls go on then.
        """
        other._check_up()
        await self._transfers.hand_on(other.remote_uri, replaces=other._sip)
        await asyncio.gather(self.hangup(), other.hangup())

    async def hangup(self, headers: Mapping[str, str] | None = None) -> None:
        """End it, whatever its state: BYE, CANCEL or a refusal. Harmless when it is over.

        What is being said is interrupted; what has been said is let out of the far end's buffer.
        """
        if not self._over.is_set():
            self.interrupt()
            sink = self._media.sink
            if sink is not None and sink.last_at is not None:
                await self._phone.clock.sleep_until(sink.last_at + LINGER_S)
            with contextlib.suppress(CallError, TimeoutError):
                async with asyncio.timeout(HANGUP_S):
                    await self._sip.bye(headers)
        await self.ended()

    async def ended(self) -> str:
        """Wait until it is over and cleared away; why, in plain words."""
        await asyncio.shield(self._life)
        return self._cause

    # --- for those who belong to it

    @property
    def sip(self) -> SipCall:
        """Its signalling."""
        return self._sip

    def tell(self, event: CallEvent) -> None:
        """Something happened."""
        for queue in (self._events, *self._followers):
            queue.put_nowait(event)

    async def progress(self) -> AsyncIterator[CallEvent]:
        """The same events once more, from now on; whoever has ``events`` gets all of them."""
        queue: asyncio.Queue[CallEvent | None] = asyncio.Queue()
        self._followers.append(queue)
        try:
            async for event in self._iterate(queue):
                yield event
        finally:
            self._followers.remove(queue)

    def start(self, work: Coroutine[None, None, None], name: str) -> None:
        """Something of the call's that ends with it."""
        task = asyncio.create_task(work, name=f"{name} of {self.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end_by(self, until: float) -> None:
        """Hang up when a moment of the phone's clock has come."""
        await self._phone.clock.sleep_until(until)
        self._error = CallError(
            "The call has reached the longest time that it may last.",
            remedy="Raise max_minutes of the guard for longer calls.",
        )
        await self._give_up()

    # --- inside

    @staticmethod
    async def _iterate(queue: asyncio.Queue[CallEvent | None]) -> AsyncIterator[CallEvent]:
        while (event := await queue.get()) is not None:
            yield event
        queue.put_nowait(None)

    @property
    def _may_speak(self) -> bool:
        return self._up.done() or self._speaks_early

    def _voice(self) -> Speaker:
        self._check_up()
        if self._media.speaker is None or not self._may_speak:
            raise WrongState("Nothing can be said: the call is not answered yet.")
        return self._media.speaker

    def _check_up(self) -> None:
        if self._over.is_set():
            raise WrongState(f"The call is over: {self._cause or 'it was ended'}.")

    def _now(self) -> float:
        return self._phone.clock.now()

    async def _describe(self) -> str:
        """Our answer to a call that came in, or our offer where it has none; media is ready."""
        if self._early_answer is not None:
            return self._early_answer
        offer = self._sip.offer
        if offer is None:
            return self._session.offer()
        try:
            answer, agreed = self._session.answer(offer)
            self._note_media()
            await self._agree(agreed)
        except UNUSABLE:
            await self._sip.reject(488)
            raise
        self._check_up()
        return answer

    async def _speak_early(self) -> None:
        self._check_up()
        if not self._sip.can_send_early_media:
            self._sip.ringing()
            return
        self._early_answer = answer = await self._describe()
        self._sip.ringing(answer)
        # Where the offer was ours, sound may flow when the answer to it has come.
        self._speaks_early = self._media.speaker is not None

    async def _signalling(self) -> None:
        """Follow the SIP call to its end, and clear away."""
        try:
            async for event in self._sip.events:
                try:
                    await self._signalled(event)
                except CallError as error:
                    # What the far end described cannot be used: the call cannot go on.
                    self._error = error
                    logger.warning("call %s: %s", self.id, error)
                    self.start(self._give_up(), "end")
        except Exception:
            # The end of the task: the far end must not be left with a dead call.
            logger.exception("call %s broke", self.id)
            self._cause = "it broke here; the log has the traceback"
            await self._give_up()
        finally:
            await self._clear()

    async def _give_up(self) -> None:
        with contextlib.suppress(CallError):
            await self._sip.bye()

    async def _signalled(self, event: object) -> None:
        match event:
            case Ringing(status=status):
                self._rings(status)
            case EarlyMedia(sdp=sdp):
                await self._accept(sdp)
                if self.facts.early_media_at is None:
                    self.facts.early_media_at = self._now()
                    self.tell(CallEarlyMedia(self._now()))
            case EarlyAnswer(sdp=sdp):
                await self._accept(sdp)
                self._speaks_early = True
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
            case InfoReceived(content_type=content_type, body=body):
                text = body.decode("utf-8", "replace")
                self.tell(InfoHeard(self._now(), content_type, text))
            case ReferReceived():
                self._transfers.asked(event)
            case Ended():
                self._ended = event
                self._error = self._error or event.error
                self._cause = self._cause or ended_in_words(event, self._error)
            case _:
                logger.debug("call %s: %s", self.id, type(event).__name__)

    def _rings(self, status: int) -> None:
        self.facts.provisional_status = status
        kind = PROVISIONAL.get(status)
        if kind is CallRinging and self.facts.ringing_at is None:
            self.facts.ringing_at = self._now()
        if kind is not None:
            self.tell(kind(self._now()))

    def _answered(self) -> None:
        if self._media.payload is None:
            raise BadSdp("The far end answered without describing its media.")
        if not self._up.done():
            self.facts.answered_at = self._now()
            self._up.set_result(None)
            self.tell(CallAnswered(self._now(), self.codec))
            if self._recording.needs_notice and self._phone.records_audio:
                self.start(self._recording.give_notice(self.say), "recording's notice")

    async def _accept(self, sdp: str) -> None:
        agreed = self._session.accept(sdp)
        self._note_media()
        await self._agree(agreed)

    async def _renegotiate(self, offer: str | None, respond: object) -> None:
        assert callable(respond)
        if offer is None:
            respond(self._session.offer())
            return
        saved = self._session.saved()
        try:
            answer, agreed = self._session.answer(offer)
            await self._agree(agreed)
        except UNUSABLE as error:
            logger.warning("call %s: a change by the far end was refused: %s", self.id, error)
            self._session.restore(saved)
            respond(None)
        else:
            respond(answer)

    async def _agree(self, agreed: Negotiated) -> None:
        """Media flows as both ends have agreed; see `CallMedia.agree`."""
        if await self._media.agree(agreed):
            self._check_up()  # it may have ended meanwhile
            self.start(self._follow_media(), "media events")
            self.start(self._media.ears.listen(), "inbound audio")
            if not self._recording.needs_notice:
                self._recording.begin()

    def _note_media(self) -> None:
        """What both ends describe, for the record."""
        media, remote = self.facts.media, self._session.remote
        media.our_codecs = self._session.codecs
        if remote is not None:
            media.their_codecs = tuple(each.name for each in remote.payloads if each.name)

    async def _follow_media(self) -> None:
        sink = self._media.sink
        assert sink is not None
        async for event in self._leg.events:
            match event:
                case ContextPlayed(context=context):
                    sink.context_played(context)
                case Dtmf(digit=digit, duration_ms=duration, at=at):
                    self._pressed(digit, duration, "rfc4733", at)
                case MediaStarted(source=source, at=at):
                    self.facts.media.source = source
                    self.facts.media.silent_s = 0.0
                    self.facts.first_rtp_in_at = self.facts.first_rtp_in_at or at
                    self.tell(MediaBegan(at))
                case MediaTimeout(silent_s=silent, at=at):
                    self.facts.media.silent_s = silent
                    ever = self.facts.first_rtp_in_at is not None
                    self.tell(MediaSilent(at, silent, ever))
                    self.start(self._await_return(silent), "silence")
                case LegFailed(cause=cause):
                    self.facts.media.failed = cause
                    logger.error("call %s: media failed: %s", self.id, cause)
                case _:
                    logger.debug("call %s: %s", self.id, type(event).__name__)
        sink.closed()
        if not self._over.is_set():
            # The media process, or this call's part of it, is gone: nobody could be heard.
            self.facts.media.failed = self.facts.media.failed or "the media process ended"
            self.start(self._give_up(), "end")

    def _pressed(self, digit: str, duration_ms: int, by: str, at: float) -> None:
        key = self._keys.heard(digit, duration_ms, by, at)
        if key is not None:
            self.tell(key)

    async def _await_return(self, silent_s: float) -> None:
        if await self._presence.lost(silent_s):
            self._error = CalleeUnreachable(
                "The far end has vanished: it sends no media and answers no request.",
                remedy="Check the network between, then call again.",
                why="session",
            )
            await self._give_up()

    async def _clear(self) -> None:
        """The call is over: settle what was being said, finish the recording, free the ports."""
        self._over.set()
        await self._media.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._recording.close()
        self._media.ears.close()
        self._note_end()
        if not self._up.done():
            self._up.set_exception(self._error or WrongState(f"The call ended: {self._cause}."))
            self._up.exception()  # nobody needs to ask
        ended, error = self.facts.end, self._error
        self.tell(
            CallEnded(
                self._now(),
                self._cause,
                by=ended.by if ended is not None else "",
                status=ended.status if ended is not None else None,
                code=error.code if error is not None else "",
                remedy=error.remedy if error is not None else "",
            )
        )
        for queue in (self._events, *self._followers):
            queue.put_nowait(None)
        await self._phone.file(self, self._recording.path)

    def _note_end(self) -> None:
        facts, speaker, ended = self.facts, self._media.speaker, self._ended
        facts.ended_at = self._now()
        facts.user_agent = self._sip.user_agent
        facts.identity = self._sip.asserted_identity or ""
        facts.media.peer_host = self._sip.remote_address[0]
        if speaker is not None:
            facts.utterances, facts.interrupted = speaker.utterances, speaker.interrupted
        facts.end = EndFacts(
            by=ended.by if ended is not None else "error",
            status=ended.status if ended is not None else None,
            reason=ended.reason if ended is not None else self._cause,
            error=self._error,
        )
