"""Course of one call of ``call`` and ``answer``, and of calls that replace it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import typer

from qwen3tts_cli.calls.event_output import print_audio_failures, print_events
from qwen3tts_cli.calls.text import SourceReader, TextSource
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
    from qwen3tts_phone.detection.settings import ListenSettings
    from qwen3tts_phone.detection.speech_detection import SpeechDetection
    from qwen3tts_speech.line import Spoken, Utterance


class OnMachine(StrEnum):
    SPEAK = "speak"
    HANG_UP = "hang-up"
    AFTER_BEEP = "after-beep"


class CallChain:
    """A call and its successors by REFER or Replaces.

    Args:
        call: the first, established.
        watching: task that already prints its events.
    """

    def __init__(self, call: Call, watching: asyncio.Task[None] | None = None) -> None:
        self.call = call
        """The current call."""
        self._calls = [call]
        self._watching = [watching or asyncio.create_task(print_events(call))]
        self._closing = False

    async def follow(self) -> None:
        """Follow to the end of the last call; return why it ended."""
        while (following := await self.call.successor()) is not None:
            self.call = following
            self._calls.append(following)
            self._watching.append(asyncio.create_task(print_events(following)))
            note(f"The call continues with {following.remote_uri}.")
            if self._closing:
                await following.hangup()
        causes = [await call.ended() for call in self._calls]
        note(f"The call has ended: {causes[-1]}.")

    async def hang_up(self) -> None:
        self._closing = True
        await asyncio.gather(*(call.hangup() for call in self._calls))

    async def close(self) -> None:
        await asyncio.gather(*self._watching)

    def print_audio_failures(self) -> None:
        for call in self._calls:
            print_audio_failures(call)


DTMF_KEYS = frozenset("0123456789*#ABCD")
MAX_REST_CHARS = 200
"""Characters shown of the unheard rest."""
RECOGNITION_GRACE_S = 10.0
"""Recogniser deadline after the end of the call."""
AGENT_GRACE_S = 10.0
"""Agent deadline after the end of the call."""


def checked_digits(digits: str | None) -> str:
    wanted = digits or ""
    for position, key in enumerate(wanted, start=1):
        if key.upper() not in DTMF_KEYS:
            raise typer.BadParameter(f"--dtmf: {key!r} (at {position}) is not a DTMF digit.")
    return wanted.upper()


@dataclass(frozen=True, slots=True)
class CallPlan:
    """Settings of a call besides its text."""

    digits: str = ""
    """DTMF digits sent before speech."""
    max_seconds: float | None = None
    listening: ListenOptions = field(default_factory=ListenOptions)
    transfer: str | None = None
    """Transfer target after the text, or for the agent; None: hang up."""
    on_machine: OnMachine = OnMachine.SPEAK
    answering: AnsweringSettings | None = None
    """Answering machine detection."""
    listen_s: float | None = None
    """Seconds of listening after the text; None: none."""
    recogniser: Recogniser | None = None
    """Recogniser for that time."""
    stt_named: bool = True
    """Whether --stt was given; a default recogniser may fail to load."""
    agent: Agent | None = None
    """None: the text is spoken only."""
    hearing: ListenSettings | None = None
    """Settings of the file, which the options override; None: defaults."""

    def listen_settings(self) -> ListenSettings:
        return self.listening.settings(self.hearing)


async def handle_call(
    call: Call, words: TextSource, plan: CallPlan, watching: asyncio.Task[None] | None = None
) -> None:
    """Handle an answered call and its successors: DTMF, speech, hang-up or transfer.

    Raises:
        CutShort: the call ended too early, or no text.
        TransferFailed: the far end refused the transfer.
        SpeechError: text source, server, call, or model (in all turns) failed.
    """
    chain = CallChain(call, watching)
    ended = asyncio.create_task(chain.follow())
    speech: CallTask = TextTask(call, words)
    longest_s = plan.max_seconds
    if plan.agent is not None:
        speech, longest_s = AgentTask(call, plan.agent), None  # it ends in time by itself
    speaking = asyncio.create_task(_run_plan(chain, speech, plan))
    try:
        done, _ = await asyncio.wait(
            {ended, speaking}, timeout=longest_s, return_when=asyncio.FIRST_COMPLETED
        )
        if ended in done:
            await asyncio.wait([speaking], timeout=speech.last_wait_s)
        if speaking.done():
            speaking.result()
        why = "the call ended" if done else "--max-seconds elapsed"
    finally:
        speaking.cancel()
        # It also stops and settles what is being said, so that it is known what was heard.
        await chain.hang_up()
        await ended
        await chain.close()
        await asyncio.wait([speaking])
        speech.report()
        chain.print_audio_failures()
    speech.raise_failure(why)


async def _run_plan(chain: CallChain, speech: CallTask, plan: CallPlan) -> None:
    call = chain.call
    if plan.digits:
        await call.send_dtmf(plan.digits)
    await speech.run(plan)
    if plan.transfer is not None and plan.agent is None:
        speech.report()
        note(f"Transferring the call to {plan.transfer} …")
        await chain.call.transfer(plan.transfer)
        note("The call was transferred.")


class CallTask(Protocol):
    last_wait_s: float
    """Deadline after the end of the call."""

    async def run(self, plan: CallPlan) -> None: ...

    def report(self) -> None:
        """Print the outcome; once."""

    def raise_failure(self, why: str) -> None:
        """Raise the failure for the exit code; ``why``: end reason of the call."""


class AgentTask:
    """Conversation until either side hangs up."""

    last_wait_s = AGENT_GRACE_S

    def __init__(self, call: Call, agent: Agent) -> None:
        self._call = call
        self._agent = agent
        self._conversation: Conversation | None = None

    async def run(self, plan: CallPlan) -> None:
        self._conversation = await self._agent.talk(self._call)

    def report(self) -> None: ...

    def raise_failure(self, why: str) -> None:
        if self._conversation is not None:
            raise_model_error(self._conversation)


def raise_model_error(conversation: Conversation) -> None:
    """Raise the model's error if it failed in all turns."""
    asked = [turn.error for turn in conversation.turns if turn.requests]
    if asked and asked[0] is not None and None not in asked:
        raise asked[0]


