"""Rehearsal: calls of simulated callers, several at a time, and the verdicts on them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from qwen3tts_agent.chat.source import ReplySource
from qwen3tts_phone.detection.vad import VoiceActivityDetector, make_detector
from qwen3tts_phone.errors import CallError
from qwen3tts_rehearsal.caller import Command, EndCall, FindWords, NextTurn, Press, ScriptedCaller
from qwen3tts_rehearsal.lines import CallEnd, CallerCall, Line
from qwen3tts_rehearsal.observation import (
    Tracks,
    observe,
    spans_of,
    with_words,
    write_recording,
)
from qwen3tts_rehearsal.persona import PersonaCaller
from qwen3tts_rehearsal.recognition import Transcribe
from qwen3tts_rehearsal.results import CallResult, RehearsalResult
from qwen3tts_rehearsal.scenario import Persona, Scenario, Wait
from qwen3tts_rehearsal.script import Action, Await, HangUp, Say, ScriptMaker
from qwen3tts_rehearsal.sounds import SoundBook, noise
from qwen3tts_rehearsal.tracks import agent_track
from qwen3tts_rehearsal.verdicts import NO_WORDS, Observation, figures, judge
from qwen3tts_rehearsal.webhook import WebhookReceiver
from qwen3tts_wire.errors import SpeechError, log_text

logger = logging.getLogger(__name__)

POLL_S = 0.01
"""Interval at which a caller's commands are taken."""
END_S = 10.0
"""Longest wait for the end of a call that was hung up."""
POSTS_AFTER_S = 0.5
"""Time after a call in which its posts may still come."""
PERSONA_WAIT_S = 15.0


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call to make."""

    scenario: Scenario
    file: Path
    """Of the scenario: its recordings are relative to it."""
    seed: int
    repeat: int = 0
    """Number of the call among those of the same seed."""


def plan(
    scenarios: Sequence[tuple[Scenario, Path]],
    *,
    repeat: int = 1,
    seed: int | None = None,
    same_seed: bool = False,
) -> list[PlannedCall]:
    """Return the calls of scenarios, one scenario after the other.

    ``seed``: in place of the scenarios' own; each repetition has the next one, or with
    ``same_seed`` the same.
    """
    planned = []
    for scenario, file in scenarios:
        first = scenario.seed if seed is None else seed
        for number in range(repeat):
            each = first if same_seed else first + number
            planned.append(PlannedCall(scenario, file, each, number if same_seed else 0))
    return planned


@dataclass(frozen=True, slots=True)
class RehearsalParts:
    """What calls are made with."""

    line: Line
    book: SoundBook
    transcribe: Transcribe | None = None
    """None: no words are known, and what needs them fails."""
    folder: Path | None = None
    """Folder of the recordings; None = they are not kept."""
    webhook: WebhookReceiver | None = None
    chat: Callable[[Persona], ReplySource] | None = None
    """Makes the source of a persona's words."""
    now: Callable[[], float] = time.monotonic
    """Time of the line, seconds."""
    detector: Callable[[], VoiceActivityDetector] = field(
        default=lambda: make_detector("silero"), repr=False
    )


OnResult = Callable[[CallResult], None]


