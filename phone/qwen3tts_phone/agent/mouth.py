"""What one reply says: its sayings one after the other, and fillers while there is nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from qwen3tts_phone.agent.growing_words import GrowingWords
from qwen3tts_phone.agent.kit import Kit
from qwen3tts_phone.agent.saying import Saying, SayingKind
from qwen3tts_phone.agent.turn_record import TurnRecord
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_wire.errors import SpeechError

LONGER = 4.0
"""So many times as long as before the first one lasts the wait for each further filler."""


class Mouth:
    """Begins to say something only while the caller lets us.

    Args:
        kit: what the replies of the call share.
        record: of the turn.
        on_cut: called when what it says was interrupted.
    """

    def __init__(self, kit: Kit, record: TurnRecord, on_cut: Callable[[], None]) -> None:
        self._kit = kit
        self._record = record
        self._on_cut = on_cut
        self._sayings: list[Saying] = []
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

    async def begin(self, kind: SayingKind, text: str, *, ended: bool = False) -> Saying:
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
        words = GrowingWords(kit.settings.queue_chars)
        entry = kit.history.ours(text)
        words.text = text
        if ended:
            words.end()
        before = self._sayings[-1] if self._sayings else None
        try:
            saying = Saying(kit.call, kind, entry, words, kit.settings.voice, self._on_cut, before)
        except SpeechError:
            entry.heard = ""
            raise
        saying.records[0].kind = self._record_kind(kind)
        if kind != "filler" and all(each.kind == "filler" for each in self._sayings):
            self._note_turn(saying.records[0])
        self._sayings.append(saying)
        return saying

    def _record_kind(self, kind: SayingKind) -> str:
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

    async def say(self, kind: SayingKind, text: str) -> None:
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
            wait_s = LONGER * kit.settings.filler_after_s
            try:
                await self.say("filler", sentences[kit.fillers % len(sentences)])
            except SpeechError:
                return  # the call is over
            kit.fillers += 1
            self._record.fillers += 1
