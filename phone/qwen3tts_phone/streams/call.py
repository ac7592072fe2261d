"""Call over a media stream: one connection and its adapter."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from qwen3tts_codecs.errors import CodecError
from qwen3tts_pacer.policy import FillingPolicy
from qwen3tts_phone import errors
from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.audio.wav import Announcement
from qwen3tts_phone.call.call import LINGER_S, Call
from qwen3tts_phone.call.core import CallCore
from qwen3tts_phone.call.events import MediaBegan, MediaSilent
from qwen3tts_phone.call.keys import validated_keys
from qwen3tts_phone.dialling.guard import Guard
from qwen3tts_phone.errors import CallError, NotPossible, WrongState, traceback_without_message
from qwen3tts_phone.facts import CallFacts, EndFacts
from qwen3tts_phone.streams.carriers.adapter import (
    Message,
    StreamAdapter,
    StreamAudio,
    StreamCleared,
    StreamEvent,
    StreamFlow,
    StreamKey,
    StreamKind,
    StreamLost,
    StreamMark,
    StreamOddity,
    StreamStarted,
    StreamStopped,
)
from qwen3tts_phone.streams.connection import StreamConnection
from qwen3tts_phone.streams.inbound import StreamCounters, StreamDecoder, StreamWatchdog
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_phone.streams.sink import StreamSink
from qwen3tts_wire.errors import SpeechError, log_text

logger = logging.getLogger(__name__)

TICK_S = 0.02
CHECK_INTERVAL_S = 0.5
CARRIER_TIMEOUT_S = 10.0
MAX_ID_CHARS = 256
NO_STOP = "the far end closed the stream and sent no stop before"


class StreamCall(Call):
    """Call over a stream, made by `Streams` once it is identified.

    Nothing is sent before `answer`.
    """

    def __init__(
        self,
        body: CallCore,
        wire: StreamConnection,
        adapter: StreamAdapter,
        settings: StreamSettings,
        kind: StreamKind | None = None,
    ) -> None:
        super().__init__(body)
        body.facts.line = adapter.line
        self.stream_id = ""
        """The far end's id of the stream, if it differs from `id`."""
        self.parameters: Mapping[str, str] = MappingProxyType({})
        self.started = asyncio.Event()
        """Set when the far end has identified the call, or the stream is over."""
        self.on_unbegun: Callable[[], None] | None = None
        """Called before the record of a stream that never started is written."""
        self._wire = wire
        self._adapter = adapter
        self._settings = settings
        self._kind = kind
        self._sink: StreamSink | None = None
        self._policy: FillingPolicy | None = None
        self._hearing = StreamDecoder()
        self._counters = StreamCounters()
        self._watch = StreamWatchdog(settings, self.clock.now())
        self._end: EndFacts | None = None
        self._cause = ""
        self._leaving = False

    # --- properties

    @property
    def encrypted(self) -> bool:
        return self.facts.transport == "wss"

    @property
    def adapter(self) -> StreamAdapter:
        return self._adapter

    @property
    def sink(self) -> StreamSink | None:
        return self._sink

    # --- answering

    async def answer(self, headers: Mapping[str, str] | None = None) -> None:
        self._core.check_up()
        if self._sink is None:
            raise WrongState("The far end has not started the stream yet.")
        if self._core.up.done():
            return
        await self._wire.send(self._adapter.answer())
        if self._adapter.owns_clock:
            self._sink.start()
        self._core.answered()

    async def reject(
        self, status: int = 486, reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        if self._core.up.done():
            raise WrongState(
                "A call that was answered cannot be refused.", remedy="Hang up: call.hangup()."
            )
        self._ends(EndFacts(by="local", status=status, reason=reason), "we rejected it")
        await self._leave()

    async def turn_away(self, outage: SpeechError, said: Announcement | None) -> None:
        try:
            if said is not None:
                await self.answer()
                await self.play(said.samples, said.rate_hz)
                await self._let_playout_end()
        except CallError as error:
            logger.info(
                "call %s did not hear the announcement: %s", log_text(self.id), log_text(error)
            )
        self._ends(EndFacts(by="local", status=503, error=outage), outage.message)
        await self._leave()

    # --- speaking

    async def send_dtmf(
        self, keys: str, *, method: str = "auto", duration_ms: int = 160, gap_ms: int = 80
    ) -> None:
        self._core.check_up()
        keys = validated_keys(keys)
        if self._kind is not None and self._kind.press is not None:
            await self._request(self._kind.press(self.id, keys), "Pressing keys")
        else:
            await self._wire.send(self._adapter.keys(keys))
        self.facts.note_keys(keys, ours=True)

    # --- transfer and end

    async def transfer(self, target: str, *, headers: dict[str, str] | None = None) -> None:
        self._core.check_up()
        if self._kind is None or self._kind.transfer is None:
            raise NotPossible(
                "A transfer", self.line, remedy="Let the dialplan or the carrier's program do it."
            )
        Guard(self._settings.guard).check(target, self.clock.now())
        await self._request(self._kind.transfer(self.id, target), "A transfer")
        self.facts.transferred_to = target
        await self.hangup()

    async def hangup(self, headers: Mapping[str, str] | None = None) -> None:
        if not self.over and self._end is None:
            await self._let_playout_end()
            self._ends(EndFacts(by="local"), "we hung up")
            await self._leave()
        await self.ended()

    # --- for `Streams`

    async def run(self) -> None:
        body = self._core
        body.start(self._supervise(), "watch")
        if self._adapter.wants_ticks:
            body.start(self._tick(), "tick")
        try:
            await self._wire.send(self._adapter.opened())
            while self._end is None:
                message = await self._wire.receive()
                if message is None:
                    break
                self._receive(message)
        except Exception as error:
            # Last resort: the far end must not be left with a dead call.
            logger.error("call %s failed\n%s", log_text(self.id), traceback_without_message(error))
            self._ends(EndFacts(by="error"), "internal error; the log has the traceback")
        finally:
            await self._clear()

    def learnt(self) -> Mapping[str, object]:
        return self._policy.export() if self._policy is not None else {}

    def set_policy(self, policy: FillingPolicy) -> None:
        self._policy = policy

    # --- inbound

    def _receive(self, message: Message) -> None:
        now = self.clock.now()
        self._watch.message(now)
        if self._sink is not None:
            self._sink.alive(now)
        for event in self._adapter.receive(message, now):
            self._take(event, now)

    def _take(self, event: StreamEvent, now: float) -> None:
        if self._end is not None:
            return
        match event:
            case StreamAudio():
                self._hear(event, now)
            case StreamLost():
                self._counters.lost()
                for heard in self._hearing.lost(event, self._adapter.payload_in, now):
                    self._core.inbound.take(heard)
            case StreamKey(digit=digit, duration_ms=duration):
                if self._sink is not None:
                    self._core.pressed(KeyPressed(now, digit, duration, "stream"))
                else:
                    self.facts.note_odd("a key before the start")
            case StreamMark(name=name):
                if self._sink is not None:
                    self._sink.mark_returned(name)
            case StreamFlow(stop=stop):
                if self._sink is not None:
                    self._sink.flow(stop=stop)
            case StreamCleared():
                pass
            case StreamOddity(what=what):
                self.facts.note_odd(what)
            case StreamStarted():
                self._start(event, now)
            case StreamStopped(cause=cause, error=error):
                self._stop(cause, error)

    def _hear(self, audio: StreamAudio, now: float) -> None:
        if self._sink is None:
            self.facts.note_odd("sound before the start")
            return
        self._counters.sound(len(audio.data), now)
        if self._watch.sound(now):
            self.facts.first_rtp_in_at = self.facts.first_rtp_in_at or now
            self.facts.media.silent_s = 0.0
            self._core.publish(MediaBegan(now))
        payload = audio.payload or self._adapter.payload_in
        for heard in self._hearing.take(audio, payload, now):
            self._core.inbound.take(heard)

    def _start(self, event: StreamStarted, now: float) -> None:
        if self._sink is not None:
            self.facts.note_odd("a second start")
            return
        facts, adapter = self.facts, self._adapter
        _note_start(facts, event)
        self.stream_id = event.stream_id[:MAX_ID_CHARS]
        self.parameters = MappingProxyType(dict(event.parameters))
        self._watch.begun(now)
        payload = event.payload or adapter.payload
        lead_ms = adapter.queue_lead_ms or self._settings.lead_ms
        if adapter.owns_clock and self._policy is None:
            self._policy = FillingPolicy(ptime_s=adapter.ptime_ms / 1000)
        try:
            sink = StreamSink(
                adapter,
                payload,
                self._wire.send,
                self._wire.send_now,
                lead_ms=lead_ms,
                mark_ms=self._settings.mark_ms,
                clock=self.clock,
                policy=self._policy,
            )
            self._core.begin(payload, sink, adapter.ptime_ms)
        except CodecError as error:
            self._ends(EndFacts(by="error", error=CallError(str(error))), str(error))
            self._core.start(self._leave(), "end")
            return
        facts.media.codec_in = (event.payload_in or adapter.payload_in).name
        self._sink = sink
        self.started.set()

    def _stop(self, cause: str, error: bool) -> None:
        words = "the far end ended the stream" + (f": {cause[:200]}" if cause else "")
        if error:
            self._ends(EndFacts(by="error", error=CallError(f"{words}."), reason=cause), words)
        else:
            self._ends(EndFacts(by="remote", reason=cause), words)

    # --- timers

    async def _tick(self) -> None:
        origin, count = self.clock.now(), 0
        while self._adapter.wants_ticks:
            count += 1
            await self.clock.sleep_until(origin + count * TICK_S)
            now = self.clock.now()
            for event in self._adapter.tick(now):
                self._take(event, now)
            if self._end is not None:
                await self._leave()
                return
            if rest := self._adapter.flush():
                await self._wire.send(rest)

    async def _supervise(self) -> None:
        origin, count = self.clock.now(), 0
        while self._end is None:
            count += 1
            await self.clock.sleep_until(origin + count * CHECK_INTERVAL_S)
            now = self.clock.now()
            silent_s = self._watch.silent_s(now)
            if silent_s is not None:
                self.facts.media.silent_s = silent_s
                ever = self.facts.first_rtp_in_at is not None
                self._core.publish(MediaSilent(now, silent_s, ever))
            blocked_at = self._sink.blocked_at if self._sink is not None else None
            lost = self._watch.lost(now, blocked_at)
            if lost is not None:
                self._ends(EndFacts(by="timeout", error=lost), lost.message)
                await self._leave()

    # --- the end

    def _ends(self, end: EndFacts, cause: str) -> None:
        if self._end is None:
            self._end, self._cause = end, cause.rstrip(".")

    async def _let_playout_end(self) -> None:
        if self.speaking:
            self.interrupt()
        if self._sink is not None and self._sink.last_at is not None:
            await self.clock.sleep_until(self._sink.last_at + LINGER_S)

    async def _leave(self) -> None:
        if self._leaving:
            return
        self._leaving = True
        self._core.silence()
        self._wire.send_now(self._adapter.hang_up())
        kind = self._kind
        # A transferred call continues at the carrier; one that never started has no id there.
        known = self._sink is not None
        ends = known and not self._adapter.has_hang_up and not self.facts.transferred_to
        if ends and kind is not None and kind.hang_up is not None:
            try:
                await self._request(kind.hang_up(self.id), "Hanging up")
            except CallError as error:
                logger.error(
                    "call %s is not ended at the carrier: %s", log_text(self.id), log_text(error)
                )
        await self._wire.close()

    async def _request(self, request: Awaitable[None], what: str) -> None:
        try:
            async with asyncio.timeout(CARRIER_TIMEOUT_S):
                await request
        except TimeoutError:
            raise CallError(
                f"{what} failed: the carrier's interface did not answer.", remedy="Try again."
            ) from None

    async def _clear(self) -> None:
        if self._end is None:
            self._ends(*self._closed())
        assert self._end is not None
        if self._end.by == "remote":
            # Closing may take a while, and nothing is heard any more.
            if self._sink is not None:
                self._sink.leave()
            self._core.silence()
            await self._wire.close()
        else:
            await self._leave()
        facts, sink = self.facts, self._sink
        if sink is not None:
            facts.first_rtp_out_at = sink.first_at
        elif self.on_unbegun is not None:
            self.on_unbegun()
        facts.media.stats = self._counters.stats(
            sink, self._hearing.undecodable, self.unheard_frames
        )
        await self._core.finish(self._end, self._cause)
        if sink is not None:
            await sink.close()
        self.started.set()

    def _closed(self) -> tuple[EndFacts, str]:
        lost = self._wire.lost
        if self._adapter.ends_by_closing and not lost:
            return EndFacts(by="remote"), "the far end hung up"
        words = f"the stream broke: {lost}" if lost else NO_STOP
        error = errors.StreamLost(
            f"{words[0].upper()}{words[1:]}.",
            remedy="Check the network between and the other side's log, then call again.",
        )
        return EndFacts(by="error", error=error), words


def _note_start(facts: CallFacts, event: StreamStarted) -> None:
    if len(event.call_id) > MAX_ID_CHARS:
        facts.note_odd("a call id that is too long")
    facts.call_id = event.call_id[:MAX_ID_CHARS] or facts.call_id
    facts.direction = event.direction
    outward = event.direction == "out"
    facts.remote_uri = event.to_uri if outward else event.from_uri
    facts.local_uri = event.from_uri if outward else event.to_uri
    facts.dialled_uri = event.to_uri
    facts.display_name = event.display_name
