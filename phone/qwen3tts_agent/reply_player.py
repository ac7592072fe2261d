"""What all replies of a call work with."""

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
from qwen3tts_speech.utterance import Utterance, VoiceOptions
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call


@dataclass(slots=True)
class ReplyContext:
    """One call's."""

    call: Call
    source: ReplySource
    toolbox: Toolbox
    history: History
    settings: AgentSettings
    budget: CallBudget
    """Requests that may still be made to the model."""
    running: set[asyncio.Task[None]] = field(default_factory=set)
    """Tools that have not ended: they outlive the reply that wanted them."""
    fillers: int = 0
    """Said so far."""
    too_many_said: bool = False
    """Whether the caller knows that the requests of this minute are used up."""
    used_up_said: bool = False

    @property
    def clock(self) -> Clock:
        """The call's."""
        return self.call.clock


SpokenReplyKind = Literal["reply", "fixed", "filler"]


class SpokenReply:
    """It begins at once, waits where it was interrupted, and goes on or is given up.

    What breaks in the speech server once, and may work again, is said again from where the caller
    was.
    """

    def __init__(
        self,
        call: Call,
        kind: SpokenReplyKind,
        entry: HistoryEntry,
        words: ReplayableText,
        options: VoiceOptions | None,
        on_cut: Callable[[], None],
        before: SpokenReply | None = None,
    ) -> None:
        """Begin to say ``words`` as they grow, behind what is being said.

        ``on_cut`` is called when it was interrupted. ``before``: what comes first, also where both
        go on after an interruption.

        Raises:
            WrongState: the call is over.
        """
        self.kind = kind
        self.words = words
        self.entry = entry
        self.error: SpeechError | None = None
        """Why not all of it was heard, where the voice failed."""
        self.records: list[UtteranceRecord] = []
        """Of its utterances; complete once it is done."""
        self._call = call
        self._options = options
        self._on_cut = on_cut
        self._place = 0
        """So much of the text was heard in the utterances that are settled."""
        self._settled = False
        """Whether the last utterance is one of these."""
        self._given_up = False
        self._again = asyncio.Event()
        self._before = before
        self._moved = asyncio.Event()
        """Set for a moment when it goes on after an interruption."""
        self._utterance = self._speak()
        self._task = asyncio.create_task(self._run(), name="saying")

    @property
    def stopped(self) -> bool:
        """Whether it was interrupted, and neither goes on nor is given up."""
        return self._waits and not self._again.is_set()

    @property
    def _waits(self) -> bool:
        cut = self._utterance.outcome().interrupted
        return cut and not self._given_up and not self._task.done()

    @property
    def done(self) -> bool:
        """Whether nothing of it is heard any more."""
        return self._task.done()

    @property
    def heard(self) -> str:
        """What the caller has heard by now."""
        more = 0 if self._settled else len(self._utterance.outcome().heard)
        return self.words.text[: self._place + more]

    def go_on(self) -> None:
        """Say the rest of what was interrupted; nothing where it was not."""
        if self.stopped and not self._again.is_set():
            self._again.set()

    def give_up(self) -> None:
        """Say no more of it. The call was interrupted before."""
        self._given_up = True
        self.words.end()
        self.entry.written = self.words.text
        if not self.done:
            self.entry.heard = self.heard
        self._again.set()

    async def ended(self, most_s: float | None = None) -> bool:
        """Wait, no longer than that, until it was heard to its end, failed, or was given up."""
        await asyncio.wait([self._task], timeout=most_s)
        return self._task.done()

    # --- inside

    def _speak(self) -> Utterance:
        utterance = self._call.speak(self.words.read_from(self._place), self._options)
        if self.records:
            utterance.record.kind = self.records[0].kind
        self.records.append(utterance.record)
        return utterance

    def _spoke_on(self) -> bool:
        """Say the rest, unless it was given up meanwhile or the call is over."""
        if self._given_up:
            return False
        try:
            self._utterance = self._speak()
        except SpeechError as error:
            self.error = error
            return False
        self._settled = False
        return True

    def _go_ahead(self) -> None:
        """What waits behind it may go on, too."""
        self._again.clear()
        self._moved.set()
        self._moved.clear()

    async def _run(self) -> None:
        mended = False
        while True:
            failed: SpeechError | None = None
            try:
                spoken = await self._utterance.spoken()
            except SpeechError as error:
                failed, spoken = error, self._utterance.outcome()
            self._place += len(spoken.heard)
            self._settled = True
            if self._given_up or not (spoken.interrupted or failed):
                break
            if spoken.interrupted:
                if not self._again.is_set():
                    self._on_cut()
                await self._again.wait()
                while self._before is not None and self._before._waits:
                    await self._before._moved.wait()
            elif mended or failed is None or not failed.retryable or self._call.over:
                self.error = failed
                break
            mended = mended or failed is not None
            if not self._spoke_on():
                break
            self._go_ahead()
        self.words.end()
        self.entry.written = self.words.text
        self.entry.heard = self.words.text[: self._place]
        self._given_up = True
        self._go_ahead()


