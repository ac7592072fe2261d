"""Ducking in the media process, slot by slot."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from qwen3tts_codecs.g711 import PCMA, PCMU
from qwen3tts_pacer import Frame
from qwen3tts_pacer.gain import GainReader, scale_of
from qwen3tts_pacer.memory import ParentWord
from qwen3tts_phone.media.rtp import RtpPacket
from tests.media.sending import REMOTE, Call

G722 = replace(REMOTE, payload_type=9, payload_name="G722", silence="00" * 160)
LAW = replace(REMOTE, payload_type=8, payload_name="PCMA")
SILENCE = b"\xff" * 160


def sound(number: int, peak: int = 8000) -> bytes:
    samples = np.arange(number * 160, number * 160 + 160) / 8000
    return PCMU.encode(np.round(peak * np.sin(2 * np.pi * 300 * samples)).astype(np.int16))


def frames(context: int, count: int) -> list[Frame]:
    """Frames of a tone; their fades are another tone, lower by half."""
    return [
        Frame(sound(n), sound(n, 4000), sound(n, 3000), context, 480 * n, 480 * (n + 1))
        for n in range(count)
    ]


class Ducked(Call):
    def duck(self, db: float) -> None:
        self.memory.words[ParentWord.DUCK] = round(db * 10)

    def says(self, context: int, count: int, *, finish: bool = True) -> list[Frame]:
        spoken = frames(context, count)
        self.out.begin(context, context, 0)
        assert self.out.write(spoken) == count
        if finish:
            self.out.finish(context)
        return spoken

    def levels(self, count: int) -> list[float]:
        return [level(packet) for packet in self.slots(count)]


def level(packet: RtpPacket) -> float:
    law = PCMA if packet.payload_type == 8 else PCMU
    samples = law.decode(packet.payload).astype(float)
    return float(10 * np.log10(np.mean(samples**2) + 1e-9))


def scaled(frame: Frame, before: int, after: int, name: str = "PCMU") -> bytes:
    scale = scale_of(name)
    assert scale is not None
    return scale(frame.payload, before, after)


@pytest.fixture
def call() -> Ducked:
    return Ducked()


def test_the_next_frame_is_lowered_though_many_wait(call: Ducked) -> None:
    spoken = call.says(1, 60)
    call.slots(10)
    call.duck(12)
    packets = call.slots(10)
    assert packets[0].payload == scaled(spoken[10], 0, 120)
    assert [each.payload for each in packets[1:]] == [
        scaled(each, 120, 120) for each in spoken[11:20]
    ]
    call.duck(0)
    packets = call.slots(3)
    assert packets[0].payload == scaled(spoken[20], 120, 0)
    assert [each.payload for each in packets[1:]] == [each.payload for each in spoken[21:23]]


def test_the_level_falls_by_12_db_within_a_frame(call: Ducked) -> None:
    call.says(1, 60)
    full = call.levels(10)[-1]
    call.duck(12)
    first, *rest = call.levels(10)
    assert first < full - 8
    assert all(full - each == pytest.approx(12, abs=0.5) for each in rest)


def test_positions_and_times_go_on_as_without_a_duck(call: Ducked) -> None:
    plain = Ducked()
    for each in (call, plain):
        each.says(1, 40)
        each.slots(10)
    call.duck(12)
    marks = [
        [
            (packet.sequence - run[0].sequence, packet.timestamp - run[0].timestamp, packet.marker)
            for packet in run
        ]
        for run in (call.slots(35), plain.slots(35))
    ]
    assert marks[0] == marks[1]
    assert [each.table.load(1).frames for each in (call, plain)] == [40, 40]
    assert [each.table.load(1).starvations for each in (call, plain)] == [0, 0]


def test_the_fade_of_an_interruption_stays_low_and_the_next_utterance_is_full(
    call: Ducked,
) -> None:
    spoken = call.says(1, 60)
    call.slots(10)
    call.duck(12)
    call.slots(10)
    call.out.interrupt()
    call.duck(0)
    fade, silence, *_ = call.slots(3)
    scale = scale_of("PCMU")
    assert scale is not None
    assert spoken[19].tail is not None
    assert fade.payload == scale(spoken[19].tail, 120, 120)
    assert silence.payload == SILENCE
    again = call.says(2, 10)
    assert [each.payload for each in call.slots(10)] == [each.payload for each in again]
    log = GainReader(call.memory)
    log.read()
    assert [log.of(1, 19), log.of(2, 0), log.of(2, 9)] == [(120, 120), (0, 0), (0, 0)]


def test_a_duck_in_silence_begins_the_next_utterance_low(call: Ducked) -> None:
    call.slots(5)
    call.duck(12)
    assert {each.payload for each in call.slots(5)} == {SILENCE}
    spoken = call.says(1, 5)
    assert [each.payload for each in call.slots(5)] == [scaled(each, 120, 120) for each in spoken]


def test_the_log_names_each_frame(call: Ducked) -> None:
    log = GainReader(call.memory)
    call.says(1, 60)
    call.slots(10)
    call.duck(12)
    call.slots(10)
    call.duck(0)
    call.slots(10)
    assert log.read()
    found = [log.of(1, number) for number in range(30)]
    assert found == [(0, 0)] * 10 + [(0, 120)] + [(120, 120)] * 9 + [(120, 0)] + [(0, 0)] * 9


def test_every_slot_between_two_commands_is_exact(call: Ducked) -> None:
    """Commands at any slot, some of them undone before it: what is logged is what was sent."""
    log = GainReader(call.memory)
    spoken = call.says(1, 60)
    rng = np.random.default_rng(18)
    sent: list[RtpPacket] = []
    while len(sent) < 60:
        log.read()
        call.duck(float(rng.choice([0, 0, 3.3, 12, 12, 40])))
        sent += call.slots(int(rng.integers(0, 4)))
    log.read()
    assert [each.payload for each in sent[:60]] == [
        scaled(frame, *log.of(1, number)) for number, frame in enumerate(spoken)
    ]


def test_between_the_laws_the_level_stays(call: Ducked) -> None:
    call.says(1, 60)
    full = call.levels(10)[-1]
    call.duck(12)
    call.slots(5)
    call.sender.update(LAW, 2)
    packets = call.slots(5)
    assert {each.payload_type for each in packets} == {8}
    assert all(full - level(each) == pytest.approx(12, abs=0.5) for each in packets)
    call.duck(0)
    assert call.levels(2)[1] == pytest.approx(full, abs=0.5)


def test_another_codec_is_held_with_its_fade_and_goes_on_where_it_was(call: Ducked) -> None:
    call = Ducked(G722)
    spoken = call.says(1, 60)
    call.slots(10)
    call.duck(12)
    held = call.slots(20)
    assert [each.payload for each in held] == [spoken[9].tail] + [bytes(160)] * 19
    assert [b.timestamp - a.timestamp for a, b in pairwise(held)] == [160] * 19
    assert call.table.load(1).frames == 10
    call.duck(0)
    packets = call.slots(50)
    assert packets[0].payload == spoken[10].head
    assert [each.payload for each in packets[1:]] == [each.payload for each in spoken[11:]]
    assert call.table.load(1).frames == 60
    assert call.table.load(1).starvations == 0


def test_an_interruption_ends_a_hold() -> None:
    call = Ducked(G722)
    call.says(1, 60)
    call.slots(10)
    call.duck(12)
    call.slots(5)
    call.out.interrupt()
    call.duck(0)
    assert {each.payload for each in call.slots(5)} == {bytes(160)}
    spoken = call.says(2, 10)
    assert [each.payload for each in call.slots(10)] == [each.payload for each in spoken]


def test_frames_that_come_during_a_hold_wait() -> None:
    call = Ducked(G722)
    call.says(1, 20, finish=False)
    call.slots(10)
    call.duck(12)
    call.slots(2)
    more = [each._replace(start=each.start + 9600, end=each.end + 9600) for each in frames(1, 20)]
    call.out.write(more)
    call.out.finish(1)
    call.slots(10)
    call.duck(0)
    call.slots(35)
    assert call.table.load(1).frames == 40
    assert call.sender.outbound.played[0][0] == 1


def test_a_change_of_the_codec_turns_a_duck_into_a_hold_and_back(call: Ducked) -> None:
    call.says(1, 60)
    call.slots(10)
    call.duck(12)
    call.slots(5)
    call.sender.update(G722, 3)
    call.slots(5)
    assert call.table.load(1).frames == 15
    call.sender.update(REMOTE, 1)
    spoken = frames(2, 5)
    call.out.interrupt()
    call.slots(2)
    call.out.begin(2, 2, 0)
    call.out.write(spoken, 1)
    assert [each.payload for each in call.slots(5)] == [scaled(each, 120, 120) for each in spoken]


def test_keys_during_a_duck_leave_the_level(call: Ducked) -> None:
    call.says(1, 60)
    full = call.levels(10)[-1]
    call.duck(12)
    call.slots(2)
    call.sender.press("5", 60, 40)
    packets = [each for each in call.slots(20) if each.payload_type == 0]
    assert all(full - level(each) > 11 for each in packets)


def test_a_call_on_hold_fades_at_its_level(call: Ducked) -> None:
    spoken = call.says(1, 60)
    call.slots(10)
    call.duck(12)
    call.slots(2)
    call.sender.pause(True)
    (fade,) = call.slots(1)
    scale = scale_of("PCMU")
    assert scale is not None
    assert spoken[11].tail is not None
    assert fade.payload == scale(spoken[11].tail, 120, 120)
