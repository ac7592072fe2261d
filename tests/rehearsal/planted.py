"""Rehearsals of the bakery's agents, for the tests and the benchmark."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qwen3tts_agent.recognition.settings import WhisperSettings
from qwen3tts_agent.recognition.whisper import WhisperRecogniser
from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_rehearsal.lines import Line, Samples
from qwen3tts_rehearsal.recognition import SpanRecogniser
from qwen3tts_rehearsal.rehearsal import (
    PlannedCall,
    Rehearsal,
    RehearsalParts,
    RehearsedCall,
    plan,
)
from qwen3tts_rehearsal.results import CallResult, RehearsalResult
from qwen3tts_rehearsal.scenario import LineSettings, Scenario, read_scenario
from qwen3tts_rehearsal.script import ScriptMaker
from qwen3tts_rehearsal.sip_line import SipLine
from qwen3tts_rehearsal.sounds import SoundBook
from qwen3tts_rehearsal.webhook import WebhookReceiver
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import SpeechError

SCENARIOS = Path(__file__).parent / "scenarios"
ORDER, HOURS = SCENARIOS / "order.yaml", SCENARIOS / "hours.yaml"


FOUND_BY = {
    "late": "response_s",
    "choppy": "gaps",
    "deaf": "response_s",
    "self_interrupting": "heard[1]",
    "repeating": "repeats",
    "dropping_digits": "heard[0]",
    "talking_over": "cut_offs",
    "hanging_up_early": "webhook[0]",
    "silent_after_tool": "dead_air_s",
    "wrong_codec": "heard[0]",
}
"""Verdict of the scenario ``order`` that finds each fault."""


def found(fault: str, call: CallResult) -> bool:
    """Return whether a fault's own verdict has failed."""
    return FOUND_BY[fault] in {each.name for each in call.failed}


@dataclass(frozen=True)
class Job:
    """One call to make."""

    user: str
    scenario: Scenario

    @property
    def fault(self) -> str:
        return self.user.partition(".")[0]


@dataclass
class Callers:
    """What all rehearsals of an agent share."""

    phone: Phone
    book: SoundBook
    transcribe: SpanRecogniser
    webhook: WebhookReceiver
    agents: str
    """Host and port of the agents."""
    folder: Path | None = None

    async def rehearse(
        self,
        user: str,
        scenarios: Sequence[Scenario],
        *,
        repeat: int = 1,
        at_once: int = 1,
        line: Line | None = None,
    ) -> RehearsalResult:
        """Call ``sip:USER@``, or a line, with these scenarios, each time by the same seed."""
        planned = plan([(each, ORDER) for each in scenarios], repeat=repeat, same_seed=True)
        return await Rehearsal(self.parts(user, line), planned).run(at_once)

    async def call(self, job: Job, slots: asyncio.Semaphore) -> CallResult:
        """Make one call while there is a slot, and judge it."""
        result = CallResult(job.scenario.name, job.scenario.seed, time.time(), 0.0)
        parts = self.parts(job.user)
        maker = ScriptMaker(job.scenario, ORDER, self.book)
        call = RehearsedCall(parts, PlannedCall(job.scenario, ORDER, job.scenario.seed), maker)
        try:
            await maker.prepare()
            async with slots:
                await call.make()
            return await call.judged(result)
        except SpeechError as error:
            return replace(result, error=error.message)

    def parts(self, user: str, line: Line | None = None) -> RehearsalParts:
        folder = None if self.folder is None else self.folder / user
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        return RehearsalParts(
            line or SipLine(self.phone, f"sip:{user}@{self.agents}"),
            self.book,
            self.transcribe,
            folder,
            self.webhook,
        )


@asynccontextmanager
async def callers(
    agents: str, webhook: WebhookReceiver, folder: Path | None = None, model: str = "auto"
) -> AsyncIterator[Callers]:
    """Callers with eSpeak's voices who understand by Whisper tiny.en."""
    async with AsyncExitStack() as stack:
        engine = EmbeddedEngine()
        await engine.start()
        stack.push_async_callback(engine.close)
        whisper = WhisperRecogniser(
            WhisperSettings(model, early=False, window_s=30, timeout_s=600.0)
        )
        stack.push_async_callback(whisper.close)
        await whisper.warm()
        # The callers' own sound is live: they need no speech server.
        phone = Phone(PhoneSettings(), link=SpeechLink("ws://127.0.0.1:9/"), announce=None)
        await stack.enter_async_context(phone)

        async def synthesise(text: str, voice: str, language: str) -> tuple[Samples, int]:
            name = voice.removeprefix("espeak:")
            request = SynthesisRequest(text, voice=name, final=True)
            pcm = b"".join([chunk.pcm async for chunk in engine.synthesize(request)])
            return np.frombuffer(pcm, "<i2").astype(np.int16), 24_000

        yield Callers(
            phone, SoundBook(synthesise), SpanRecogniser(whisper), webhook, agents, folder
        )


def order_of(user: str, line: LineSettings | None = None) -> Scenario:
    """The scenario ``order``, with the webhook's path of one user, over another line."""
    scenario = read_scenario(ORDER)
    posts = tuple(replace(each, path=f"/{user}") for each in scenario.expect.webhook)
    return replace(
        scenario,
        expect=replace(scenario.expect, webhook=posts),
        line=scenario.line if line is None else line,
    )


def hours() -> Scenario:
    return read_scenario(HOURS)


def signature(call: CallResult) -> tuple[object, ...]:
    """What has to be the same in every repetition: each verdict, and whether it was judged."""
    return (bool(call.error), *((each.name, each.passed) for each in call.verdicts))


async def make(callers_: Callers, jobs: Sequence[Job], at_once: int) -> list[CallResult]:
    """Make these calls, in their order, so many at a time."""
    slots = asyncio.Semaphore(at_once)
    return list(await asyncio.gather(*(callers_.call(job, slots) for job in jobs)))


async def find(callers_: Callers, faults: Sequence[str], at_once: int) -> dict[str, CallResult]:
    """One call to each agent."""
    jobs = [Job(fault, order_of(fault)) for fault in faults]
    return dict(zip(faults, await make(callers_, jobs, at_once), strict=True))
