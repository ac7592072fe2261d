"""What cannot be meant is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from qwen3tts_phone.detection.settings import ListenSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"detector": "ears"},
        {"threshold": 0.0},
        {"threshold": float("nan")},
        {"threshold": "0.5"},
        {"onset_ms": 5},
        {"onset_ms": True},
        {"barge_in_ms": 20},
        {"barge_in": 1},
        {"grace_ms": -1},
        {"pause_ms": 50},
        {"notice_ms": 700},
        {"longest_pause_ms": 500},
        {"min_speech_ms": -1},
        {"max_turn_s": 0.5},
        {"max_turn_s": float("inf")},
        {"echo_guard": None},
        {"quiet_s": -1.0},
        {"keys_until": "##"},
        {"keys_until": "x"},
        {"keys_pause_ms": 0},
        {"max_keys": 0},
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    name = next(iter(wrong))
    with pytest.raises(ValueError, match=name):
        ListenSettings(**wrong)


def test_the_defaults_and_no_key_that_ends_a_number_are_allowed() -> None:
    assert ListenSettings().barge_in
    assert ListenSettings(keys_until="").keys_until == ""
