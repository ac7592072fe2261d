"""The course of one call of `call` and `answer`, and the calls that replace it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import typer

from qwen3tts_cli.calls.watch import tell_findings, watch
from qwen3tts_cli.calls.words import Script, Words
from qwen3tts_cli.options.listening import ListenOptions
from qwen3tts_cli.output.console import note, result
from qwen3tts_cli.output.exits import CutShort

if TYPE_CHECKING:
    from qwen3tts_agent.agent import Agent
    from qwen3tts_agent.conversation import Conversation
    from qwen3tts_phone.audio.answering import AnsweringSettings
    from qwen3tts_phone.call.call import Call
    from qwen3tts_phone.detection.events import Turn
    from qwen3tts_phone.detection.recogniser import Recogniser
    from qwen3tts_phone.detection.speech_detection import SpeechDetection
    from qwen3tts_speech.line import Spoken, Utterance


class OnMachine(StrEnum):
    """What is done when a machine answers: `qwen3tts_phone.call.dialogue.OnMachine`."""

    SPEAK = "speak"
    HANG_UP = "hang-up"
    AFTER_BEEP = "after-beep"


class CallChain:
    """One call after the other: transfers by the far end, and calls that replace it.

    Args:
        call: the first, which is up.
        watching: what follows its events already; None = nothing does.
    """

    def __init__(self, call: Call, watching: asyncio.Task[None] | None = None) -> None:
        self.call = call
        """The call that goes on now."""
        self._calls = [call]
        self._watching = [watching or asyncio.create_task(watch(call))]
        self._closing = False

    async def follow(self) -> None:
        """Take over each next call, to the end of the last; tells why that one ended."""
        while (following := await self.call.successor()) is not None:
            self.call = following
            self._calls.append(following)
            self._watching.append(asyncio.create_task(watch(following)))
            note(f"The call goes on with {following.remote_uri}.")
            if self._closing:
                await following.hangup()
        causes = [await call.ended() for call in self._calls]
        note(f"The call has ended: {causes[-1]}.")

    async def hang_up(self) -> None:
        """End all of them; harmless where they are over."""
        self._closing = True
        await asyncio.gather(*(call.hangup() for call in self._calls))

    async def close(self) -> None:
        """Wait until all their events were told."""
        await asyncio.gather(*self._watching)

    def tell_findings(self) -> None:
        """Say of each call why one side may have heard nothing."""
        for call in self._calls:
            tell_findings(call)


DTMF_KEYS = frozenset("0123456789*#ABCD")
MAX_REST_CHARS = 200
"""So much is shown of what was not heard."""
LAST_WORDS_S = 10.0
"""So long the recogniser may take for what was said last, when the call has ended."""
AGENT_END_S = 10.0
"""So long an agent may take to put its things in order when the call has ended."""


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
    listening: ListenOptions = field(default_factory=ListenOptions)
    """How the caller is listened to."""
    transfer: str | None = None
    """Whom the call is handed on to when everything was said, or when an agent thinks it right;
    None: it is hung up."""
    on_machine: OnMachine = OnMachine.SPEAK
    """What is done when an answering machine takes it."""
    answering: AnsweringSettings | None = None
    """How a machine is told from a person."""
    listen_s: float | None = None
    """So long the far end is listened to when everything was said; None: not at all."""
    recogniser: Recogniser | None = None
    """Makes text of what the far end says then."""
    stt_named: bool = True
    """Whether --stt was given; a recogniser that was not asked for may fail to load."""
    agent: Agent | None = None
    """Who talks; None: the words are said, and nobody answers."""


async def talk(
    call: Call, words: Words, course: Course, watching: asyncio.Task[None] | None = None
) -> None:
    """See an answered call through: keys, words, hanging up or handing on. Tells what was heard.

    Where the far end hands the call on, or another call takes its place, it goes on there.

    ``watching``: what follows the call's events already, where something does.

    Raises:
        CutShort: the call ended, or the time was over, before everything was said; or there was
            nothing to say.
        TransferFailed: the far end did not hand the call on.
        SpeechError: the words, the server, the call, or an agent's model in all of its turns
            failed; what had come was said.
    """
    chain = CallChain(call, watching)
    ended = asyncio.create_task(chain.follow())
    speech: Speech = CallSpeech(call, words)
    longest_s = course.max_seconds
    if course.agent is not None:
        speech, longest_s = AgentSpeech(call, course.agent), None  # it ends in time by itself
    speaking = asyncio.create_task(_go_about(chain, speech, course))
    try:
        done, _ = await asyncio.wait(
            {ended, speaking}, timeout=longest_s, return_when=asyncio.FIRST_COMPLETED
        )
        if ended in done:
            await asyncio.wait([speaking], timeout=speech.last_wait_s)
        if speaking.done():
            speaking.result()
        why = "the call ended" if done else "--max-seconds was over"
    finally:
        speaking.cancel()
        # It also stops and settles what is being said, so that it is known what was heard.
        await chain.hang_up()
        await ended
        await chain.close()
        await asyncio.wait([speaking])
        speech.tell()
        chain.tell_findings()
    speech.judge(why)


async def _go_about(chain: CallChain, speech: Speech, course: Course) -> None:
    call = chain.call
    if course.digits:
        await call.send_dtmf(course.digits)
    await speech.run(course)
    if course.transfer is not None and course.agent is None:
        speech.tell()
        note(f"Handing the call on to {course.transfer} …")
        await chain.call.transfer(course.transfer)
        note("The call was handed on.")


class Speech(Protocol):
    """What is said on one call."""

    last_wait_s: float
    """So long it may go on when the call has ended."""

    async def run(self, course: Course) -> None:
        """Say it to its end."""

    def tell(self) -> None:
        """What became of it; once."""

    def judge(self, why: str) -> None:
        """Raise what a script should know. ``why``: what ended it."""


class AgentSpeech:
    """A conversation: it ends when one of the two hangs up."""

    last_wait_s = AGENT_END_S

    def __init__(self, call: Call, agent: Agent) -> None:
        self._call = call
        self._agent = agent
        self._conversation: Conversation | None = None

    async def run(self, course: Course) -> None:
        """Talk to the end of the call."""
        self._conversation = await self._agent.talk(self._call)

    def tell(self) -> None:
        """Each turn was told when it was over."""

    def judge(self, why: str) -> None:
        """A conversation may end at any time; raises what kept the model from all of its turns."""
        if self._conversation is not None:
            raise_model_error(self._conversation)


def raise_model_error(conversation: Conversation) -> None:
    """Raise what kept the model from all of its turns; nothing where one came about."""
    asked = [turn.error for turn in conversation.turns if turn.requests]
    if asked and asked[0] is not None and None not in asked:
        raise asked[0]


class CallSpeech:
    """What is said on a call, and goes on where another one takes its place; each interruption by
    the caller ends one utterance of it."""

    last_wait_s = 0.0

    def __init__(self, call: Call, words: Words) -> None:
        self._call = call
        self._words = words
        self._script: Script | None = None
        self._utterance: Utterance | None = None
        self._stopped_by_caller = False
        self.cut_short = True
        """Whether something was left to say, and the caller did not want it so."""
        self.heard_samples = 0
        """Of all utterances, at 24 kHz."""

    async def run(self, course: Course) -> None:
        """Say the words to their end, or until the caller interrupts.

        What is typed after an interruption is said. Other words have no continuation: the caller
        may finish what he has to say.
        """
        try:
            while await self._moves_on(asyncio.create_task(self._converse(course))):
                pass
        finally:
            await self._drop_script()

    async def _moves_on(self, saying: asyncio.Task[None]) -> bool:
        moving = asyncio.create_task(self._call.successor())
        try:
            await asyncio.wait({moving, saying}, return_when=asyncio.FIRST_COMPLETED)
            if moving.done() and moving.result() is not None:
                self._call.interrupt()
            await saying
            if self._utterance is None or not self._utterance.outcome().interrupted:
                return False
            if self._stopped_by_caller or not (moving.done() or self._call.over):
                return False
            following = await moving
            if following is None:
                return False
            self.tell()
            self._call = following
            return True
        finally:
            saying.cancel()
            moving.cancel()

    async def _converse(self, course: Course) -> None:
        if not (course.listening.listens or course.listen_s is not None):
            await self._say()
            return
        listening = self._call.hear(course.listening.settings(), course.recogniser)
        following = asyncio.create_task(_follow(listening, tell=course.listen_s is not None))
        try:
            await self._say_to_listener(listening)
            if course.listen_s is not None and not self._call.over:
                await self._stay(course, course.listen_s, following)
        finally:
            following.cancel()

    async def _say_to_listener(self, listening: SpeechDetection) -> None:
        """Say the words to their end, or until the caller interrupts them.

        While standard input has nothing to say, the caller interrupts nothing.
        """
        while True:
            await self._say()
            self._stopped_by_caller = self._utterance in listening.interrupted
            if not self._stopped_by_caller:
                return
            assert self._utterance is not None
            spoken = self._utterance.outcome()
            if not self._words.stdin or spoken.remaining.strip():
                note("The caller interrupts.")
            if not self._words.stdin:
                await listening.quiet.wait()
                return
            assert self._script is not None
            if spoken.remaining.strip():
                self.tell()
                self._script.skip()
            elif spoken.heard.strip():
                self.tell()

    async def _stay(self, course: Course, seconds: float, following: asyncio.Task[None]) -> None:
        call = self._call
        self.last_wait_s = LAST_WORDS_S
        note(f"Listening for {seconds:g} s …")
        over = asyncio.create_task(call.ended())
        await asyncio.wait({over}, timeout=seconds)
        if course.transfer is not None and not call.over:
            over.cancel()
            return
        await call.hangup()
        await over
        await asyncio.wait({following}, timeout=LAST_WORDS_S)

    async def _say(self) -> None:
        self._stopped_by_caller = False
        self._script = self._script or Script(self._words)
        self._utterance = self._call.speak(self._script.rest())
        await self._utterance.spoken()

    async def _drop_script(self) -> None:
        script, self._script = self._script, None
        if script is not None:
            await script.close()

    def tell(self) -> None:
        """What was heard of the last utterance, and how promptly; once."""
        if self._utterance is None:
            return
        spoken = self._utterance.outcome()
        self.cut_short = spoken.interrupted and not self._stopped_by_caller
        self.heard_samples += spoken.position
        if self._script is not None:
            self._script.heard_chars += len(spoken.heard)
        _tell(spoken)
        self._utterance = None

    def judge(self, why: str) -> None:
        """Raises CutShort where not everything was said, or there was nothing to say."""
        if self.cut_short:
            raise CutShort(f"{why} before everything was said.")
        if not self.heard_samples:
            raise CutShort("there was nothing to say.", remedy="Give some words to say.")


async def _follow(listening: SpeechDetection, *, tell: bool) -> None:
    async for turn in listening:
        if tell:
            _tell_turn(turn)


def _tell_turn(turn: Turn) -> None:
    if turn.error is not None:
        note(f"Not understood: {turn.error.message} {turn.error.remedy}".rstrip())
    elif turn.text:
        result(f"heard {turn.text}")
    elif turn.why not in ("keys", "noise"):
        note(f"The other side has spoken for {turn.ended_at - turn.began_at:.1f} s.")


def _tell(spoken: Spoken) -> None:
    heard, rest = spoken.heard.strip(), spoken.remaining.strip()
    note(f"Heard: {heard}" if heard else "Nothing was heard.")
    if rest:
        note(f"Not heard: {shortened(rest)}")
    record = spoken.record
    if (first := record.first_sound_ms) is not None:
        gaps = "1 gap" if record.starvations == 1 else f"{record.starvations or 'no'} gaps"
        note(f"First sound {first:.0f} ms after the first word, {gaps}.")


def shortened(text: str) -> str:
    """Of a long text so much that it can be told from others."""
    if len(text) <= MAX_REST_CHARS:
        return text
    return f"{text[:MAX_REST_CHARS]}… ({len(text)} characters in all)"
