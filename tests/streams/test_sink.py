from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_phone.streams.marks import MAX_LOST_IN_A_ROW
from qwen3tts_phone.streams.sink import StreamSink
from tests.fakes import FakeClock, settle
from tests.pacer.playing import At, frames
from tests.streams.far_end import FakeWire, PlainAdapter, Queueing

START = 100.0


class Far:
    """A sink on a wire, and a carrier at its other end."""

    def __init__(self, sink: StreamSink, wire: FakeWire, clock: FakeClock, delay_s: float) -> None:
        self.sink, self.wire, self.clock = sink, wire, clock
        self.carrier = Queueing(wire, clock, delay_s=delay_s)

    async def run(self, seconds: float) -> None:
        """Time passes; marks that come back reach the sink."""
        for _ in range(round(seconds / 0.02)):
            await self.carrier.run(0.02)
            if not self.carrier.stalled:
                self.sink.alive(self.clock.now())  # the caller's sound comes all the time
            while not self.wire._coming.empty():
                message = self.wire._coming.get_nowait()
                assert isinstance(message, str)
                self.sink.mark_returned(message.partition(" ")[2])
            await settle()

    def say(self, context: int, count: int, *, finish: bool = True) -> None:
        self.sink.begin(context, "voice")
        self.sink.write(frames(context, 0, count))
        if finish:
            self.sink.finish(context)

    @property
    def names(self) -> list[str]:
        return [sound.decode("latin-1") for _, sound in self.wire.sounds]


@asynccontextmanager
async def far(
    *, ours: bool = False, marks: bool = True, lead_ms: int = 240, delay_s: float = 0.0
) -> AsyncIterator[Far]:
    clock = FakeClock(START)
    wire = FakeWire(clock)
    sink = StreamSink(
        PlainAdapter(ours=ours, marks=marks),
        PCMU,
        wire.send,
        wire.send_now,
        lead_ms=lead_ms,
        clock=clock,
        policy=At(START) if ours else None,
    )
    yield Far(sink, wire, clock, delay_s)
    await sink.close()


async def test_no_more_than_the_lead_is_ever_queued_at_the_far_end() -> None:
    async with far(lead_ms=240) as line:
        line.say(1, 500)
        await line.run(8)
        # This carrier begins to play one frame after the first has come.
        assert 0.2 <= round(line.carrier.queued_most_s - 0.02, 6) <= 0.24


async def test_the_first_frame_goes_out_at_once() -> None:
    async with far() as line:
        line.say(1, 50)
        await settle()
        assert line.wire.sounds[0][0] == START


async def test_speech_is_heard_without_a_gap_and_in_order() -> None:
    async with far() as line:
        line.say(1, 100)
        await line.run(2.5)
        times = [at for at, _ in line.carrier.played[:100]]
        assert [round((b - a) * 1000) for a, b in pairwise(times)] == [20] * 99
        assert line.names[:100] == [f"1/{n} speech" for n in range(100)]


async def test_the_clear_goes_out_before_interrupt_returns_and_nothing_of_it_follows() -> None:
    async with far() as line:
        line.say(1, 500)
        await line.run(1)
        before = len(line.names)
        line.sink.interrupt()
        assert line.wire.messages[-1] == "clear"
        await line.run(2)
        assert len(line.names) == before
        assert line.sink.clears == 1


async def test_what_is_said_after_an_interruption_follows_the_clear() -> None:
    async with far() as line:
        line.say(1, 500)
        await line.run(1)
        line.sink.interrupt()
        line.say(2, 10)
        await line.run(1)
        after = line.wire.messages[line.wire.messages.index("clear") + 1 :]
        assert next(each for each in after if isinstance(each, bytes)) == b"2/0 speech"
        assert not any(each.startswith("1/") for each in line.names[-11:])


async def test_a_clear_is_not_sent_where_nothing_can_be_queued() -> None:
    async with far() as line:
        line.sink.interrupt()
        line.say(1, 10)
        await line.run(5)
        line.sink.interrupt()
        assert "clear" not in line.wire.messages


