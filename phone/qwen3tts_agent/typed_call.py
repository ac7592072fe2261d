"""Call without sound: the caller types, and replies are shown as text.

    call = TypedCall(print)
    talking = asyncio.create_task(agent.talk(call))
    await call.heard()
    call.type("When do you open?")
    ...
    await call.leave()

An `Agent` talks on it as on any call: the same turns, history, tools and budget.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import replace
from typing import cast

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.call.core import CallCore, CallVoice
from qwen3tts_phone.detection.endpointing import TurnDetector
from qwen3tts_phone.detection.recogniser import Recognise, Recogniser
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.speech_detection import SpeechDetection
from qwen3tts_phone.errors import WrongState
from qwen3tts_phone.facts import CallFacts, EndFacts
from qwen3tts_phone.records.store import CallStore
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.link import SpeechLink, VoiceOptions
from qwen3tts_speech.utterance import Spoken, Utterance


class TextUtterance:
    """Utterance shown as text; what was shown counts as heard."""

    def __init__(
        self,
        words: str | AsyncIterable[str],
        show: Callable[[str], None],
        clock: Clock,
        before: TextUtterance | None,
        on_end: Callable[[TextUtterance], None],
    ) -> None:
        self.record = UtteranceRecord(line="chat")
        self.stopped = False
        """True if it was stopped before its end."""
        self.shown = ""
        self._words = words
        self._show = show
        self._clock = clock
        self._before = before
        self._on_end = on_end
        self._task = asyncio.create_task(self._run(), name="written utterance")

    @property
    def done(self) -> bool:
        return self._task.done()

    def stop(self) -> None:
        if not self._task.done():
            self.stopped = True
            self._task.cancel()

    async def spoken(self) -> Spoken:
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()
        return self.outcome()

    def outcome(self) -> Spoken:
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


LINE = "chat"


class TypedCall(Call):
    """Typed conversation, answered from the beginning.

    Args:
        show: called with each piece of text.
        on_said: called with the text shown of each ended utterance.
        clock: its time.
    """

    def __init__(
        self,
        show: Callable[[str], None],
        *,
        on_said: Callable[[str], None] = lambda text: None,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or LoopClock()
        facts = CallFacts(
            call_id=f"chat-{uuid.uuid4()}",
            line=LINE,
            direction="in",
            started_wall=time.time(),
            started_at=clock.now(),
        )
        unused = CallVoice(SpeechLink(""), VoiceOptions())
        super().__init__(CallCore(facts, clock, unused, CallStore(RecordSettings(), None, clock)))
        self._show = show
        self._on_said = on_said
        self._said: list[TextUtterance] = []
        """Utterances that have not ended, in order."""
        self._hears = asyncio.Event()
        facts.answered_at = clock.now()
        self._core.up.set_result(None)

    # --- the caller

    def type(self, text: str) -> None:
        """Take a typed turn, which interrupts the reply; raises WrongState."""
        self._core.check_up()
        if self._listening is None:
            raise WrongState("No agent listens yet.", remedy="Await call.heard() first.")
        self._listening.typed(text)

    async def heard(self) -> None:
        await self._hears.wait()

    async def leave(self) -> None:
        await self._end(EndFacts(by="remote"), "the caller has left")

    # --- as on every call

    @property
    def speaking(self) -> bool:
        return bool(self._said)

    async def answer(self, headers: Mapping[str, str] | None = None) -> None:
        self._core.check_up()

    def speak(
        self, words: str | AsyncIterable[str], options: VoiceOptions | None = None
    ) -> Utterance:
        self._core.check_up()
        before = self._said[-1] if self._said else None
        written = TextUtterance(words, self._show, self.clock, before, self._ended_one)
        self._said.append(written)
        return cast(Utterance, written)

    def interrupt(self) -> list[Utterance]:
        stopped, self._said = self._said, []
        for each in stopped:
            each.stop()
        return [cast(Utterance, each) for each in stopped]

    def hear(
        self,
        settings: ListenSettings | None = None,
        recogniser: Recogniser | Recognise | str | None = None,
        *,
        turn_detector: TurnDetector | None = None,
    ) -> SpeechDetection:
        silent = replace(settings or ListenSettings(), detector="level")
        listening = super().hear(silent)
        self._hears.set()
        return listening

    async def hangup(self, headers: Mapping[str, str] | None = None) -> None:
        """End the call as the agent; idempotent."""
        await self._end(EndFacts(by="local"), "the agent has ended it")

    # --- inside

    def _ended_one(self, written: TextUtterance) -> None:
        if written in self._said:
            self._said.remove(written)
        if written.shown:
            self._on_said(written.shown)

    async def _end(self, end: EndFacts, cause: str) -> None:
        self.interrupt()
        self._core.over.set()
        self._hears.set()
        await self._core.finish(end, cause)
