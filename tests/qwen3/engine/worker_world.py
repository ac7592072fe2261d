"""A worker with fakes for the model, the readers and the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.guards import check_finite
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.qwen3.engine.jobs import Job, VoiceConditioning
from qwen3tts_engine.qwen3.engine.text_track import TextTrack
from qwen3tts_engine.qwen3.engine.worker import Worker, WorkerSettings
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, PrefixCache, StepRow
from qwen3tts_engine.qwen3.model.config import Samples
from qwen3tts_engine.scheduler import Scheduler, SchedulerSettings
from qwen3tts_text.growing import LiveText
from qwen3tts_wire.errors import SpeechError

EOS = 9000
PAD = -100
TEXT_EOS = -200
FRAME = 1920


class Letters:
    """Tokens of one letter each; what follows may still change the last of them."""

    def __init__(self) -> None:
        self._text = ""
        self._given = 0

    def push(self, text: str) -> list[tuple[int, int]]:
        self._text += text
        return self._give(len(self._text) - 1)

    def end(self) -> list[tuple[int, int]]:
        return self._give(len(self._text))

    def _give(self, up_to: int) -> list[tuple[int, int]]:
        given, self._given = self._given, max(self._given, up_to)
        return [(ord(self._text[at]), at + 1) for at in range(given, self._given)]


@dataclass(frozen=True)
class FakePrompt:
    text: tuple[int, ...]
    codec: tuple[int, ...]
    trailing: tuple[int, ...] = ()
    prefix: int = 0


class FakeTicket:
    """Done when it is let; ``wait`` forces it, as waiting for a device does."""

    def __init__(
        self, result: NDArray[Any], runner: FakeRunner, sounds: Sequence[int] = ()
    ) -> None:
        self._result = result
        self._runner = runner
        self._sounds = sounds
        """Seeds of the rows, of a decode."""

    @property
    def ready(self) -> bool:
        return self._runner.quick

    def wait(self) -> NDArray[Any]:
        self._runner.check("wait", ())
        self._runner.fails("sound", self._sounds)
        return self._result


class FakeRunner:
    """Frame f of a row has the codes (f, seed, ...); its sound is ``f + 1`` thousandths, constant.

    A row ends with frame ``frames_of[seed]`` where that may be.
    """

    positions = 200
    steps_prompts = False

    def __init__(self, slots: int = 4) -> None:
        self.slots = slots
        self.frames_of: dict[int, int] = {}
        self.rows: dict[int, PrefillRow] = {}
        self.made: dict[int, int] = {}
        self.heard: dict[int, int] = {}
        self.texts: dict[int, list[int]] = {}
        """Tokens of the text track that each row was given, by seed."""
        self.steps: list[list[int]] = []
        """Seeds of each step."""
        self.decodes: list[list[tuple[int, int, int]]] = []
        """Seed, first frame, frames of each decode."""
        self.prefixes: list[Any] = []
        self.resets = 0
        self.quick = True
        self.fails: Callable[[str, Sequence[int]], None] = lambda _what, _seeds: None
        """Raises where something is to fail; is given the seeds of the rows."""

    def running(self) -> AbstractContextManager[object]:
        return nullcontext()

    def check(self, what: str, slots: Sequence[int]) -> None:
        self.fails(what, [self.rows[slot].seed for slot in slots])

    def prefill(self, rows: Sequence[PrefillRow]) -> None:
        self.fails("prefill", [each.seed for each in rows])
        for each in rows:
            assert each.slot not in self.rows, "the slot is taken"
            self.rows[each.slot] = each
            self.made[each.slot] = self.heard[each.slot] = 0
            self.texts[each.seed] = []

    def step(self, rows: Sequence[StepRow]) -> FakeTicket:
        self.check("step", [row.slot for row in rows])
        self.steps.append([self.rows[row.slot].seed for row in rows])
        codes = np.zeros((len(rows), 16), np.int64)
        for index, row in enumerate(rows):
            seed, frame = self.rows[row.slot].seed, self.made[row.slot]
            assert len({row.slot for row in rows}) == len(rows)
            ends = row.eos_allowed and frame >= self.frames_of.get(seed, 10)
            codes[index] = (EOS if ends else frame, *[seed] * 15)
            self.texts[seed].append(row.text_id)
            self.made[row.slot] += 1
        return FakeTicket(codes, self)

    def decode(self, rows: Sequence[DecodeRow]) -> FakeTicket:
        self.check("decode", [row.slot for row in rows])
        assert len({row.frames for row in rows}) == 1
        self.decodes.append(
            [(self.rows[row.slot].seed, row.first_frame, row.frames) for row in rows]
        )
        sounds = []
        for row in rows:
            assert row.first_frame == self.heard[row.slot], "out of order"
            assert row.first_frame + row.frames <= self.made[row.slot], "not made yet"
            self.heard[row.slot] += row.frames
            sounds.append(sound_of(row.first_frame, row.frames))
        return FakeTicket(np.stack(sounds), self, [self.rows[row.slot].seed for row in rows])

    def replay(self, slot: int, codec: Any | None, codes: NDArray[np.int64]) -> Samples:
        self.check("replay", [slot])
        assert [frame[0] for frame in codes] == list(range(len(codes)))
        self.heard[slot] = len(codes)
        return sound_of(0, len(codes))

    def prefill_prefix(self, slot: int, embeds: Any) -> Any:
        self.prefixes.append(embeds)
        return Kept(embeds)

    def snapshot_prefix(self, slot: int, length: int) -> Any:
        self.prefixes.append((self.rows[slot].seed, length))
        return Kept(length)

    def free(self, slot: int) -> None:
        self.rows.pop(slot, None)

    def reset(self) -> None:
        self.check("reset", [])
        self.resets += 1
        self.rows.clear()


@dataclass(frozen=True)
class Kept:
    """A snapshot."""

    of: Any
    bytes: int = 100


def sound_of(first: int, frames: int) -> Samples:
    values = np.arange(first + 1, first + frames + 1, dtype=np.float32) / 1000
    return np.repeat(values, FRAME)


class FakePostprocessor:
    """Guards that let everything through, but for what a test wants."""

    cap = 1000
    silence_after: int | None = None

    def frame_cap(self) -> int:
        return self.cap

    def process(self, job: Job, samples: Samples) -> tuple[PcmChunk | None, bool]:
        check_finite(samples)
        pcm = np.round(samples * 1000).astype("<i2").tobytes()
        silent = self.silence_after is not None and job.decoded >= self.silence_after
        return PcmChunk(pcm), silent

    def finish(self, job: Job) -> PcmChunk:
        return PcmChunk(b"", end=job.end, marks=job.marks)


@dataclass
class FakeOutput:
    chunks: list[PcmChunk] = field(default_factory=list)
    finished: bool = False
    error: SpeechError | None = None
    read: int | None = None
    """Samples read; None: all that is put is read immediately."""
    gone: bool = False

    @property
    def unread(self) -> int:
        return 0 if self.read is None else self.samples - self.read

    @property
    def samples(self) -> int:
        return sum(chunk.samples for chunk in self.chunks)

    @property
    def frames(self) -> list[int]:
        """Numbers of the frames whose sound came, from 1."""
        pcm = np.frombuffer(b"".join(chunk.pcm for chunk in self.chunks), "<i2")
        assert len(pcm) % FRAME == 0
        return [int(value) for value in pcm[::FRAME]]

    @property
    def end(self) -> str | None:
        return self.chunks[-1].end if self.chunks else None

    def put(self, chunk: PcmChunk) -> None:
        assert not self.finished
        self.chunks.append(chunk)

    def finish(self, error: SpeechError | None) -> None:
        assert not self.finished
        self.finished, self.error = True, error


class World:
    """``say`` and then ``run``."""

    def __init__(self, slots: int = 4, **scheduling: Any) -> None:
        self.now = 100.0
        self.runner = FakeRunner(slots)
        self.scheduler = Scheduler(SchedulerSettings(slots=slots, **scheduling))
        self.voicing: Callable[[], FakePostprocessor] = FakePostprocessor
        self.embedded: list[FakePrompt] = []
        self.worker = Worker(
            self.runner,
            self.scheduler,
            WorkerSettings(code_eos=EOS),
            embed=self._embed,
            prefixes=PrefixCache(250),
            clock=lambda: self.now,
        )

    def _embed(self, prompt: Any, x_vector: Any) -> Any:
        self.embedded.append(prompt)
        return ("embeds", prompt.text)

    def job(
        self,
        text: str = "hello",
        *,
        seed: int = 0,
        more: LiveText | None = None,
        lead: PlayoutLead | None = None,
        prefix: int = 0,
        trailing: tuple[int, ...] = (),
        lay_out: Callable[[TextTrack], Any] | None = None,
        most: int | None = None,
    ) -> Job:
        def laid_out(track: TextTrack) -> Any:
            count = prefix + len(track.ids[:1] if track.streaming else track.ids)
            return FakePrompt((1,) * count, (2,) * count, trailing, prefix)

        return Job(
            track=TextTrack(SynthesisRequest(text, more=more), Letters(), most=most),
            lay_out=cast(Any, lay_out or laid_out),
            speaker=VoiceConditioning("someone"),
            sampling=cast(Any, None),
            seed=seed,
            output=FakeOutput(),
            lead=lead,
            pad=PAD,
            eos=TEXT_EOS,
            make_postprocessor=lambda: cast(Any, self.voicing()),
        )

    def say(self, text: str = "hello", **fields: Any) -> tuple[Job, FakeOutput]:
        job = self.job(text, **fields)
        self.worker.submit(job)
        return job, cast(FakeOutput, job.output)

    def turn(self) -> float | None:
        return self.worker.turn(self.now)

    def run(self, turns: int = 500) -> float | None:
        """Turn until there is nothing to do now; when there will be."""
        for _ in range(turns):
            wake = self.turn()
            if wake is None or wake > self.now:
                return wake
        raise AssertionError("it never rests")