async def test_what_waits_for_a_far_end_that_takes_nothing_is_not_sent_after_an_interruption() -> (
    None
):
    async with far() as line:
        line.say(1, 500)
        await line.run(0.5)
        line.sink.flow(stop=True)
        before = len(line.names)
        await line.run(0.5)
        assert len(line.names) <= before + 1
        line.sink.interrupt()
        line.sink.flow(stop=False)
        await line.run(0.5)
        assert len(line.names) <= before + 1


async def test_speech_goes_on_when_the_far_end_takes_more_again() -> None:
    async with far() as line:
        line.say(1, 100)
        await line.run(0.5)
        line.sink.flow(stop=True)
        await line.run(1)
        line.sink.flow(stop=False)
        await line.run(3)
        assert [each for each in line.names if "speech" in each or "head" in each][-1].startswith(
            "1/99"
        )


async def test_the_position_is_what_the_far_end_has_played_right_to_the_mark() -> None:
    async with far(delay_s=0.1) as line:
        line.say(1, 200)
        await line.run(2)
        played = sum(sound.startswith(b"1/") for _, sound in line.carrier.played) * 480
        # The echo of a mark takes 0.1 s too, and it is of the past when it comes.
        assert played - 480 * 12 <= line.sink.position(1) <= played


async def test_a_position_never_goes_back() -> None:
    async with far(delay_s=0.06) as line:
        line.say(1, 200)
        positions = []
        for step in range(100):
            line.carrier.delay_s = 0.06 if step < 40 else 0.3
            await line.run(0.02)
            positions.append(line.sink.position(1))
        assert positions == sorted(positions)


async def test_without_marks_the_position_is_reckoned_by_the_clock() -> None:
    async with far(marks=False) as line:
        line.say(1, 200)
        await line.run(1)
        assert not any(isinstance(each, str) for each in line.wire.messages)
        assert 480 * 44 <= line.sink.position(1) <= 480 * 48


async def test_marks_that_a_clear_sends_back_are_not_taken_for_played() -> None:
    async with far() as line:
        line.say(1, 200)
        await line.run(1)
        line.sink.interrupt()
        position = line.sink.position(1)
        await line.run(0.5)
        assert line.sink.position(1) == position < 480 * 55


async def test_it_is_drained_when_the_last_mark_has_come_back() -> None:
    async with far(delay_s=0.2) as line:
        line.say(1, 50)
        drained = asyncio.ensure_future(line.sink.drained(1))
        await line.run(1.1)
        assert not drained.done()
        await line.run(0.5)
        assert drained.done()
        assert (await drained).position == 480 * 50


async def test_a_far_end_that_never_sends_marks_back_is_soon_not_waited_for() -> None:
    async with far() as line:
        line.carrier.echo = False
        for context in range(1, MAX_LOST_IN_A_ROW + 3):
            line.say(context, 10)
            await line.run(1)
        before = len(line.wire.messages)
        line.say(9, 10)
        drained = asyncio.ensure_future(line.sink.drained(9))
        await line.run(0.4)
        assert drained.done()
        assert not any(isinstance(each, str) for each in line.wire.messages[before:])


async def test_a_far_end_that_has_stalled_is_not_given_more_to_queue() -> None:
    async with far() as line:
        line.say(1, 1000)
        await line.run(2)
        before = len(line.names)
        await line.clock.advance(3)  # nothing is played meanwhile, and no mark comes
        sent = len(line.names) - before
        assert sent * 0.02 < 1.6  # without marks it would be 3 s
        await line.run(5)
        assert line.names[-1].startswith("1/")


async def test_frames_rest_after_a_clear_where_the_format_wants_it() -> None:
    async with far() as line:
        line.sink._adapter.rest_after_clear_ms = 60
        line.say(1, 100)
        await line.run(0.5)
        line.sink.interrupt()
        at = line.clock.now()
        line.say(2, 10)
        await line.run(0.5)
        first = next(at for at, sound in line.wire.sounds if sound.startswith(b"2/"))
        assert round(first - at, 3) >= 0.06


