"""Scheduler of generations: slots, decode steps and codec chunks. Pure.

The engine's thread carries out a ``plan`` (prefills, codec decodes, one decode step for all rows
that need one), reports, and asks again. A step for one row costs nearly as much as for many, so
rows step together as soon as one needs it; a row with enough playout lead rests. New calls come
first, then the least lead. While a listener without sound waits for a slot, no row rests in one.
Only PlayoutLeads are thread-safe.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.schedule_row import (
    CODE_RING,
    EPSILON_S,
    FRAME_S,
    FRAME_SAMPLES,
    ChunkRamp,
    Row,
    RowState,
    TurnTimes,
    chunk_by_load,
)
from qwen3tts_wire.errors import ServerBusy

Job = Hashable
"""One generation, by any name."""


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    slots: int = 64
    """Jobs that run concurrently."""
    max_waiting: int = 64
    """Jobs that may wait for a slot; as many again as there are slots for contexts that already
    speak, so that their next clause is not refused."""
    lead_ms: float = 800.0
    """Audio ahead of its listener with which a row rests, where the context names none."""
    rest_ms: float = 160.0
    """A resting row must go on once its lead has fallen by this; it goes on earlier with
    others. Two frames: enough for rows of all phases to find together."""
    hurry_ms: float = 120.0
    """A row with less audio ahead gets its frames as fast as they can be made; one with more
    climbs to its lead four times as fast as it is heard, together with others, so that the device
    is free for new calls in between."""
    margin_ms: float = 200.0
    """Audio that stays with the listener while frames gather for a larger chunk."""
    ramp: tuple[int, ...] = (1, 2, 4, 8)
    """Sizes of the chunks in frames, rising; the last is the steady one."""
    initial_codec_chunk_frames: int | Literal["load"] | None = None
    """Frames in a request's first chunk: a number, by load (powers of two below the steady chunk
    by active rows over slots), or None: as few as the deadline needs."""
    max_prefills: int = 8
    """Most prefills in a plan: rows that speak get their frame in between."""
    max_rows: int | None = None
    """Most rows in a step; None: all."""
    max_decode_frames: int | None = None
    """Most frames decoded in a plan: what a new call's first frame may have to wait for. None:
    128, or the frames that one step of all slots makes, if that is more."""
    ring: int = CODE_RING
    """Frames of codes that a slot holds."""
    unreported: int = 2
    """Most frames of a row that may be in work before ``stepped`` reports them: an engine
    that runs one step ahead has launched two."""

    def __post_init__(self) -> None:
        for name in ("slots", "max_prefills", "max_decode_frames"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name}={number} must be 1 or more")
        for name in ("max_waiting", "lead_ms", "rest_ms", "hurry_ms", "margin_ms"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be 0 or more")
        if not self.ramp or self.ramp[0] < 1 or list(self.ramp) != sorted(set(self.ramp)):
            raise ValueError(f"ramp={self.ramp} must rise, from 1 or more")
        if self.ring - self.unreported < 2 * self.ramp[-1]:
            raise ValueError(f"ring={self.ring} must hold two chunks of {self.ramp[-1]} frames")
        if self.max_rows is not None and self.max_rows < 1:
            raise ValueError(f"max_rows={self.max_rows} must be 1 or more")
        initial = self.initial_codec_chunk_frames
        if isinstance(initial, int) and initial < 1:
            raise ValueError(f"initial_codec_chunk_frames={initial} must be 1 or more")


@dataclass(frozen=True, slots=True)
class Plan:
    """Work of one turn, in this order; the most urgent first."""

    prefills: tuple[Job, ...] = ()
    """Jobs to give a slot and prefill."""
    decodes: tuple[tuple[Job, int], ...] = ()
    """Jobs and how many of their next frames to decode; all of these were stepped before. A job
    stands here once at most."""
    steps: tuple[Job, ...] = ()
    """Jobs to make one frame each, those that join in this plan too."""

    def __bool__(self) -> bool:
        return bool(self.prefills or self.decodes or self.steps)


def decode_frames(slots: int) -> int:
    """Return the most frames decoded in a plan by default: a step's frames can all be decoded."""
    return max(128, slots)


CLIMB = 0.25
"""Time between the steps of rows that do not hurry, in frames."""
NAP_S = 0.002
"""No wake-up comes sooner. A listener whose sound is late on its way stands still, and would be
found a moment before its time again and again."""

__all__ = ["Job", "Plan", "Scheduler", "SchedulerSettings", "decode_frames"]


