"""Calls on the real worker: random weights speak for as long as they are told to."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.guards import LeadingTrim, SilenceCut, SoundGuard
from qwen3tts_engine.pause_aligner import PauseAligner
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.qwen3.engine.jobs import Job, SpeechPostprocessor, VoiceConditioning
from qwen3tts_engine.qwen3.engine.text_track import TextTrack
from qwen3tts_engine.qwen3.engine.worker import Worker, WorkerSettings
from qwen3tts_engine.qwen3.kernels.step_runner import PrefixCache, StepRunner
from qwen3tts_engine.qwen3.model.config import FRAME_SAMPLES, ModelConfig
from qwen3tts_engine.qwen3.model.prompt import Layout, Prompt, Reference, build_prompt
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.scheduler import Scheduler, SchedulerSettings
from qwen3tts_wire.errors import SpeechError

FRAME_S = 0.08
SAMPLE_RATE = 24_000
TOKENS_PER_S = 4
"""Tokens a second of speech; the length of an utterance's text."""
CHARS_PER_TOKEN = 4
PREBUFFER_S = 0.04
SENTENCE = "We are happy that you called, and will be with you in a moment. "


class PromptModel(Protocol):
    """What a load needs of a model: a Qwen3Model, or one without weights."""

    config: ModelConfig

    def embed(self, prompt: Prompt, *, x_vector: Any | None = None) -> Any:
        """See Qwen3Model."""
        ...


