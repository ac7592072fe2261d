"""Keys of a caller become one message."""

from __future__ import annotations

from mr_qwen3tts.desk_keys import MAX_KEYS, Keys


def test_a_number_is_complete_when_no_further_key_comes() -> None:
    keys = Keys(gap_s=2.0)
    assert keys.due(0.0) == ""
    assert keys.press("4", 10.0) == ""
    assert keys.press("2", 11.5) == ""
    assert keys.deadline == 13.5
    assert keys.due(13.4) == ""
    assert keys.due(13.5) == "42"
    assert keys.deadline is None


def test_a_hash_completes_it_at_once() -> None:
    keys = Keys()
    assert [keys.press(key, 0.0) for key in "1*#7"] == ["", "", "1*#", ""]
    assert keys.due(2.0) == "7"


def test_a_key_that_is_leant_on_does_not_gather_for_ever() -> None:
    keys = Keys()
    told = [keys.press("5", 0.0) for _ in range(MAX_KEYS + 1)]
    assert told[MAX_KEYS - 1] == "5" * MAX_KEYS
    assert keys.due(9.0) == "5"