FILLER_BACKOFF = 4.0
"""So many times as long as before the first one lasts the wait for each further filler."""


class ReplyPlayer:
    """Begins to say something only while the caller lets us.

    Args:
        kit: what the replies of the call share.
        record: of the turn.
        on_cut: called when what it says was interrupted.
    """

    def __init__(self, kit: ReplyContext, record: TurnRecord, on_cut: Callable[[], None]) -> None:
        self._kit = kit
        self._record = record
        self._on_cut = on_cut
        self._sayings: list[SpokenReply] = []
        self._free = asyncio.Event()
        """Set while we may begin to speak."""
        self._unbegun = ""
        """Words that wait for that."""
        self._filling: asyncio.Task[None] | None = None

    @property
    def stopped(self) -> bool:
        """Whether what it says was interrupted."""
        return any(saying.stopped for saying in self._sayings)

    @property
    def speaking(self) -> bool:
        """Whether something is being said, or is interrupted."""
        return any(not saying.done for saying in self._sayings)

    @property
    def has_replied(self) -> bool:
        """Whether words of the model have begun to be said."""
        return any(saying.kind == "reply" for saying in self._sayings)

    @property
    def unsaid(self) -> str:
        """What the caller has not heard; fillers do not count."""
        parts = [
            saying.words.text[len(saying.heard) :]
            for saying in self._sayings
            if saying.kind != "filler"
        ]
        return " ".join(part for each in (*parts, self._unbegun) if (part := each.strip()))

    # --- speaking

    async def free(self) -> None:
        """Wait until we may begin to speak."""
        await self._free.wait()

    def hush(self, hushed: bool) -> None:
        """The caller speaks: nothing is begun to be said. Or they do not any more."""
        if hushed:
            self._free.clear()
        else:
            self._free.set()

    async def begin(self, kind: SpokenReplyKind, text: str, *, ended: bool = False) -> SpokenReply:
        """Begin to say something as soon as the caller lets us.

        Raises:
            WrongState: the call is over.
        """
        if kind != "filler":
            self._unbegun = text
        await self._free.wait()
        if kind != "filler":
            self._unbegun = ""
            self.stop_filling()
        kit = self._kit
        words = ReplayableText(kit.settings.queue_chars)
        entry = kit.history.ours(text)
        words.text = text
        if ended:
            words.end()
        before = self._sayings[-1] if self._sayings else None
        try:
            saying = SpokenReply(
                kit.call, kind, entry, words, kit.settings.voice, self._on_cut, before
            )
        except SpeechError:
            entry.heard = ""
            raise
        saying.records[0].kind = self._record_kind(kind)
        if kind != "filler" and all(each.kind == "filler" for each in self._sayings):
            self._note_turn(saying.records[0])
        self._sayings.append(saying)
        return saying

    def _record_kind(self, kind: SpokenReplyKind) -> str:
        if kind == "filler":
            return "filler"
        of_turn = {"greeting": "greeting", "quiet": "prompt", "goodbye": "prompt"}
        return of_turn.get(self._record.kind, "answer")

    def _note_turn(self, record: UtteranceRecord) -> None:
        """The turn's first words: their record begins where the caller fell silent."""
        times = self._record.times
        ended, transcribed = times.get("caller_end"), times.get("transcript")
        if ended is None or transcribed is None:
            return
        record.mark(Mark.SPEECH_END, ended)
        record.mark(Mark.TRANSCRIBED, transcribed)
        # The turn may be taken to be over before its words are known, or after.
        record.mark(Mark.TURN_END, max(transcribed, times.get("turn_end", transcribed)))

    async def say(self, kind: SpokenReplyKind, text: str) -> None:
        """Begin to say a sentence; nothing where it is empty."""
        if text.strip():
            await self.begin(kind, text, ended=True)

    async def heard_to_the_end(self) -> None:
        """Wait until all of it was heard, failed, or was given up."""
        number = 0
        while number < len(self._sayings):
            await self._sayings[number].ended()
            number += 1

    def go_on(self) -> None:
        """Say what was interrupted from where it was; harmless where nothing was."""
        if self.stopped:
            self._record.resumed += 1
        for saying in self._sayings:
            saying.go_on()
        self.hush(False)

    def give_up(self) -> None:
        """Say no more, and fall silent."""
        self.stop_filling()
        if any(not saying.done and not saying.stopped for saying in self._sayings):
            self._kit.call.interrupt()
        for saying in self._sayings:
            if not saying.done:
                saying.give_up()

    async def settled(self, most_s: float | None = None) -> None:
        """Wait, no longer than that for each, until it is known what was heard."""
        for saying in list(self._sayings):
            await saying.ended(most_s)

    def complete(self) -> None:
        """All is settled: put what is known into the record."""
        record = self._record
        record.heard = " ".join(text for each in self._sayings if (text := each.heard.strip()))
        record.unsaid = self.unsaid
        ends: list[float] = []
        for saying in self._sayings:
            if saying.error is not None:
                record.failed(saying.error)
            for utterance in saying.records:
                marks = utterance.marks
                if (at := marks.get(Mark.LAST_FRAME)) is not None:
                    ends.append(at)
                if saying.kind == "filler":
                    record.mark("filler_audible", marks.get(Mark.FIRST_AUDIBLE_WIRE))
                    continue
                record.mark("first_clause", marks.get(Mark.SEGMENT_READY))
                record.mark("first_pcm", marks.get(Mark.FIRST_PCM))
                record.mark("first_audible", marks.get(Mark.FIRST_AUDIBLE_WIRE))
        record.mark("heard_end", max(ends, default=None))

    # --- fillers

    def begin_filling(self) -> None:
        """From now on we wait for something: say fillers, if there are any."""
        if self._kit.settings.filler and self._filling is None:
            self._filling = asyncio.create_task(self._fill(), name="filler")

    def stop_filling(self) -> None:
        """There is something to say, or nothing more."""
        if self._filling is not None:
            self._filling.cancel()
            self._filling = None

    async def _fill(self) -> None:
        """Say one when nothing has been heard for a while, and others after longer waits."""
        kit = self._kit
        sentences = kit.settings.filler
        wait_s = kit.settings.filler_after_s
        for _ in sentences:
            await self.heard_to_the_end()
            await kit.clock.sleep_until(kit.clock.now() + wait_s)
            wait_s = FILLER_BACKOFF * kit.settings.filler_after_s
            try:
                await self.say("filler", sentences[kit.fillers % len(sentences)])
            except SpeechError:
                return  # the call is over
            kit.fillers += 1
            self._record.fillers += 1
