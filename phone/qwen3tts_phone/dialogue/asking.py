"""A question on a call: said, interrupted by the first key or word, and answered in time."""

from __future__ import annotations

import asyncio
import math
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from qwen3tts_phone.call.events import KeyPressed
from qwen3tts_phone.dialogue.gathered import Gathered
from qwen3tts_phone.listening.events import ListenEvent, OnsetHeard, SpeechResumed, TurnEnded
from qwen3tts_phone.listening.listening import Listening
from qwen3tts_phone.listening.settings import ListenSettings
from qwen3tts_speech.utterance import Utterance

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call
    from qwen3tts_phone.recognise.base import Recognise, Recogniser


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and how long the answer may take. Raises ValueError with the field's name."""

    text: str
    keys: int | None = None
    """Most keys of an answer; None = any number, 0 = keys are no answer."""
    until: str = "#"
    """Keys that end the answer and are no part of it."""
    first_s: float = 8.0
    """So long after the question's end the answer must begin."""
    pause_s: float = 3.0
    """So long after a key the next one must come."""
    tries: int = 1
    again: str = ""
    """Said from the second time on; empty = the question."""

    def __post_init__(self) -> None:
        for name in ("text", "again", "until"):
            value: object = getattr(self, name)
            if not isinstance(value, str):
                raise ValueError(f"{name} is a {type(value).__name__}, no text")
        if not self.text.strip():
            raise ValueError("text is empty: nothing would be asked")
        if self.keys is not None and not 0 <= self.keys <= 64:
            raise ValueError(f"keys={self.keys} is not between 0 and 64")
        for name in ("first_s", "pause_s"):
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and 0 < seconds <= 3600):
                raise ValueError(f"{name}={seconds} is not between 0 and 3600 seconds")
        if not 1 <= self.tries <= 100:
            raise ValueError(f"tries={self.tries} is not between 1 and 100")


async def ask(
    call: Call, question: Question, hear: Recogniser | Recognise | str | None = None
) -> Gathered:
    """Ask a question on a call that is up; see :meth:`Call.ask`."""
    gathered = Gathered()
    async with AsyncExitStack() as stack:
        listening: Listening | None = None
        if hear is not None:
            listening = call.hear(ListenSettings(keys=False), hear)
            await stack.enter_async_context(listening)
        asking = _Asking(call, question, listening)
        for number in range(1, question.tries + 1):
            said = await asking.once(question.text if number == 1 else question.again)
            gathered = replace(said, tries=number)
            if gathered or call.over:
                break
    return gathered


class _Asking:
    """The turns of one question."""

    def __init__(self, call: Call, question: Question, listening: Listening | None) -> None:
        self._call = call
        self._question = question
        self._listening = listening
        self._utterance: Utterance | None = None
        self._keys_begun = False
        self._speaks = False
        """Whether speech has begun that is no turn yet."""
        self._changed = asyncio.Event()
        if listening is not None:
            listening.on_event = self._on_event

    async def once(self, text: str) -> Gathered:
        """Ask once, and wait for the answer."""
        call, question = self._call, self._question
        self._keys_begun = False
        takes_keys = question.keys != 0
        self._utterance = None
        if not (takes_keys and call.dtmf.unread):  # who types ahead knows the question
            self._utterance = call.speak(text or question.text)
        tasks: dict[str, asyncio.Task[Any]] = {"time": asyncio.create_task(self._time())}
        if takes_keys:
            tasks["keys"] = asyncio.create_task(
                call.dtmf.collect(
                    question.keys,
                    until=question.until,
                    pause_s=question.pause_s,
                    first_s=None,
                    on_key=self._on_key,
                )
            )
        if self._listening is not None:
            tasks["speech"] = asyncio.create_task(self._turn(self._listening))
        tasks["end"] = asyncio.create_task(call.ended())
        try:
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            if "keys" in tasks and tasks["keys"].done() and (keys := tasks["keys"].result()):
                return Gathered(keys=keys, why="keys")
            if "speech" in tasks and tasks["speech"].done():
                turn = tasks["speech"].result()
                return Gathered(why="call_over") if turn is None else turn
            if call.over:
                return Gathered(why="call_over")
            if tasks["time"].done():
                tasks["time"].result()  # what broke in the voice is raised
            return Gathered()
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            if self._utterance is not None and not self._utterance.stopped and call.speaking:
                call.interrupt()

    def _on_key(self, key: KeyPressed) -> None:
        self._keys_begun = True
        self._call.interrupt()

    def _on_event(self, event: ListenEvent) -> None:
        if isinstance(event, OnsetHeard | SpeechResumed):
            self._speaks = True
        elif isinstance(event, TurnEnded) and event.why == "noise" and not event.cut_in:
            self._speaks = False
        self._changed.set()

    async def _turn(self, listening: Listening) -> Gathered | None:
        """The first turn that was speech; None: the call is over."""
        try:
            while True:
                turn = await anext(listening)
                self._speaks = False
                if turn.text:
                    return Gathered(text=turn.text, why="speech")
                if turn.error is not None or turn.why not in ("noise", "call_over"):
                    return Gathered(why="not_understood", error=turn.error)
                if turn.why == "noise" and turn.barge_in:  # the question was cut off by a cough
                    self._utterance = self._call.speak(self._question.text)
                self._changed.set()
        except StopAsyncIteration:
            return None

    async def _time(self) -> None:
        """Wait until the question was heard and no answer has begun in time."""
        clock = self._call.clock
        while True:
            said = self._utterance
            if said is not None:
                await said.spoken()
            await clock.sleep_until(clock.now() + self._question.first_s)
            if not (self._keys_begun or self._speaks or said is not self._utterance):
                return
            while self._keys_begun or self._speaks:  # what has begun has its own time limits
                self._changed.clear()
                await self._changed.wait()