class Tokens:
    """A token for every few characters; which, does not matter to random weights."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._left = ""
        self._end = 0

    def push(self, text: str) -> list[tuple[int, int]]:
        """See text_track.TokenStream."""
        self._left += text
        found = []
        while len(self._left) >= CHARS_PER_TOKEN:
            found.append(self._token(CHARS_PER_TOKEN))
        return found

    def end(self) -> list[tuple[int, int]]:
        """See text_track.TokenStream."""
        return [self._token(len(self._left))] if self._left else []

    def _token(self, size: int) -> tuple[int, int]:
        text, self._left = self._left[:size], self._left[size:]
        self._end += size
        return sum(map(ord, text)) * 31 % self._vocab, self._end


class LongVoicing(SpeechPostprocessor):
    """Ends after a given number of frames."""

    frames = 0

    def frame_cap(self) -> int:
        """See Voicing."""
        return self.frames


class LongJob(Job):
    """Never ends by itself."""

    def eos_allowed(self) -> bool:
        """See Job."""
        return False


@dataclass
class Call:
    """One utterance, and the output that receives it."""

    frames: int
    asked: float
    lead: PlayoutLead | None
    heard: list[tuple[float, int]] = field(default_factory=list)
    """Arrival times of samples."""
    marks: dict[str, float] = field(default_factory=dict)
    error: SpeechError | None = None
    over: threading.Event = field(default_factory=threading.Event)
    began: threading.Event = field(default_factory=threading.Event)
    unread: int = 0
    gone: bool = False
    clock: Callable[[], float] = time.monotonic
    on_sound: Callable[[Call, PcmChunk], None] | None = None

    def put(self, chunk: PcmChunk) -> None:
        """See jobs.Outlet."""
        now = self.clock()
        if chunk.samples:
            self.heard.append((now, chunk.samples))
            if self.lead is not None:
                # A session sends immediately what it gets.
                self.lead.sent(chunk.samples, now)
            self.marks.update(chunk.marks)
            self.began.set()
            if self.on_sound is not None:
                self.on_sound(self, chunk)

    def finish(self, error: SpeechError | None) -> None:
        """See jobs.Outlet."""
        self.error = error
        self.over.set()
        self.began.set()

    def audible(self, silent: int) -> list[tuple[float, int]]:
        """The same without the first ``silent`` frames."""
        left, found = silent * FRAME_SAMPLES, []
        for at, samples in self.heard:
            kept = max(0, samples - left)
            left -= samples - kept
            if kept:
                found.append((at, kept))
        return found

    def first_ms(self, silent: int) -> float:
        """From the request to the first audible sample."""
        return 1e3 * (self.audible(silent)[0][0] - self.asked)

    def has_gap(self, silent: int) -> bool:
        """True if a listener who waits PREBUFFER_S after the first audio ever has nothing."""
        heard = self.audible(silent)
        start, played = heard[0][0] + PREBUFFER_S, 0
        for at, samples in heard:
            if at > start + played / SAMPLE_RATE:
                return True
            played += samples
        return False


@dataclass(frozen=True, slots=True)
class Clone:
    """A cloned voice: what it is kept as, and the recording that it goes on from."""

    speaker: VoiceConditioning
    reference: Reference | None


class Load:
    """A worker over a runner, in a thread of its own.

    Args:
        model: makes the prompts.
        runner: the device.
        seed: of the lengths and times.
        clock: seconds; a virtual device has its own.
        scheduling: None: as many slots as the runner has.
        prefix_bytes: bound of the cached prompt prefixes.
        layout: of the prompts.
        trim: drop leading silence, as the product does.
    """

    def __init__(
        self,
        model: PromptModel,
        runner: StepRunner,
        *,
        seed: int = 1,
        clock: Callable[[], float] = time.monotonic,
        scheduling: SchedulerSettings | None = None,
        prefix_bytes: int = 0,
        layout: Layout = "full",
        trim: bool = False,
    ) -> None:
        self.model, self.runner, self.layout, self._trim = model, runner, layout, trim
        self.clone: Clone | None = None
        """Voice of the calls; None: the first speaker of the checkpoint."""
        self.on_sound: Callable[[Call, PcmChunk], None] | None = None
        """Called by the engine's thread with each chunk of a call."""
        self._draw = random.Random(seed)
        self._clock = clock
        settings = scheduling or SchedulerSettings(slots=runner.slots, max_waiting=1024)
        self.worker = Worker(
            runner,
            Scheduler(settings),
            WorkerSettings(code_eos=model.config.talker.ids.eos, unread_samples=1 << 40),
            embed=lambda prompt, x_vector: model.embed(prompt, x_vector=x_vector),
            prefixes=PrefixCache(prefix_bytes),
            clock=clock,
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """The thread runs within."""
        thread = threading.Thread(target=self.worker.run, name="engine", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.worker.close()
            thread.join(timeout=30)

    def call(self, seconds: float, *, paced: bool = True) -> tuple[Call, Job]:
        """Ask for an utterance of this length, now."""
        frames = max(4, round(seconds / FRAME_S))
        lead = PlayoutLead() if paced else None
        size = max(8, round(seconds * TOKENS_PER_S) * CHARS_PER_TOKEN)
        text = (SENTENCE * (size // len(SENTENCE) + 1))[:size]
        call = Call(frames, self._clock(), lead, clock=self._clock, on_sound=self.on_sound)
        job = self._job(text, call)
        self.worker.submit(job)
        return call, job

    def _job(self, text: str, call: Call) -> Job:
        model = self.model
        ids = model.config.text_ids
        track = TextTrack(SynthesisRequest(text), Tokens(model.config.talker.text_vocab))
        speakers = sorted(model.config.talker.speakers)

        clone = self.clone

        def lay_out(track: TextTrack) -> Prompt:
            if clone is None:
                return build_prompt(
                    model.config, text_ids=track.ids, speaker=speakers[0], layout=self.layout
                )
            return build_prompt(
                replace(model.config, task="base"),
                text_ids=track.ids,
                has_x_vector=True,
                layout=self.layout,
                reference=clone.reference,
            )

        def voice() -> SpeechPostprocessor:
            guard = SoundGuard(
                LeadingTrim(heard=not self._trim), SilenceCut(after_s=1e6, onset_s=1e6)
            )
            voicing = LongVoicing(track, guard, PauseAligner(dropped=lambda: guard.dropped))
            voicing.frames = call.frames
            return voicing

        made: dict[str, Any] = {
            "track": track,
            "lay_out": lay_out,
            "speaker": VoiceConditioning(speakers[0]) if clone is None else clone.speaker,
            "sampling": Sampling(),
            "seed": self._draw.getrandbits(62),
            "output": call,
            "lead": call.lead,
            "pad": ids.tts_pad,
            "eos": ids.tts_eos,
            "make_postprocessor": voice,
        }
        return LongJob(**made)

    # --- kinds of load ---

    def one_by_one(self, count: int) -> list[Call]:
        """Calls on an idle engine; each is hung up after a second."""
        calls = []
        for _ in range(count):
            call, job = self.call(4.0)
            call.began.wait(30)
            self.worker.cancel(job)
            while self.worker.under_way:
                time.sleep(0.002)
            # Not in step with anything.
            time.sleep(self._draw.uniform(0.005, 0.03))
            calls.append(call)
        return calls

    def poisson(self, rate: float, seconds: float, lengths: tuple[float, float]) -> list[Call]:
        """Open loop: requests come whether or not earlier ones are done."""
        calls, due = [], time.monotonic()
        end = due + seconds
        while True:
            due += self._draw.expovariate(rate)
            if due >= end:
                break
            time.sleep(max(0.0, due - time.monotonic()))
            calls.append(self.call(self._draw.uniform(*lengths))[0])
        for call in calls:
            call.over.wait(60)
        return calls

    def at_once(
        self, count: int, seconds: float, lengths: tuple[float, float], *, paced: bool
    ) -> list[Call]:
        """Closed loop: so many speak all the time. They begin spread over a second."""
        calls: list[Call] = []
        live: list[Call] = []
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            live = [call for call in live if not call.over.is_set()]
            share = (time.monotonic() - began) / 1.0 if paced else 1.0
            while len(live) < min(count, 1 + int(share * count)):
                call, _ = self.call(self._draw.uniform(*lengths), paced=paced)
                live.append(call)
                calls.append(call)
                if paced:
                    break
            time.sleep(0.001)
        return calls

    def stop(self, calls: list[Call]) -> None:
        """Wait until all is quiet."""
        for call in calls:
            call.over.wait(60)
