from __future__ import annotations

import math

import pytest

from qwen3tts_speech.patience import Patience


def test_it_is_spent_when_sound_is_owed_and_none_comes_for_so_long() -> None:
    patience = Patience(4.0)
    assert not patience.spent(100.0, owed=True, sounds=0)
    assert not patience.spent(103.9, owed=True, sounds=0)
    assert patience.spent(104.0, owed=True, sounds=0)


def test_sound_begins_it_anew() -> None:
    patience = Patience(4.0)
    assert not patience.spent(100.0, owed=True, sounds=0)
    assert not patience.spent(103.9, owed=True, sounds=480)
    assert not patience.spent(107.8, owed=True, sounds=480)
    assert patience.spent(107.9, owed=True, sounds=480)


def test_time_in_which_nothing_is_owed_does_not_count() -> None:
    patience = Patience(4.0)
    for now in range(100, 200):
        assert not patience.spent(float(now), owed=False, sounds=0)
    assert not patience.spent(203.0, owed=False, sounds=0)
    assert not patience.spent(206.9, owed=True, sounds=0)
    assert patience.spent(207.0, owed=True, sounds=0)


def test_without_a_bound_it_has_no_end() -> None:
    patience = Patience(None)
    assert not patience.spent(0.0, owed=True, sounds=0)
    assert not patience.spent(1e9, owed=True, sounds=0)


@pytest.mark.parametrize("stall_s", [0, -1, math.nan])
def test_what_is_no_time_is_refused(stall_s: float) -> None:
    with pytest.raises(ValueError, match="stall_s"):
        Patience(stall_s)
