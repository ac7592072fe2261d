"""Speech of one reply, with fillers in waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from qwen3tts_agent.budget import CallBudget
from qwen3tts_agent.chat.source import ReplySource
from qwen3tts_agent.conversation import History, HistoryEntry
from qwen3tts_agent.replayable_text import ReplayableText
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_agent.tools import Toolbox
from qwen3tts_agent.turn_record import TurnRecord
from qwen3tts_pacer.clock import Clock
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.utterance import Utterance
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call


@dataclass(slots=True)
class ReplyContext:
    """Parts and state shared by a call's replies."""

    call: Call
    source: ReplySource
    toolbox: Toolbox
    history: History
    settings: AgentSettings
    budget: CallBudget
    """Requests that may still be made to the model."""
    running: set[asyncio.Task[None]] = field(default_factory=set)
    """Tools that have not ended: they outlive the reply that asked for them."""
    fillers: int = 0
    """Number of fillers spoken so far."""
    rate_limit_told: bool = False
    """True if the caller was told that the requests of this minute are used up."""
    exhaustion_told: bool = False
    """True if the caller was told that the requests of this call are used up."""

    @property
    def clock(self) -> Clock:
        return self.call.clock


SpokenReplyKind = Literal["reply", "fixed", "filler"]


class SpokenReply(ReplayableText):
    """Text spoken over as many utterances as it takes.

    A retryable failure of the speech server is retried once, from the position heard. One that is
    held is synthesised, and neither played nor in the history, until its :meth:`release`.
    """

    def __init__(
        self,
        context: ReplyContext,
        kind: SpokenReplyKind,
        text: str,
        before: SpokenReply | None,
        on_interrupt: Callable[[], None],
        *,
        complete: bool = False,
        held: bool = False,
    ) -> None:
        """Begin to speak ``text`` behind ``before``; raises WrongState.

        ``complete``: ``text`` is all of it.
        """
        super().__init__(context.settings.queue_chars)
        self.text, self.complete = text, complete
        self.kind = kind
        self.entry = HistoryEntry(ours=True, written=text)
        self.error: SpeechError | None = None
        """Failure of the voice, for which not all of it was heard."""
        self.records: list[UtteranceRecord] = []
        """Records of its utterances; complete once it is done."""
        self._call = context.call
        self._options = context.settings.voice
        self._on_interrupt = on_interrupt
        self._position = 0
        """Characters heard in the utterances that have ended."""
        self._settled = False
        """True if the last utterance is one of these."""
        self._given_up = False
        self._history = context.history
        self._released = asyncio.Event()
        if not held:
            self._release()
        self._resume = asyncio.Event()
        self._before = before
        self._resumed = asyncio.Event()
        """Set for a moment when it resumes after an interruption."""
        try:
            self._utterance = self._speak()
        except SpeechError:
            self.entry.heard = ""
            raise
        self._task = asyncio.create_task(self._run(), name="spoken reply")

    @property
    def interrupted(self) -> bool:
        return self._waits and not self._resume.is_set()

    @property
    def held(self) -> bool:
        """True before its release."""
        return not self._released.is_set()

    @property
    def audible(self) -> bool:
        """True while it plays, or waits for its turn."""
        return not (self.done or self.held or self.interrupted or self._given_up)

    @property
    def _waits(self) -> bool:
        interrupted = self._utterance.outcome().interrupted
        return interrupted and not self._given_up and not self._task.done()

    @property
    def done(self) -> bool:
        return self._task.done()

    @property
    def heard(self) -> str:
        more = 0 if self._settled else len(self._utterance.outcome().heard)
        return self.text[: self._position + more]

    @property
    def unsaid(self) -> str:
        return self.text[len(self.heard) :]

    async def write(self, delta: str) -> None:
        self.entry.written += delta
        await super().write(delta)

    def release(self) -> None:
        if self.held:
            self._release()
            self._utterance.release()

    def resume(self) -> None:
        if self.interrupted:
            self.entry.stopped_at = None
            self._resume.set()

    def give_up(self) -> None:
        self._given_up = True
        self.end()
        if self.held:
            self._utterance.drop()
            self._task.cancel()
            return
        self.entry.written = self.text
        if not self.done:
            self.entry.heard = self.heard
        self._resume.set()

    async def wait(self, most_s: float | None = None) -> None:
        await asyncio.wait([self._task], timeout=most_s)

    # --- inside

    def _release(self) -> None:
        self._history.add(self.entry)
        self._released.set()

    def _speak(self) -> Utterance:
        speak = self._call.prepare if self.held else self._call.speak
        utterance = speak(self.read_from(self._position), self._options)
        if self.records:
            utterance.record.kind = self.records[0].kind
        self.records.append(utterance.record)
        return utterance

    def _speak_rest(self) -> bool:
        if self._given_up:
            return False
        try:
            self._utterance = self._speak()
        except SpeechError as error:
            self.error = error
            return False
        self._settled = False
        return True

    def _release_next(self) -> None:
        self._resume.clear()
        self._resumed.set()
        self._resumed.clear()

    async def _run(self) -> None:
        retried = False
        await self._released.wait()
        while True:
            failed: SpeechError | None = None
            try:
                spoken = await self._utterance.spoken()
            except SpeechError as error:
                failed, spoken = error, self._utterance.outcome()
            self._position += len(spoken.heard)
            self._settled = True
            if spoken.interrupted and not self._given_up:
                self.entry.stopped_at = self._position
            if self._given_up or not (spoken.interrupted or failed):
                break
            if spoken.interrupted:
                if not self._resume.is_set():
                    self._on_interrupt()
                await self._resume.wait()
                while self._before is not None and self._before._waits:
                    await self._before._resumed.wait()
            elif retried or failed is None or not failed.retryable or self._call.over:
                self.error = failed
                break
            retried = retried or failed is not None
            if not self._speak_rest():
                break
            self._release_next()
        self.end()
        self.entry.written = self.text
        self.entry.heard = self.text[: self._position]
        self._given_up = True
        self._release_next()


