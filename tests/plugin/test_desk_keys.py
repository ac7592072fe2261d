"""Keys of a caller become one message, and messages that wait are joined."""

from __future__ import annotations

from mr_qwen3tts.calls.options import MAX_KEYS, MAX_WAITING_CHARS, joined, key_turns
from qwen3tts_phone.detection.endpointing import TURN_GAP_S, KeyGroup


def test_a_number_is_complete_when_no_further_key_comes() -> None:
    keys = key_turns()
    assert keys.due(0.0) is None
    assert keys.press("4", 10.0) is None
    assert keys.press("2", 11.5) is None
    assert keys.deadline == 13.5
    assert keys.due(13.4) is None
    assert keys.due(13.5) == KeyGroup("42", 10.0, 11.5)
    assert keys.deadline is None


def test_a_hash_completes_it_immediately_and_the_next_soon_after() -> None:
    keys = key_turns()
    made = [keys.press(key, 0.0) for key in "1*#7#"]
    assert [each and each.digits for each in made] == [None, None, "1*#", None, None]
    assert keys.deadline == TURN_GAP_S
    assert keys.due(TURN_GAP_S) == KeyGroup("7#", 0.0, 0.0)


def test_a_key_that_is_leant_on_does_not_gather_for_ever() -> None:
    keys = key_turns()
    told = [keys.press("5", 0.0) for _ in range(MAX_KEYS + 1)]
    complete = told[MAX_KEYS - 1]
    assert complete is not None
    assert complete.digits == "5" * MAX_KEYS
    last = keys.due(9.0)
    assert last is not None
    assert last.digits == "5"


def test_of_messages_that_wait_the_oldest_are_left_out_and_counted() -> None:
    assert joined(["a", "b"]) == ("a\n\nb", 0)
    text, left_out = joined(["a" * MAX_WAITING_CHARS, "b" * 100, "c"])
    assert (text, left_out) == ("b" * 100 + "\n\nc", 1)
    assert len(joined(["x" * 10 * MAX_WAITING_CHARS])[0]) == MAX_WAITING_CHARS
