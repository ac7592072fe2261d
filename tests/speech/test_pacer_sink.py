from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_pacer.policy import Filling
from qwen3tts_pacer.slot import Slot
from qwen3tts_speech.line import Speaker
from qwen3tts_speech.sink import CAPACITY, KEPT, FrameSink, PacerSink, Played
from tests.fakes import FakeClock, settle
from tests.pacer.playing import SAMPLES, SILENCE, At, frames
from tests.speech.fakes import FakeClient

START = 100.0


class Receiver:
    """Takes frames, notes when it got them, and does what a test wants of it."""

    def __init__(self) -> None:
        self.clock = FakeClock(START)
        self.got: list[tuple[float, str]] = []
        self.refused: list[float] = []
        self.refuse_at: int | None = None
        self.raise_at: int | None = None
        self.error: BaseException = OSError("no line")
        self.takes_s = 0.0

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.got]

    @property
    def times(self) -> list[float]:
        return [round(at - START, 6) for at, _ in self.got]

    async def write(self, payload: bytes, slot: Slot) -> bool | None:
        self.got.append((self.clock.now(), payload.decode()))
        number = len(self.got)
        if self.takes_s:
            await self.clock.sleep_until(self.clock.now() + self.takes_s)
        if number == self.raise_at:
            raise self.error
        return number != self.refuse_at


@asynccontextmanager
async def sinking(
    receiver: Receiver,
    *,
    lead_ms: int = 60,
    queued_s: float = 0.0,
    policy: Filling | None = None,
) -> AsyncIterator[PacerSink]:
    sink = PacerSink(
        receiver.write,
        silence=SILENCE,
        lead_ms=lead_ms,
        queued_s=queued_s,
        clock=receiver.clock,
        on_refused=lambda: receiver.refused.append(receiver.clock.now() - START),
        policy=policy,
    )
    yield sink
    await sink.close()


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


def say(sink: FrameSink, context: int, count: int, *, finish: bool = True) -> None:
    sink.begin(context, "voice")
    assert sink.write(frames(context, 0, count)) == count
    if finish:
        sink.finish(context)


async def test_the_first_frames_go_out_as_they_come(receiver: Receiver) -> None:
    async with sinking(receiver) as sink:
        await receiver.clock.advance(0.333)
        sink.begin(1, "voice")
        sink.write(frames(1, 0, 1))
        await settle()
        assert receiver.times == [0.333]


async def test_no_more_than_the_lead_is_handed_over_ahead(receiver: Receiver) -> None:
    async with sinking(receiver, lead_ms=60) as sink:
        say(sink, 1, 8)
        await receiver.clock.advance(1.0)
    assert receiver.times == [0.0, 0.0, 0.0, 0.0, 0.02, 0.04, 0.06, 0.08, 0.1]
    assert receiver.names[-1] == "1/7 tail"


async def test_utterances_follow_each_other_without_a_gap(receiver: Receiver) -> None:
    async with sinking(receiver, lead_ms=0) as sink:
        say(sink, 1, 2)
        say(sink, 2, 2)
        await receiver.clock.advance(0.07)
    assert receiver.names == ["1/0 speech", "1/1 speech", "2/0 speech", "2/1 speech"]
    assert receiver.times == [0.0, 0.02, 0.04, 0.06]


async def test_drained_tells_when_the_sound_went_out(receiver: Receiver) -> None:
    async with sinking(receiver, lead_ms=40) as sink:
        sink.begin(1, "voice")
        first, *others = frames(1, 0, 5)
        sink.write([first._replace(silent=True), *others])
        sink.finish(1)
        over = asyncio.ensure_future(sink.drained(1))
        await receiver.clock.advance(0.09)
        assert not over.done()
        await receiver.clock.advance(0.02)
        played = await over
        assert played == Played(
            5 * SAMPLES,
            first_at=START,
            first_audible_at=START + 0.02,
            last_at=START + 4 * 0.02,
        )
        assert sink.position(1) == 5 * SAMPLES
        assert await sink.drained(1) == played


