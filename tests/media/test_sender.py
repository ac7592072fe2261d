"""What goes out in which slot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from qwen3tts_codecs.g711 import decode_alaw, decode_ulaw
from qwen3tts_pacer import Frame
from qwen3tts_pacer.policy import LIVE_KEY
from qwen3tts_pacer.ring import key_number
from qwen3tts_phone.media import dtmf
from qwen3tts_phone.media.outbound import codec_number, table_between, translated
from qwen3tts_phone.media.types import RemoteMedia
from tests.media.sending import HELD, REMOTE, SILENCE, Call, frame, kinds, number_of


@pytest.fixture
def call() -> Iterator[Call]:
    call = Call()
    yield call
    call.memory.close()


def test_an_interrupt_is_heard_in_the_next_slot_as_the_fade_of_what_was_sent_last(
    call: Call,
) -> None:
    call.out.begin(1, 0)
    call.out.write([frame(1, n, position=n) for n in range(20)])
    assert number_of(call.slots(5)[-1]) == 4
    call.out.interrupt()
    fade, *rest = call.slots(4)
    assert fade.payload == b"\x02" + (4).to_bytes(4, "big") + bytes(155)
    assert {packet.payload for packet in rest} == {SILENCE}
    sent = call.table.load(0)
    assert (sent.frames, sent.end) == (5, 5 * 480)
    assert [epoch for epoch, _ in call.sender.flushed] == [1]


def test_an_interrupt_in_silence_makes_no_sound(call: Call) -> None:
    call.out.interrupt()
    assert {packet.payload for packet in call.slots(3)} == {SILENCE}


def test_the_first_sound_of_an_utterance_is_dated_by_its_first_frame_that_is_not_silent(
    call: Call,
) -> None:
    call.out.begin(1, 0)
    call.out.write([frame(1, n, position=n)._replace(silent=n < 2) for n in range(4)])
    call.slots(2)
    assert call.table.load(0).audible_ns == 0
    call.slots(1)
    third = call.table.load(0)
    assert third.audible_ns == third.last_ns > third.first_ns
    call.slots(1)
    assert call.table.load(0).audible_ns == third.audible_ns


def test_dry_spells_are_counted_for_the_utterance_that_they_are_in(call: Call) -> None:
    call.out.begin(1, 0)
    call.out.write([frame(1, n, position=n) for n in range(5)])
    call.slots(9)
    call.out.write([frame(1, n, position=n) for n in range(5, 15)])
    call.out.finish(1)
    call.out.begin(2, 1)
    call.out.write([frame(2, n, position=n - 100) for n in range(100, 105)])
    call.out.finish(2)
    call.slots(30)
    numbers = [number_of(packet) for packet in call.wire.packets]
    assert 104 in numbers
    dry = numbers.index(5) - numbers.index(4) - 1
    first, second = call.table.load(0), call.table.load(1)
    assert (first.starvations, first.starved_slots, first.longest_slots) == (1, dry, dry)
    assert (second.starvations, second.starved_slots) == (0, 0)


def test_skipped_slots_lose_no_frame_and_are_marked(call: Call) -> None:
    call.out.begin(1, 0)
    call.out.write([frame(1, n, position=n) for n in range(20)])
    call.slots(3)
    call.sender.skip(4)
    packets = call.slots(3)
    assert [number_of(packet) for packet in packets] == [3, 4, 5]
    assert kinds(packets) == [3, 1, 1]  # it fades in after the hole
    assert [packet.marker for packet in packets] == [True, False, False]
    assert packets[0].timestamp == (call.wire.packets[2].timestamp + 5 * 160) % 2**32
    assert call.sender.skipped == 4
    sent = call.table.load(0)
    assert (sent.starvations, sent.longest_slots) == (1, 4), "the caller hears it as a hole"


def test_a_slot_skipped_before_anything_was_sent_is_no_break(call: Call) -> None:
    call.sender.skip(3)
    assert not call.slots(1)[0].marker


def test_a_packet_that_cannot_be_sent_is_lost_like_one_on_the_way(call: Call) -> None:
    call.slots(1)
    call.wire.error = OSError(101, "Network is unreachable")
    call.slots(2)
    call.wire.error = None
    (packet,) = call.slots(1)
    assert packet.sequence == (call.wire.packets[0].sequence + 3) % 65536
    assert (call.sender.errors, call.sender.last_error) == (2, 101)


def test_another_payload_type_keeps_stream_and_clock(call: Call) -> None:
    (before,) = call.slots(1)
    call.sender.update(RemoteMedia("192.0.2.1", 4000, 8, "PCMA"))
    (after,) = call.slots(1)
    assert (after.payload_type, after.payload) == (8, b"\xd5" * 160)
    assert after.ssrc == before.ssrc
    assert (after.timestamp - before.timestamp) % 2**32 == 160


def test_silence_follows_a_change_of_the_codec_and_stays_on_its_grid(call: Call) -> None:
    before = call.slots(5)
    call.sender.update(RemoteMedia("192.0.2.1", 4000, payload_type=8, payload_name="PCMA"))
    after = call.slots(5)
    call.sender.skip(2)
    late = call.slots(2)
    assert {packet.payload for packet in before} == {SILENCE}
    assert {packet.payload for packet in after + late} == {b"\xd5" * 160}
    first = before[0].timestamp
    ticks = [(packet.timestamp - first) % 2**32 // 160 for packet in before + after + late]
    assert ticks == [*range(10), 12, 13]
    assert [packet.marker for packet in before + after + late] == [False] * 10 + [True, False]


def test_an_utterance_of_no_frames_is_played_at_once(call: Call) -> None:
    call.out.begin(1, 0)
    call.out.finish(1)
    call.slots(1)
    assert [context for context, _ in call.sender.played] == [1]


def test_the_policy_knows_live_sound_from_speech(call: Call) -> None:
    keys = [LIVE_KEY, "server/voice", ""]
    for context, key in enumerate(keys):
        call.out.begin(context, context, key_number(key))
        call.out.write([frame(context, n, position=n) for n in range(2)])
        call.out.finish(context)
    call.slots(10)
    learnt = call.sender.policy.export()
    assert len(learnt) == len(keys)
    assert LIVE_KEY in learnt


class Anything(RuleBasedStateMachine):
    """Whatever happens, in any order, the rules of the wire hold and no frame is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.call = Call()
        self.slot = 0
        self.context = -1
        self.finished = True
        self.position = 0
        self.written = 0
        self.condemned = 0
        self.lost: set[int] = set()
        self.heard: list[int] = []
        self.held = False
        self.checked = 0
        self.sent_at: list[int] = []

    @precondition(lambda self: self.finished)
    @rule()
    def begin(self) -> None:
        self.context += 1
        self.call.out.begin(self.context, self.context % 64)
        self.finished, self.position = False, 0

    @precondition(lambda self: not self.finished)
    @rule(count=st.integers(1, 30))
    def write(self, count: int) -> None:
        frames = [
            frame(self.context, self.written + n, position=self.position + n) for n in range(count)
        ]
        accepted = self.call.out.write(frames)
        self.written += accepted
        self.position += accepted

    @precondition(lambda self: not self.finished and self.call.out.queued() < 100)
    @rule()
    def finish(self) -> None:
        self.call.out.finish(self.context)
        self.finished = True

    @rule()
    def interrupt(self) -> None:
        self.call.out.interrupt()
        self.condemned = self.written
        self.finished = True

    @rule(count=st.integers(1, 15))
    def slots(self, count: int) -> None:
        for _ in range(count):
            for packet in self.call.slots(1):
                self.sent_at.append(self.slot)
                number = number_of(packet)
                if number is not None:
                    assert number >= self.condemned, "a frame that was interrupted"
                    self.heard.append(number)
            self.slot += 1

    @rule(count=st.integers(1, 5))
    def stall(self, count: int) -> None:
        self.call.sender.skip(count)
        self.slot += count

    @rule()
    def hold_or_resume(self) -> None:
        self.held = not self.held
        self.call.sender.update(HELD if self.held else REMOTE)

    @precondition(lambda self: not self.call.sender.pressing)
    @rule(keys=st.text(dtmf.KEYS, min_size=1, max_size=2))
    def press(self, keys: str) -> None:
        self.call.sender.press(keys, 60, 60)

    @invariant()
    def packets_follow_the_rules(self) -> None:
        packets = self.call.wire.packets
        last_audio = None
        for index in range(max(0, self.checked - 1), len(packets)):
            packet = packets[index]
            if index:
                assert packet.sequence == (packets[index - 1].sequence + 1) % 65536
                assert packet.ssrc == packets[0].ssrc
            if packet.payload_type != 0:
                continue
            expected = packets[0].timestamp + (self.sent_at[index] - self.sent_at[0]) * 160
            if packets[0].payload_type == 0:
                assert packet.timestamp == expected % 2**32
            if index and packets[index - 1].payload_type == 0:
                contiguous = self.sent_at[index] == self.sent_at[index - 1] + 1
                assert packet.marker != contiguous
            last_audio = index
        if last_audio is not None:
            self.checked = len(packets)

    @invariant()
    def frames_are_heard_in_order_each_once(self) -> None:
        assert self.heard == sorted(set(self.heard))

    def teardown(self) -> None:
        if self.held:
            self.hold_or_resume()
        if not self.finished:
            self.slots(100)
            self.call.out.finish(self.context)
        self.slots(400)
        for number in range(self.condemned, self.written):
            assert number in self.heard, "a frame that was never sent"
        assert not self.call.out.queued()
        self.call.memory.close()


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