class Rehearsal:
    """Makes planned calls; one use.

    >>> result = await Rehearsal(parts, planned).run(at_once=4)
    """

    def __init__(
        self,
        parts: RehearsalParts,
        planned: Sequence[PlannedCall],
        on_result: OnResult | None = None,
    ) -> None:
        self._parts = parts
        self._planned = list(planned)
        self._on_result = on_result or (lambda result: None)
        self._results: dict[int, CallResult] = {}
        self._path_locks: dict[str, asyncio.Lock] = {}
        self._began = time.monotonic()

    @property
    def result(self) -> RehearsalResult:
        calls = tuple(self._results[number] for number in sorted(self._results))
        return RehearsalResult(calls, time.monotonic() - self._began, len(self._planned))

    async def prepare(self) -> None:
        """Make every sound before the first call. Raises SpeechError."""
        makers = {id(each.scenario): self._maker(each) for each in self._planned}
        for maker in makers.values():
            await maker.prepare()

    async def run(self, at_once: int = 1) -> RehearsalResult:
        """Make all calls, so many at a time; cancelled, `result` has those that are over.

        A call that fails is a result with its error. Raises SpeechError only in `prepare`.
        """
        self._began = time.monotonic()
        await self.prepare()
        slots = asyncio.Semaphore(at_once)
        async with asyncio.TaskGroup() as group:
            for number, planned in enumerate(self._planned):
                group.create_task(self._one(number, planned, slots), name=planned.scenario.name)
        return self.result

    async def _one(self, number: int, planned: PlannedCall, slots: asyncio.Semaphore) -> None:
        started = time.time()
        result = CallResult(
            planned.scenario.name, planned.seed, started, 0.0, repeat=planned.repeat
        )
        try:
            async with slots, self._paths(planned.scenario):
                result = replace(result, started=time.time())
                call = RehearsedCall(self._parts, planned, self._maker(planned))
                await call.make()
            result = await call.judged(result)
        except SpeechError as error:
            result = replace(result, error=f"{error.message} {error.remedy}".strip())
        except OSError as error:
            result = replace(result, error=f"The recording cannot be written: {error}.")
        self._results[number] = result
        self._on_result(result)

    def _maker(self, planned: PlannedCall) -> ScriptMaker:
        return ScriptMaker(planned.scenario, planned.file, self._parts.book)

    @contextlib.asynccontextmanager
    async def _paths(self, scenario: Scenario) -> AsyncIterator[None]:
        """Hold the webhook's paths of a scenario: a post does not say to which call it belongs."""
        async with contextlib.AsyncExitStack() as stack:
            for path in sorted({each.path for each in scenario.expect.webhook}):
                lock = self._path_locks.setdefault(path, asyncio.Lock())
                await stack.enter_async_context(lock)
            yield


