from __future__ import annotations

import json

import pytest

from qwen3tts_phone.softphone.webrtc.statistics import (
    FarReport,
    RemoteQuality,
    RemoteStatistics,
    TransportStatistics,
)


def test_what_is_no_delay_or_count_is_left_out_of_a_report() -> None:
    good = FarReport.checked(40.5, 12.0, 3, 480.0, 1000)
    assert good == FarReport(40.5, 12.0, 3, 480, 1000)
    bad = FarReport.checked(float("nan"), -1.0, float("inf"), True, 1e300)
    assert bad == FarReport()


def test_what_lies_behind_is_the_buffer_and_half_the_round_trip() -> None:
    far = RemoteQuality()
    assert far.queued_s() is None
    far.told(FarReport(jitter_buffer_ms=50.0, rtt_ms=30.0))
    assert far.queued_s() == pytest.approx(0.065)
    far.told(FarReport(jitter_buffer_ms=50.0))
    assert far.queued_s() == pytest.approx(0.05)


def test_the_worst_is_kept_and_the_page_is_believed_before_the_reports() -> None:
    far = RemoteQuality()
    far.figures(RemoteStatistics(10, 3, 0.25, 0.004, 0.080, reported=True))
    far.figures(RemoteStatistics(20, 3, 0.0, 0.002, 0.020, reported=True))
    assert (far.fraction_lost, far.round_trip_ms) == (0.25, 80.0)
    assert far.rtt_ms() == pytest.approx(20.0)
    assert far.lost() == 3
    far.told(FarReport(rtt_ms=15.0, lost=5))
    assert (far.rtt_ms(), far.lost(), far.round_trip_ms) == (15.0, 5, 80.0)


def test_figures_are_plain_values() -> None:
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
        report=FarReport(jitter_buffer_ms=40.0, lost=2, received=100),
    )
    said = json.loads(json.dumps(figures.to_json(), allow_nan=False))
    assert (said["time"], said["rtt_ms"], said["jitter_buffer_ms"]) == (1.235, 9.0, 40.0)
    assert (said["received"], said["packets_received"]) == (7, 100)
    assert (said["lost_in"], said["lost"]) == (1, 2)
