"""Arrivals and calls of `due` at any time, early or late."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_pacer.core import PacerCore
from qwen3tts_pacer.policy import FillingPolicy
from qwen3tts_pacer.slot import Frame, Kind, Slot
from qwen3tts_pacer.states import ContextError
from tests.pacer.playing import PTIME, SILENCE, frames

WAITS = st.floats(0.0, 0.3) | st.floats(0.0, 0.02) | st.just(0.0)
LATENESS = st.just(0.0) | st.floats(0.0, 0.02) | st.floats(0.0, 0.5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), WAITS),
        st.tuples(st.just("push"), st.integers(1, 6)),
        st.tuples(st.just("next"), st.booleans()),
        st.tuples(st.just("finish"), st.none()),
        st.tuples(st.just("late frames"), st.integers(1, 3)),
        st.tuples(st.just("interrupt"), st.none()),
        st.tuples(st.just("hold"), WAITS),
    ),
    max_size=40,
)


@dataclass
class Call:
    """Drives a core and writes down everything."""

    core: PacerCore
    lateness: list[float]
    now: float = 0.0
    context: int = 0
    finished: bool = True
    pushed: dict[int, list[Frame]] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)
    cut: int = 0
    sent: list[tuple[float, Slot]] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    """How many slots had been sent at each interruption."""

    def ask_until(self, end: float) -> None:
        while (deadline := self.core.next_deadline()) is not None and deadline <= end:
            late = self.lateness.pop(0) if self.lateness else 0.0
            self.now = max(self.now, deadline + late)
            slot = self.core.due(self.now)
            if slot is not None:
                self.sent.append((self.now, slot))
        self.now = max(self.now, end)

    def step(self, name: str, value: object) -> None:
        if name == "wait" and isinstance(value, float):
            self.ask_until(self.now + value)
        elif name == "push" and isinstance(value, int):
            if self.finished:
                self.step("next", True)
            had = self.pushed[self.context]
            new = frames(self.context, len(had), value)
            assert self.core.push(new, self.now) == value
            had += new
        elif name == "next":
            if value and not self.finished:
                self.core.finish(self.context, self.now)
            self.context += 1
            self.finished = False
            self.pushed[self.context] = []
            assert self.core.begin(self.context, self.now)
        elif name == "finish" and not self.finished:
            self.core.finish(self.context, self.now)
            self.finished = True
        elif name == "late frames" and self.cut and isinstance(value, int):
            old = frames(self.cut, 100, value)
            assert self.core.push(old, self.now) == 0
            self.core.finish(self.cut, self.now)
            assert not self.core.begin(self.cut, self.now)
        elif name == "interrupt":
            got = self.core.interrupt(self.now)
            for each in got.contexts:
                self.dropped[each.context] = each.frames
                played = len(self.pushed[each.context]) - each.frames
                assert each.played == played * 480
                assert each.samples == each.frames * 480
            self.cut, self.finished = self.context, True
            self.cuts.append(len(self.sent))
        elif name == "hold" and isinstance(value, float):
            self.core.hold(self.now)
            assert self.core.next_deadline() is None
            assert self.core.due(self.now + value) is None
            self.now += value
            self.core.resume(self.now)

    def end(self) -> None:
        """Finish and let everything play."""
        self.step("finish", None)
        self.lateness.clear()
        left = sum(len(each) for each in self.pushed.values())
        self.ask_until(self.now + (left + 30) * PTIME)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    continuous = draw(st.booleans())
    core = PacerCore(
        PTIME,
        FillingPolicy(),
        silence=SILENCE,
        continuous=continuous,
        rephase=not continuous and draw(st.booleans()),
    )
    core.start(0.0, origin=draw(st.sampled_from([0.0, 0.007, 1e-9])))
    call = Call(core, draw(st.lists(LATENESS, max_size=60)))
    for name, value in draw(STEPS):
        call.step(name, value)
    call.end()
    return call


@given(calls())
@settings(deadline=None, max_examples=150)
def test_no_two_slots_go_out_in_a_burst(call: Call) -> None:
    for (before, _), (after, _) in zip(call.sent, call.sent[1:], strict=False):
        assert after - before >= PTIME / 2 - 1e-9
    for n in range(0, len(call.sent), 7):
        begin, _ = call.sent[n]
        assert all(
            at - begin > (count - 1) * PTIME - 1e-9
            for count, (at, _) in enumerate(call.sent[n + 1 :], 1)
        )


@given(calls())
@settings(deadline=None, max_examples=150)
def test_the_timestamp_is_the_time(call: Call) -> None:
    total = 0
    first: float | None = None
    for at, slot in call.sent:
        if first is None:
            first = slot.deadline
            assert slot.ticks == 0
        else:
            assert slot.ticks >= 1
        total += slot.ticks
        assert -1e-9 <= at - slot.deadline < PTIME + 1e-9
        # A rephased grid may lie up to one slot beside the first.
        assert abs(slot.deadline - first - total * PTIME) < PTIME + 1e-6
        if not call.core._rephase:
            assert slot.deadline == pytest.approx(first + total * PTIME, abs=1e-6)


@given(calls())
@settings(deadline=None, max_examples=150)
def test_the_marker_follows_every_break_and_nothing_else(call: Call) -> None:
    for n, (_, slot) in enumerate(call.sent):
        if n == 0:
            assert slot.marker is not call.core.continuous
        else:
            assert slot.marker is (slot.ticks != 1)


@given(calls())
@settings(deadline=None, max_examples=150)
def test_every_frame_is_played_once_in_order_or_named_as_dropped(call: Call) -> None:
    played: dict[int, list[Frame]] = {context: [] for context in call.pushed}
    order = []
    for _, slot in call.sent:
        if slot.frame is not None:
            played[slot.frame.context].append(slot.frame)
            order.append(slot.frame.context)
    assert order == sorted(order)
    for context, pushed in call.pushed.items():
        kept = len(pushed) - call.dropped.get(context, 0)
        assert played[context] == pushed[:kept]
    assert call.core.queued == 0


@given(calls())
@settings(deadline=None, max_examples=150)
def test_after_an_interruption_nothing_of_before_is_played(call: Call) -> None:
    for cut in call.cuts:
        older = {slot.frame.context for _, slot in call.sent[:cut] if slot.frame is not None}
        newer = {slot.frame.context for _, slot in call.sent[cut:] if slot.frame is not None}
        assert not older & newer
        if cut < len(call.sent):
            assert call.sent[cut][1].kind in {Kind.FADE, Kind.SILENCE} or newer


@given(calls())
@settings(deadline=None, max_examples=150)
def test_fades_stand_where_speech_and_silence_meet(call: Call) -> None:
    before: Slot | None = None
    open_contexts: set[int] = set()
    for _, slot in call.sent:
        joined = before is not None and before.kind is Kind.SPEECH and slot.ticks == 1
        if slot.kind is Kind.FADE:
            assert joined
            assert before is not None
            assert before.frame is not None
            assert slot.payload == before.frame.tail
        elif slot.kind is Kind.SILENCE:
            assert slot.payload == SILENCE
            assert not joined
        else:
            assert slot.frame is not None
            resumed = slot.frame.context in open_contexts and not joined
            assert slot.payload == (slot.frame.head if resumed else slot.frame.payload)
            open_contexts.add(slot.frame.context)
        before = slot


@given(st.lists(st.tuples(st.sampled_from(["begin", "push", "finish", "cut"]), st.integers(0, 5))))
@settings(deadline=None, max_examples=150)
def test_a_callers_mistake_is_an_error_that_changes_nothing(
    steps: list[tuple[str, int]],
) -> None:
    core = PacerCore(PTIME, FillingPolicy(), silence=SILENCE)
    core.start(0.0)
    for n, (name, context) in enumerate(steps):
        now = n * 0.01
        before = (core.state, core.queued, core.next_deadline())
        try:
            if name == "begin":
                core.begin(context, now)
            elif name == "push":
                core.push(frames(context, n * 4, 2), now)
            elif name == "finish":
                core.finish(context, now)
            else:
                core.interrupt(now)
        except ContextError:
            assert (core.state, core.queued, core.next_deadline()) == before
        core.due(now)
    core.interrupt(10.0)
    assert core.queued == 0


@given(
    st.integers(0, 10),
    st.lists(st.tuples(st.floats(0.0, 0.3), st.integers(1, 8)), min_size=1, max_size=20),
    st.lists(st.floats(0.0, 0.4), max_size=40),
    st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_a_lead_is_never_exceeded_and_loses_nothing(
    lead: int, arrivals: list[tuple[float, int]], lateness: list[float], continuous: bool
) -> None:
    core = PacerCore(
        PTIME, FillingPolicy(), silence=SILENCE, lead_s=lead * PTIME, continuous=continuous
    )
    core.start(0.0)
    call = Call(core, lateness)
    call.step("next", True)
    for wait, count in arrivals:
        call.ask_until(call.now + wait)
        call.step("push", count)
    call.end()
    for at, slot in call.sent:
        assert slot.deadline - lead * PTIME - 1e-9 <= at < slot.deadline + PTIME + 1e-9
    deadlines = [slot.deadline for _, slot in call.sent]
    assert deadlines == sorted(set(deadlines))
    played = [slot.frame for _, slot in call.sent if slot.frame is not None]
    assert played == call.pushed[1]