class RehearsedCall:
    """One call, from dialling to its verdicts."""

    def __init__(self, parts: RehearsalParts, planned: PlannedCall, maker: ScriptMaker) -> None:
        self._parts = parts
        self._scenario = planned.scenario
        self._planned = planned
        self._maker = maker
        self._persona: PersonaCaller | None = None
        self._source: ReplySource | None = None
        self._seen: Observation
        self._tracks: Tracks

    async def make(self) -> None:
        """Call, play the script, and hang up. Raises SpeechError."""
        scenario = self._scenario
        if scenario.caller is not None:
            self._persona = self._persona_caller(scenario.caller)
        call = await self._parts.line.connect(scenario.line, self._planned.seed)
        try:
            caller = await self._caller(call)
            end = await self._play(call, caller)
        finally:
            await call.hang_up()
            if self._source is not None:
                await self._source.close()
        if self._parts.webhook is not None and scenario.expect.webhook:
            await asyncio.sleep(POSTS_AFTER_S)
        posts = self._parts.webhook.since(call.answered_at) if self._parts.webhook else []
        self._seen, self._tracks = await asyncio.to_thread(
            observe,
            scenario,
            caller,
            end,
            (call.answered_at, call.codec, call.rate_hz),
            self._parts.detector(),
            posts,
        )

    async def judged(self, result: CallResult) -> CallResult:
        """Return the result with recording, words and verdicts. Raises SpeechError, OSError."""
        recording = None
        if self._parts.folder is not None:
            recording = self._parts.folder / f"{result.name.replace('#', '-')}.wav"
            await asyncio.to_thread(write_recording, self._tracks, recording)
        seen = await with_words(self._seen, self._tracks, self._parts.transcribe)
        return replace(
            result,
            duration_s=round(seen.duration_s, 3),
            verdicts=judge(self._scenario.expect, seen),
            spans=spans_of(seen),
            recording=recording,
            figures=figures(seen),
        )

    # --- inside

    def _persona_caller(self, persona: Persona) -> PersonaCaller:
        if self._parts.chat is None:
            raise CallError("This rehearsal has no language model for callers.")
        if self._parts.transcribe is None:
            raise CallError(
                "A caller by a language model needs a recogniser.", remedy="Name one with --stt."
            )
        self._source = self._parts.chat(persona)
        return PersonaCaller(persona, self._source, self._scenario.language)

    async def _caller(self, call: CallerCall) -> ScriptedCaller:
        scenario, rate_hz = self._scenario, call.rate_hz
        line = scenario.line
        actions: list[Action]
        if scenario.caller is not None:
            actions = [_awaits(scenario.caller)]
        else:
            actions = await self._maker.actions(rate_hz)
        speech = await self._maker.sounds(rate_hz) if line.noise == "babble" else []
        background = await asyncio.to_thread(
            noise, line.noise, rate_hz, line.level_dbfs - line.snr_db, self._planned.seed, speech
        )
        return ScriptedCaller(
            actions,
            rate_hz,
            call.answered_at,
            self._parts.detector(),
            background,
            persona=scenario.caller is not None,
        )

    async def _play(self, call: CallerCall, caller: ScriptedCaller) -> CallEnd:
        talking = asyncio.create_task(call.talk(caller), name="call of a simulated caller")
        working: set[asyncio.Task[None]] = set()
        until = call.answered_at + self._scenario.max_seconds
        try:
            while not talking.done():
                while caller.commands:
                    command = caller.commands.popleft()
                    work = asyncio.create_task(self._obey(command, call, caller))
                    working.add(work)
                for work in [each for each in working if each.done()]:
                    working.discard(work)
                    work.result()
                if self._parts.now() >= until:
                    caller.stop(f"the call lasted {self._scenario.max_seconds:g} s (max_seconds)")
                    break
                await asyncio.wait([talking], timeout=POLL_S)
            if not talking.done():
                await self._hang_up(call)
                async with asyncio.timeout(END_S):
                    await asyncio.wait([talking])
            return talking.result()
        except TimeoutError:
            return CallEnd("line", self._parts.now(), "the end of the call was never confirmed")
        finally:
            for task in (talking, *working):
                task.cancel()
            await asyncio.gather(talking, *working, return_exceptions=True)

    async def _obey(self, command: Command, call: CallerCall, caller: ScriptedCaller) -> None:
        match command:
            case Press(keys=keys):
                began = self._parts.now()
                try:
                    await call.press(keys)
                except SpeechError as error:
                    caller.problems.append(f"keys {keys}: {error.message}")
                caller.pressed(keys, began, self._parts.now())
            case EndCall():
                await self._hang_up(call)
            case FindWords(since=since, pattern=pattern):
                if self._parts.transcribe is None and NO_WORDS not in caller.problems:
                    caller.problems.append(NO_WORDS)
                text = await self._words_since(call, caller, since)
                caller.found(text, pattern, self._parts.now())
            case NextTurn(since=since):
                await self._next_turn(call, caller, since)

    async def _hang_up(self, call: CallerCall) -> None:
        try:
            async with asyncio.timeout(END_S):
                await call.hang_up()
        except (SpeechError, TimeoutError) as error:
            logger.debug("a call could not be hung up: %s", log_text(str(error)))

    async def _next_turn(self, call: CallerCall, caller: ScriptedCaller, since: float) -> None:
        persona, settings = self._persona, self._scenario.caller
        assert persona is not None
        assert settings is not None
        try:
            said = await self._words_since(call, caller, since)
            answer = await persona.next(said)
        except TimeoutError:
            caller.stop("the language model that plays the caller did not answer in time")
            await self._hang_up(call)
            return
        actions: list[Action] = []
        if answer.text:
            spoken = await self._maker.said(answer.text, call.rate_hz)
            actions.append(Say(spoken, not answer.last, UNNUMBERED))
        actions.append(HangUp(UNNUMBERED) if answer.last else _awaits(settings))
        caller.go_on(actions, self._parts.now())

    async def _words_since(self, call: CallerCall, caller: ScriptedCaller, since: float) -> str:
        transcribe = self._parts.transcribe
        if transcribe is None:
            return ""
        frames = [each for each in caller.heard_frames if each.at >= since]
        seconds = max(0.0, self._parts.now() - since)
        rate_hz = call.rate_hz
        track = await asyncio.to_thread(agent_track, frames, since, seconds, rate_hz)
        return await transcribe(track.samples, rate_hz)


UNNUMBERED = -1
"""Number of an action that is no step of the scenario."""


def _awaits(persona: Persona) -> Await:
    return Await(Wait(quiet_s=persona.quiet_s, limit_s=PERSONA_WAIT_S), UNNUMBERED)
