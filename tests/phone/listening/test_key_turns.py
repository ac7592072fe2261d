"""Pressed keys as turns."""

from __future__ import annotations

from qwen3tts_phone.listening.key_turns import Keys, KeyTurns
from qwen3tts_phone.listening.settings import ListenSettings


def test_keys_are_complete_after_a_pause() -> None:
    keys = KeyTurns(ListenSettings(keys_pause_ms=1000))
    assert keys.press("1", 5.0) is None
    assert keys.press("2", 5.5) is None
    assert keys.due(6.4) is None
    assert keys.due(6.5) == Keys("12", 5.0, 5.5)
    assert keys.due(9.0) is None


def test_the_key_that_ends_a_number_ends_it_at_once_and_belongs_to_it() -> None:
    keys = KeyTurns(ListenSettings())
    keys.press("7", 1.0)
    assert keys.press("#", 1.2) == Keys("7#", 1.0, 1.2)
    assert not keys.waiting


def test_a_caller_who_presses_keys_all_the_time_makes_turns_of_bounded_length() -> None:
    keys = KeyTurns(ListenSettings(max_keys=5, keys_until=""))
    made = [keys.press("1", number / 10) for number in range(20)]
    assert [each.digits for each in made if each is not None] == ["11111"] * 4