EVERY = bytes(range(256))
DECODE = {"PCMU": decode_ulaw, "PCMA": decode_alaw}


def table(one: str, other: str) -> bytes:
    numbers = codec_number(one), codec_number(other)
    assert numbers[0] is not None
    assert numbers[1] is not None
    found = table_between(numbers[0], numbers[1])
    assert found is not None
    return found


@pytest.mark.parametrize(("one", "other"), [("PCMU", "PCMA"), ("PCMA", "PCMU")])
def test_each_code_word_becomes_the_nearest_one_of_the_other_law(one: str, other: str) -> None:
    levels = DECODE[one](EVERY).astype(int)
    found = DECODE[other](EVERY.translate(table(one, other))).astype(int)
    ladder = DECODE[other](EVERY).astype(int)
    best = np.abs(levels[:, None] - ladder[None, :]).min(axis=1)
    assert np.array_equal(np.abs(found - levels), best)
    assert not np.any(np.sign(levels) * np.sign(found) < 0)


@pytest.mark.parametrize(("one", "other"), [("PCMU", "PCMA"), ("PCMA", "PCMU")])
def test_there_and_back_and_there_again_is_as_once(one: str, other: str) -> None:
    there = EVERY.translate(table(one, other))
    again = there.translate(table(other, one)).translate(table(one, other))
    assert DECODE[other](again).tolist() == DECODE[other](there).tolist()


def test_silence_stays_silence() -> None:
    assert b"\xff".translate(table("PCMU", "PCMA")) == b"\xd5"
    assert abs(int(decode_ulaw(b"\xd5".translate(table("PCMA", "PCMU")))[0])) <= 8


def test_a_frame_is_translated_in_all_its_forms() -> None:
    frame = Frame(b"\xff", None, b"\x7f", 1, 0, 480)
    changed = translated(frame, table("PCMU", "PCMA"))
    assert changed == Frame(b"\xd5", None, b"\x55", 1, 0, 480)


def test_other_codecs_have_no_table() -> None:
    assert codec_number("opus") is None
    assert table_between(1, 1) is None
    assert table_between(3, 1) is None
