"""One utterance, from text to playout."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass

from qwen3tts_speech.frame_writer import FrameWriter
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.link import ChooseVoice, VoiceOptions
from qwen3tts_speech.playout_queue import PlayoutQueue
from qwen3tts_speech.sink import Played
from qwen3tts_speech.text_feed import TextFeed
from qwen3tts_speech.watchdog import PENDING_TEXT_CHARS, StallWatchdog
from qwen3tts_wire.client import Audio, Context, Done, SpeechClient, Started
from qwen3tts_wire.errors import ConnectionLost, SpeechError
from qwen3tts_wire.heard import Word

RATE_HZ = 24_000
"""Rate of the engines, and of positions."""
REPORT_S = 0.1
"""Interval at which the playout position is reported to the server."""
HELD_S = 0.06
"""Audio in encoder and pacer during normal playout; beyond it the playout is on hold."""
CANCEL_TIMEOUT_S = 2.0
"""Longest wait for the server's acknowledgement of a cancelled context."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """Outcome of an utterance."""

    heard: str
    remaining: str
    """Text not heard: sent, or not sent yet."""
    interrupted: bool
    position: int
    """Samples at 24 kHz that were sent."""
    record: UtteranceRecord


class Utterance:
    """Utterance in progress: text feed, encoding, playout reports.

    A prepared one (`Speaker.prepare`) is heard from its :meth:`release` on, or ends with
    :meth:`drop`.
    """

    live = False

    def __init__(
        self,
        speaker: PlayoutQueue,
        number: int,
        words: str | AsyncIterable[str],
        options: VoiceOptions | ChooseVoice,
        record: UtteranceRecord,
        release: Callable[[Utterance], None] | None = None,
    ) -> None:
        """Begin to synthesise; ``release`` numbers and queues a prepared one."""
        self.number = number
        """Its place in the queue; 0 = prepared."""
        self.record = record
        self.written = asyncio.Event()
        """Set when all frames are with the sink: the next utterance may follow."""
        self._speaker = speaker
        self._feed = TextFeed(words, lambda: record.mark(Mark.FIRST_DELTA, speaker.clock.now()))
        self._options = options
        self._voice: str | None = None
        """Options that it was opened with."""
        self._watchdog = StallWatchdog(speaker.stall_s)
        self._arrived = 0
        """Samples at 24 kHz received."""
        self._interrupted = False
        self._running = False
        self._writer = FrameWriter(speaker, self, RATE_HZ, record)
        self._release = release
        if release is not None:
            self._writer.released.clear()
        self._link = speaker.link
        """Its own link; the speaker's may be another one by now."""
        self._client: SpeechClient | None = None
        self._context: Context | None = None
        self._played: Played | None = None
        self._task = asyncio.create_task(self._run(), name=f"utterance {number}")

    async def spoken(self) -> Spoken:
        """Wait until it was heard or stopped.

        Raises SpeechError of server or engine, after playing what had arrived (:meth:`outcome`), or
        the text source's error.
        """
        await asyncio.shield(self._task)
        return self.outcome()

    def outcome(self) -> Spoken:
        position = self.position
        if self._context is None:
            heard, remaining = "", self.text
        else:
            known = self._context.heard(position)
            heard, remaining = known.text_heard, known.text_remaining + self._feed.unsent
        return Spoken(heard, remaining, self._interrupted, position, self.record)

    @property
    def text(self) -> str:
        return self._feed.text

    @property
    def text_complete(self) -> bool:
        """True if `text` is all of its text."""
        return self._feed.complete

    @property
    def words(self) -> list[Word]:
        return self._context.words if self._context is not None else []

    @property
    def position(self) -> int:
        if self._played is not None:
            return self._played.position
        return self._speaker.sink.position(self.number) if self._writer.begun else 0

    @property
    def stopped(self) -> bool:
        return self._interrupted

    @property
    def held(self) -> bool:
        """True while it is prepared, and nothing of it is played."""
        return self._release is not None

    def release(self) -> None:
        """Queue what was prepared: its frames go to the sink; no effect otherwise."""
        if self._release is None or self._interrupted:
            return
        release, self._release = self._release, None
        self.record.release(self._speaker.clock.now())
        release(self)
        self._writer.release()
        if self._task.done():  # it has failed meanwhile
            self._speaker.ended(self)

    def drop(self) -> None:
        """End what was prepared, without a trace in counts and records; no effect otherwise."""
        if self._release is not None and not self._interrupted:
            self._interrupted = True
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
            if self._running:
                self._task.cancel()

    def give_way(self) -> None: ...

    def stop(self) -> None:
        if self._interrupted:
            return
        self._interrupted = True
        self.record.mark(Mark.INTERRUPTED, self._speaker.clock.now())
        if self._running:  # a task cancelled before its first step would never settle
            self._task.cancel()

    def change(self) -> None:
        self._writer.change()

    async def settled(self, most_s: float | None = None) -> None:
        await asyncio.wait([self._task], timeout=most_s)

    # --- inside

    async def _run(self) -> None:
        reason = "failed"
        self._running = True
        try:
            if self._interrupted:
                raise asyncio.CancelledError
            reason = await self._speak()
        except asyncio.CancelledError:
            if not self._interrupted:
                raise
            reason = "interrupted"
            await self._settle_interruption()
        except SpeechError as error:
            reason = error.code
            raise
        finally:
            self._finish_frames()
            self.written.set()
            if self._client is not None:
                self._link.release(self._client)
            self._close_record(reason)
            self._speaker.ended(self)

    async def _speak(self) -> str:
        speaker, feed = self._speaker, self._feed
        if not await feed.first():
            return "no_text"
        try:
            async with asyncio.TaskGroup() as group:
                # The words are taken from their source while there is no connection yet, too.
                feeding = group.create_task(feed.run())
                watch = group.create_task(self._watch())
                context = await self._open()
                await feed.into(context)
                await self._receive(context)
                feeding.cancel()
                self._finish_frames()
                self.written.set()
                if self._writer.begun:
                    self._played = await speaker.sink.drained(self.number)
                watch.cancel()
        except BaseExceptionGroup as group_error:
            error = _first(group_error)
            await self._play_out()
            raise error from None
        if feed.failed is not None:
            raise feed.failed
        return "text_end"

    async def _open(self) -> Context:
        speaker, record = self._speaker, self.record
        self._link = speaker.link
        self._client = client = await self._link.lease()
        record.clock_offset_s = client.clock_offset_s
        record.clock_error_ms = client.rtt_s * 500
        record.engine = client.session.engine
        options = self._options
        if not isinstance(options, VoiceOptions):
            options = await options(client)
        self._voice = options.voice
        self._context = await client.open(
            voice=options.voice, language=options.language, **options.extra
        )
        if not isinstance(self._options, VoiceOptions):
            self._context.revoice = self._revoice
        record.mark(Mark.REQUEST_SENT, speaker.clock.now())
        return self._context

    async def _revoice(self) -> tuple[str | None, str | None]:
        assert self._client is not None
        assert not isinstance(self._options, VoiceOptions)
        options = await self._options(self._client)
        return options.voice, options.language

    async def _receive(self, context: Context) -> None:
        record = self.record
        async for event in context:
            match event:
                case Audio(pcm=pcm, received_at=at):
                    record.mark(Mark.RECEIVED, at)
                    self._arrived += len(pcm) // 2
                    await self._writer.push(pcm, self._key)
                case Started(voice=voice, marks=marks):
                    record.voice = voice or ""
                    record.server_marks(marks)
                case Done(reason=reason, marks=marks):
                    record.generation_end = reason
                    record.server_marks(marks)
                case _:
                    pass  # words are kept by the context
        await self._writer.flush(self._key)

    @property
    def _key(self) -> str:
        return self._speaker.history_key(self._voice)

    async def _watch(self) -> None:
        """Report playout and hold, which bound the server's lead.

        Unplayed audio is on hold while the call is, or another utterance comes first. Raises
        ConnectionLost when the server owes audio for too long.
        """
        clock = self._speaker.clock
        origin, reports = clock.now(), 0
        last, told = 0, "playing"
        while True:
            reports += 1
            await clock.sleep_until(origin + reports * REPORT_S)
            position = self.position
            held = self._arrived - position > HELD_S * RATE_HZ
            self._check_stall(clock.now(), held)
            if position != last:
                state = "playing"
            elif held or (self.held and self._arrived):
                state = "held"
            elif self._arrived:
                state = "starved"
            else:
                continue
            if self._context is not None and (position != last or state != told):
                await self._context.report(position, state)
                last, told = position, state

    def _check_stall(self, now: float, held: bool) -> None:
        hears_nothing = not held and not self._writer.writing and not self.written.is_set()
        owed = hears_nothing and self._speaker.next_to_write(self) and self._text_is_there
        watchdog = self._watchdog
        if watchdog.expired(now, owed=owed, sounds=self._arrived):
            if self._client is not None:
                self._link.stalled(self._client)
                context = self._context if self._arrived else None
                if context is not None and self._client.reroute(context):
                    watchdog.restart()
                    return
            raise ConnectionLost(
                f"The speech server has not answered for {watchdog.most_s:g} s.",
                remedy="Look at its log, or restart it.",
            )

    @property
    def _text_is_there(self) -> bool:
        if self._client is None:
            return False  # the link has its own bound
        if self._context is None or self._feed.ended:
            return True
        words = self._context.words
        if self._arrived and not words:
            return False  # how much of the text is said is not known
        return len(self.text) - (words[-1].char_end if words else 0) >= PENDING_TEXT_CHARS

    async def _settle_interruption(self) -> None:
        with contextlib.suppress(SpeechError):  # the call itself may be over
            if self.held:
                await self._cancel_context()
                return
            interruption = await self._speaker.sink.interrupted()
            if self._writer.begun:
                # One that ended just before was not among what was stopped.
                known = self._played or Played(self.position)
                self._played = interruption.played.get(self.number, known)
            if interruption.silent_at is not None:
                self.record.mark(Mark.SILENT, interruption.silent_at)
        await self._cancel_context()

    async def _cancel_context(self) -> None:
        if self._context is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_TIMEOUT_S):
                    cancelled = await self._context.cancel(self.position)
                    self.record.server_marks(cancelled.marks or {})

    async def _play_out(self) -> None:
        if self._context is not None:
            self._context.cancel(None)
        if self._writer.begun and not self._writer.writing:
            await self._writer.flush(self._key)
        self._finish_frames()
        self.written.set()
        if self._writer.begun:
            self._played = await self._speaker.sink.drained(self.number)

    def _finish_frames(self) -> None:
        if not self._interrupted:
            with contextlib.suppress(SpeechError):  # the call is over: nothing is left to finish
                self._writer.finish()

    def _close_record(self, reason: str) -> None:
        record, played = self.record, self._played
        record.end(reason)
        record.text = self.text
        if played is not None:
            record.played(
                position=played.position,
                first_at=played.first_at,
                first_audible_at=played.first_audible_at,
                last_at=played.last_at,
                starvations=played.starvations,
                starved_s=played.starved_s,
                longest_gap_s=played.longest_gap_s,
            )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
