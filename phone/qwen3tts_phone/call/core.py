"""State and services of a call over any line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.audio.frames import CallSink, KeyPressed, OutboundAudio
from qwen3tts_phone.audio.inbound import InboundAudio
from qwen3tts_phone.call.events import (
    CallAnswered,
    CallEnded,
    CodecChanged,
    EventStream,
    TimedEvent,
)
from qwen3tts_phone.call.keys import Keypad
from qwen3tts_phone.detection.recogniser import RecogniserPool
from qwen3tts_phone.errors import CallError, WrongState, traceback_without_message
from qwen3tts_phone.facts import CallFacts, EndFacts
from qwen3tts_phone.limits import TokenBucket
from qwen3tts_phone.media.dtmf import KEYS_BURST, KEYS_PER_S
from qwen3tts_phone.records.call_recordings import CallRecordings
from qwen3tts_phone.records.record import CallRecord
from qwen3tts_phone.records.store import CallStore
from qwen3tts_speech.line import Speaker, UtteranceLog
from qwen3tts_speech.link import SpeechLink, VoiceOptions
from qwen3tts_speech.record_sinks import EndOfCallSink, RecordSink
from qwen3tts_wire.errors import SpeechError, log_text

logger = logging.getLogger(__name__)


CLAIM_WITHIN_S = 5.0
"""A call that follows another one is hung up when no program takes it over by then."""


class BackgroundTasks:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ClaimableCall(Protocol):
    def claim(self) -> None: ...


class Succession:
    """Successor of a call, by a REFER (RFC 3515) or an INVITE with Replaces (RFC 3891)."""

    def __init__(self) -> None:
        self._next: asyncio.Future[ClaimableCall | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._under_way = 0
        """Transfers whose new call is not answered yet."""
        self._over = False
        self._waiting = 0

    @property
    def awaited(self) -> bool:
        return self._waiting > 0

    def begin(self) -> None:
        self._under_way += 1

    def failed(self) -> None:
        self._under_way -= 1
        self._settle()

    def goes_on(self, call: ClaimableCall) -> None:
        self._under_way -= 1
        if not self._next.done():
            self._next.set_result(call)

    def call_over(self) -> None:
        self._over = True
        self._settle()

    async def wait(self) -> ClaimableCall | None:
        self._waiting += 1
        try:
            following = await asyncio.shield(self._next)
        finally:
            self._waiting -= 1
        if following is not None:
            following.claim()
        return following

    def _settle(self) -> None:
        if self._over and not self._under_way and not self._next.done():
            self._next.set_result(None)


@dataclass(frozen=True, slots=True)
class CallVoice:
    link: SpeechLink
    options: VoiceOptions
    log: RecordSink | None = None
    """Takes the record of each utterance."""


class CallCore:
    """State and services of one call, driven by its line; made in a running event loop.

    Args:
        facts: kept up to date here.
        clock: the call's time, seconds.
        voice: speech server and voice.
        files: store of recordings and records.
        recognisers: shared by the line's calls; None = this call has its own.
    """

    def __init__(
        self,
        facts: CallFacts,
        clock: Clock,
        voice: CallVoice,
        files: CallStore,
        recognisers: RecogniserPool | None = None,
    ) -> None:
        self.facts = facts
        self.clock = clock
        self.voice = voice
        self.files = files
        self.event_stream = EventStream()
        self.keypad = Keypad(clock)
        self._key_rate = TokenBucket(KEYS_PER_S, KEYS_BURST, clock.now())
        self.inbound = InboundAudio(clock, facts.media)
        self.outbound = OutboundAudio()
        self.recordings = CallRecordings(self)
        self.recognisers = recognisers or RecogniserPool()
        self._own_recognisers = recognisers is None
        self.payload: Payload | None = None
        """Outbound format; None before `begin`, as the next two."""
        self.sink: CallSink | None = None
        self.speaker: Speaker | None = None
        self.held = False
        """True if the far end has put us on hold."""
        self.speaks_early = False
        """True if something can be said before the answer."""
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when both ends agree."""
        self.over = asyncio.Event()
        """Set when the call is over."""
        self.cleared = asyncio.Event()
        """Set when its recording and record are done as well."""
        self.cause = ""
        """Why it is over, in plain words."""
        self.error: SpeechError | None = None
        """The same, where it ended otherwise than by hanging up."""
        self.record: CallRecord | None = None
        """Once it is over and its recording is done."""
        self.succession = Succession()
        self.claimed = asyncio.Event()
        """Set when a program has taken this call over from the one before it."""
        self.hang_up: Callable[[], Awaitable[None]] = _no_line
        """Ends the call at its line, in any state; set by the line."""
        self._settled = self._finishing = False
        self._tasks = BackgroundTasks()

    @property
    def may_speak(self) -> bool:
        return self.speaker is not None and (self.up.done() or self.speaks_early)

    def check_up(self) -> None:
        if self.over.is_set():
            raise WrongState(f"The call is over: {self.cause or 'it was ended'}.")

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.start(work, f"{name} of {self.facts.call_id}")

    def await_claim(self) -> None:
        """Hang up unless a program takes the call within `CLAIM_WITHIN_S`."""
        if not self.claimed.is_set():
            self.start(self._end_unclaimed(), "wait for a program")

    async def _end_unclaimed(self) -> None:
        await self.clock.sleep_until(self.clock.now() + CLAIM_WITHIN_S)
        if self.claimed.is_set():
            return
        self.error = CallError(
            "No program took over the call that a transfer led to.",
            remedy="Await call.successor(), or read CallTransferred.call.",
        )
        logger.warning("call %s: %s", log_text(self.facts.call_id), log_text(self.error))
        await self.hang_up()

    # --- what happens

    def publish(self, event: TimedEvent) -> None:
        self.event_stream.publish(event)

    def begin(self, payload: Payload, sink: CallSink, ptime_ms: int = 20) -> None:
        """Attach the sink for a format; start recordings without notice. Raises CodecMissing."""
        self.outbound.begin(sink, payload)
        self.payload, self.sink = payload, sink
        self.facts.media.codec, self.facts.media.ptime_ms = payload.name, ptime_ms
        self.inbound.ptime_ms = ptime_ms
        self.speaker = Speaker(
            self.voice.link,
            sink,
            payload,
            ptime_ms=ptime_ms,
            voice=self.voice.options,
            log=UtteranceLog(
                self.facts.call_id, self.facts.line, self.voice.log, self.facts.note_spoken
            ),
            clock=self.clock,
        )
        self.recordings.agreed()

    def change(self, payload: Payload, ptime_ms: int) -> None:
        """Change the codec; queued speech goes on in it. Raises CodecMissing."""
        assert self.speaker is not None
        self.outbound.change(payload)
        self.speaker.change(payload, ptime_ms)
        self.payload = payload

    def changed(self) -> None:
        assert self.payload is not None
        self.publish(CodecChanged(self.clock.now(), self.payload.name))

    def answered(self) -> None:
        if self.up.done():
            return
        assert self.payload is not None
        self.facts.answered_at = self.clock.now()
        self.up.set_result(None)
        self.publish(CallAnswered(self.clock.now(), self.payload.name))
        self.recordings.answered()

    def pressed(self, key: KeyPressed) -> None:
        """Take a key of the far end; keys beyond the rate limit are only counted."""
        if not self._key_rate.take(self.clock.now()):
            if not self.facts.keys_ignored:
                logger.warning(
                    "call %s: keys come too fast, some are ignored", log_text(self.facts.call_id)
                )
            self.facts.keys_ignored += 1
            return
        self.facts.note_keys(key.digit, ours=False)
        self.keypad.pressed(key)
        self.publish(key)

    # --- the end

    def silence(self) -> None:
        self.over.set()
        if self.speaker is not None and self.speaker.speaking:
            self.speaker.interrupt()

    async def settle(self) -> None:
        self.over.set()
        if self.speaker is not None and self.sink is not None and not self._settled:
            self._settled = True
            await self.speaker.close()
            self.inbound.fetch()
            self.sink.gone()

    async def finish(
        self,
        end: EndFacts,
        cause: str,
        *,
        before_filing: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """End the call: recordings, readers, the last event and the record.

        ``before_filing`` is awaited before the record. A second call waits for the first.
        """
        if self._finishing:
            await self.cleared.wait()
            return
        self._finishing = True
        facts, error = self.facts, end.error
        self.cause, self.error = cause, error
        await self.settle()
        await self._tasks.cancel()
        self.recordings.close(self.clock.now())
        self.inbound.close()
        self.keypad.close()
        facts.ended_at = self.clock.now()
        if self.speaker is not None:
            facts.utterances, facts.interrupted = self.speaker.utterances, self.speaker.interrupted
        facts.end = end
        if not self.up.done():
            self.up.set_exception(error or WrongState(f"The call ended: {cause}."))
            self.up.exception()  # retrieved: waiting is optional
        self.publish(
            CallEnded(
                self.clock.now(),
                cause,
                by=end.by,
                status=end.status,
                code=error.code if error is not None else "",
                remedy=error.remedy if error is not None else "",
            )
        )
        self.event_stream.close()
        self.succession.call_over()
        self._tell_sink(facts)
        try:
            if self._own_recognisers:
                await self.recognisers.close()
            if before_filing is not None:
                await before_filing()
            await self._file()
        finally:
            self.cleared.set()

    def _tell_sink(self, facts: CallFacts) -> None:
        log, end, ended_at = self.voice.log, facts.end, facts.ended_at
        if not isinstance(log, EndOfCallSink) or end is None or ended_at is None:
            return
        attributes: dict[str, str | float] = {
            "line": facts.line,
            "direction": facts.direction,
            "transport": facts.transport,
            "codec": facts.media.codec,
            "ended_by": end.by,
            "interrupted": facts.interrupted,
        }
        if facts.answered_at is not None:
            attributes["answered_ms"] = round((facts.answered_at - facts.started_at) * 1000, 1)
        log.call_ended(
            facts.call_id,
            began_unix_s=facts.started_wall,
            ended_unix_s=facts.started_wall + ended_at - facts.started_at,
            attributes=attributes,
            error=end.error.code if end.error is not None else "",
        )

    async def _file(self) -> None:
        asked = self.recordings.asked
        filing = self.files.file(self.facts, self.recordings.automatic, asked)

        def filed(task: asyncio.Task[CallRecord]) -> None:
            if not task.cancelled() and task.exception() is None:
                self.record = task.result()
            elif (broke := task.exception() if not task.cancelled() else None) is not None:
                named = log_text(self.facts.call_id)
                logger.error("call %s has no record\n%s", named, traceback_without_message(broke))

        filing.add_done_callback(filed)
        slow = self.recordings.automatic is not None and self.files.settings.audio_format != "wav"
        if not (slow or any(each.encodes for each in asked)):
            await asyncio.wait([filing])


async def _no_line() -> None:
    pass