FILLER_BACKOFF = 4.0
"""Factor of the wait before each further filler, over that before the first."""


class ReplyPlayer:
    """Player of one reply; it waits for the caller's silence."""

    def __init__(
        self,
        context: ReplyContext,
        record: TurnRecord,
        on_interrupt: Callable[[], None],
        *,
        held: bool = False,
    ) -> None:
        """Play a reply; one that is ``held`` is prepared, and plays from `release` on."""
        self._context = context
        self._record = record
        self._on_interrupt = on_interrupt
        self._spoken: list[SpokenReply] = []
        self._held = held
        self._held_back = False
        self._may_begin = asyncio.Event()
        if not held:
            self._may_begin.set()
        self._held_text = ""
        """Text that waits until it may be spoken."""
        self._fillers: asyncio.Task[None] | None = None
        self._filler_wanted = False

    @property
    def interrupted(self) -> bool:
        return any(each.interrupted for each in self._spoken)

    @property
    def speaking(self) -> bool:
        return any(not (each.done or each.held) for each in self._spoken)

    @property
    def has_replied(self) -> bool:
        return any(each.kind == "reply" for each in self._spoken)

    @property
    def unsaid(self) -> str:
        parts = [each.unsaid for each in self._spoken if each.kind != "filler"]
        return " ".join(part for each in (*parts, self._held_text) if (part := each.strip()))

    # --- speaking

    async def may_begin(self) -> None:
        await self._may_begin.wait()

    def hold_back(self, held: bool) -> None:
        self._held_back = held
        if held or self._held:
            self._may_begin.clear()
            return
        for each in self._spoken:
            if each.held:  # ahead of what waits for `may_begin`
                self._note_turn(each.records[0])
                each.release()
        self._may_begin.set()

    def release(self) -> None:
        """Play what was prepared, now or when it is not held back any more."""
        if self._held:
            self._held = False
            if self._filler_wanted:
                self.start_fillers()
            self.hold_back(self._held_back)

    async def begin(
        self, kind: SpokenReplyKind, text: str, *, complete: bool = False
    ) -> SpokenReply:
        """Speak as soon as the caller does not; raises WrongState."""
        filler = kind == "filler"
        if not filler and not self._held:
            self._held_text = text
        if not self._held:
            await self._may_begin.wait()
        if not filler:
            self._held_text = ""
            self.stop_fillers()
        before = self._spoken[-1] if self._spoken else None
        spoken = SpokenReply(
            self._context,
            kind,
            text,
            before,
            self._on_interrupt,
            complete=complete,
            held=self._held,
        )
        spoken.records[0].kind = self._record_kind(kind)
        if not (filler or self._held) and all(each.kind == "filler" for each in self._spoken):
            self._note_turn(spoken.records[0])
        self._spoken.append(spoken)
        return spoken

    def _record_kind(self, kind: SpokenReplyKind) -> str:
        if kind == "filler":
            return "filler"
        of_turn = {"greeting": "greeting", "quiet": "prompt", "goodbye": "prompt"}
        return of_turn.get(self._record.kind, "answer")

    def _note_turn(self, record: UtteranceRecord) -> None:
        times = self._record.times
        ended, transcribed = times.get("caller_end"), times.get("transcript")
        if ended is None or transcribed is None:
            return
        record.rule = self._record.rule
        record.mark(Mark.SPEECH_END, ended)
        record.mark(Mark.TRANSCRIBED, transcribed)
        # The end of a turn may be decided before its text is known, or after.
        record.mark(Mark.TURN_END, max(transcribed, times.get("turn_end", transcribed)))

    async def say(self, kind: SpokenReplyKind, text: str) -> None:
        if text.strip():
            await self.begin(kind, text, complete=True)

    async def played(self) -> None:
        number = 0
        while number < len(self._spoken):
            await self._spoken[number].wait()
            number += 1

    def resume(self) -> None:
        if self.interrupted:
            self._record.resumed += 1
        for each in self._spoken:
            each.resume()
        self.hold_back(False)

    def give_up(self) -> None:
        self.stop_fillers()
        if any(each.audible for each in self._spoken):
            self._context.call.interrupt()
        for each in self._spoken:
            if not each.done:
                each.give_up()

    async def settled(self, most_s: float | None = None) -> None:
        for each in list(self._spoken):
            await each.wait(most_s)

    def complete_record(self) -> None:
        record = self._record
        record.heard = " ".join(text for each in self._spoken if (text := each.heard.strip()))
        record.unsaid = self.unsaid
        ends: list[float] = []
        for each in self._spoken:
            if each.error is not None:
                record.failed(each.error)
            for utterance in each.records:
                marks = {**utterance.marks, **utterance.prepared}
                if (at := marks.get(Mark.LAST_FRAME)) is not None:
                    ends.append(at)
                if each.kind == "filler":
                    record.mark("filler_audible", marks.get(Mark.FIRST_AUDIBLE_WIRE))
                    continue
                record.mark("first_clause", marks.get(Mark.SEGMENT_READY))
                record.mark("first_pcm", marks.get(Mark.FIRST_PCM))
                record.mark("released", marks.get(Mark.RELEASED))
                record.mark("first_audible", marks.get(Mark.FIRST_AUDIBLE_WIRE))
        record.mark("heard_end", max(ends, default=None))

    # --- fillers

    def start_fillers(self) -> None:
        self._filler_wanted = self._held
        if self._held:
            return
        if self._context.settings.filler and self._fillers is None:
            self._fillers = asyncio.create_task(self._speak_fillers(), name="fillers")

    def stop_fillers(self) -> None:
        self._filler_wanted = False
        if self._fillers is not None:
            self._fillers.cancel()
            self._fillers = None

    async def _speak_fillers(self) -> None:
        context = self._context
        sentences = context.settings.filler
        wait_s = context.settings.filler_after_s
        for _ in sentences:
            await self.played()
            await context.clock.sleep_until(context.clock.now() + wait_s)
            wait_s = FILLER_BACKOFF * context.settings.filler_after_s
            try:
                await self.say("filler", sentences[context.fillers % len(sentences)])
            except SpeechError:
                return  # the call is over
            context.fillers += 1
            self._record.fillers += 1
