"""A call with a browser over WebRTC.

call, answer = await WebCall.made(core, offer)     # the answer goes to the page await call.answer()
# returns when connected await call.say("Good morning.")
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import time
import uuid
from collections.abc import AsyncIterable, Mapping
from typing import Any

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.clock import Clock
from qwen3tts_pacer.policy import FillingPolicy
from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed
from qwen3tts_phone.call.call import LINGER_S, Call
from qwen3tts_phone.call.core import CallCore
from qwen3tts_phone.call.events import MediaBegan, MediaSilent
from qwen3tts_phone.call.keys import validated_keys
from qwen3tts_phone.errors import CallError, WrongState, traceback_without_message
from qwen3tts_phone.facts import CallFacts, EndFacts, MediaFacts
from qwen3tts_phone.softphone.webrtc.media import WebSink
from qwen3tts_phone.softphone.webrtc.offer import CodecChoice, Offer, read_offer
from qwen3tts_phone.softphone.webrtc.report import Report
from qwen3tts_phone.softphone.webrtc.settings import WebRtcSettings
from qwen3tts_phone.softphone.webrtc.statistics import (
    TransportState,
    TransportStatistics,
    web_leg_stats,
)
from qwen3tts_phone.softphone.webrtc.transport import WebRtcTransport
from qwen3tts_speech.latency import Mark
from qwen3tts_speech.link import VoiceOptions
from qwen3tts_speech.utterance import Utterance
from qwen3tts_wire.errors import log_text

__all__ = ["CodecChoice", "ArrivalHistory", "WebCall", "WebRtcSettings", "web_call_facts"]

logger = logging.getLogger(__name__)

LINE = "webrtc"
PTIME_MS = 20
MAX_AGENT_CHARS = 200


class ArrivalHistory:
    """Arrival statistics passed on from call to call."""

    def __init__(self) -> None:
        self._learnt: Mapping[str, Any] = {}

    def policy(self, ptime_s: float) -> FillingPolicy:
        return FillingPolicy(ptime_s=ptime_s, learnt=self._learnt)

    def keep(self, policy: FillingPolicy) -> None:
        self._learnt = policy.export() or self._learnt


class WebCall(Call):
    def __init__(
        self,
        body: CallCore,
        payload: Payload,
        offer: Offer,
        settings: WebRtcSettings,
        learnt: ArrivalHistory,
        sink: WebSink,
        policy: FillingPolicy,
    ) -> None:
        super().__init__(body)
        self._offer = offer
        self._learnt = learnt
        self._policy = policy
        self._sink = sink
        self._payload = payload
        self._transport = WebRtcTransport(_Listener(self), offer, payload, settings, body.clock)
        self._said: Utterance | None = None
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ending = asyncio.Event()
        self._end: EndFacts | None = None
        self._cause = ""
        self._running: asyncio.Task[None] | None = None

    @classmethod
    async def made(
        cls,
        body: CallCore,
        offer_sdp: str,
        *,
        codec: CodecChoice = "auto",
        settings: WebRtcSettings | None = None,
        learnt: ArrivalHistory | None = None,
    ) -> tuple[WebCall, str]:
        """Accept a browser's offer with all candidates; returns call and SDP answer.

        Raises:
            BadSdp: not an offer of one audio stream.
            NoCommonCodec: no requested codec.
            CodecMissing: the library for Opus is not installed.
            CallError: aiortc is not installed, or this machine has no network.
        """
        offer = read_offer(offer_sdp)
        chosen = offer.chosen(codec)
        payload = chosen.payload()
        payload.encoder(PTIME_MS)  # raises CodecMissing before anything is opened
        _require_aiortc()
        from qwen3tts_phone.softphone.webrtc.peer import PacketTrack

        settings, learnt = settings or WebRtcSettings(), learnt or ArrivalHistory()
        track = PacketTrack(payload.frame_ticks(PTIME_MS), payload.clock_hz)
        policy = learnt.policy(PTIME_MS / 1000)
        sink = WebSink(track.put, payload, ptime_ms=PTIME_MS, clock=body.clock, policy=policy)
        call = cls(body, payload, offer, settings, learnt, sink, policy)
        answer = await call._transport.open(chosen, track)
        try:
            call._begin(chosen.name)
        except BaseException:
            await call._transport.close()
            raise
        return call, answer

    # --- what it is

    @property
    def state(self) -> TransportState:
        if self._end is not None or self.over:
            return "ended"
        if not self._transport.up.is_set():
            return "connecting"
        return "lost" if self._transport.lost else "up"

    @property
    def encrypted(self) -> bool:
        return True

    @property
    def sink(self) -> WebSink:
        return self._sink

    def statistics(self) -> TransportStatistics:
        sink, inbound, remote = self._sink, self._transport.inbound, self._transport.remote
        return TransportStatistics(
            time=self.clock.now(),
            state=self.state,
            pacer=sink.state,
            codec=self.codec,
            queued_ms=sink.unsent_s * 1000,
            frames=sink.sent_frames,
            skipped=sink.skipped_slots,
            starvations=sink.starvations,
            longest_gap_ms=sink.longest_gap_s * 1000,
            first_sound_ms=self._first_sound_ms(),
            silent_ms=self._transport.silent_s() * 1000,
            received=inbound.received,
            lost_in=inbound.lost,
            jitter_in_ms=inbound.jitter_s * 1000,
            rtt_ms=remote.rtt_ms(),
            report=remote.report,
        )

    # --- taking it

    async def answer(self, headers: Mapping[str, str] | None = None) -> None:
        body = self._core
        body.check_up()
        await asyncio.shield(self._connected)
        body.check_up()
        if not body.up.done():
            body.answered()

    async def reject(
        self, status: int = 486, reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        if self._core.up.done():
            raise WrongState(
                "A call that was answered cannot be refused.", remedy="Hang up: call.hangup()."
            )
        self._ends(EndFacts(by="local", status=status, reason=reason), "we rejected it")
        await self.ended()

    # --- speaking

    def speak(
        self, words: str | AsyncIterable[str], options: VoiceOptions | None = None
    ) -> Utterance:
        self._said = super().speak(words, options)
        return self._said

    # --- ending it

    async def hangup(self, headers: Mapping[str, str] | None = None) -> None:
        if self._end is None:
            if self.speaking:
                self.interrupt()
            if self._sink.last_at is not None:
                await self.clock.sleep_until(self._sink.last_at + LINGER_S)
            self._ends(EndFacts(by="local"), "we hung up")
        await self.ended()

    # --- signalling of the page

    def pressed(self, digit: str, duration_ms: int = 160) -> None:
        """Handle a key of the page, one of ``0123456789*#ABCD``; raises CallError."""
        digits = validated_keys(digit)
        if self._end is None and len(digits) == 1:
            self._core.pressed(KeyPressed(self.clock.now(), digits, duration_ms, "page"))

    def report(self, report: Report) -> None:
        self._transport.remote.add_report(report)
        delay_s = self._transport.remote.delay_s()
        if delay_s is not None:
            self._sink.set_playout_delay(delay_s)

    def far_end_left(self, reason: str = "") -> None:
        words = "the page hung up" + (f": {reason[:200]}" if reason else "")
        self._ends(EndFacts(by="remote", reason=reason[:200]), words)

    # --- inside

    def _begin(self, codec: str) -> None:
        body, media = self._core, self.facts.media
        media.codec_in, media.srtp, media.receive = codec, "DTLS-SRTP", self._offer.sends
        body.begin(self._payload, self._sink, PTIME_MS)
        self._running = asyncio.create_task(self._run(), name=f"call {self.id}")
        body.start(self._transport.supervise(), "transport")
        body.start(self._transport.play_out(), "playout")

    def _up(self) -> None:
        if self._end is None and not self._connected.done():
            self._sink.start()
            self._connected.set_result(None)

    def _first_sound_ms(self) -> float | None:
        if self._said is None:
            return None
        began = self._said.record.marks.get(Mark.FIRST_DELTA)
        audible = self._sink.first_audible_at(self._said.number)
        return None if began is None or audible is None else (audible - began) * 1000

    def _ends(self, end: EndFacts, cause: str) -> None:
        if self._end is not None:
            return
        self._end, self._cause = end, cause.rstrip(".")
        if not self._connected.done():
            self._connected.set_exception(end.error or WrongState(f"The call ended: {cause}."))
            self._connected.exception()  # retrieved: there may be no waiter
        self._core.silence()
        self._ending.set()

    async def _run(self) -> None:
        try:
            await self._ending.wait()
        finally:
            self._ends(EndFacts(by="error"), "it was cut off here")
            await self._clear()

    async def _clear(self) -> None:
        body, sink = self._core, self._sink
        assert self._end is not None
        await body.settle()
        try:
            await self._transport.close()
        except Exception as error:  # the rest of the call is cleared up nevertheless
            logger.error(
                "the connection of call %s did not close\n%s",
                log_text(self.id),
                traceback_without_message(error),
            )
        self.facts.first_rtp_out_at = sink.first_at
        self.facts.media.stats = web_leg_stats(
            sink, self._transport.inbound, self._transport.remote, self.unheard_frames
        )
        await body.finish(self._end, self._cause)
        await sink.close()
        self._learnt.keep(self._policy)


