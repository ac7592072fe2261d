"""The incoming half on any datagrams: judged, counted, never an exception."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_pacer.memory import CallMemory
from qwen3tts_pacer.ring import InboundFrame, InboundReader
from qwen3tts_phone.media import dtmf, rtp
from qwen3tts_phone.media.dtmf import EventPacket
from qwen3tts_phone.media.receiver import MAX_DROPOUT, MAX_MISORDER, Receiver, Reception
from qwen3tts_phone.media.rtp import RtpPacket
from qwen3tts_phone.media.types import Dtmf, LegSpec, MediaEvent, MediaStarted, RemoteMedia

WIDE = RemoteMedia(
    "192.0.2.1",
    4000,
    111,
    "opus",
    clock_hz=48_000,
    silence="d8fffe",
    telephone_event_pt=110,
    telephone_event_hz=48_000,
    comfort_noise_pt=13,
    also_receive=(0, (9, 8000)),
)
PEER = ("192.0.2.1", 4000)
STRANGER = ("203.0.113.9", 6000)
REMOTE = RemoteMedia(*PEER, telephone_event_pt=101)

likely = st.builds(
    RtpPacket,
    payload_type=st.sampled_from([0, 0, 0, 8, 13, 101]),
    sequence=st.integers(0, 40) | st.integers(0, 65535),
    timestamp=st.integers(0, 40).map(lambda slot: slot * 160) | st.integers(0, 2**32 - 1),
    ssrc=st.sampled_from([1, 1, 1, 2]),
    payload=st.binary(max_size=8) | st.just(b"\x55" * 160),
    marker=st.booleans(),
    csrcs=st.just(()),
    extension=st.none(),
).map(rtp.build)
datagrams = st.tuples(
    likely | st.binary(max_size=60),
    st.sampled_from([PEER, PEER, PEER, STRANGER]),
    st.sampled_from([0.0, 0.02, 0.02, 0.3, 2.0]),
)


@given(st.lists(datagrams, max_size=80))
@settings(deadline=None)
def test_any_datagrams_are_judged_and_frames_come_out_in_order(
    arrivals: list[tuple[bytes, tuple[str, int], float]],
) -> None:
    memory = CallMemory.create(128, 4096, 128, 65536)
    events: list[MediaEvent] = []
    receiver = Receiver(memory, LegSpec(), REMOTE, events.append)
    reader = InboundReader(memory)
    now = 0.0
    judged = 0
    for data, address, step in arrivals:
        now += step
        receiver.due(now)
        before = (
            receiver.received
            + receiver.malformed
            + receiver.unknown_payload
            + receiver.lock.rejected
        )
        receiver.datagram(data, address, now)
        after = (
            receiver.received
            + receiver.malformed
            + receiver.unknown_payload
            + receiver.lock.rejected
        )
        assert after - before in (0, 1)  # 0: a candidate's first packet
        judged += after - before
    receiver.due(now + 10.0)
    frames = reader.read()
    assert len(frames) == receiver.handed
    assert receiver.lost >= 0
    assert sum(isinstance(event, MediaStarted) for event in events) <= len(arrivals)
    assert not receiver.jitter.pending
    assert not receiver.keys.pressed
    memory.close()


def test_a_sender_that_restarts_after_its_first_packet_is_heard() -> None:
    memory = CallMemory.create(128, 4096, 128, 65536)
    receiver = Receiver(memory, LegSpec(), REMOTE, lambda _: None)
    for index, sequence in enumerate([50_000, 100, 101, 102]):  # two in a row are believed
        packet = RtpPacket(0, sequence, 160 * index, 1, b"\x55" * 160)
        receiver.datagram(rtp.build(packet), PEER, 0.02 * index)
    assert [frame.sequence for frame in InboundReader(memory).read()] == [50_000, 101, 102]
    memory.close()


class Line:
    """A far end, and the half that hears it."""

    def __init__(self, remote: RemoteMedia = REMOTE, **spec: Any) -> None:
        self._memory = CallMemory.create(128, 4096, 128, 65536)
        self.told: list[MediaEvent] = []
        self.receiver = Receiver(self._memory, LegSpec(**spec), remote, self.told.append)
        self._reader = InboundReader(self._memory)
        self.sequence = 100

    def say(self, timestamp: int, at: float, payload: bytes = b"\x55" * 160, kind: int = 0) -> None:
        packet = RtpPacket(kind, self.sequence, timestamp % 2**32, 7, payload)
        self.sequence += 1
        self.receiver.datagram(rtp.build(packet), PEER, at)

    def read(self) -> list[InboundFrame]:
        return self._reader.read()


@pytest.fixture
def line() -> Line:
    return Line()


def test_a_payload_that_nobody_agreed_on_is_no_hole_and_no_loss(line: Line) -> None:
    line.say(0, 0.0)
    line.say(160, 0.02, b"\x40", kind=13)
    line.say(320, 0.04)
    assert [frame.timestamp for frame in line.read()] == [0, 320]
    receiver = line.receiver
    assert (receiver.unknown_payload, receiver.received, receiver.lost) == (1, 2, 0)
    assert (receiver.jitter.bursts, receiver.jitter.concealed) == (0, 0)


def test_a_payload_that_nobody_agreed_on_never_latches() -> None:
    line = Line()
    for index in range(5):
        line.say(160 * index, 0.02 * index, kind=96)
    assert line.told == []
    assert line.receiver.lock.address is None


def test_what_is_said_while_we_hold_is_no_hole_when_we_listen_again(line: Line) -> None:
    line.say(0, 0.0)
    line.receiver.update(replace(REMOTE, receive=False))
    for index in range(1, 40):
        line.say(160 * index, 0.02 * index)
    line.receiver.update(REMOTE)
    line.say(160 * 40, 0.8)
    frames = line.read()
    assert [(frame.timestamp, frame.concealed) for frame in frames] == [(0, False), (6400, False)]
    assert (line.receiver.lost, line.receiver.jitter.bursts) == (0, 0)


def test_comfort_noise_is_handed_on_with_its_payload_type_and_counted() -> None:
    line = Line(replace(REMOTE, comfort_noise_pt=13))
    line.say(0, 0.0)
    line.say(160, 0.02, b"\x46", kind=13)
    line.say(160 * 51, 1.02, b"\x46", kind=13)
    line.say(160 * 60, 1.2)
    frames = line.read()
    assert [frame.payload_type for frame in frames] == [0, 13, 13, 0]
    assert [frame.timestamp for frame in frames] == [0, 160, 8160, 9600]
    assert line.receiver.noise_in == 2
    assert line.receiver.reception.jitter_s < 1e-9


def test_every_payload_is_timed_by_its_own_clock() -> None:
    line = Line(WIDE)
    for index in range(10):
        line.say(960 * index, 0.02 * index, bytes(40 + index), kind=111)
    assert line.receiver.reception.jitter_s < 1e-9
    for index in range(10):
        line.say(160 * index, 0.2 + 0.02 * index, kind=9)
    assert line.receiver.reception.jitter_s < 1e-9
    assert [frame.payload_type for frame in line.read()] == 10 * [111] + 10 * [9]


def test_a_key_of_another_clock_lasts_as_long_as_it_was_pressed() -> None:
    line = Line(WIDE)
    line.say(0, 0.0, bytes(40), kind=111)
    for step, end in ((1, False), (5, False), (5, True)):
        event = dtmf.build(EventPacket(7, end, 10, 960 * step))
        line.say(960, 0.02 * step, event, kind=110)
    assert [event for event in line.told if isinstance(event, Dtmf)] == [Dtmf("7", 100, 0.02)]


def test_the_first_and_the_last_packet_are_dated(line: Line) -> None:
    assert line.receiver.first_at == 0.0
    for index in range(3):
        line.say(160 * index, 5.0 + 0.02 * index)
    assert line.receiver.first_at == 5.0
    assert line.receiver.lock.heard_at == 5.04
    assert (line.receiver.octets, line.receiver.sources) == (480, 1)


def test_keys_may_come_with_the_number_of_our_own_offer() -> None:
    line = Line(replace(REMOTE, telephone_event_in=(96, 0)))
    line.say(0, 0.0)
    event = dtmf.build(EventPacket(3, True, 10, 800))
    line.say(160, 0.02, event, kind=96)
    line.say(960, 0.12)
    assert [event for event in line.told if isinstance(event, Dtmf)] == [Dtmf("3", 100, 0.02)]
    assert len(line.read()) == 2  # 0 is the audio, whatever we offered it for


@given(st.integers(0, 65535), st.integers(1, 3000))
def test_an_unbroken_stream_loses_nothing_across_the_wrap(first: int, count: int) -> None:
    reception = Reception()
    extended = [reception.accept((first + index) % 65536) for index in range(count)]
    assert extended == list(range(extended[0], extended[0] + count))
    assert (reception.expected, reception.received, reception.lost) == (count, count, 0)


def test_packets_missing_are_lost_until_they_come() -> None:
    reception = Reception()
    for sequence in (10, 11, 14):
        reception.accept(sequence)
    assert reception.lost == 2
    reception.accept(12)
    assert reception.lost == 1


def test_a_packet_before_the_first_keeps_its_order() -> None:
    reception = Reception()
    later = reception.accept(0)
    assert reception.accept(65535) == later - 1


def test_one_wild_sequence_number_is_refused_and_two_in_a_row_are_a_restart() -> None:
    reception = Reception()
    for sequence in range(100):
        reception.accept(sequence)
    wild = 100 + MAX_DROPOUT + 5000
    assert reception.accept(wild) == -1
    assert reception.received == 100
    assert reception.accept(wild + 1) > 0
    assert (reception.expected, reception.received) == (1, 1)


def test_a_packet_far_behind_is_refused() -> None:
    reception = Reception()
    reception.accept(1000)
    assert reception.accept(1000 - MAX_MISORDER - 1) == -1


def test_even_packets_have_no_jitter() -> None:
    reception = Reception()
    for index in range(100):
        reception.arrived(index * 160, 5.0 + index * 0.02)
    assert reception.jitter_s < 1e-9


def test_jitter_is_the_smoothed_deviation_of_rfc_3550_a_8() -> None:
    reception = Reception()
    expected = 0.0
    for index in range(200):
        late = 0.004 if index % 2 else 0.0
        reception.arrived(index * 160, index * 0.02 + late)
        if index:
            expected += (0.004 - expected) / 16
    assert reception.jitter_s == pytest.approx(expected)


def test_a_pause_of_the_sender_is_no_jitter() -> None:
    reception = Reception()
    reception.arrived(0, 0.0)
    reception.arrived(160, 30.0)
    assert reception.jitter_s == 0.0


def test_a_report_tells_what_was_lost_since_the_last_one() -> None:
    reception = Reception()
    for sequence in range(100):
        reception.accept(sequence)
    assert reception.report().fraction_lost == 0
    for sequence in range(100, 200, 2):
        reception.accept(sequence)
    report = reception.report()
    assert report.fraction_lost == pytest.approx(128, abs=3)
    assert report.cumulative_lost == 49
    assert report.highest_sequence % 65536 == 198
    assert reception.report().fraction_lost == 0


def test_doubled_packets_never_report_a_negative_share() -> None:
    reception = Reception()
    for sequence in range(50):
        reception.accept(sequence)
        reception.accept(sequence)
    report = reception.report()
    assert report.fraction_lost == 0
    assert report.cumulative_lost == -50


@given(st.lists(st.tuples(st.integers(0, 65535), st.integers(0, 2**32 - 1)), max_size=200))
def test_any_stream_gives_figures_within_their_fields(packets: list[tuple[int, int]]) -> None:
    reception = Reception()
    for index, (sequence, timestamp) in enumerate(packets):
        if reception.accept(sequence) >= 0:
            reception.arrived(timestamp, index * 0.01)
    report = reception.report()
    assert 0 <= report.fraction_lost <= 255
    assert -(2**23) <= report.cumulative_lost < 2**23
    assert 0 <= report.highest_sequence < 2**32
    assert 0 <= report.jitter < 2**32


def test_packets_of_another_clock_are_not_compared_with_the_last() -> None:
    reception = Reception(8000)
    for index in range(10):
        reception.accept(index)
        reception.arrived(160 * index, 0.02 * index)
    reception.change_clock(48_000)
    for index in range(10, 20):
        reception.accept(index)
        reception.arrived(960 * index, 0.02 * index)
    assert reception.jitter_s < 1e-9
    reception.accept(20)
    reception.arrived(960 * 20, 0.02 * 20 + 0.016)
    assert reception.report().jitter == 48
