"""An utterance that is shown as text, delta by delta, in the place of one that is heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable

from qwen3tts_pacer.clock import Clock
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.utterance import Spoken


class WrittenUtterance:
    """It begins when the one before it has ended, and ends with its words or with `stop`.

    Of `Utterance` it has what an agent uses. What was shown counts as heard.
    """

    def __init__(
        self,
        words: str | AsyncIterable[str],
        show: Callable[[str], None],
        clock: Clock,
        before: WrittenUtterance | None,
        on_end: Callable[[WrittenUtterance], None],
    ) -> None:
        self.record = UtteranceRecord(line="chat")
        self.stopped = False
        """Whether it was stopped before its end."""
        self.shown = ""
        self._words = words
        self._show = show
        self._clock = clock
        self._before = before
        self._on_end = on_end
        self._task = asyncio.create_task(self._run(), name="written utterance")

    @property
    def done(self) -> bool:
        """Whether nothing of it is shown any more."""
        return self._task.done()

    def stop(self) -> None:
        """Show no more of it."""
        if not self._task.done():
            self.stopped = True
            self._task.cancel()

    async def spoken(self) -> Spoken:
        """Wait for its end; raises what the source of the words raises."""
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()
        return self.outcome()

    def outcome(self) -> Spoken:
        """What was shown by now."""
        return Spoken(self.shown, "", self.stopped, len(self.shown), self.record)

    async def _run(self) -> None:
        try:
            if self._before is not None:
                await asyncio.wait([self._before._task])
                self._before = None
            if isinstance(self._words, str):
                self._take(self._words)
            else:
                async for delta in self._words:
                    self._take(delta)
        finally:
            self._mark(Mark.LAST_FRAME)
            self._on_end(self)

    def _take(self, delta: str) -> None:
        for mark in (Mark.FIRST_DELTA, Mark.SEGMENT_READY, Mark.FIRST_AUDIBLE_WIRE):
            self._mark(mark)
        self.shown += delta
        self._show(delta)

    def _mark(self, mark: Mark) -> None:
        if mark not in self.record.marks:
            self.record.mark(mark, self._clock.now())
