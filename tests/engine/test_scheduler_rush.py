"""Slots full of rows that rest or wait for their readers, and somebody who wants one."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.schedule_row import FRAME_S, FRAME_SAMPLES
from qwen3tts_engine.scheduler import Scheduler, SchedulerSettings

NEW = "new"
KINDS = ("paced", "unsent", "held listener", "stalled reader")


@dataclass
class Speaker:
    kind: str
    frames: int
    lead: PlayoutLead = field(default_factory=PlayoutLead)
    made: int = 0
    chunks: list[int] = field(default_factory=list)

    def hears(self, frames: int, now: float) -> None:
        self.chunks.append(frames)
        self.lead.made(frames * FRAME_SAMPLES)
        if self.kind != "unsent":
            self.lead.sent(frames * FRAME_SAMPLES, now)
        if self.kind == "held listener":
            self.lead.report(0, False, now)


class House:
    """A device that does all that is planned in ``turn_s``, and never idles without need."""

    def __init__(self, slots: int) -> None:
        self.scheduler = Scheduler(SchedulerSettings(slots=slots))
        self.speakers: dict[str, Speaker] = {}
        self.prefilled: list[str] = []
        self.now = 100.0

    def admit(self, name: str, speaker: Speaker) -> None:
        self.speakers[name] = speaker
        self.scheduler.admit(name, speaker.lead, self.now)

    def turn(self) -> bool:
        """Whether there was anything to do."""
        scheduler, now = self.scheduler, self.now
        plan = scheduler.plan(now)
        for job in plan.prefills:
            scheduler.prefilled(job)
            self.prefilled.append(str(job))
        for job, frames in plan.decodes:
            scheduler.decoded(job, frames, now)
            speaker = self.speakers[str(job)]
            speaker.hears(frames, now)
            scheduler.held(job, speaker.kind == "stalled reader" and sum(speaker.chunks) > 3)
        for job in plan.steps:
            speaker = self.speakers[str(job)]
            speaker.made += 1
            scheduler.stepped(job, now)
            if speaker.made == speaker.frames:
                scheduler.ended(job)
        for name in list(self.speakers):
            if scheduler.finished(name):
                scheduler.remove(name)
        self.now += 0.001
        return bool(plan)

    def settle(self) -> None:
        for _ in range(1000):
            if not self.turn():
                return


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(min_value=20, max_value=120)),
        min_size=1,
        max_size=4,
    )
)
def test_nobody_waits_behind_rows_that_rest(rows: list[tuple[str, int]]) -> None:
    house = House(len(rows))
    for index, (kind, frames) in enumerate(rows):
        house.admit(f"{kind} {index}", Speaker(kind, frames))
    house.settle()
    house.admit(NEW, Speaker("paced", 5))
    turns = 0
    while NEW not in house.prefilled:
        house.turn()
        turns += 1
        # One turn a frame of the shortest, and a few for the last of its sound.
        assert turns < min(frames for _, frames in rows) + 30
    house.settle()
    for speaker in house.speakers.values():
        assert sum(speaker.chunks) <= speaker.made <= speaker.frames


def test_a_clause_whose_listener_has_enough_hurries_nobody() -> None:
    house = House(1)
    house.admit("speaks", Speaker("paced", 100))
    house.settle()
    next_clause = Speaker("paced", 100)
    next_clause.hears(9, house.now)
    house.admit(NEW, next_clause)
    house.settle()
    assert house.speakers["speaks"].made * FRAME_S < 1.2
    # But once the listener needs it.
    house.now += 0.2
    for _ in range(150):
        house.turn()
    assert NEW in house.prefilled


def test_who_waits_for_text_himself_hurries_nobody() -> None:
    house = House(1)
    house.admit("speaks", Speaker("paced", 100))
    house.settle()
    house.admit(NEW, Speaker("paced", 100))
    house.scheduler.text(NEW, False)
    house.settle()
    assert house.speakers["speaks"].made * FRAME_S < 1.2
