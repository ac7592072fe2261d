"""Captions that follow the voice: what is said, which word is heard now, what was heard in the end.

They follow a call's `Speaker`, whoever makes it speak, and tell what is new ten times a second
while something is said. Nothing is kept of an utterance when it is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.softphone import protocol
from qwen3tts_phone.softphone.protocol import ServerMessage
from qwen3tts_phone.without_words import without_words
from qwen3tts_speech.latency import UtteranceRecord
from qwen3tts_speech.line import Speaker
from qwen3tts_speech.utterance import RATE_HZ, Utterance
from qwen3tts_wire.alignment import Word
from qwen3tts_wire.errors import SpeechError

logger = logging.getLogger(__name__)

STEP_S = 0.1
"""How often a page is told how far it is."""
SETTLE_S = 1.0
"""Longest wait for what was said to be known, once the call is over."""
Tell = Callable[[ServerMessage], None]


@dataclass(slots=True)
class Caption:
    """One utterance's, as far as the page has been told."""

    id: int
    who: str
    typed: int | None = None
    text: str | None = field(default=None, repr=False)
    words: int = 0
    position: int = -1

    def news(
        self, text: str, words: list[Word], position: int, time_ms: float
    ) -> list[ServerMessage]:
        """What the page has not been told yet; ``position`` is at the caller's ear by now."""
        told: list[ServerMessage] = []
        if text != self.text:
            self.text = text
            told.append(protocol.Utterance(self.id, self.who, text, self.typed))
        if len(words) < self.words:  # another server says some of them again
            self.words = 0
        if len(words) > self.words:
            fresh = words[self.words :]
            self.words = len(words)
            spans = tuple((each.char_start, each.char_end, each.start, each.end) for each in fresh)
            told.append(protocol.Words(self.id, spans, RATE_HZ))
        if position > self.position and (position or self.words):
            self.position = position
            told.append(protocol.Heard(self.id, position, time_ms))
        return told

    def again(self) -> None:
        """The page has forgotten: all of it is news."""
        self.text, self.words, self.position = None, 0, -1


class Captions:
    """One call's; `close` it when the call is over.

    Args:
        tell: is given each message.
        clock: the call's time.
    """

    def __init__(self, tell: Tell, clock: Clock) -> None:
        self._tell = tell
        self._clock = clock
        self._speaker: Speaker | None = None
        self._number = 0
        self._live: dict[Utterance, Caption] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._steps: asyncio.Task[None] | None = None

    def follow(self, speaker: Speaker) -> None:
        """Tell of all that it says from now on: the agent's words, if `add` says nothing else."""
        self._speaker = speaker
        speaker.followers.append(self._begun)

    def add(self, utterance: Utterance, typed: int) -> None:
        """One that was typed, of whatever speaker; ``typed``: the page's number of it."""
        if utterance in self._live:
            self._live[utterance].who, self._live[utterance].typed = "typed", typed
        else:
            self._begin(utterance, typed)

    def repeat(self) -> None:
        """A page has come back: tell all of what is being said once more."""
        for caption in self._live.values():
            caption.again()
        self._step()

    async def close(self) -> None:
        """Follow no more; what has ended by now is told."""
        if self._speaker is not None and self._begun in self._speaker.followers:
            self._speaker.followers.remove(self._begun)
        if self._steps is not None:
            self._steps.cancel()
            await asyncio.wait([self._steps])
        if self._tasks:  # the call is over: what was said is settled in a moment
            await asyncio.wait(set(self._tasks), timeout=SETTLE_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- inside

    def _begun(self, utterance: Utterance) -> None:
        self._begin(utterance, None)

    def _begin(self, utterance: Utterance, typed: int | None) -> None:
        self._number += 1
        who = "agent" if typed is None else "typed"
        self._live[utterance] = Caption(self._number, who, typed)
        task = asyncio.create_task(self._see_through(utterance), name="caption")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._steps is None or self._steps.done():
            self._steps = asyncio.create_task(self._follow(), name="captions")

    async def _follow(self) -> None:
        while self._live:
            self._step()
            await self._clock.sleep_until(self._clock.now() + STEP_S)

    def _step(self) -> None:
        time_ms = self._clock.now() * 1000
        for utterance, caption in self._live.items():
            for message in caption.news(
                utterance.text, utterance.words, utterance.position, time_ms
            ):
                self._tell(message)

    async def _see_through(self, utterance: Utterance) -> None:
        error: Exception | None = None
        try:
            spoken = await utterance.spoken()
        except Exception as failure:
            spoken, error = utterance.outcome(), failure
            if not isinstance(failure, SpeechError):
                logger.error("what is said on a page's call broke\n%s", without_words(failure))
        caption = self._live.pop(utterance)
        time_ms = self._clock.now() * 1000
        for message in caption.news(utterance.text, utterance.words, spoken.position, time_ms):
            self._tell(message)
        record = spoken.record
        known = error if isinstance(error, SpeechError) else None
        self._tell(
            protocol.Spoken(
                caption.id,
                spoken.heard,
                spoken.remaining,
                spoken.interrupted,
                error=None if error is None else known.message if known else "It broke here.",
                remedy=known.remedy if known else None,
                stages=stages(record),
                clock_error_ms=max(0.0, record.clock_error_ms),
                starvations=record.starvations,
                longest_gap_ms=max(0.0, record.longest_gap_ms),
                typed=caption.typed,
            )
        )


def stages(record: UtteranceRecord) -> dict[str, float]:
    """Milliseconds of each mark after the first one; empty = there is none."""
    if not record.marks:
        return {}
    first = min(record.marks.values())
    return {name: round(1000 * (at - first), 3) for name, at in record.marks.items()}