async def test_a_dry_spell_in_the_middle_is_counted_and_measured(receiver: Receiver) -> None:
    async with sinking(receiver, lead_ms=0, policy=At()) as sink:
        sink.begin(1, "voice")
        sink.write(frames(1, 0, 2))
        await receiver.clock.advance(0.1)
        sink.write(frames(1, 2, 2))
        await receiver.clock.advance(0.07)
        sink.write(frames(1, 4, 1))
        sink.finish(1)
        await receiver.clock.advance(0.1)
        played = await sink.drained(1)
    assert played.starvations == 2
    assert played.longest_gap_s == pytest.approx(0.06)
    assert played.starved_s == pytest.approx(0.06 + 0.04)


async def test_speech_after_a_dry_spell_fades_in(receiver: Receiver) -> None:
    async with sinking(receiver, lead_ms=0, policy=At()) as sink:
        sink.begin(1, "voice")
        sink.write(frames(1, 0, 1))
        await receiver.clock.advance(0.1)
        sink.write(frames(1, 1, 1))
        await settle()
    assert receiver.names == ["1/0 speech", "1/0 tail", "1/1 head"]


async def test_the_position_is_that_at_the_ear(receiver: Receiver) -> None:
    async with sinking(receiver, lead_ms=60, queued_s=0.02) as sink:
        say(sink, 1, 8)
        await receiver.clock.advance(0.02)
        assert sink.position(1) == 0
        await receiver.clock.advance(0.03)
        assert sink.position(1) == 1.5 * SAMPLES
        assert sink.unplayed_s == pytest.approx(8 * 0.02 - 0.03)
        await receiver.clock.advance(0.13)
        assert sink.position(1) == 8 * SAMPLES
        assert sink.unplayed_s == pytest.approx(0.02, abs=0.02)
        await receiver.clock.advance(0.1)
        assert sink.unplayed_s == 0


async def test_an_interruption_tells_what_was_heard_and_what_was_dropped(
    receiver: Receiver,
) -> None:
    async with sinking(receiver, lead_ms=60) as sink:
        say(sink, 1, 10)
        say(sink, 2, 5)
        await receiver.clock.advance(0.05)
        assert len(receiver.got) == 6
        sink.interrupt()
        assert sink.unplayed_s == 0
        assert not sink.busy
        interruption = await sink.interrupted()
        await receiver.clock.advance(1.0)
        assert len(receiver.got) == 6
        assert interruption.at == START + 0.05
        assert interruption.silent_at == pytest.approx(START + 0.12)
        assert interruption.played[1].position == 2.5 * SAMPLES
        assert interruption.played[1].dropped == 4
        assert interruption.played[1].first_at == START
        assert interruption.played[2] == Played(0, 5)
        assert sink.position(1) == 2.5 * SAMPLES
        assert await sink.drained(1) == interruption.played[1]


async def test_drained_returns_when_the_context_is_interrupted(receiver: Receiver) -> None:
    async with sinking(receiver) as sink:
        say(sink, 1, 100)
        over = asyncio.ensure_future(sink.drained(1))
        await receiver.clock.advance(0.05)
        sink.interrupt()
        assert (await over).position == 2.5 * SAMPLES


async def test_what_was_heard_to_its_end_is_known_after_an_interruption(
    receiver: Receiver,
) -> None:
    async with sinking(receiver) as sink:
        say(sink, 1, 2)
        await receiver.clock.advance(0.5)
        sink.interrupt()
        assert (await sink.interrupted()).played[1].position == 2 * SAMPLES


async def test_an_interruption_of_nothing_is_told_too(receiver: Receiver) -> None:
    async with sinking(receiver) as sink:
        assert (await sink.interrupted()).at == START
        sink.interrupt()
        sink.interrupt()
        interruption = await sink.interrupted()
    assert interruption.silent_at == START
    assert not interruption.played