async def test_taps_are_told_of_what_was_heard_and_not_of_what_was_cleared() -> None:
    async with far() as line:
        told: list[tuple[bytes, float]] = []
        line.sink.tap(lambda payload, at: told.append((payload, at)))
        line.say(1, 200)
        await line.run(1)
        line.sink.interrupt()
        line.sink.follow()
        await line.run(1)
        line.sink.follow()
        assert [each.decode() for each, _ in told] == [f"1/{n} speech" for n in range(len(told))]
        assert len(told) == pytest.approx(50, abs=2)
        assert [round(b - a, 3) for (_, a), (_, b) in pairwise(told)] == [0.02] * (len(told) - 1)


# --- a far end that plays each frame as it comes


async def test_with_our_clock_frames_leave_one_by_one_and_silence_between_utterances() -> None:
    async with far(ours=True) as line:
        line.sink.start()
        await line.clock.advance(0.2)
        line.say(1, 5)
        await line.clock.advance(0.2)
        times = [round(at - START, 3) for at, _ in line.wire.sounds]
        assert times == [round(n * 0.02, 3) for n in range(len(times))]
        assert line.wire.sounds[0][1] == PCMU.silent_frame(20)
        assert line.wire.sounds[-1][1] == PCMU.silent_frame(20)
        assert [each for each in line.names if "speech" in each] == [
            f"1/{n} speech" for n in range(5)
        ]


async def test_with_our_clock_an_interruption_is_silent_within_one_frame() -> None:
    async with far(ours=True) as line:
        line.sink.start()
        line.say(1, 100)
        await line.clock.advance(0.5)
        line.sink.interrupt()
        at = line.clock.now()
        await line.clock.advance(0.1)
        later = [sound for when, sound in line.wire.sounds if when > at]
        assert not any(b"speech" in each for each in later)
        assert later[-1] == PCMU.silent_frame(20)
        assert line.wire.words == []


async def test_a_far_end_of_ours_that_stalls_gets_no_burst_afterwards() -> None:
    async with far(ours=True) as line:
        line.sink.start()
        line.say(1, 200)
        await line.clock.advance(0.5)
        line.wire.taking.clear()
        await line.clock.advance(1)
        line.wire.taking.set()
        at = line.clock.now()
        await line.clock.advance(0.5)
        times = [when for when, _ in line.wire.sounds if when >= at]
        assert min(b - a for a, b in pairwise(times)) > 0.009
        assert line.sink.skipped_slots > 40


async def test_after_its_end_nothing_is_sent() -> None:
    async with far() as line:
        line.say(1, 100)
        await line.run(0.2)
        await line.sink.close()
        before = len(line.wire.sounds)
        line.say(2, 10)
        await line.run(0.5)
        assert len(line.wire.sounds) == before


@pytest.mark.parametrize("stall_s", [0.1, 0.3, 0.6, 1.5, 3.5])
@pytest.mark.parametrize("lead_ms", [60, 240, 400])
async def test_after_a_stall_of_the_network_the_queue_is_no_longer_than_before(
    stall_s: float, lead_ms: int
) -> None:
    async with far(lead_ms=lead_ms, delay_s=0.04) as line:
        line.say(1, 1000)
        await line.run(2)
        line.carrier.stalled = True
        await line.run(stall_s)
        line.carrier.stalled = False
        line.carrier.queued_most_s = 0.0
        await line.run(3)
        assert line.carrier.queued_most_s <= 0.4
        line.carrier.queued_most_s = 0.0
        before = len(line.carrier.played)
        await line.run(2)
        assert line.carrier.queued_most_s <= lead_ms / 1000 + 0.08
        assert len(line.carrier.played) - before >= 98, "and it is heard without holes again"


async def test_a_far_end_that_falls_behind_by_itself_does_not_pile_up() -> None:
    async with far() as line:
        line.say(1, 1000)
        await line.run(2)
        for _ in range(5):
            line.carrier.pauses_until = line.clock.now() + 0.2
            await line.run(1)
        assert line.carrier.queued_most_s <= 0.4


async def test_marks_that_stop_coming_are_given_up_for_good_and_speech_goes_on() -> None:
    async with far() as line:
        line.say(1, 1000)
        await line.run(1)
        line.carrier.echo = False
        await line.run(5)
        before = len(line.carrier.played)
        await line.run(4)
        assert len(line.carrier.played) - before >= 190