class Scheduler:
    """Jobs of one KV cache; ``now`` is monotonic seconds."""

    def __init__(self, settings: SchedulerSettings | None = None) -> None:
        self.settings = settings or SchedulerSettings()
        self._ramp = ChunkRamp(self.settings.ramp, self.settings.margin_ms / 1000)
        self._waiting: dict[Job, Row] = {}
        self._running: dict[Job, Row] = {}
        self._hurry_s = self.settings.hurry_ms / 1000
        self._calm_until = 0.0
        """Next step of rows that do not hurry."""
        self._decode_frames = self.settings.max_decode_frames or decode_frames(self.settings.slots)
        self._room = self.settings.ring - self.settings.unreported
        self._admissions = 0
        self._steps_told = 0
        self._now = 0.0
        self.times = TurnTimes()

    # --- what is known ---

    @property
    def active(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def taken(self, job: Job) -> int:
        return self._running[job].taken

    def finished(self, job: Job) -> bool:
        """Return whether a job ended and all frames are sound; it keeps its slot."""
        row = self._running.get(job)
        return row is not None and row.finished

    # --- what happens ---

    def admit(
        self,
        job: Job,
        lead: PlayoutLead | None,
        now: float,
        *,
        initial_chunk: int | None = None,
        speed: float = 1.0,
    ) -> None:
        """Admit a job.

        Args:
            job: any new hashable.
            lead: its context's; None: never paced.
            now: seconds.
            initial_chunk: frames in its first chunk, over the settings; at most half the ring.
            speed: factor on the rate at which its frames are heard.

        Raises:
            ServerBusy: all slots and places in the queue are taken.
            ValueError: the job is here already.
        """
        if job in self._waiting or job in self._running:
            raise ValueError("the job is here already")
        settings = self.settings
        bound = settings.max_waiting
        if lead is not None and lead.started:
            bound += settings.slots
        if len(self._waiting) - (settings.slots - len(self._running)) >= bound:
            raise ServerBusy(
                f"All {settings.slots} slots and {bound} places in the queue are taken.",
                remedy="Try again in a moment, or raise slots or max_waiting.",
            )
        target_s = math.inf
        if lead is not None:
            target_ms = settings.lead_ms if lead.target_ms is None else lead.target_ms
            # Less than two frames would not let one be made while another is heard.
            target_s = max(2 * FRAME_S / speed, target_ms / 1000)
        self._waiting[job] = Row(
            job=job,
            order=self._admissions,
            lead=lead or PlayoutLead(),
            frame_s=FRAME_S / speed,
            assumed=lead is None,
            target_s=target_s,
            low_s=max(target_s / 2, target_s - settings.rest_ms / 1000),
            admitted=now,
            own_chunk=None if initial_chunk is None else min(initial_chunk, settings.ring // 2),
        )
        self._admissions += 1

    def prefilled(self, job: Job, slot: int = -1) -> None:
        """Note a slot and prefill of a waiting job; chooses its first chunk."""
        row = self._waiting.pop(job, None)
        if row is None:
            return
        initial = row.own_chunk
        chosen = self.settings.initial_codec_chunk_frames
        if initial is None and chosen == "load":
            initial = chunk_by_load(len(self._running), self.settings.slots, self._ramp.steady)
        elif initial is None and isinstance(chosen, int):
            initial = min(chosen, self.settings.ring // 2)
        self._running[job] = row
        row.state = RowState.RUNNING
        row.look(self._now)
        self._ramp.open(row, initial)

    def text(self, job: Job, available: bool) -> None:
        if row := self._row(job):
            row.has_text = available

    def held(self, job: Job, held: bool) -> None:
        if row := self._row(job):
            row.held = held

    def stepped(self, job: Job, now: float, frames: int = 1) -> None:
        """Note that a job's next frame is in its ring before any later decode."""
        row = self._running.get(job)
        if row is None or row.whole:
            return
        row.stepped += frames
        row.last_step = self._steps_told
        self._steps_told += 1

    def ended(self, job: Job, frames: int | None = None) -> None:
        """Note that a job makes no more frames.

        Args:
            job: the job.
            frames: how many of its frames are sound; None: all, those of a later ``stepped`` too.
                Those given to decode count; the caller drops the surplus.
        """
        row = self._running.get(job)
        if row is None:
            return
        row.state = RowState.DRAINING
        if frames is not None:
            row.whole = True
            row.stepped = max(row.taken, min(row.stepped, frames))

    def decoded(self, job: Job, frames: int, now: float) -> None:
        row = self._running.get(job)
        if row is None or not row.decoding:
            return
        taken, planned = row.decoding.popleft()
        if taken != frames:
            raise ValueError(f"{frames} frames arrived where {taken} were taken")
        row.arrived += frames
        self.times.decoded(now - planned)
        if row.assumed:
            heard = round(frames * row.frame_s / FRAME_S * FRAME_SAMPLES)
            row.lead.made(heard)
            row.lead.sent(heard, now)

    def remove(self, job: Job) -> None:
        self._waiting.pop(job, None)
        self._running.pop(job, None)

    def _row(self, job: Job) -> Row | None:
        return self._running.get(job) or self._waiting.get(job)

    # --- what to do ---

    def plan(self, now: float) -> Plan:
        self._now = now
        self.times.turn(now)
        self._look(now)
        prefills = self._prefills(now)
        steps = self._steps(prefills, now)
        plan = Plan(
            prefills=tuple(row.job for row in prefills),
            decodes=self._take_decodes(now),
            steps=tuple(row.job for row in steps),
        )
        if steps:
            self._calm_until = now + CLIMB * FRAME_S - EPSILON_S
        if plan:
            self.times.began(now)
        return plan

    def decodes_now(self, now: float) -> tuple[tuple[Job, int], ...]:
        self._look(now)
        return self._take_decodes(now)

    def next_wake(self, now: float) -> float | None:
        """Return when a plan will have work without events; None: never."""
        self.times.turn(now)
        self._look(now)
        if self._prefills(now) or self._steps([], now) or self._decodes(now):
            return now
        times: list[float | None] = []
        for row in self._running.values():
            # What only the lead keeps from a step.
            if row.can_step(self._room):
                wanted = row.falls_to(row.low_s, now)
                if wanted is not None:
                    times.append(max(wanted, self._calm_until))
                times.append(row.falls_to(min(row.low_s, self._hurry_s), now))
            if row.undecoded and not row.stalled:
                times.append(self._ramp.due_at(row, self.times.latency_s, now))
        earliest = min((each for each in times if each is not None), default=None)
        return None if earliest is None else max(earliest, now + NAP_S)

    def _look(self, now: float) -> None:
        for row in self._waiting.values():
            row.look(now)
        full = len(self._running) >= self.settings.slots
        rushed = full and any(row.has_text and row.wants_step() for row in self._waiting.values())
        for row in self._running.values():
            row.look(now)
            row.rushed = rushed

    # --- prefills ---

    def _prefills(self, now: float) -> list[Row]:
        free = min(self.settings.slots - len(self._running), self.settings.max_prefills)
        if free <= 0 or not self._waiting:
            return []
        for row in self._waiting.values():
            self._note_silence(row, now)
        return sorted(self._waiting.values(), key=_prefill_rank)[:free]

    def _note_silence(self, row: Row, now: float) -> None:
        if not row.silent:
            row.dry_since = None
        elif row.dry_since is None:
            row.dry_since = now if row.lead.started else row.admitted

    # --- steps ---

    def _steps(self, prefills: list[Row], now: float) -> list[Row]:
        rows = [row for row in (*self._running.values(), *prefills) if row.may_step(self._room)]
        calm = now >= self._calm_until
        if not any(row.hurries(self._hurry_s) or (calm and row.wants_step()) for row in rows):
            return []
        rows.sort(key=_rank)
        return rows[: self.settings.max_rows]

    # --- decodes ---

    def _take_decodes(self, now: float) -> tuple[tuple[Job, int], ...]:
        decodes = self._decodes(now)
        for row, frames in decodes:
            self._ramp.take(row, frames, now)
        return tuple((row.job, frames) for row, frames in decodes)

    def _decodes(self, now: float) -> list[tuple[Row, int]]:
        latency_s = self.times.latency_s
        first_awaited = False
        urgent: list[tuple[Row, int]] = []
        ripe: list[tuple[Row, int]] = []
        for row in self._running.values():
            may_step = row.may_step(self._room)
            frames = self._ramp.ready(row, latency_s, may_step)
            if frames == 0:
                first_awaited |= row.unheard and may_step and not row.decided
                continue
            if row.ripe_since is None:
                row.ripe_since = now
            # A whole chunk that is not due waits while a new call is about to sound, but not long.
            patient = now - row.ripe_since < self.settings.margin_ms / 2000
            first_awaited |= row.unheard
            if patient and not row.unheard and not self._ramp.due(row, latency_s):
                ripe.append((row, frames))
            else:
                urgent.append((row, frames))
        chosen = sorted(urgent, key=lambda pair: _rank(pair[0]))
        if not first_awaited:
            chosen += sorted(ripe, key=lambda pair: _rank(pair[0]))
        return self._bounded(chosen)

    def _bounded(self, decodes: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
        total = 0
        for index, (_, frames) in enumerate(decodes):
            total += frames
            if total > self._decode_frames and index > 0:
                return decodes[:index]
        return decodes


def _rank(row: Row) -> tuple[bool, float, int, int]:
    return not row.unheard, 0.0 if row.unheard else row.reach_s, row.last_step, row.order


def _prefill_rank(row: Row) -> tuple[bool, float, int]:
    if row.dry_since is not None:
        return False, row.dry_since, row.order
    return True, row.reach_s, row.order
