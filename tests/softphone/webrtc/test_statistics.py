from __future__ import annotations

import json

import pytest

from qwen3tts_phone.softphone.messages import encoded, read_page
from qwen3tts_phone.softphone.page_call import line_message
from qwen3tts_phone.softphone.webrtc.report import Report
from qwen3tts_phone.softphone.webrtc.statistics import (
    RemoteQuality,
    RemoteStatistics,
    TransportStatistics,
)
from qwen3tts_wire.fields import DecodeError


def test_impossible_delays_are_left_out_of_a_report() -> None:
    quality = RemoteQuality()
    quality.add_report(Report(40.5, 12.0, 3, 480.0, 1000))
    assert quality.report == Report(40.5, 12.0, 3, 480.0, 1000)
    quality.add_report(Report(60_001.0, 1e12, 3, 480.0, 1000))
    assert quality.report == Report(None, None, 3, 480.0, 1000)
    assert quality.round_trip_ms == 12.0


@pytest.mark.parametrize("value", ["NaN", "-1", "1e300", "true", '"5"'])
def test_what_is_no_delay_or_count_is_refused(value: str) -> None:
    for name in ("jitter_buffer_ms", "rtt_ms", "lost", "concealed", "received"):
        assert isinstance(read_page(f'{{"type": "report", "{name}": {value}}}'), DecodeError)


def test_what_lies_behind_is_the_buffer_and_half_the_round_trip() -> None:
    far = RemoteQuality()
    assert far.delay_s() is None
    far.add_report(Report(jitter_buffer_ms=50.0, rtt_ms=30.0))
    assert far.delay_s() == pytest.approx(0.065)
    far.add_report(Report(jitter_buffer_ms=50.0))
    assert far.delay_s() == pytest.approx(0.05)


def test_the_worst_is_kept_and_the_page_is_believed_before_the_reports() -> None:
    far = RemoteQuality()
    far.add_rtcp(RemoteStatistics(10, 3, 0.25, 0.004, 0.080, reported=True))
    far.add_rtcp(RemoteStatistics(20, 3, 0.0, 0.002, 0.020, reported=True))
    assert (far.fraction_lost, far.round_trip_ms) == (0.25, 80.0)
    assert far.rtt_ms() == pytest.approx(20.0)
    assert far.lost() == 3
    far.add_report(Report(rtt_ms=15.0, lost=5))
    assert (far.rtt_ms(), far.lost(), far.round_trip_ms) == (15.0, 5, 80.0)


def test_the_page_gets_the_statistics_as_a_message() -> None:
    figures = TransportStatistics(
        time=1.23456,
        state="up",
        pacer="idle",
        codec="opus",
        queued_ms=0.0,
        frames=5,
        skipped=0,
        starvations=0,
        longest_gap_ms=0.0,
        first_sound_ms=None,
        silent_ms=0.0,
        received=7,
        lost_in=1,
        jitter_in_ms=0.5,
        rtt_ms=9.0,
        report=Report(jitter_buffer_ms=40.0, lost=2, received=100),
    )
    said = json.loads(encoded(line_message(figures, 1234.56)))
    assert (said["time"], said["rtt_ms"], said["jitter_buffer_ms"]) == (1234.56, 9.0, 40.0)
    assert (said["state"], said["frames"], said["lost"]) == ("idle", 5, 2)
    assert "first_sound_ms" not in said
