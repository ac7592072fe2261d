"""Whatever happens to the jobs: each frame becomes sound once, in order, and none waits forever."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from qwen3tts_engine.playout import SAMPLE_RATE, PlayoutLead
from qwen3tts_engine.schedule_row import CODE_RING, FRAME_S, FRAME_SAMPLES
from qwen3tts_engine.scheduler import Plan, Scheduler, SchedulerSettings, decode_frames
from qwen3tts_wire.errors import ServerBusy

SLOTS = 3
MAX_WAITING = 2
RAMP = (1, 2, 4, 8)


@dataclass(eq=False)
class Context:
    """A listener, and the jobs that speak to it one after the other."""

    lead: PlayoutLead
    holds: bool = False

    def hears(self, samples: int, now: float) -> None:
        self.lead.made(samples)
        self.lead.sent(samples, now)


@dataclass(eq=False)
class Speech:
    """What a job must come to."""

    context: Context
    paced: bool
    frames: int
    text: int
    """Frames whose text has come."""
    prefilled: bool = False
    launched: int = 0
    """Frames stepped, of which the scheduler may not know."""
    told: int = 0
    taken: int = 0
    decoding: deque[int] = field(default_factory=deque)
    sound: list[int] = field(default_factory=list)
    """Frames that became sound, by number."""
    held: bool = False
    silent_frames: int = 0
    """Leading frames of which no sound is given out."""
    own_chunk: int | None = None

    @property
    def new(self) -> bool:
        """Whether its context was never heard and nothing is on the way."""
        if not self.paced:
            return not self.sound and not self.decoding
        return not self.context.lead.started and not self.decoding


class Jobs(RuleBasedStateMachine):
    """Calls come, go, starve, stall and report as they like; the device takes its time."""

    speeches: Bundle[Speech] = Bundle("speeches")
    said: Bundle[Context] = Bundle("said")

    @initialize(
        initial=st.sampled_from((None, "load", 3)),
        max_rows=st.sampled_from((None, 1, 2)),
        ahead=st.integers(0, 2),
    )
    def begin(self, initial: int | str | None, max_rows: int | None, ahead: int) -> None:
        self.settings = SchedulerSettings(
            slots=SLOTS,
            max_waiting=MAX_WAITING,
            max_rows=max_rows,
            max_prefills=2,
            max_decode_frames=8,
            ramp=RAMP,
            initial_codec_chunk_frames=initial,  # type: ignore[arg-type]
        )
        self.scheduler = Scheduler(self.settings)
        self.now = 100.0
        self.ahead = ahead
        """Steps that are launched before the codes of the first are known."""
        self.stuck = False
        """Whether no decode arrives."""
        self.here: dict[int, Speech] = {}
        self.numbers = 0

    # --- what may happen ---

    def _admit(self, speech: Speech) -> bool:
        waiting = self.scheduler.waiting - (SLOTS - self.scheduler.active)
        lead = speech.context.lead if speech.paced else None
        known = lead is not None and lead.started
        bound = MAX_WAITING + (SLOTS if known else 0)
        self.numbers += 1
        try:
            self.scheduler.admit(self.numbers, lead, self.now, initial_chunk=speech.own_chunk)
        except ServerBusy:
            assert waiting >= bound
            return False
        assert waiting < bound
        self.here[self.numbers] = speech
        return True

    @rule(
        target=speeches,
        frames=st.integers(1, 60),
        target_ms=st.sampled_from((None, 0.0, 200.0, 2000.0)),
        paced=st.booleans(),
        silent=st.sampled_from((0, 0, 0, 3)),
        own=st.sampled_from((None, None, 1, 5, 40)),
    )
    def call(
        self, frames: int, target_ms: float | None, paced: bool, silent: int, own: int | None
    ) -> Speech:
        context = Context(PlayoutLead(target_ms))
        speech = Speech(context, paced, frames, frames, silent_frames=silent, own_chunk=own)
        self._admit(speech)
        return speech

    @rule(target=said, speech=consumes(speeches))
    def a_clause_was_said(self, speech: Speech) -> Any:
        over = self._number(speech) is None and speech.paced
        return speech.context if over else multiple()

    @rule(target=speeches, context=consumes(said), frames=st.integers(1, 60))
    def next_clause(self, context: Context, frames: int) -> Speech:
        speech = Speech(context, True, frames, frames)
        self._admit(speech)
        return speech

    def _number(self, speech: Speech) -> int | None:
        return next((number for number, each in self.here.items() if each is speech), None)

    @rule(speech=speeches, frames=st.integers(0, 3))
    def the_text_runs_dry(self, speech: Speech, frames: int) -> None:
        speech.text = min(speech.text, speech.launched + frames)
        self._feed(speech)

    @rule(speech=speeches, frames=st.integers(1, 20))
    def more_text_comes(self, speech: Speech, frames: int) -> None:
        speech.text = min(speech.frames, speech.text + frames)
        self._feed(speech)

    def _feed(self, speech: Speech) -> None:
        number = self._number(speech)
        if number is not None:
            self.scheduler.text(number, speech.launched < speech.text)

    @rule(speech=speeches, held=st.booleans())
    def the_reader_stalls(self, speech: Speech, held: bool) -> None:
        number = self._number(speech)
        if number is not None:
            speech.held = held
            self.scheduler.held(number, held)

    @rule(speech=speeches, back=st.floats(0, 0.5), holds=st.booleans())
    def the_listener_reports(self, speech: Speech, back: float, holds: bool) -> None:
        lead = speech.context.lead
        speech.context.holds = holds
        lead.report(lead.played(self.now) - int(back * SAMPLE_RATE), not holds, self.now)

    @rule(speech=speeches)
    def it_is_cancelled(self, speech: Speech) -> None:
        number = self._number(speech)
        if number is not None:
            self.scheduler.remove(number)
            del self.here[number]
            # What the device still had in work is reported, and changes nothing.
            self.scheduler.stepped(number, self.now)
            self.scheduler.decoded(number, 4, self.now)
            self.scheduler.ended(number)

    @rule(stuck=st.booleans())
    def the_codec_stalls(self, stuck: bool) -> None:
        self.stuck = stuck

    @rule(took=st.sampled_from((0.0, 0.001, 0.004, 0.05, 0.3)))
    def a_turn(self, took: float) -> None:
        self.turn(took)

    @rule(turns=st.integers(1, 30))
    def many_turns(self, turns: int) -> None:
        for _ in range(turns):
            self.turn(0.003)

    @rule(seconds=st.floats(0, 2))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # --- the engine ---

    def turn(self, took: float) -> Plan:
        wake = self.scheduler.next_wake(self.now)
        full = self.scheduler.active == SLOTS
        waits = any(each.text and not each.prefilled for each in self.here.values())
        plan = self.scheduler.plan(self.now)
        assert bool(plan) == (wake == self.now), "next_wake promises what plan gives"
        self._check(plan, rush=full and waits)
        for number in plan.prefills:
            assert isinstance(number, int)
            self.scheduler.prefilled(number)
            self.here[number].prefilled = True
        for number, frames in plan.decodes:
            assert isinstance(number, int)
            speech = self.here[number]
            speech.taken += frames
            speech.decoding.append(frames)
            assert self.scheduler.taken(number) == speech.taken
        for number in plan.steps:
            assert isinstance(number, int)
            self._step(number)
        self.now += took
        for number in list(self.here):
            self._collect(number)
        return plan

    def _step(self, number: int) -> None:
        speech = self.here[number]
        if speech.launched < min(speech.frames, speech.text):
            speech.launched += 1
        self._feed(speech)
        if speech.launched == speech.frames and self.ahead:
            self.scheduler.ended(number)  # a frame cap: codes of launched frames still come

    def _collect(self, number: int) -> None:
        speech = self.here[number]
        if speech.prefilled:
            known = speech.launched - min(self.ahead, speech.frames - speech.launched)
            for _ in range(max(0, known - speech.told)):
                self.scheduler.stepped(number, self.now)
                speech.told += 1
            if speech.told == speech.frames:
                self.scheduler.ended(number, speech.frames)
        if speech.decoding and not self.stuck:
            frames = speech.decoding.popleft()
            first = len(speech.sound)
            speech.sound.extend(range(first, first + frames))
            heard = sum(1 for each in range(first, first + frames) if each >= speech.silent_frames)
            if speech.paced and heard:
                speech.context.hears(heard * FRAME_SAMPLES, self.now)
            self.scheduler.decoded(number, frames, self.now)
        if self.scheduler.finished(number) and speech.told == speech.frames:
            assert speech.sound == list(range(speech.frames))
            self.scheduler.remove(number)
            del self.here[number]

    # --- what must hold ---

    def _target_s(self, speech: Speech) -> float:
        target_ms = speech.context.lead.target_ms
        return max(2 * FRAME_S, (800.0 if target_ms is None else target_ms) / 1000)

    def _check(self, plan: Plan, *, rush: bool) -> None:
        """``rush``: somebody waits for a slot, so rows may run to their end to give theirs up,
        whatever their lead and whether or not they are read."""
        speeches = self.here
        assert len(set(plan.prefills)) == len(plan.prefills)
        assert len(set(plan.steps)) == len(plan.steps)
        decoded = [number for number, _ in plan.decodes]
        assert len(set(decoded)) == len(decoded)
        assert {*plan.prefills, *plan.steps, *decoded} <= set(speeches), "it left"
        assert self.scheduler.active + len(plan.prefills) <= SLOTS
        assert len(plan.prefills) <= self.settings.max_prefills
        assert len(plan.steps) <= (self.settings.max_rows or SLOTS)
        for number, frames in plan.decodes:
            speech = speeches[number]  # type: ignore[index]
            assert speech.prefilled
            assert rush or not speech.held
            assert 0 < frames <= speech.told - speech.taken, "only what was stepped"
            assert frames in RAMP or (speech.taken == 0 and frames in (3, 5, CODE_RING // 2))
        total = sum(frames for _, frames in plan.decodes)
        most = self.settings.max_decode_frames or decode_frames(SLOTS)
        assert total <= most or len(decoded) == 1
        for number in plan.steps:
            speech = speeches[number]  # type: ignore[index]
            assert speech.prefilled or number in plan.prefills
            assert rush or not speech.held
            assert speech.launched < speech.text, "a starved row skips the step"
            lead_s = speech.context.lead.seconds(self.now)
            rests = speech.paced and lead_s > self._target_s(speech)
            assert rush or not rests, "a paced row rests"
        news = [speeches[number].new for number in plan.steps]  # type: ignore[index]
        assert news == sorted(news, reverse=True), "new calls first"

    @invariant()
    def the_ring_holds_what_is_not_yet_sound(self) -> None:
        for speech in getattr(self, "here", {}).values():
            assert speech.launched - len(speech.sound) <= CODE_RING

    def teardown(self) -> None:
        """Once text comes, readers read and listeners listen, everything is said."""
        if not hasattr(self, "here"):
            return
        self.stuck = False
        for number, speech in self.here.items():
            speech.text = speech.frames
            speech.held = False
            self.scheduler.held(number, False)
            self._feed(speech)
            lead = speech.context.lead
            lead.report(lead.played(self.now), True, self.now)
        for _ in range(5000):
            if not self.here:
                break
            if self.turn(0.003) or not self.here:
                continue
            in_work = any(
                speech.decoding or speech.told < speech.launched for speech in self.here.values()
            )
            wake = self.scheduler.next_wake(self.now)
            assert in_work or wake is not None, "it waits for nothing"
            if wake is not None and not in_work:
                self.now = max(self.now, wake)
        assert not self.here, "somebody waits for ever"
        assert self.scheduler.active == self.scheduler.waiting == 0


Jobs.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


TestJobs = Jobs.TestCase
