from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from qwen3tts_pacer import Frame
from qwen3tts_pacer.memory import CallMemory, ContextSent, ContextTable, MediaWord, ParentWord
from qwen3tts_pacer.ring import (
    CONTROL_RESERVE,
    InboundFrame,
    InboundReader,
    InboundWriter,
    Outbound,
    OutboundReader,
    Record,
    RecordKind,
    RingFull,
)

SLOTS = 128


@pytest.fixture
def memory() -> Iterator[CallMemory]:
    memory = CallMemory.create(SLOTS, 16384, SLOTS, 16384)
    yield memory
    memory.close()


def frame(number: int, context: int = 1, size: int = 40) -> Frame:
    payload = number.to_bytes(4, "little") * (size // 4)
    return Frame(payload, payload[:8] + b"t", None, context, number * 480, number * 480 + 480)


def frames_of(records: list[Record]) -> list[Frame]:
    return [record[2] for record in records if record[2] is not None]


def test_what_is_written_is_read_in_order(memory: CallMemory) -> None:
    out, reader = Outbound(memory), OutboundReader(memory)
    out.begin(1, 5, key=77)
    written = [frame(number) for number in range(10)]
    assert out.write(written) == 10
    out.finish(1)
    records = reader.read(100)
    assert [record[0] for record in records] == [
        RecordKind.BEGIN,
        *[RecordKind.FRAME] * 10,
        RecordKind.FINISH,
    ]
    assert frames_of(records) == written
    assert (records[0][1], records[0][4], records[0][5]) == (1, 5, 77)
    assert reader.read(100) == []


def test_the_reader_sees_it_through_its_own_mapping(memory: CallMemory) -> None:
    other = CallMemory.attach(os.dup(memory.fd))
    Outbound(memory).write([frame(3)])
    assert frames_of(OutboundReader(other).read(8)) == [frame(3)]
    other.close()


def test_a_full_ring_accepts_no_more_and_says_how_many_it_took(memory: CallMemory) -> None:
    out, reader = Outbound(memory), OutboundReader(memory)
    accepted = out.write([frame(number, size=8) for number in range(500)])
    assert accepted == SLOTS - CONTROL_RESERVE
    assert out.write([frame(1)]) == 0
    assert not out.roomy()
    assert len(reader.read(500)) == accepted
    assert out.roomy()
    assert out.write([frame(1)]) == 1


def test_a_full_arena_accepts_no_more(memory: CallMemory) -> None:
    out = Outbound(memory)
    accepted = out.write([frame(number, size=1000) for number in range(30)])
    assert 10 < accepted <= 16
    assert out.write([frame(1, size=1000)]) == 0


def test_contexts_find_room_when_frames_do_not(memory: CallMemory) -> None:
    out = Outbound(memory)
    out.write([frame(number, size=8) for number in range(500)])
    for _ in range(CONTROL_RESERVE - 1):
        out.finish(1)
    with pytest.raises(RingFull):
        out.finish(1)


def test_an_interrupt_drops_what_was_written_and_nothing_after_it(memory: CallMemory) -> None:
    out, reader = Outbound(memory), OutboundReader(memory)
    out.begin(1, 0)
    out.write([frame(number) for number in range(20)])
    assert len(reader.read(5)) == 5
    assert out.interrupt() == 1
    out.begin(2, 1)
    out.write([frame(7, context=2)])
    assert reader.flushed()
    assert (reader.epoch, reader.through) == (1, 1)
    assert [record[1] for record in reader.read(100)] == [2, 2]
    assert not reader.flushed()


def test_two_interrupts_before_the_reader_looks_count_as_the_last(memory: CallMemory) -> None:
    out, reader = Outbound(memory), OutboundReader(memory)
    for context in (1, 2):
        out.begin(context, context)
        out.write([frame(1, context=context)])
        out.interrupt()
    assert reader.flushed()
    assert (reader.epoch, reader.through) == (2, 2)
    assert reader.read(100) == []


@pytest.mark.parametrize("payload", [b"", b"x" * 70000])
def test_a_frame_that_cannot_be_queued_is_refused(memory: CallMemory, payload: bytes) -> None:
    with pytest.raises(ValueError, match="a frame of"):
        Outbound(memory).write([Frame(payload, None, None, 1, 0, 480)])


def received(number: int, size: int = 160) -> InboundFrame:
    return InboundFrame(bytes([number % 256]) * size, 0, 160 * number, 1.5, 9, True, False)


def test_received_frames_come_out_as_they_went_in(memory: CallMemory) -> None:
    writer, reader = InboundWriter(memory), InboundReader(memory)
    frames = [received(number) for number in range(40)]
    assert all(writer.write(each) for each in frames)
    assert reader.waiting() == 40
    assert reader.read(15) + reader.read() == frames
    assert reader.read() == []


def test_a_reader_that_does_not_come_makes_the_writer_say_so(memory: CallMemory) -> None:
    writer, reader = InboundWriter(memory), InboundReader(memory)
    accepted = sum(writer.write(received(number)) for number in range(300))
    assert accepted < 300
    assert [each.timestamp for each in reader.read()] == [160 * n for n in range(accepted)]
    assert writer.write(received(1))


def test_a_timestamp_before_the_streams_first_one_comes_out_as_it_went_in(
    memory: CallMemory,
) -> None:
    writer, reader = InboundWriter(memory), InboundReader(memory)
    back = received(1)._replace(timestamp=-0x1000_0000)
    assert writer.write(back)
    assert reader.read() == [back]


def test_an_entry_is_read_as_it_was_stored(memory: CallMemory) -> None:
    table = ContextTable(memory)
    table.store(3, 12, 5, 960, 1440, 111, 222)
    table.store(4, 13, 0, 0, 0, 0, 0)
    assert table.load(3) == ContextSent(12, 5, 960, 1440, 111, 222)
    assert table.load(0) == ContextSent(0, 0, 0, 0, 0, 0)
    table.store_seldom(3, 333, 2, 7, 4)
    assert table.load(3) == ContextSent(12, 5, 960, 1440, 111, 222, 333, 2, 7, 4)
    assert table.load(4) == ContextSent(13, 0, 0, 0, 0, 0)


def test_a_writer_that_died_in_the_middle_of_an_entry_does_not_stop_the_reader(
    memory: CallMemory,
) -> None:
    ContextTable(memory).store(0, 12, 5, 960, 1440, 111, 222)
    memory.words[1024] += 1
    assert ContextTable(memory).load(0).context == 12


def test_the_words_of_the_two_sides_are_apart() -> None:
    assert max(ParentWord) < min(MediaWord)
    assert len({*ParentWord}) + len({*MediaWord}) == len(
        {int(w) for w in (*ParentWord, *MediaWord)}
    )


def test_the_memory_cannot_be_shrunk_under_the_other_side(memory: CallMemory) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(memory.fd, 4096)


@pytest.mark.parametrize("sizes", [(1, 16384), (256, 100), (256, 16385)])
def test_sizes_that_do_not_work_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="needs at least"):
        CallMemory.create(*sizes)