class _Listener:
    def __init__(self, call: WebCall) -> None:
        self._call = call

    def connected(self) -> None:
        self._call._up()

    def audio(self, frame: HeardFrame) -> None:
        body = self._call._core
        body.facts.first_rtp_in_at = body.facts.first_rtp_in_at or frame.at
        body.inbound.take(frame)

    def silent(self, silent_s: float) -> None:
        call = self._call
        call.facts.media.silent_s = silent_s
        ever = call.facts.first_rtp_in_at is not None
        call._core.publish(MediaSilent(call.clock.now(), silent_s, ever))

    def resumed(self, now: float) -> None:
        self._call.facts.media.silent_s = 0.0
        self._call._core.publish(MediaBegan(now))

    def ended(self, end: EndFacts, cause: str) -> None:
        self._call._ends(end, cause)


def web_call_facts(
    clock: Clock, *, host: str = "", user_agent: str = "", keep_transcript: bool = False
) -> CallFacts:
    return CallFacts(
        call_id=f"web-{uuid.uuid4()}",
        line=LINE,
        direction="in",
        transport="udp",
        user_agent=user_agent[:MAX_AGENT_CHARS],
        keep_transcript=keep_transcript,
        started_wall=time.time(),
        started_at=clock.now(),
        media=MediaFacts(peer_host=host),
    )


def _require_aiortc() -> None:
    if importlib.util.find_spec("aiortc") is None:
        raise CallError(
            "Calls from a browser need aiortc, which is not installed.",
            remedy='Install it: pip install "mr_qwen3tts[webrtc]".',
        )