async def test_the_next_reply_is_clean(receiver: Receiver) -> None:
    async with sinking(receiver, lead_ms=0) as sink:
        say(sink, 1, 100, finish=False)
        await receiver.clock.advance(0.05)
        sink.interrupt()
        receiver.got.clear()
        assert sink.write(frames(1, 100, 7)) == 7
        sink.finish(1)
        say(sink, 2, 2)
        await receiver.clock.advance(0.1)
        assert receiver.names == ["2/0 speech", "2/1 speech", "2/1 tail"]
        assert (await sink.drained(2)).position == 2 * SAMPLES


async def test_nothing_follows_an_interruption_during_a_write(receiver: Receiver) -> None:
    receiver.takes_s = 0.01
    async with sinking(receiver) as sink:
        say(sink, 1, 10)
        await receiver.clock.advance(0.015)
        assert len(receiver.got) == 2
        sink.interrupt()
        await receiver.clock.advance(1.0)
        assert len(receiver.got) == 2
        assert receiver.refused == []


async def test_a_refusal_after_an_interruption_is_no_news(receiver: Receiver) -> None:
    receiver.takes_s = 0.01
    receiver.refuse_at = 1
    async with sinking(receiver) as sink:
        say(sink, 1, 10)
        await receiver.clock.advance(0.005)
        sink.interrupt()
        say(sink, 2, 1)
        await receiver.clock.advance(1.0)
        assert receiver.refused == []
        assert receiver.names == ["1/0 speech", "2/0 speech", "2/0 tail"]


async def test_a_refusal_silences_everything_and_is_told_once(receiver: Receiver) -> None:
    receiver.refuse_at = 5
    async with sinking(receiver, lead_ms=40) as sink:
        say(sink, 1, 10)
        say(sink, 2, 10)
        await receiver.clock.advance(1.0)
        assert receiver.refused == [pytest.approx(0.04)]
        assert len(receiver.got) == 5
        interruption = await sink.interrupted()
        assert interruption.silent_at == interruption.at == pytest.approx(START + 0.04)
        assert interruption.played[1].position == 2 * SAMPLES
        assert (await sink.drained(2)).position == 0
        assert sink.unplayed_s == 0
        sink.interrupt()
        assert (await sink.interrupted()).silent_at == receiver.clock.now()


async def test_after_a_refusal_a_new_reply_is_tried_again(receiver: Receiver) -> None:
    receiver.refuse_at = 1
    async with sinking(receiver) as sink:
        say(sink, 1, 3)
        await settle()
        say(sink, 2, 3)
        await receiver.clock.advance(1.0)
        assert len(receiver.refused) == 1
        assert (await sink.drained(2)).position == 3 * SAMPLES


@pytest.mark.parametrize("error", [OSError("no line"), asyncio.CancelledError()])
async def test_a_write_that_fails_counts_as_refused(
    receiver: Receiver, error: BaseException
) -> None:
    receiver.raise_at, receiver.error = 2, error
    async with sinking(receiver) as sink:
        say(sink, 1, 10)
        await settle()
        assert sink.error is error
        assert receiver.refused == [0.0]
        say(sink, 2, 2)
        await receiver.clock.advance(1.0)
        assert receiver.names[2:] == ["2/0 speech", "2/1 speech", "2/1 tail"]


async def test_a_sink_without_anyone_to_tell_falls_silent_all_the_same() -> None:
    receiver = Receiver()
    receiver.refuse_at = 1
    sink = PacerSink(receiver.write, silence=SILENCE, clock=receiver.clock)
    say(sink, 1, 10)
    await receiver.clock.advance(1.0)
    assert len(receiver.got) == 1
    await sink.close()


async def test_a_fade_that_comes_late_is_left_out(receiver: Receiver) -> None:
    receiver.takes_s = 0.03
    async with sinking(receiver, lead_ms=0, queued_s=0.005) as sink:
        say(sink, 1, 1)
        await receiver.clock.advance(0.5)
        assert receiver.names == ["1/0 speech"]