class Interleavings(RuleBasedStateMachine):
    """Writer and reader step in any order; a plain list says what must come out."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = CallMemory.create(SLOTS, 4096, SLOTS, 4096)
        self.out, self.reader = Outbound(self.memory), OutboundReader(self.memory)
        self.queued: list[Frame] = []
        self.number = 0

    @initialize()
    def begin(self) -> None:
        self.out.begin(1, 0)
        assert self.reader.read(1)[0][0] == RecordKind.BEGIN

    @rule(count=st.integers(1, 40), size=st.sampled_from([4, 40, 160, 320]))
    def write(self, count: int, size: int) -> None:
        empty = self.out.queued() == 0
        batch = [frame(self.number + index, size=size) for index in range(count)]
        accepted = self.out.write(batch)
        self.queued += batch[:accepted]
        self.number += accepted
        assert accepted > 0 or not empty

    @rule(limit=st.integers(1, 20))
    def read(self, limit: int) -> None:
        self.look()
        assert frames_of(self.reader.read(limit)) == self.queued[:limit]
        del self.queued[:limit]

    @rule()
    def interrupt(self) -> None:
        self.out.interrupt()
        self.queued.clear()

    @precondition(lambda self: self.out.epoch > 0)
    @rule()
    def look(self) -> None:
        self.reader.flushed()
        assert self.reader.epoch == self.out.epoch

    @invariant()
    def the_writer_knows_how_many_wait(self) -> None:
        assert self.out.queued() >= len(self.queued)

    def teardown(self) -> None:
        self.memory.close()


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


@given(st.lists(st.tuples(st.integers(1, 300), st.booleans()), max_size=200))
@settings(deadline=None)
def test_inbound_frames_of_any_sizes_survive_any_interleaving(
    steps: list[tuple[int, bool]],
) -> None:
    memory = CallMemory.create(SLOTS, 4096, SLOTS, 4096)
    writer, reader = InboundWriter(memory), InboundReader(memory)
    expected: list[InboundFrame] = []
    got: list[InboundFrame] = []
    for number, (size, read) in enumerate(steps):
        each = received(number, size)
        if writer.write(each):
            expected.append(each)
        if read:
            got += reader.read()
    assert got + reader.read() == expected
    memory.close()
