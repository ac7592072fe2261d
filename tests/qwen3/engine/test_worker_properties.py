"""Whatever happens in whatever order: no frame is lost, repeated or out of order, and no slot."""

from __future__ import annotations

from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.qwen3.engine.jobs import Job, JobState
from qwen3tts_text.growing import LiveText
from tests.qwen3.engine.worker_world import FakeOutput, World


class Call:
    """One generation, and what its user did with it."""

    def __init__(self, world: World, number: int, *, live: bool, paced: bool) -> None:
        self.more = LiveText() if live else None
        self.lead = PlayoutLead() if paced else None
        self.written = 3
        self.sent = 0
        self.cancelled = False
        self.job: Job = world.job("abc", seed=number, more=self.more, lead=self.lead)
        self.out = cast(FakeOutput, self.job.output)
        world.worker.submit(self.job)

    def write(self) -> None:
        if self.more is not None and not self.more.ended and self.written < 40:
            self.more.push("de", (self.written, self.written + 1, self.written + 2))
            self.written += 2

    def play(self, now: float) -> None:
        if self.lead is not None:
            self.lead.sent(self.out.samples - self.sent, now)
            self.sent = self.out.samples

    def end(self) -> None:
        if self.more is not None:
            self.more.end()


ACTIONS = st.one_of(
    st.tuples(st.just("call"), st.booleans(), st.booleans()),
    st.tuples(st.just("turn"), st.integers(1, 6)),
    st.tuples(
        st.sampled_from(["write", "end", "cancel", "stall", "read", "play"]), st.integers(0, 9)
    ),
    st.tuples(st.just("wait"), st.floats(0.01, 3.0)),
    st.tuples(st.just("quick"), st.booleans()),
)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.lists(ACTIONS, max_size=40), st.lists(st.integers(2, 60), min_size=10, max_size=10))
def test_every_call_is_said_whole_or_not_at_all(actions: list[tuple], lengths: list[int]) -> None:  # type: ignore[type-arg]
    world = World(slots=3, max_waiting=100, lead_ms=400.0)
    calls: list[Call] = []
    for name, *given_ in actions:
        call = calls[given_[0] % len(calls)] if calls and isinstance(given_[0], int) else None
        if name == "call" and len(calls) < 10:
            world.runner.frames_of[len(calls)] = lengths[len(calls)]
            calls.append(Call(world, len(calls), live=given_[0], paced=given_[1]))
        elif name == "turn":
            for _ in range(given_[0]):
                world.turn()
        elif name == "wait":
            world.now += given_[0]
        elif name == "quick":
            world.runner.quick = given_[0]
        elif call is None:
            continue
        elif name == "write":
            call.write()
        elif name == "end":
            call.end()
        elif name == "cancel":
            call.cancelled = True
            world.worker.cancel(call.job)
        elif name == "stall" and not call.out.finished:
            call.out.read = call.out.samples
        elif name == "read":
            call.out.read = None
        elif name == "play":
            call.play(world.now)
    for call in calls:
        call.out.read = None
        call.end()
    for _ in range(300):
        wake = world.run(turns=2000)
        for call in calls:
            call.play(world.now)
        if wake is None:
            break
        world.now = wake
    for number, call in enumerate(calls):
        made = call.out.frames
        assert made == list(range(1, len(made) + 1))
        if call.cancelled and not call.out.finished:
            continue
        assert call.job.state is JobState.DONE
        assert call.out.error is None
        # A row ends where the model ends it, but not before its text is in.
        assert len(made) >= max(2, min(lengths[number], 25 + 8 * 3))
        assert call.out.end in ("text_end", "dry")
    assert world.worker.under_way == 0
    assert not world.runner.rows
    assert world.scheduler.active == world.scheduler.waiting == 0