async def test_a_failure_of_whoever_is_told_does_not_end_the_pacing(receiver: Receiver) -> None:
    receiver.refuse_at = 1
    sink = PacerSink(
        receiver.write, silence=SILENCE, clock=receiver.clock, on_refused=lambda: [][0]
    )
    say(sink, 1, 3)
    await settle()
    say(sink, 2, 3)
    await receiver.clock.advance(1.0)
    assert (await sink.drained(2)).position == 3 * SAMPLES
    await sink.close()


async def test_room_is_there_again_when_frames_have_gone_out(receiver: Receiver) -> None:
    async with sinking(receiver, lead_ms=0) as sink:
        sink.begin(1, "voice")
        assert sink.write(frames(1, 0, CAPACITY + 10)) == CAPACITY
        room = asyncio.ensure_future(sink.room())
        await settle()
        assert sink.write(frames(1, CAPACITY, 10)) < 10
        await receiver.clock.advance(0.1)
        assert room.done()
        await room
        await sink.room()


async def test_frames_without_a_context_are_dropped(receiver: Receiver) -> None:
    async with sinking(receiver) as sink:
        assert sink.write([]) == 0
        assert sink.write(frames(7, 0, 3)) == 3
        assert await sink.drained(7) == Played(0)
        assert sink.position(7) == 0


async def test_a_closed_sink_takes_everything_and_plays_nothing(receiver: Receiver) -> None:
    async with sinking(receiver) as sink:
        say(sink, 1, 10)
        over = asyncio.ensure_future(sink.drained(1))
        await settle()
        await sink.close()
        await sink.close()
        assert (await over).position == 0
        receiver.got.clear()
        say(sink, 2, 3)
        await sink.room()
        assert await sink.drained(2) == Played(0)
        sink.interrupt()
        await receiver.clock.advance(1.0)
        assert receiver.got == []


async def test_closing_ends_a_write_that_hangs(receiver: Receiver) -> None:
    receiver.takes_s = 1000.0
    async with sinking(receiver) as sink:
        say(sink, 1, 10)
        await settle()
        await sink.close()
    assert len(receiver.got) == 1
    assert receiver.refused == []


async def test_the_facts_of_old_contexts_are_forgotten(receiver: Receiver) -> None:
    async with sinking(receiver, lead_ms=0) as sink:
        for context in range(1, KEPT + 3):
            say(sink, context, 1)
            await receiver.clock.advance(0.05)
            await sink.drained(context)
        sink.interrupt()
        assert len((await sink.interrupted()).played) == KEPT


class Witness(Receiver):
    """Knows of each context how often the sink had been interrupted when it began."""

    sink: PacerSink

    def __init__(self) -> None:
        super().__init__()
        self.begun: dict[int, int] = {}

    async def write(self, payload: bytes, slot: Slot) -> bool | None:
        context = int(payload.decode().partition("/")[0])
        assert self.begun[context] == self.sink.interruptions
        return await super().write(payload, slot)

    def begin(self, context: int) -> None:
        self.begun[context] = self.sink.interruptions
        self.sink.begin(context, "voice")


STEPS = st.one_of(
    st.tuples(st.sampled_from(["begin", "more"]), st.integers(1, 12)),
    st.tuples(st.sampled_from(["finish", "interrupt"]), st.just(0)),
    st.tuples(st.just("wait"), st.integers(0, 90)),
)


