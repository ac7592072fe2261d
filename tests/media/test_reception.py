from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.media.receiver import MAX_DROPOUT, MAX_MISORDER, Reception


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
