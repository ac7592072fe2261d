from __future__ import annotations

import pytest

from qwen3tts_wire.connection import ClockOffset


def test_the_quickest_ping_is_believed() -> None:
    offset = ClockOffset()
    offset.add(10.0, 1010.5, 1010.5, 10.6)  # slow on the way there
    offset.add(20.0, 1020.01, 1020.01, 20.02)
    offset.add(30.0, 1030.0, 1030.0, 30.4)  # slow on the way back
    assert offset.best.offset_s == pytest.approx(1000.0)
    assert offset.best.rtt_s == pytest.approx(0.02)


def test_time_that_the_server_takes_is_not_on_the_way() -> None:
    offset = ClockOffset()
    offset.add(0.0, 5.1, 6.1, 1.2)
    assert offset.best.rtt_s == pytest.approx(0.2)
    assert offset.best.offset_s == pytest.approx(5.0)


def test_old_pings_are_forgotten_so_that_a_drift_is_followed() -> None:
    offset = ClockOffset(keep=2)
    offset.add(0, 100.0, 100.0, 0)
    for at in (1.0, 2.0):
        offset.add(at, at + 200.05, at + 200.05, at + 0.1)
    assert offset.best.offset_s == pytest.approx(200.0)


def test_before_the_first_ping_the_clocks_are_taken_as_one() -> None:
    offset = ClockOffset()
    assert not offset.known
    assert offset.best.offset_s == 0.0
