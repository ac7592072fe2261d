"""What cannot be meant is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from qwen3tts_phone.detection.settings import PRESETS, ListenSettings, listen_preset


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


@pytest.mark.parametrize("wrong", [{"min_pause_ms": 2000}, {"language": "English!"}])
def test_a_pause_that_cannot_be_chosen_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ListenSettings(**wrong)


def test_a_preset_sets_figures_that_single_ones_override() -> None:
    assert listen_preset("talk") == ListenSettings()
    menu, patient = listen_preset("menu"), listen_preset("patient")
    assert menu.pause_ms < ListenSettings().pause_ms < patient.pause_ms
    assert menu.max_pause_ms < patient.max_pause_ms
    assert listen_preset("patient", pause_ms=700).pause_ms == 700
    with pytest.raises(ValueError, match="menu, talk, patient"):
        listen_preset("hasty")
    with pytest.raises(ValueError, match="notice_ms"):
        listen_preset("menu", notice_ms=500)
    assert set(PRESETS) == {"menu", "talk", "patient"}
