from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_wire.messages import VoiceInfo
from qwen3tts_wire.names import edit_distance, near_voices, nearest

VOICES = (
    VoiceInfo("en_US-joe-medium", "Joe", "en-US", "male"),
    VoiceInfo("en-us", "English (America)", "en-US", "male"),
    VoiceInfo("en-gb", "English (Great Britain)", "en-GB", "male"),
    VoiceInfo("de", "German", "de", "male"),
    VoiceInfo("da", "Danish", "da", "male"),
    VoiceInfo("clone:Anna", "Anna", "mul", None),
)


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [("", "", 0), ("", "ab", 2), ("kitten", "sitting", 3), ("en-su", "en-us", 1), ("ca", "abc", 3)],
)
def test_the_distance_counts_characters_that_change(first: str, second: str, distance: int) -> None:
    assert edit_distance(first, second) == distance


@given(st.text("abc", max_size=8), st.text("abc", max_size=8))
def test_the_distance_is_symmetric_and_bounded(first: str, second: str) -> None:
    distance = edit_distance(first, second)
    assert distance == edit_distance(second, first)
    assert abs(len(first) - len(second)) <= distance <= max(len(first), len(second))
    assert (distance == 0) == (first == second)


@given(st.text(max_size=300), st.lists(st.text(max_size=100), max_size=5))
def test_any_name_is_answered(wanted: str, known: list[str]) -> None:
    assert set(nearest(wanted, known)) <= set(known)


@pytest.mark.parametrize(
    ("wanted", "language", "near"),
    [
        ("en-uk", None, ["en-us", "en-gb"]),
        ("joe", None, ["en_US-joe-medium"]),
        ("en-zzzzzzzzz", None, ["en_US-joe-medium", "en-us", "en-gb"]),
        ("germn", None, ["de (German)"]),
        ("anna2", None, ["Anna"]),
        ("dx", "de", ["de"]),
        ("xx", "de", ["de"]),
        ("de-nowhere", None, ["de"]),
        ("../../etc/passwd", None, []),
        ("", None, []),
    ],
)
def test_near_voices_are_of_the_language_that_is_meant(
    wanted: str, language: str | None, near: list[str]
) -> None:
    assert near_voices(wanted, VOICES, language) == near
