from __future__ import annotations

import math

import pytest

from qwen3tts_speech.watchdog import StallWatchdog


class Looker:
    """Looks ten times a second."""

    def __init__(self, most_s: float | None = 4.0) -> None:
        self.watchdog = StallWatchdog(most_s)
        self.now = 100.0
        self.look()

    def look(self, *, owed: bool = True, sounds: int = 0) -> bool:
        return self.watchdog.expired(self.now, owed=owed, sounds=sounds)

    def spent_within(self, seconds: float, *, owed: bool = True, sounds: int = 0) -> bool:
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            if self.look(owed=owed, sounds=sounds):
                return True
        return False


def test_it_is_spent_when_sound_is_owed_and_none_comes_for_so_long() -> None:
    looker = Looker()
    assert not looker.spent_within(3.9)
    assert looker.spent_within(0.2)


def test_sound_begins_it_anew() -> None:
    looker = Looker()
    assert not looker.spent_within(3.9)
    assert not looker.spent_within(3.9, sounds=480)
    assert looker.spent_within(0.3, sounds=480)


def test_time_in_which_nothing_is_owed_does_not_count() -> None:
    looker = Looker()
    assert not looker.spent_within(100, owed=False)
    assert not looker.spent_within(3.9)
    assert looker.spent_within(0.2)


def test_time_in_which_nobody_looked_hardly_counts() -> None:
    looker = Looker()
    looker.now += 60
    assert not looker.look()
    assert not looker.spent_within(3.7)
    assert looker.spent_within(0.2)


def test_without_a_bound_it_has_no_end() -> None:
    assert not Looker(None).spent_within(600)


@pytest.mark.parametrize("stall_s", [0, -1, math.nan])
def test_what_is_no_time_is_refused(stall_s: float) -> None:
    with pytest.raises(ValueError, match="stall_s"):
        StallWatchdog(stall_s)
