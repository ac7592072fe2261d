"""Pressed keys as turns."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.detection.key_turns import TURN_GAP_S, WAITING_KEYS, KeyGroup, KeyTurns
from qwen3tts_phone.detection.settings import ListenSettings


def test_keys_are_complete_after_a_pause() -> None:
    keys = KeyTurns(ListenSettings(keys_pause_ms=1000))
    assert keys.press("1", 5.0) is None
    assert keys.press("2", 5.5) is None
    assert keys.due(6.4) is None
    assert keys.due(6.5) == KeyGroup("12", 5.0, 5.5)
    assert keys.due(9.0) is None


def test_the_key_that_ends_a_number_ends_it_at_once_and_belongs_to_it() -> None:
    keys = KeyTurns(ListenSettings())
    keys.press("7", 1.0)
    assert keys.press("#", 1.2) == KeyGroup("7#", 1.0, 1.2)
    assert not keys.waiting


def test_a_caller_who_presses_keys_all_the_time_makes_turns_of_bounded_length() -> None:
    keys = KeyTurns(ListenSettings(max_keys=5, keys_until=""))
    made = [keys.press("1", number / 10) for number in range(20)]
    assert [each.digits for each in made if each is not None] == ["11111"] * 4


def test_numbers_that_are_complete_too_early_are_joined() -> None:
    keys = KeyTurns(ListenSettings())
    made = [keys.press(key, 1.0) for key in "1#2#3#4"]
    assert [each.digits for each in made if each is not None] == ["1#"]
    before = keys.complete
    assert keys.due(1.0 + TURN_GAP_S / 2) is None
    assert keys.due(1.0 + TURN_GAP_S) == KeyGroup("2#3#", 1.0, 1.0)
    assert (before, keys.complete) == (True, False), "the number that has begun is not finished"
    assert keys.due(2.6) == KeyGroup("4", 1.0, 1.0)


def test_keys_that_belong_to_a_turn_after_all_stand_before_those_that_follow() -> None:
    keys = KeyTurns(ListenSettings())
    assert keys.press("1", 1.0) is None
    assert keys.press("#", 1.1) is not None
    keys.restore()
    assert keys.take(1.1) == KeyGroup("1#", 1.0, 1.1)


@given(
    st.lists(st.tuples(st.sampled_from("1#"), st.floats(0, 1)), max_size=200),
    st.integers(1, 100),
)
def test_turns_are_bounded_in_size_and_rate_and_no_key_is_lost_unless_counted(
    pressed: list[tuple[str, float]], max_keys: int
) -> None:
    keys, now = KeyTurns(ListenSettings(max_keys=max_keys)), 0.0
    made: list[tuple[float, KeyGroup]] = []
    for digit, after in pressed:
        now += after
        for each in (keys.due(now), keys.press(digit, now)):
            if each is not None:
                made.append((now, each))
    while keys.waiting:
        now += 0.05
        if (each := keys.due(now)) is not None:
            made.append((now, each))
    assert all(len(each.digits) <= max_keys for _, each in made)
    assert all(later - earlier >= TURN_GAP_S - 1e-9 for (earlier, _), (later, _) in pairwise(made))
    assert sum(len(each.digits) for _, each in made) + keys.dropped == len(pressed)
    if not keys.dropped:
        assert "".join(each.digits for _, each in made) == "".join(digit for digit, _ in pressed)


def test_keys_beyond_those_that_may_wait_are_counted() -> None:
    keys = KeyTurns(ListenSettings())
    for _ in range(WAITING_KEYS + 11):
        keys.press("#", 1.0)
    assert keys.dropped == 10
