"""Questions to a far end, and its greeting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.audio.answering import Answerer, AnsweringSettings, who_answered
from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed
from qwen3tts_phone.call.keys import Keypad
from qwen3tts_phone.detection.events import ListenEvent, OnsetHeard, SpeechResumed, TurnEnded
from qwen3tts_phone.detection.recogniser import Recognise, Recogniser
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.speech_detection import SpeechDetection
from qwen3tts_phone.errors import MachineAnswered
from qwen3tts_phone.facts import CallFacts
from qwen3tts_settings.constraints import bounded, check_fields
from qwen3tts_speech.utterance import Utterance
from qwen3tts_wire.errors import SpeechError

WhyGathered = Literal["keys", "speech", "nothing", "not_understood", "call_over"]
"""Keys were pressed; something was said; neither in time; the recogniser failed or made no text of
what was said; the call ended.
"""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Answer to :meth:`Call.ask`; true where there was one."""

    keys: str = field(default="", repr=False)
    """Keys that were pressed, without the final one."""
    text: str = field(default="", repr=False)
    """Recognised text."""
    why: WhyGathered = "nothing"
    """Reason for the end of the wait."""
    tries: int = 1
    """Number of times that it was asked."""
    error: SpeechError | None = None
    """Failure of the recognition."""

    def __bool__(self) -> bool:
        return bool(self.keys or self.text)


OnMachine = Literal["speak", "hang-up", "after-beep"]
"""Reaction to an answering machine: speak nevertheless, without detection; hang up; leave
the message after its beep. With the last two, speech waits for a person's greeting, too.
"""


class GreetedCall(Protocol):
    @property
    def facts(self) -> CallFacts: ...

    @property
    def audio(self) -> Callable[..., AsyncGenerator[HeardFrame, None]]: ...


async def await_greeting(
    call: GreetedCall,
    wanted: OnMachine,
    settings: AnsweringSettings | None = None,
    told: Callable[[Answerer], None] = lambda heard: None,
) -> None:
    """Return after a person's greeting, or when a machine records.

    ``told``: called with who answered as soon as that is known. Raises MachineAnswered.
    """
    async for heard in who_answered(call.audio(steady=True), settings):
        if not isinstance(heard, Answerer):
            return
        call.facts.answered_by = heard.kind
        told(heard)
        if heard.kind != "machine":
            return
        if wanted == "hang-up":
            raise MachineAnswered(
                f"an answering machine took the call ({heard.words}).",
                remedy="Call again later, or leave a message after its beep (after-beep).",
            )


@dataclass(frozen=True, slots=True)
class Question:
    """Question and time limits of its answer. Raises ValueError with the field's name."""

    text: str
    keys: int | None = bounded(0, 64, default=None)
    """Most keys of an answer; None = any number, 0 = keys are no answer."""
    until: str = "#"
    """Keys that end the answer and are no part of it."""
    first_s: float = bounded(above=0, high=3600, unit="seconds", default=8.0)
    """Time after the question's end within which the answer must begin."""
    pause_s: float = bounded(above=0, high=3600, unit="seconds", default=3.0)
    """Time after a key within which the next one must come."""
    tries: int = bounded(1, 100, default=1)
    again: str = ""
    """Asked from the second time on; empty = the question."""

    def __post_init__(self) -> None:
        for name in ("text", "again", "until"):
            value: object = getattr(self, name)
            if not isinstance(value, str):
                raise ValueError(f"{name} is a {type(value).__name__}, no text")
        if not self.text.strip():
            raise ValueError("text is empty: nothing would be asked")
        check_fields(self)


class QuestionedCall(Protocol):
    @property
    def clock(self) -> Clock: ...
    @property
    def dtmf(self) -> Keypad: ...
    @property
    def over(self) -> bool: ...
    @property
    def speaking(self) -> bool: ...
    def hear(
        self, settings: ListenSettings | None, recogniser: Recogniser | Recognise | str | None
    ) -> SpeechDetection: ...
    def speak(self, words: str) -> Utterance: ...
    def interrupt(self) -> list[Utterance]: ...
    async def ended(self) -> str: ...


async def ask(
    call: QuestionedCall, question: Question, hear: Recogniser | Recognise | str | None = None
) -> Gathered:
    """Ask a question on a call that is up; see :meth:`Call.ask`."""
    gathered = Gathered()
    async with AsyncExitStack() as stack:
        listening: SpeechDetection | None = None
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
    def __init__(
        self, call: QuestionedCall, question: Question, listening: SpeechDetection | None
    ) -> None:
        self._call = call
        self._question = question
        self._listening = listening
        self._utterance: Utterance | None = None
        self._keys_begun = False
        self._speaks = False
        """True if speech has begun that is no turn yet."""
        self._changed = asyncio.Event()
        if listening is not None:
            listening.on_event = self._on_event

    async def once(self, text: str) -> Gathered:
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

    async def _turn(self, listening: SpeechDetection) -> Gathered | None:
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
