"""Generations and their rows: launch, collection, output. No torch.

A frame's audio is launched before it is known to be the end; then it is dropped.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3tts_engine.base import EndReason, PcmChunk
from qwen3tts_engine.qwen3.engine.completion import CompletionForecast, LaunchedWork, size_class
from qwen3tts_engine.qwen3.engine.jobs import IN_SLOT, Job, JobEvent, JobState
from qwen3tts_engine.qwen3.faults import non_finite_error, one_by_one, public_error, safe_traceback
from qwen3tts_engine.qwen3.kernels.step_runner import (
    DecodeFault,
    DecodeRow,
    PrefillRow,
    PrefixCache,
    PrefixStore,
    ReadyTicket,
    StepRow,
    StepRunner,
    Ticket,
)
from qwen3tts_engine.qwen3.model.config import NOT_FINITE, Samples
from qwen3tts_engine.scheduler import Scheduler
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_engine.qwen3.model.prompt import Prompt

log = logging.getLogger(__name__)

PREFIX_POSITIONS = 32
"""Shortest prompt prefix that is cached where a prefill follows; restoring a shorter one costs as
much as computing it."""


@dataclass(slots=True)
class _Stepped:
    ticket: Ticket
    jobs: list[Job]
    work: LaunchedWork


@dataclass(slots=True)
class _Decoded:
    ticket: Ticket
    rows: list[tuple[Job, DecodeRow]]
    steps: int
    """Steps launched before it: the codes of its frames are among theirs."""
    work: LaunchedWork


@dataclass(frozen=True, slots=True)
class _Keep:
    store: PrefixStore
    key: Hashable
    length: int


class Batch:
    def __init__(
        self,
        runner: StepRunner,
        scheduler: Scheduler,
        *,
        code_eos: int,
        embed: Callable[[Prompt, Any | None], Any],
        prefixes: PrefixCache,
        clock: Callable[[], float],
    ) -> None:
        """Start empty; ``code_eos``: EOS of code 0; ``embed``: Qwen3Model.embed."""
        self.jobs: list[Job] = []
        """Unfinished generations."""
        self._runner = runner
        self._scheduler = scheduler
        self._code_eos = code_eos
        self._embed = embed
        self._prefixes = prefixes
        self._clock = clock
        self._free = list(range(runner.slots))
        self._steps: deque[_Stepped] = deque()
        self._steps_launched = 0
        self._decodes: deque[_Decoded] = deque()
        self._forecast = CompletionForecast()
        self._last_step: LaunchedWork | None = None
        self._last_decode: LaunchedWork | None = None
        self._prefilled = 0
        """Rows prefilled since the last step."""

    @property
    def steps_under_way(self) -> int:
        return len(self._steps)

    @property
    def waits(self) -> bool:
        return bool(self._steps or self._decodes)

    # --- rows ---

    def prefill(self, jobs: Sequence[Job]) -> None:
        rows: list[tuple[Job, PrefillRow]] = []
        keeps: dict[Job, _Keep] = {}
        for job in jobs:
            job.slot = self._free.pop()
            job.mark("slot", self._clock())
            try:
                row, keep = self._row(job)
            except Exception as error:
                self.fail_row(job, error)
                continue
            rows.append((job, row))
            if keep is not None:
                keeps[job] = keep
        if not rows:
            return
        try:
            self._runner.prefill([row for _, row in rows])
        except Exception as error:
            log.exception("prefill failed")
            good, bad = one_by_one(rows, lambda each: self._runner.prefill([each[1]]))
            self._reject(bad, alone=len(rows) == 1 or bool(good), error=error)
            rows = [each for each, _ in good]
        self._prefilled += len(rows)
        for job, _ in rows:
            job.mark("prefill", self._clock())
            try:
                if job in keeps:
                    self._keep(job, keeps[job])
                job.postprocessor = job.make_postprocessor()
            except Exception as error:
                self.fail_row(job, error)
                continue
            job.move(JobEvent.PREFILL)
            self._scheduler.prefilled(job, job.slot)
            if not job.has_text:
                job.move(JobEvent.STARVE)

    def _row(self, job: Job) -> tuple[PrefillRow, _Keep | None]:
        prompt, speaker = job.prompt, job.speaker
        assert prompt is not None
        prefix: Any | None = None
        cut = prompt.prefix
        position = self._last_position(prompt)
        if position is not None or PREFIX_POSITIONS <= cut < len(prompt.text):
            head = replace(prompt, text=prompt.text[:cut], codec=prompt.codec[:cut])
            key = (speaker.key, head.text, head.codec)
            kept = self._prefixes if speaker.prefixes is None else speaker.prefixes
            prefix = kept.get(key)
            if prefix is None and position is not None:
                # The prefill of the whole prompt computes it as well.
                embeds = self._embed(prompt, speaker.x_vector)
                keep = _Keep(kept, key, cut)
                return PrefillRow(job.slot, embeds, job.sampling, job.seed, speaker.codec), keep
            if prefix is None:
                prefix = self._runner.prefill_prefix(job.slot, self._embed(head, speaker.x_vector))
                kept.put(key, prefix)
            prompt = replace(prompt, text=prompt.text[cut:], codec=prompt.codec[cut:])
        embeds = None if position is not None else self._embed(prompt, speaker.x_vector)
        made = PrefillRow(job.slot, embeds, job.sampling, job.seed, speaker.codec, prefix, position)
        return made, None

    def _keep(self, job: Job, keep: _Keep) -> None:
        # Of several rows that are admitted together, the first keeps it.
        if keep.store.get(keep.key) is None:
            keep.store.put(keep.key, self._runner.snapshot_prefix(job.slot, keep.length))

    def _last_position(self, prompt: Prompt) -> tuple[int, int] | None:
        if not self._runner.steps_prompts or not 0 < prompt.prefix == len(prompt.text) - 1:
            return None
        text, code = prompt.text[-1], prompt.codec[-1]
        return (text, code) if isinstance(code, int) and text >= 0 else None

    def step(self, jobs: Sequence[Job]) -> None:
        rows: list[tuple[Job, StepRow]] = []
        for job in jobs:
            text = job.next_text() if job.state is JobState.RUNNING else None
            if text is not None:
                rows.append((job, StepRow(job.slot, text, job.eos_allowed())))
        if not rows:
            return
        try:
            self._stepped(self._runner.step([row for _, row in rows]), [job for job, _ in rows])
        except Exception as error:
            log.exception("a step failed")
            good, bad = one_by_one(rows, lambda each: self._runner.step([each[1]]))
            for (job, _), ticket in good:
                self._stepped(ticket, [job])
            self._reject(bad, alone=len(rows) == 1 or bool(good), error=error)

    def _stepped(self, ticket: Ticket, jobs: list[Job]) -> None:
        now = self._clock()
        key = ("codes", size_class(len(jobs)), size_class(self._prefilled))
        self._last_step = self._forecast.launch(key, now, self._last_step)
        self._prefilled = 0
        self._steps.append(_Stepped(ticket, jobs, self._last_step))
        self._steps_launched += 1
        for job in jobs:
            job.launched += 1
            self._scheduler.stepped(job, now)
            if job.launched >= job.limit(self._runner.positions):
                # Its positions, or the frames that its text can last, are used up.
                self._last_frame(job, "frame_cap", job.launched)
            else:
                self.feed(job)

    def _last_frame(self, job: Job, end: EndReason, total: int) -> None:
        job.end = end
        job.total = total
        if job.state is not JobState.DRAINING:
            job.move(JobEvent.LAST_FRAME)
        self._scheduler.ended(job, total)
        self._finish_if_out(job)

    # --- results ---

    def collect(self, steps: int, *, all_sound: bool) -> None:
        """Collect the oldest ``steps`` steps, and results that are ready.

        ``all_sound``: wait for it.
        """
        while True:
            stepped = self._steps[0] if self._steps else None
            decoded = self._next_decoded()
            if decoded is not None and decoded.ticket.ready:
                self._deliver(waited=False)
            elif stepped is not None and stepped.ticket.ready:
                self._collect_step(waited=False)
                steps -= 1
            elif decoded is not None and self._is_next(decoded, stepped, steps, all_sound):
                self._deliver(waited=True)
            elif stepped is not None and steps > 0:
                self._collect_step(waited=True)
                steps -= 1
            else:
                return

    def _next_decoded(self) -> _Decoded | None:
        if not self._decodes:
            return None
        decoded = self._decodes[0]
        return decoded if decoded.steps <= self._steps_launched - len(self._steps) else None

    def _is_next(
        self, decoded: _Decoded, stepped: _Stepped | None, steps: int, all_sound: bool
    ) -> bool:
        if stepped is None or steps <= 0:
            return all_sound
        forecast = self._forecast
        return forecast.expected_end(decoded.work) <= forecast.expected_end(stepped.work)

    def _collect_step(self, *, waited: bool) -> None:
        stepped = self._steps.popleft()
        frames = stepped.ticket.wait()
        self._forecast.finished(stepped.work, self._clock(), waited=waited)
        for job, frame in zip(stepped.jobs, frames, strict=True):
            if job.state not in IN_SLOT or job.total == len(job.codes):
                # Cancelled meanwhile, or a frame behind the end.
                continue
            job.mark("first_codes", self._clock())
            if frame[0] == NOT_FINITE:
                self.fail(job, non_finite_error())
            elif frame[0] == self._code_eos:
                self._last_frame(job, "dry" if job.track.timed_out else "text_end", len(job.codes))
            elif (total := job.add(frame)) is not None:
                self._last_frame(job, "repeated", total)

    def _deliver(self, *, waited: bool) -> None:
        decoded = self._decodes.popleft()
        try:
            sounds = decoded.ticket.wait()
        except DecodeFault as error:
            log.exception("a decode failed")
            self._decode_again(decoded.rows, error)
            return
        self._forecast.finished(decoded.work, self._clock(), waited=waited)
        for (job, row), samples in zip(decoded.rows, sounds, strict=True):
            # What a fault before it caused to be made again has been delivered.
            if job.state in IN_SLOT and row.first_frame >= job.decoded:
                self._scheduler.decoded(job, row.frames, self._clock())
                self._sound(job, row, samples)

    # --- sound ---

    def decode(self, wanted: Sequence[tuple[Job, int]]) -> None:
        by_frames: dict[int, list[tuple[Job, DecodeRow]]] = {}
        for job, frames in wanted:
            row = DecodeRow(job.slot, job.decodes_launched, frames)
            job.decodes_launched += frames
            by_frames.setdefault(frames, []).append((job, row))
        for rows in by_frames.values():
            try:
                ticket = self._runner.decode([row for _, row in rows])
            except Exception as error:
                log.exception("a decode failed")
                self._replay(rows, error)
            else:
                self._decoding(ticket, rows, self._steps_launched)

    def _decoding(self, ticket: Ticket, rows: list[tuple[Job, DecodeRow]], steps: int) -> None:
        key = ("sound", size_class(sum(row.frames for _, row in rows)))
        self._last_decode = self._forecast.launch(
            key, self._clock(), self._last_step, self._last_decode
        )
        self._decodes.append(_Decoded(ticket, rows, steps, self._last_decode))

    def _decode_again(self, rows: list[tuple[Job, DecodeRow]], error: Exception) -> None:
        lost = [
            (job, replace(row, frames=job.decodes_launched - row.first_frame))
            for job, row in rows
            if job.state in IN_SLOT and row.first_frame >= job.decoded
        ]
        later = list(self._decodes)
        self._decodes.clear()
        self._replay(lost, error)
        # In the order of a row's frames.
        self._decodes.extend(later)

    def _replay(self, rows: list[tuple[Job, DecodeRow]], error: Exception) -> None:
        while self._steps:
            self._collect_step(waited=True)

        def again(each: tuple[Job, DecodeRow]) -> Samples:
            job, row = each
            codes = np.stack(job.codes[: row.first_frame + row.frames])
            samples = self._runner.replay(job.slot, job.speaker.codec, codes)
            frame = len(samples) // len(codes)
            # Frames behind the end have no codes here, and their sound is dropped.
            sound = np.zeros((1, row.frames * frame), np.float32)
            new = samples[row.first_frame * frame :]
            sound[0, : len(new)] = new
            return sound

        alive = [each for each in rows if each[0].state in IN_SLOT]
        good, bad = one_by_one(alive, again)
        for each, samples in good:
            self._decoding(ReadyTicket(samples), [each], 0)
        self._reject(bad, alone=len(rows) == 1 or bool(good), error=error)

    def _sound(self, job: Job, row: DecodeRow, samples: Samples) -> None:
        assert job.postprocessor is not None
        job.decoded += row.frames
        if job.total is not None and job.decoded > job.total:
            samples = samples[: len(samples) * (job.total - row.first_frame) // row.frames]
        try:
            chunk, silence = job.postprocessor.process(job, samples)
        except Exception as error:
            self.fail_row(job, error)
            return
        if chunk is not None:
            self._put(job, chunk)
        if silence:
            # It continues in silence after its text: the rest is not awaited.
            job.end = "silence"
            self.finish(job)
        else:
            self._finish_if_out(job)

    def _put(self, job: Job, chunk: PcmChunk) -> None:
        if job.lead is not None:
            job.lead.made(chunk.samples)
        job.output.put(chunk)

    # --- ends ---

    def _finish_if_out(self, job: Job) -> None:
        if job.total is not None and job.total <= job.decoded:
            self.finish(job)

    def finish(self, job: Job, *, silent: bool = False) -> None:
        try:
            last = (
                PcmChunk(b"", end=job.end)
                if job.postprocessor is None
                else job.postprocessor.finish(job)
            )
        except Exception as error:
            self.fail_row(job, error)
            return
        if not silent:
            self._put(job, last)
        job.output.finish(None)
        self.release(job)

    def fail(self, job: Job, error: SpeechError) -> None:
        job.output.finish(error)
        self.release(job)

    def fail_row(self, job: Job, error: Exception) -> None:
        if not isinstance(error, SpeechError):
            log.error("a generation failed\n%s", safe_traceback(error))
        self.fail(job, public_error(error))

    def release(self, job: Job) -> None:
        self._scheduler.remove(job)
        if job.slot >= 0:
            self._runner.free(job.slot)
            self._free.append(job.slot)
            job.slot = -1
        job.track.close()
        job.move(JobEvent.FINISH)
        self.jobs.remove(job)

    def _reject(
        self, bad: Sequence[tuple[tuple[Job, Any], Exception]], *, alone: bool, error: Exception
    ) -> None:
        if bad and not alone:
            raise error
        for (job, _), each in bad:
            self.fail_row(job, each)

    def feed(self, job: Job) -> None:
        there = job.next_text() is not None
        if there is job.has_text:
            return
        job.has_text = there
        self._scheduler.text(job, there)
        if job.state is not JobState.WAITING:
            job.move(JobEvent.FEED if there else JobEvent.STARVE)

    def recover(self, error: Exception) -> None:
        log.error("the engine restarts after a fault\n%s", safe_traceback(error))
        self._steps.clear()
        self._decodes.clear()
        self._last_step = self._last_decode = None
        self._prefixes.clear()
        reason = public_error(error)
        for job in list(self.jobs):
            self.fail(job, reason)
        self._runner.reset()

    def abandon(self, reason: SpeechError) -> None:
        for job in self.jobs:
            job.track.close()
            job.output.finish(reason)
        self.jobs.clear()
