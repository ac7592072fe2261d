"""One phone call: signalling, media and speech joined into a thing that speaks and listens."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING

from qwen3tts_codecs.payload import Payload, payload_by_name
from qwen3tts_phone.call_events import (
    CallAnswered,
    CallEnded,
    CallEvent,
    CallHeld,
    CallResumed,
    CallRinging,
    HeardFrame,
    KeyPressed,
    MediaSilent,
)
from qwen3tts_phone.errors import BadSdp, CallError, NoCommonCodec, WrongState
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.types import (
    ContextPlayed,
    Dtmf,
    LegFailed,
    LegStats,
    MediaTimeout,
    RemoteMedia,
)
from qwen3tts_phone.record import StereoRecorder
from qwen3tts_phone.rtp_sink import RtpSink
from qwen3tts_phone.sdp import Negotiated, SdpSession
from qwen3tts_phone.sip.call_state import (
    Answered,
    EarlyMedia,
    Ended,
    ReinviteConfirmed,
    ReinviteReceived,
    Ringing,
)
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_phone.tracks import CallTracks
from qwen3tts_speech.line import Speaker, Spoken, Utterance, VoiceOptions

if TYPE_CHECKING:
    from qwen3tts_phone.phone import Phone

logger = logging.getLogger(__name__)

LISTEN_FRAMES = 500
"""Frames kept for a listener that does not keep up (10 s); the oldest go first, and are counted."""
FOLLOW_S = 0.1
"""How often the recording looks at what has been sent."""
LINGER_S = 0.2
"""Hanging up waits so long after the last frame of speech: the far end's jitter buffer still
holds the end of the sentence."""
HANGUP_S = 40.0
"""Longest wait for the far end to take note that we hang up (RFC 3261: 64*T1 is 32 s)."""


class Call:
    """A call in either direction; made by `Phone`."""

    def __init__(self, phone: Phone, sip: SipCall, leg: MediaLeg, session: SdpSession) -> None:
        self._phone = phone
        self._sip = sip
        self._leg = leg
        self._session = session
        self._speaker: Speaker | None = None
        self._sink: RtpSink | None = None
        self._payload: Payload | None = None
        self._tracks: CallTracks | None = None
        self._held = False
        self._events: asyncio.Queue[CallEvent | None] = asyncio.Queue()
        self._listeners: list[asyncio.Queue[HeardFrame | None]] = []
        self._up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._cause = ""
        self._error: CallError | None = None
        self.unheard_frames = 0
        """Frames of the caller that a listener was too slow to take."""
        self._tasks: list[asyncio.Task[None]] = []
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
    def speaking(self) -> bool:
        """Whether something is being said, or waits to be."""
        return self._speaker is not None and self._speaker.speaking

    @property
    def speaker(self) -> Speaker | None:
        """What speaks on it, for whoever keeps account of utterances himself; None before the
        answer and after the end."""
        return self._speaker if self._up.done() and not self._over.is_set() else None

    @property
    def held(self) -> bool:
        """Whether the far end has put us on hold."""
        return self._held

    @property
    def events(self) -> AsyncIterator[CallEvent]:
        """What happens, in order, to its end; for one reader."""
        return self._iterate()

    def stats(self) -> LegStats:
        """Counters of the media: packets, loss, jitter, starvations."""
        return self._leg.stats()

    # --- taking it

    def ringing(self) -> None:
        """Let it ring at the caller; for a call that came in."""
        self._sip.ringing()

    async def answer(self) -> None:
        """Take a call that came in; sound flows when it returns.

        Raises:
            NoCommonCodec: none of the caller's codecs is ours; it was refused with 488.
            BadSdp: the caller's offer cannot be used; it was refused with 488.
            WrongState: it is over, the caller has hung up already; or it is a call of ours.
        """
        self._check_up()
        if self._sip.direction != "in":
            raise WrongState("This is a call of ours; the far end answers it.")
        if self._sip.offer is None:
            await self._sip.answer(self._session.offer())
        else:
            try:
                answer, agreed = self._session.answer(self._sip.offer)
                await self._agree(agreed)
            except (BadSdp, NoCommonCodec):
                await self._sip.reject(488)
                raise
            await self._sip.answer(answer)
        await self.answered()

    async def reject(self, status: int = 486) -> None:
        """Refuse a call that came in."""
        await self._sip.reject(status)

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
        self._check_up()
        if self._speaker is None or not self._up.done():
            raise WrongState("Nothing can be said: the call is not answered yet.")
        return self._speaker.say(words, options)

    async def say(
        self, words: str | AsyncIterable[str], options: VoiceOptions | None = None
    ) -> Spoken:
        """Say a text, or deltas as a model writes them; returns when they were heard or stopped.

        Cancelled, it stops waiting, not the speech: that is for :meth:`interrupt`.

        Raises:
            SpeechError: the words, the server or the engine failed; what had come was said.
        """
        return await self.speak(words, options).spoken()

    def interrupt(self) -> list[Utterance]:
        """Fall silent with the next frame; each utterance's ``outcome()`` tells what was heard."""
        return self._speaker.interrupt() if self._speaker is not None else []

    async def send_dtmf(self, keys: str, *, duration_ms: int = 160, gap_ms: int = 80) -> None:
        """Press keys (RFC 4733); speech waits meanwhile. Returns when the last is out."""
        await self._leg.send_dtmf(keys, duration_ms, gap_ms)

    # --- listening

    async def audio(self) -> AsyncIterator[HeardFrame]:
        """What the far end says, frame by frame, until the call ends; for any number of readers."""
        queue: asyncio.Queue[HeardFrame | None] = asyncio.Queue()
        self._listeners.append(queue)
        if self._over.is_set():
            queue.put_nowait(None)
        try:
            while (frame := await queue.get()) is not None:
                yield frame
        finally:
            self._listeners.remove(queue)

    # --- changing and ending it

    async def hold(self) -> None:
        """Put the far end on hold; raises CallError when it refuses."""
        await self._agree(await self._sip.hold(self._session))

    async def resume(self) -> None:
        """Take the far end back; raises CallError when it refuses."""
        await self._agree(await self._sip.resume(self._session))

    async def hangup(self) -> None:
        """End it, whatever its state: BYE, CANCEL or a refusal. Harmless when it is over.

        What is being said is interrupted; what has been said is let out of the far end's buffer.
        """
        if not self._over.is_set():
            self.interrupt()
            if self._sink is not None and self._sink.last_at is not None:
                await self._phone.clock.sleep_until(self._sink.last_at + LINGER_S)
            with contextlib.suppress(CallError, TimeoutError):
                async with asyncio.timeout(HANGUP_S):
                    await self._sip.bye()
        await self.ended()

    async def ended(self) -> str:
        """Wait until it is over and cleared away; why, in plain words."""
        await asyncio.shield(self._life)
        return self._cause

    # --- inside

    async def _iterate(self) -> AsyncIterator[CallEvent]:
        while (event := await self._events.get()) is not None:
            yield event
        self._events.put_nowait(None)

    def _check_up(self) -> None:
        if self._over.is_set():
            raise WrongState(f"The call is over: {self._cause or 'it was ended'}.")

    def _now(self) -> float:
        return self._phone.clock.now()

    def _tell(self, event: CallEvent) -> None:
        self._events.put_nowait(event)

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
                    self._tasks.append(asyncio.create_task(self._give_up()))
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
            case Ringing():
                self._tell(CallRinging(self._now()))
            case EarlyMedia(sdp=sdp):
                await self._agree(self._session.accept(sdp))
            case Answered(sdp=sdp):
                if sdp is not None:
                    await self._agree(self._session.accept(sdp))
                self._answered()
            case ReinviteReceived(offer=offer, respond=respond):
                await self._renegotiate(offer, respond)
            case ReinviteConfirmed(sdp=sdp):
                if sdp is not None:
                    await self._agree(self._session.accept(sdp))
            case Ended() as ended:
                self._cause = _cause(ended)
                self._error = self._error or ended.error
            case _:
                logger.debug("call %s: %s", self.id, type(event).__name__)

    def _answered(self) -> None:
        if self._payload is None:
            raise BadSdp("The far end answered without describing its media.")
        if not self._up.done():
            self._up.set_result(None)
            self._tell(CallAnswered(self._now(), self._payload.name))

    async def _renegotiate(self, offer: str | None, respond: object) -> None:
        assert callable(respond)
        if offer is None:
            respond(self._session.offer())
            return
        try:
            answer, agreed = self._session.answer(offer)
            await self._agree(agreed)
        except (BadSdp, NoCommonCodec) as error:
            logger.warning("call %s: a change by the far end was refused: %s", self.id, error)
            respond(None)
        else:
            respond(answer)

    async def _agree(self, agreed: Negotiated) -> None:
        """Media flows as both ends have agreed.

        Raises BadSdp for a media address that cannot be sent to; nothing has changed then.
        """
        remote = RemoteMedia(
            host=_ipv4(agreed.host),
            port=agreed.port,
            payload_type=agreed.payload_type,
            payload_name=agreed.payload_name,
            ptime_ms=agreed.ptime_ms,
            telephone_event_pt=agreed.telephone_event_pt,
            send=agreed.send,
            receive=agreed.receive,
        )
        if self._payload is None:
            await self._leg.start(remote)
            self._check_up()  # it may have ended meanwhile
            self._begin(agreed)
        else:
            await self._leg.update(remote)
        held = not agreed.send
        if held != self._held:
            self._held = held
            self._tell(CallHeld(self._now()) if held else CallResumed(self._now()))

    def _begin(self, agreed: Negotiated) -> None:
        """The codec is known: the line can be built."""
        self._payload = payload = payload_by_name(agreed.payload_name)
        settings = self._phone.settings
        path = self._phone.next_recording()
        if path is not None:
            try:
                self._tracks = CallTracks(StereoRecorder(path), payload, self._now())
            except OSError as error:  # no reason to hang up on the caller
                logger.error("call %s is not recorded: %s", self.id, error)
        tap = self._tracks.sent if self._tracks is not None else None
        self._sink = RtpSink(self._leg, agreed.ptime_ms, tap)
        self._speaker = Speaker(
            self._phone.link,
            self._sink,
            payload,
            ptime_ms=agreed.ptime_ms,
            voice=settings.speech,
            call_id=self.id,
            log=self._phone.latency_log,
            clock=self._phone.clock,
        )
        self._tasks.append(asyncio.create_task(self._media(), name="media events"))
        self._tasks.append(asyncio.create_task(self._listen(), name="inbound audio"))
        if tap is not None:
            self._tasks.append(asyncio.create_task(self._follow(), name="recording"))

    async def _media(self) -> None:
        assert self._sink is not None
        async for event in self._leg.events:
            match event:
                case ContextPlayed(context=context):
                    self._sink.context_played(context)
                case Dtmf(digit=digit, duration_ms=duration, at=at):
                    self._tell(KeyPressed(at, digit, duration))
                case MediaTimeout(silent_s=silent, at=at):
                    self._tell(MediaSilent(at, silent))
                case LegFailed(cause=cause):
                    logger.error("call %s: media failed: %s", self.id, cause)
                case _:
                    logger.debug("call %s: %s", self.id, type(event).__name__)
        self._sink.closed()
        if not self._over.is_set():
            # The media process, or this call's part of it, is gone: nobody could be heard.
            self._tasks.append(asyncio.create_task(self._give_up()))

    async def _listen(self) -> None:
        with contextlib.suppress(CallError):
            while True:
                await self._leg.wait_inbound()
                self._take_inbound()

    def _take_inbound(self) -> None:
        for frame in self._leg.read_inbound():
            name = {0: "PCMU", 8: "PCMA"}.get(frame.payload_type)
            if name is None:
                continue
            samples = payload_by_name(name).decode(frame.payload)
            heard = HeardFrame(samples, frame.at, frame.concealed)
            if self._tracks is not None:
                self._tracks.heard(frame, heard)
            for queue in self._listeners:
                if queue.qsize() >= LISTEN_FRAMES:
                    queue.get_nowait()
                    self.unheard_frames += 1
                queue.put_nowait(heard)

    async def _follow(self) -> None:
        assert self._sink is not None
        origin, count = self._now(), 0
        while True:
            count += 1
            await self._phone.clock.sleep_until(origin + count * FOLLOW_S)
            self._sink.follow()

    async def _clear(self) -> None:
        """The call is over: settle what was being said, finish the recording, free the ports."""
        self._over.set()
        if self._speaker is not None and self._sink is not None:
            await self._speaker.close()
            self._take_inbound()
            self._sink.closed()
        await self._leg.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tracks is not None:
            self._tracks.close(self._now())
        for queue in self._listeners:
            queue.put_nowait(None)
        if not self._up.done():
            self._up.set_exception(self._error or WrongState(f"The call ended: {self._cause}."))
            self._up.exception()  # nobody needs to ask
        self._tell(CallEnded(self._now(), self._cause))
        self._events.put_nowait(None)
        self._phone.forget(self)


def _ipv4(host: str) -> str:
    """The address, if media can be sent there: the media process speaks IPv4."""
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise BadSdp(
            f"The far end's media address {host[:64]!r} is no IPv4 address.",
            remedy="Let it describe its media with an IPv4 address.",
        ) from None


def _cause(ended: Ended) -> str:
    if ended.error is not None:
        return str(ended.error)
    if ended.by == "local":
        return "we hung up"
    if ended.by == "remote":
        return f"the other side hung up{f' ({ended.reason})' if ended.reason else ''}"
    return f"{ended.by} {ended.status or ''} {ended.reason}".strip()
