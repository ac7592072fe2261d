from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable

import pytest

from qwen3tts_pacer.audio_pacer import AudioPacer, Outcome, PacerClosed, SinkFailed
from qwen3tts_pacer.clock import LoopClock
from qwen3tts_pacer.core import PacerCore
from qwen3tts_pacer.slot import Kind, Slot
from qwen3tts_pacer.states import ContextError, PacerError, PacerFull
from tests.fakes import FakeClock, settle
from tests.pacer.playing import PTIME, SAMPLES, SILENCE, At, frames


class RecordingSink:
    """Takes slots, with the time; speech only unless asked for all."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.slots: list[tuple[float, Slot]] = []
        self.stop_at: int | None = None
        self.fail_at: int | None = None
        self.delay = 0.0

    @property
    def speech(self) -> list[str]:
        return [slot.payload.decode() for _, slot in self.slots if slot.kind is Kind.SPEECH]

    @property
    def times(self) -> list[float]:
        return [round(at - 100.0, 6) for at, _ in self.slots]

    def write(self, payload: bytes, slot: Slot) -> bool | Awaitable[bool | None] | None:
        self.slots.append((self.clock.now(), slot))
        if self.fail_at == len(self.slots):
            raise OSError("the socket is gone")
        if self.delay:
            return self._later()
        return self.stop_at != len(self.slots)

    async def _later(self) -> None:
        await self.clock.sleep_until(self.clock.now() + self.delay)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sink(clock: FakeClock) -> RecordingSink:
    return RecordingSink(clock)


def make(
    sink: RecordingSink,
    *,
    continuous: bool = False,
    capacity: int = 3000,
    lead_s: float = 0.0,
    start: float = 0.0,
) -> AudioPacer:
    core = PacerCore(
        PTIME,
        At(start),
        silence=SILENCE,
        continuous=continuous,
        capacity=capacity,
        lead_s=lead_s,
        rephase=not continuous,
    )
    return AudioPacer(sink, core, sink.clock)


async def test_one_frame_every_20_ms(clock: FakeClock, sink: RecordingSink) -> None:
    async with make(sink) as pacer:
        pacer.begin(1)
        pacer.push(frames(1, 0, 5))
        pacer.finish(1)
        await clock.advance(1.0)
    assert sink.times == [0.0, 0.02, 0.04, 0.06, 0.08, 0.1]
    assert sink.speech == [f"1/{n} speech" for n in range(5)]


async def test_silence_flows_when_sending_is_continuous(
    clock: FakeClock, sink: RecordingSink
) -> None:
    async with make(sink, continuous=True):
        await clock.advance(0.1)
    assert sink.times == [0.0, 0.02, 0.04, 0.06, 0.08, 0.1]


async def test_a_late_talkspurt_begins_at_once(clock: FakeClock, sink: RecordingSink) -> None:
    async with make(sink) as pacer:
        await clock.advance(0.333)
        pacer.begin(1)
        pacer.push(frames(1, 0, 1))
        await clock.advance(0.1)
    assert sink.times[0] == 0.333


async def test_frames_wake_a_pacer_that_waits_for_the_policy(
    clock: FakeClock, sink: RecordingSink
) -> None:
    async with make(sink, start=5.0) as pacer:
        pacer.begin(1)
        pacer.push(frames(1, 0, 1))
        await clock.advance(0.1)
        assert sink.slots == []
        pacer.finish(1)
        await clock.advance(0.05)
    assert sink.speech == ["1/0 speech"]


async def test_drained_returns_when_the_last_sample_is_heard(
    clock: FakeClock, sink: RecordingSink
) -> None:
    async with make(sink) as pacer:
        pacer.begin(1)
        pacer.push(frames(1, 0, 3))
        waiting = asyncio.ensure_future(pacer.drained(1))
        pacer.finish(1)
        await clock.advance(0.055)
        assert not waiting.done()
        assert pacer.position(1) == 2.75 * SAMPLES
        await clock.advance(0.006)
        assert waiting.done()
        assert await waiting is Outcome.PLAYED
        assert await pacer.drained(1) is Outcome.PLAYED
        assert pacer.position(1) == 3 * SAMPLES


async def test_an_utterance_without_a_frame_is_drained_at_once(
    clock: FakeClock, sink: RecordingSink
) -> None:
    async with make(sink) as pacer:
        pacer.begin(1)
        pacer.finish(1)
        assert await pacer.drained(1) is Outcome.PLAYED


async def test_interrupt_is_synchronous_and_leaves_one_fade(
    clock: FakeClock, sink: RecordingSink
) -> None:
    async with make(sink) as pacer:
        pacer.begin(1)
        pacer.push(frames(1, 0, 50))
        waiting = asyncio.ensure_future(pacer.drained(1))
        await clock.advance(0.05)
        got = pacer.interrupt()
        assert got.contexts == ((1, 47, 47 * SAMPLES, 3 * SAMPLES),)
        assert pacer.push(frames(1, 50, 5)) == 0
        await clock.advance(1.0)
        assert await waiting is Outcome.INTERRUPTED
        pacer.begin(1)
        assert await pacer.drained(1) is Outcome.INTERRUPTED
    assert [slot.payload for _, slot in sink.slots[3:]] == [b"1/2 tail"]
    assert pacer.dropped == got


async def test_a_sink_that_says_stop_interrupts(clock: FakeClock, sink: RecordingSink) -> None:
    sink.stop_at = 2
    async with make(sink) as pacer:
        pacer.begin(1)
        pacer.push(frames(1, 0, 9))
        waiting = asyncio.ensure_future(pacer.drained(1))
        await clock.advance(1.0)
        assert await waiting is Outcome.INTERRUPTED
        assert pacer.dropped is not None
        assert pacer.dropped.contexts[0].frames == 7
    assert len(sink.speech) == 2


async def test_an_error_of_the_sink_reaches_whoever_waits(
    clock: FakeClock, sink: RecordingSink
) -> None:
    sink.fail_at = 2
    pacer = make(sink, capacity=9)
    pacer.start()
    pacer.begin(1)
    pacer.push(frames(1, 0, 9))
    waiting = asyncio.ensure_future(pacer.drained(1))
    room = asyncio.ensure_future(pacer.room(5))
    await clock.advance(1.0)
    with pytest.raises(SinkFailed, match="the socket is gone") as caught:
        await waiting
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(SinkFailed):
        await room
    with pytest.raises(SinkFailed):
        pacer.push(frames(1, 9, 1))
    with pytest.raises(SinkFailed):
        pacer.begin(2)
    with pytest.raises(SinkFailed):
        pacer.finish(1)
    await pacer.close()
    with pytest.raises(SinkFailed):
        await pacer.drained(1)


async def test_a_sink_whose_own_task_was_cancelled_is_an_error_like_any_other(
    clock: FakeClock,
) -> None:
    class Cancelled:
        async def write(self, payload: bytes, slot: Slot) -> None:
            connection = asyncio.get_running_loop().create_future()
            connection.cancel()
            await connection

    pacer = AudioPacer(Cancelled(), PacerCore(silence=SILENCE), clock)
    pacer.start()
    pacer.begin(1)
    waiting = asyncio.ensure_future(pacer.drained(1))
    await clock.advance(0.1)
    with pytest.raises(SinkFailed, match="CancelledError"):
        await waiting
    await pacer.close()


async def test_a_sink_may_close_its_pacer(clock: FakeClock) -> None:
    class Leaving:
        written = 0

        async def write(self, payload: bytes, slot: Slot) -> None:
            self.written += 1
            await pacer.close()

    sink = Leaving()
    pacer = AudioPacer(sink, PacerCore(silence=SILENCE), clock)
    pacer.start()
    pacer.begin(1)
    waiting = asyncio.ensure_future(pacer.drained(1))
    await clock.advance(0.1)
    with pytest.raises(PacerClosed):
        await waiting
    assert sink.written == 1


async def play_and_leave(pacer: AudioPacer, clock: FakeClock) -> None:
    async with pacer:
        pacer.begin(1)
        pacer.push(frames(1, 0, 9))
        await clock.advance(1.0)


async def test_an_error_that_nobody_waited_for_is_raised_at_the_end(
    clock: FakeClock, sink: RecordingSink
) -> None:
    sink.fail_at = 2
    with pytest.raises(SinkFailed, match="the socket is gone"):
        await play_and_leave(make(sink), clock)


async def test_a_slow_sink_delays_frames_and_gets_no_burst(
    clock: FakeClock, sink: RecordingSink
) -> None:
    sink.delay = 0.07
    async with make(sink, continuous=True) as pacer:
        pacer.begin(1)
        pacer.push(frames(1, 0, 4))
        pacer.finish(1)
        await clock.advance(0.5)
    assert [slot.frame.start // SAMPLES for _, slot in sink.slots if slot.frame] == [0, 1, 2, 3]
    assert all(
        after - before >= 0.0699 for before, after in zip(sink.times, sink.times[1:], strict=False)
    )
    assert pacer.core.skipped_slots > 0


async def test_room_holds_a_producer_back(clock: FakeClock, sink: RecordingSink) -> None:
    async with make(sink, capacity=4) as pacer:
        pacer.begin(1)
        with pytest.raises(PacerFull):
            pacer.push(frames(1, 0, 5))
        with pytest.raises(PacerFull, match="never fit"):
            await pacer.room(5)

        async def produce() -> None:
            for n in range(10):
                await pacer.send(frames(1, n * 2, 2))
                assert pacer.core.queued <= 4
            pacer.finish(1)

        producing = asyncio.ensure_future(produce())
        await clock.advance(0.1)
        assert not producing.done()
        await clock.advance(1.0)
        await producing
        assert await pacer.drained(1) is Outcome.PLAYED
    assert len(sink.speech) == 20


async def test_an_interruption_makes_room(clock: FakeClock, sink: RecordingSink) -> None:
    async with make(sink, capacity=4, start=9.0) as pacer:
        pacer.begin(1)
        pacer.push(frames(1, 0, 3))
        sending = asyncio.ensure_future(pacer.send(frames(1, 3, 3)))
        await settle()
        pacer.interrupt()
        await settle()
        assert await sending == 0


async def test_a_lead_runs_ahead_and_the_ear_is_behind(
    clock: FakeClock, sink: RecordingSink
) -> None:
    async with make(sink, lead_s=0.1) as pacer:
        pacer.begin(1)
        pacer.push(frames(1, 0, 10))
        pacer.finish(1)
        await settle()
        assert len(sink.speech) == 6
        await clock.advance(0.05)
        assert len(sink.speech) == 8
        assert pacer.position(1) == 2.5 * SAMPLES
        got = pacer.interrupt()
        assert got.contexts == ((1, 2, 3600, 1200),)
        assert await pacer.drained(1) is Outcome.INTERRUPTED


async def test_with_a_lead_an_utterance_wholly_sent_can_still_be_interrupted(
    clock: FakeClock, sink: RecordingSink
) -> None:
    async with make(sink, lead_s=0.1) as pacer:
        pacer.begin(1)
        pacer.push(frames(1, 0, 4))
        pacer.finish(1)
        waiting = asyncio.ensure_future(pacer.drained(1))
        await clock.advance(0.03)
        assert len(sink.speech) == 4
        assert not waiting.done()
        got = pacer.interrupt()
        assert got.contexts == ((1, 0, 1200, 720),)
        await clock.advance(0.1)
        assert await waiting is Outcome.INTERRUPTED


@pytest.mark.parametrize("continuous", [True, False])
async def test_hold_keeps_the_queue(
    clock: FakeClock, sink: RecordingSink, continuous: bool
) -> None:
    async with make(sink, continuous=continuous) as pacer:
        pacer.begin(1)
        pacer.push(frames(1, 0, 4))
        pacer.finish(1)
        await clock.advance(0.03)
        pacer.hold()
        await clock.advance(5.0)
        assert len(sink.speech) == 2
        pacer.resume()
        await clock.advance(0.5)
    assert len(sink.speech) == 4
    assert [slot.marker for _, slot in sink.slots[1:4]] == [False, True, False]


async def test_closing_ends_every_wait(clock: FakeClock, sink: RecordingSink) -> None:
    pacer = make(sink, start=9.0)
    async with pacer:
        pacer.begin(1)
        pacer.push(frames(1, 0, 4))
        waiting = asyncio.ensure_future(pacer.drained(1))
        await settle()
    with pytest.raises(PacerClosed):
        await waiting
    with pytest.raises(PacerClosed):
        pacer.begin(2)
    await pacer.close()


async def test_an_unknown_context_is_not_waited_for(clock: FakeClock, sink: RecordingSink) -> None:
    async with make(sink) as pacer:
        with pytest.raises(ContextError, match="context 5"):
            await pacer.drained(5)


async def test_a_pacer_starts_once(clock: FakeClock, sink: RecordingSink) -> None:
    async with make(sink) as pacer:
        with pytest.raises(PacerError, match="start"):
            pacer.start()


async def test_a_long_call_keeps_bounded_records(clock: FakeClock, sink: RecordingSink) -> None:
    async with make(sink) as pacer:
        for context in range(1, 400):
            pacer.begin(context)
            pacer.push(frames(context, 0, 1))
            pacer.finish(context)
            await clock.advance(0.1)
        assert await pacer.drained(399) is Outcome.PLAYED
        assert len(pacer._outcomes) <= 256
        assert pacer._open == set()
        assert len(pacer._heard_at) <= 1
    assert len(sink.speech) == 399


async def test_the_loop_clock_never_returns_before_the_deadline() -> None:
    clock = LoopClock()
    for wait in (0.0, -1.0, 0.001, 0.0005):
        deadline = clock.now() + wait
        await clock.sleep_until(deadline)
        assert clock.now() >= deadline


def test_the_loop_clock_is_the_monotonic_clock() -> None:
    before = time.monotonic()
    now = LoopClock().now()
    assert before <= now <= time.monotonic()


def test_the_pure_parts_need_neither_asyncio_nor_numpy() -> None:
    code = (
        "import sys, qwen3tts_pacer.core, qwen3tts_pacer.policy, qwen3tts_pacer.timeline\n"
        "sys.exit(', '.join({'asyncio', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