@given(
    steps=st.lists(STEPS, max_size=25),
    lead_ms=st.sampled_from([0, 20, 60, 200]),
    takes_s=st.sampled_from([0.0, 0.003, 0.03]),
    refuse_at=st.none() | st.integers(1, 30),
)
async def test_no_frame_is_handed_over_after_an_interruption(
    steps: list[tuple[str, int]], lead_ms: int, takes_s: float, refuse_at: int | None
) -> None:
    witness = Witness()
    witness.takes_s, witness.refuse_at = takes_s, refuse_at
    async with sinking(witness, lead_ms=lead_ms) as sink:
        witness.sink = sink
        context, written, finished = 0, 0, True
        for step, value in [*steps, ("finish", 0), ("wait", 20_000)]:
            if step in ("begin", "finish") and not finished:
                sink.finish(context)
                finished = True
            if step == "begin":
                context, written, finished = context + 1, 0, False
                witness.begin(context)
            elif step == "wait":
                await witness.clock.advance(value / 1000)
            elif step == "interrupt":
                sink.interrupt()
            elif step == "more" and not finished:
                sink.write(frames(context, written, value))
                written += value
        assert sink.error is None  # nothing came to the witness that should not have
        assert sink.unplayed_s == 0
        assert not sink.busy
        for each, begun in witness.begun.items():
            played = await sink.drained(each)
            assert sink.position(each) == played.position
            if begun == sink.interruptions:
                assert played.dropped == 0


class Link:
    """A connection that is there."""

    url = "ws://here"

    def __init__(self) -> None:
        self.there = FakeClient()

    async def client(self) -> FakeClient:
        return self.there

    async def lease(self) -> FakeClient:
        return self.there

    def release(self, client: object) -> None:
        """Nobody counts."""

    async def stalled(self, client: object) -> None:
        """Nobody asks."""


async def test_a_speaker_is_stopped_and_knows_what_was_heard(receiver: Receiver) -> None:
    link = Link()
    sink = PacerSink(
        _named(receiver), silence=PCMU.silent_frame(20), lead_ms=60, clock=receiver.clock
    )
    speaker = Speaker(link, sink, PCMU, clock=receiver.clock)  # type: ignore[arg-type]
    utterance = speaker.say("Some words to say.")
    await settle()
    (context,) = link.there.contexts
    context.start()
    context.sound(400)
    await receiver.clock.advance(0.1)
    handed_over = len(receiver.got)
    speaker.interrupt()
    await receiver.clock.advance(1.0)
    spoken = await utterance.spoken()
    assert len(receiver.got) == handed_over == 9
    assert spoken.interrupted
    assert spoken.position == pytest.approx(0.1 * 24_000, abs=SAMPLES)
    assert context.cancelled_at == [spoken.position]
    following = speaker.say("More.")
    await settle()
    link.there.contexts[1].start()
    link.there.contexts[1].sound(40)
    link.there.contexts[1].done()
    await receiver.clock.advance(1.0)
    assert (await following.spoken()).position == 40 * 24
    await sink.close()


def _named(receiver: Receiver) -> Callable[[bytes, Slot], Awaitable[bool | None]]:
    async def write(payload: bytes, slot: Slot) -> bool | None:
        return await receiver.write(b"frame", slot)

    return write


async def test_a_continuous_sink_hands_over_silence_frame_by_frame(receiver: Receiver) -> None:
    sink = PacerSink(
        receiver.write,
        silence=SILENCE,
        lead_ms=0,
        clock=receiver.clock,
        policy=At(START),
        continuous=True,
    )
    sink.start()
    await receiver.clock.advance(0.05)
    say(sink, 1, 2)
    await receiver.clock.advance(0.1)
    await sink.close()
    silent = SILENCE.decode()
    assert receiver.names == [
        silent,
        silent,
        silent,
        "1/0 speech",
        "1/1 speech",
        "1/1 tail",
        silent,
        silent,
    ]
    assert receiver.times == [round(n * 0.02, 6) for n in range(8)]


async def test_a_continuous_sink_fades_and_is_silent_after_an_interruption(
    receiver: Receiver,
) -> None:
    sink = PacerSink(
        receiver.write,
        silence=SILENCE,
        lead_ms=0,
        clock=receiver.clock,
        policy=At(START),
        continuous=True,
    )
    say(sink, 1, 50)
    await receiver.clock.advance(0.05)
    sink.interrupt()
    await receiver.clock.advance(0.05)
    await sink.close()
    assert receiver.names[:4] == ["1/0 speech", "1/1 speech", "1/2 speech", "1/2 tail"]
    assert set(receiver.names[4:]) == {SILENCE.decode()}
