"""One thing that is said on a call, over as many utterances as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from qwen3tts_phone.agent.growing_words import GrowingWords
from qwen3tts_phone.agent.history import Entry
from qwen3tts_speech.latency import UtteranceRecord
from qwen3tts_speech.utterance import Utterance, VoiceOptions
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call

SayingKind = Literal["reply", "fixed", "filler"]


class Saying:
    """It begins at once, waits where it was interrupted, and goes on or is given up.

    What breaks in the speech server once, and may work again, is said again from where the caller
    was.
    """

    def __init__(
        self,
        call: Call,
        kind: SayingKind,
        entry: Entry,
        words: GrowingWords,
        options: VoiceOptions | None,
        on_cut: Callable[[], None],
        before: Saying | None = None,
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
