"""What ``call`` and ``answer`` share: one call's course, and what is told of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from qwen3tts_cli.barge_in import BargeIn
from qwen3tts_cli.exits import CutShort
from qwen3tts_cli.machine import OnMachine, await_greeting
from qwen3tts_cli.output import note
from qwen3tts_cli.watch import tell_findings, watch
from qwen3tts_cli.words import Words

if TYPE_CHECKING:
    from qwen3tts_phone.answering import AnsweringSettings
    from qwen3tts_phone.phone import Call
    from qwen3tts_speech.line import Spoken, Utterance

DTMF_KEYS = frozenset("0123456789*#ABCD")
MAX_REST_CHARS = 200
"""So much is shown of what was not heard."""


def checked_digits(digits: str | None) -> str:
    """The keys to press; raises ``typer.BadParameter`` for one that no phone has."""
    wanted = digits or ""
    for position, key in enumerate(wanted, start=1):
        if key.upper() not in DTMF_KEYS:
            raise typer.BadParameter(f"--dtmf: {key!r} (at {position}) is no key of a phone.")
    return wanted.upper()


@dataclass(frozen=True, slots=True)
class Course:
    """How a call is gone about, besides its words."""

    digits: str = ""
    """Keys to press before anything is said."""
    max_seconds: float | None = None
    barge_in: bool = False
    """Whether the caller's voice silences what is being said."""
    transfer: str | None = None
    """Whom the call is handed on to when everything was said; None: it is hung up."""
    on_machine: OnMachine = OnMachine.SPEAK
    """What is done when an answering machine takes it."""
    answering: AnsweringSettings | None = None
    """How a machine is told from a person."""


async def talk(
    call: Call, words: Words, course: Course, watching: asyncio.Task[None] | None = None
) -> None:
    """See an answered call through: keys, words, hanging up or handing on. Tells what was heard.

    ``watching``: what follows the call's events already, where something does.

    Raises:
        MachineAnswered: an answering machine took the call, and is to get no message.
        CutShort: the call ended, or the time was over, before everything was said; or there was
            nothing to say.
        TransferFailed: the far end did not hand the call on.
        SpeechError: the words, the server or the call failed; what had come was said.
    """
    watching = watching or asyncio.create_task(watch(call))
    ended = asyncio.create_task(_ended(call))
    speech = CallSpeech(call, words)
    speaking = asyncio.create_task(_go_about(call, speech, course))
    try:
        done, _ = await asyncio.wait(
            {ended, speaking}, timeout=course.max_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if speaking in done:
            speaking.result()
        why = "the call ended" if done else "--max-seconds was over"
    finally:
        speaking.cancel()
        # It also stops and settles what is being said, so that it is known what was heard.
        await call.hangup()
        await ended
        await watching
        await asyncio.wait([speaking])
        speech.tell()
        tell_findings(call)
    if speech.cut_short:
        raise CutShort(f"{why} before everything was said.")
    if not speech.heard_samples:
        raise CutShort("there was nothing to say.", remedy="Give some words to say.")


async def _go_about(call: Call, speech: CallSpeech, course: Course) -> None:
    if course.on_machine is not OnMachine.SPEAK:
        await await_greeting(call, course.on_machine, course.answering)
    await speech.run(course)
    if course.transfer is not None:
        speech.tell()
        note(f"Handing the call on to {course.transfer} …")
        await call.transfer(course.transfer)
        note("The call was handed on.")


class CallSpeech:
    """What is said on one call; each interruption by the caller ends one utterance of it."""

    def __init__(self, call: Call, words: Words) -> None:
        self._call = call
        self._words = words
        self._utterance: Utterance | None = None
        self._stopped_by_caller = False
        self.cut_short = True
        """Whether something was left to say, and the caller did not want it so."""
        self.heard_samples = 0
        """Of all utterances, at 24 kHz."""

    async def run(self, course: Course) -> None:
        """Press the keys, then say the words to their end, or until the caller interrupts.

        What is typed after an interruption is said. Other words have no continuation: the caller
        may finish what he has to say.
        """
        if course.digits:
            await self._call.send_dtmf(course.digits)
        barge_in = BargeIn(self._call)
        listening = asyncio.create_task(barge_in.listen()) if course.barge_in else None
        try:
            while True:
                await self._say()
                self._stopped_by_caller = self._utterance in barge_in.stopped
                if not self._stopped_by_caller:
                    return
                note("The caller interrupts.")
                if not self._words.stdin:
                    await barge_in.quiet.wait()
                    return
                self.tell()
        finally:
            if listening is not None:
                listening.cancel()

    async def _say(self) -> None:
        self._stopped_by_caller = False
        self._utterance = self._call.speak(self._words.open())
        await self._utterance.spoken()

    def tell(self) -> None:
        """What was heard of the last utterance, and how promptly; once."""
        if self._utterance is None:
            return
        spoken = self._utterance.outcome()
        self.cut_short = spoken.interrupted and not self._stopped_by_caller
        self.heard_samples += spoken.position
        _tell(spoken)
        self._utterance = None


async def _ended(call: Call) -> None:
    cause = await call.ended()
    note(f"The call has ended: {cause}.")


def _tell(spoken: Spoken) -> None:
    """What was heard, and how promptly."""
    heard, rest = spoken.heard.strip(), spoken.remaining.strip()
    note(f"Heard: {heard}" if heard else "Nothing was heard.")
    if rest:
        note(f"Not heard: {_shortened(rest)}")
    record = spoken.record
    if (first := record.first_sound_ms) is not None:
        gaps = "1 gap" if record.starvations == 1 else f"{record.starvations or 'no'} gaps"
        note(f"First sound {first:.0f} ms after the first word, {gaps}.")


def _shortened(text: str) -> str:
    if len(text) <= MAX_REST_CHARS:
        return text
    return f"{text[:MAX_REST_CHARS]}… ({len(text)} characters in all)"
