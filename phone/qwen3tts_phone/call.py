"""One phone call: signalling, media and speech joined into a thing that speaks and listens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qwen3tts_phone.call_events import (
    CallEvent,
    HeardFrame,
)
from qwen3tts_phone.call_facts import CallFacts
from qwen3tts_phone.call_life import CallLife
from qwen3tts_phone.errors import (
    CallError,
    WrongState,
)
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.types import (
    LegStats,
)
from qwen3tts_phone.sdp import SdpSession
from qwen3tts_phone.sip.call_headers import CallHeaders
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_speech.line import Speaker, Spoken, Utterance, VoiceOptions

if TYPE_CHECKING:
    from qwen3tts_phone.call_record import CallRecord
    from qwen3tts_phone.phone import Phone

LINGER_S = 0.2
"""Hanging up waits so long after the last frame of speech: the far end's jitter buffer still
holds the end of the sentence."""
HANGUP_S = 40.0
"""Longest wait for the far end to take note that we hang up (RFC 3261: 64*T1 is 32 s)."""


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
        self._phone = phone
        self._sip = sip
        self._leg = leg
        self._session = session
        self._life = CallLife(phone, sip, leg, session, facts)
        self._media = self._life.media

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
        return self._media.speaker if self._may_speak and not self._life.over.is_set() else None

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
        return self._life.news.all()

    def progress(self) -> AsyncIterator[CallEvent]:
        """The same events once more, from now on; whoever has ``events`` gets all of them."""
        return self._life.news.following()

    @property
    def record(self) -> CallRecord | None:
        """Its record, once it is over and its recording is done."""
        return self._life.record

    @property
    def sip(self) -> SipCall:
        """Its signalling."""
        return self._sip

    @property
    def life(self) -> CallLife:
        """What follows its signalling and media. For `Phone`."""
        return self._life

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
            return asyncio.ensure_future(self._life.speak_early())
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
        self._life.check_up()
        if self._sip.direction != "in":
            raise WrongState("This is a call of ours; the far end answers it.")
        await self._sip.answer(await self._life.describe(), headers)
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
        await asyncio.shield(self._life.up)

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
        await self._life.keys.press(keys, chosen, duration_ms, gap_ms)

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
        await self._life.agree(await self._sip.hold(self._session))

    async def resume(self) -> None:
        """Take the far end back; raises CallError when it refuses."""
        await self._life.agree(await self._sip.resume(self._session))

    async def transfer(self, target: str, *, headers: dict[str, str] | None = None) -> None:
        """Hand the call on to ``target`` (blind): the far end calls it, and we hang up.

        ``TransferProgress`` events tell how it goes.

        Raises:
            CallNotAllowed: a rule of ours forbids that target.
            CallRefused: the far end does not take transfers.
            TransferFailed: the target was not reached; the call goes on.
        """
        target = self._phone.address_of(target, self.account)
        await self._life.transfers.hand_on(target, headers=headers)
        await self.hangup()

    async def transfer_to(self, other: Call) -> None:
        """Hand the far end on to that of another call of this phone (attended); both of ours end.

        Raises as :meth:`transfer`; both calls go on then.
        """
        other._life.check_up()
        await self._life.transfers.hand_on(other.remote_uri, replaces=other._sip)
        await asyncio.gather(self.hangup(), other.hangup())

    async def hangup(self, headers: Mapping[str, str] | None = None) -> None:
        """End it, whatever its state: BYE, CANCEL or a refusal. Harmless when it is over.

        What is being said is interrupted; what has been said is let out of the far end's buffer.
        """
        if not self._life.over.is_set():
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
        await asyncio.shield(self._life.task)
        return self._life.cause

    # --- inside

    @property
    def _may_speak(self) -> bool:
        return self._life.up.done() or self._life.speaks_early

    def _voice(self) -> Speaker:
        self._life.check_up()
        if self._media.speaker is None or not self._may_speak:
            raise WrongState("Nothing can be said: the call is not answered yet.")
        return self._media.speaker