class TextTask:
    """Text spoken on a call, continued on its successors; a barge-in ends one utterance."""

    last_wait_s = 0.0

    def __init__(self, call: Call, words: TextSource) -> None:
        self._call = call
        self._words = words
        self._script: SourceReader | None = None
        self._utterance: Utterance | None = None
        self._stopped_by_caller = False
        self.cut_short = True
        """Whether text was left without a barge-in."""
        self.heard_samples = 0
        """Of all utterances, at 24 kHz."""

    async def run(self, plan: CallPlan) -> None:
        """Speak to the end or to a barge-in; only typed text continues after one."""
        try:
            while await self._moves_on(asyncio.create_task(self._converse(plan))):
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
            self.report()
            self._call = following
            return True
        finally:
            saying.cancel()
            moving.cancel()

    async def _converse(self, plan: CallPlan) -> None:
        if not (plan.listening.listens or plan.listen_s is not None):
            await self._say()
            return
        listening = self._call.hear(plan.listen_settings(), plan.recogniser)
        following = asyncio.create_task(_follow(listening, report=plan.listen_s is not None))
        try:
            await self._say_to_listener(listening)
            if plan.listen_s is not None and not self._call.over:
                await self._stay(plan, plan.listen_s, following)
        finally:
            following.cancel()

    async def _say_to_listener(self, listening: SpeechDetection) -> None:
        """Speak to the end or to a barge-in, which needs speech to interrupt."""
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
                self.report()
                self._script.skip()
            elif spoken.heard.strip():
                self.report()

    async def _stay(self, plan: CallPlan, seconds: float, following: asyncio.Task[None]) -> None:
        call = self._call
        self.last_wait_s = RECOGNITION_GRACE_S
        note(f"Listening for {seconds:g} s …")
        over = asyncio.create_task(call.ended())
        await asyncio.wait({over}, timeout=seconds)
        if plan.transfer is not None and not call.over:
            over.cancel()
            return
        await call.hangup()
        await over
        await asyncio.wait({following}, timeout=RECOGNITION_GRACE_S)

    async def _say(self) -> None:
        self._stopped_by_caller = False
        self._script = self._script or SourceReader(self._words)
        self._utterance = self._call.speak(self._script.rest())
        await self._utterance.spoken()

    async def _drop_script(self) -> None:
        script, self._script = self._script, None
        if script is not None:
            await script.close()

    def report(self) -> None:
        if self._utterance is None:
            return
        spoken = self._utterance.outcome()
        self.cut_short = spoken.interrupted and not self._stopped_by_caller
        self.heard_samples += spoken.position
        if self._script is not None:
            self._script.heard_chars += len(spoken.heard)
        _print_latency(spoken)
        self._utterance = None

    def raise_failure(self, why: str) -> None:
        if self.cut_short:
            raise CutShort(f"{why} before all text was spoken.")
        if not self.heard_samples:
            raise CutShort("there was no text to speak.", remedy="Give some text to speak.")


async def _follow(listening: SpeechDetection, *, report: bool) -> None:
    async for turn in listening:
        if report:
            _print_recognised(turn)


def _print_recognised(turn: Turn) -> None:
    if turn.error is not None:
        note(f"Not recognised: {turn.error.message} {turn.error.remedy}".rstrip())
    elif turn.text:
        result(f"heard {turn.text}")
    elif turn.why not in ("keys", "noise"):
        note(f"The far end spoke for {turn.ended_at - turn.began_at:.1f} s.")


def _print_latency(spoken: Spoken) -> None:
    heard, rest = spoken.heard.strip(), spoken.remaining.strip()
    note(f"Heard: {heard}" if heard else "Nothing was heard.")
    if rest:
        note(f"Not heard: {shortened(rest)}")
    record = spoken.record
    if (first := record.first_sound_ms) is not None:
        gaps = "1 gap" if record.starvations == 1 else f"{record.starvations or 'no'} gaps"
        note(f"First sound {first:.0f} ms after the first word, {gaps}.")


def shortened(text: str) -> str:
    if len(text) <= MAX_REST_CHARS:
        return text
    return f"{text[:MAX_REST_CHARS]}… ({len(text)} characters in all)"
