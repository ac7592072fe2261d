"""An engine of stated costs and listeners that play in real time, on a clock of numbers."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from qwen3tts_engine.playout import SAMPLE_RATE, PlayoutLead
from qwen3tts_engine.schedule_row import FRAME_S, FRAME_SAMPLES
from qwen3tts_engine.scheduler import Scheduler
from qwen3tts_wire.errors import ServerBusy


@dataclass(frozen=True)
class Costs:
    """Seconds of one device that does one thing at a time."""

    prefill_s: float = 0.003
    """A batch of prefills."""
    step_s: float = 0.003
    step_row_s: float = 0.00004
    """More for each row."""
    decode_s: float = 0.0015
    """A batch of equal lengths."""
    decode_frame_s: float = 0.00015

    def step(self, rows: int) -> float:
        return self.step_s + rows * self.step_row_s

    def decode(self, frames: int) -> float:
        return self.decode_s + frames * self.decode_frame_s


@dataclass(eq=False)
class Call:
    """One utterance of so many frames, its listener, and what they saw."""

    name: int
    frames: int
    begins: float
    lead: PlayoutLead = field(default_factory=PlayoutLead)
    text: Callable[[int, float], bool] = lambda frame, now: True
    """Whether the text for a frame is there."""
    paces: bool = True
    stepped: int = 0
    heard: int = 0
    """Frames whose sound arrived."""
    chunks: list[int] = field(default_factory=list)
    first_s: float | None = None
    done_s: float | None = None
    dry_at: float = 0.0
    """When the listener runs out of what it has."""
    gaps: list[float] = field(default_factory=list)
    most_lead_s: float = 0.0
    refused: bool = False

    def hear(self, frames: int, now: float, prebuffer_s: float) -> None:
        """Sound arrives."""
        self.chunks.append(frames)
        self.heard += frames
        if self.first_s is None:
            self.first_s = now - self.begins
            self.dry_at = now + prebuffer_s
        elif now > self.dry_at:
            self.gaps.append(now - self.dry_at)
            self.dry_at = now
        self.dry_at += frames * FRAME_S
        self.most_lead_s = max(self.most_lead_s, self.dry_at - now)
        self.lead.made(frames * FRAME_SAMPLES)
        self.lead.sent(frames * FRAME_SAMPLES, now)


class Simulation:
    """Runs calls to their end."""

    def __init__(
        self, scheduler: Scheduler, costs: Costs | None = None, prebuffer_s: float = 0.0
    ) -> None:
        self.scheduler = scheduler
        self.costs = costs or Costs()
        self.now = 0.0
        self.turns = 0
        self.busy_s = 0.0
        self.step_rows: list[int] = []
        self.decode_rows: list[int] = []
        self._prebuffer_s = prebuffer_s
        self._running: list[Call] = []

    def run(self, calls: Sequence[Call], limit: int = 1_000_000) -> None:
        """Until all calls have been said."""
        order = itertools.count()
        coming = [(call.begins, next(order), call) for call in calls]
        heapq.heapify(coming)
        while coming or self._running:
            limit -= 1
            assert limit > 0, "it goes on for ever"
            while coming and coming[0][0] <= self.now:
                self._admit(heapq.heappop(coming)[2])
            for call in self._running:
                self.scheduler.text(call, call.text(call.stepped, self.now))
            if not self._turn():
                wake = self.scheduler.next_wake(self.now)
                assert wake is None or wake > self.now, "work is promised and not given"
                times = [each for each in (wake, coming[0][0] if coming else None) if each]
                if any(call.text is not Call.text for call in self._running):
                    times.append(self.now + 0.005)
                assert times or not self._running, "nothing will wake it"
                if times:
                    self.now = min(times)

    def _admit(self, call: Call) -> None:
        try:
            self.scheduler.admit(call, call.lead if call.paces else None, self.now)
            self._running.append(call)
        except ServerBusy:
            call.refused = True

    def _turn(self) -> bool:
        plan = self.scheduler.plan(self.now)
        if not plan:
            return False
        began = self.now
        self.turns += 1
        if plan.prefills:
            self.now += self.costs.prefill_s
            for job in plan.prefills:
                self.scheduler.prefilled(job)
        by_length: dict[int, list[Call]] = {}
        for job, frames in plan.decodes:
            assert isinstance(job, Call)
            by_length.setdefault(frames, []).append(job)
        for frames, rows in by_length.items():
            self.now += self.costs.decode(frames * len(rows))
            self.decode_rows.append(len(rows))
            for call in rows:
                call.hear(frames, self.now, self._prebuffer_s)
                self.scheduler.decoded(call, frames, self.now)
        if plan.steps:
            self.now += self.costs.step(len(plan.steps))
            self.step_rows.append(len(plan.steps))
            for job in plan.steps:
                assert isinstance(job, Call)
                job.stepped += 1
                self.scheduler.stepped(job, self.now)
                if job.stepped == job.frames:
                    self.scheduler.ended(job)
                else:
                    self.scheduler.text(job, job.text(job.stepped, self.now))
        for call in [each for each in self._running if self.scheduler.finished(each)]:
            self.scheduler.remove(call)
            self._running.remove(call)
            call.done_s = self.now - call.begins
            assert call.heard == call.frames
        self.busy_s += self.now - began
        return True


def seconds(frames: int) -> float:
    """Sound in so many frames."""
    return frames * FRAME_SAMPLES / SAMPLE_RATE
