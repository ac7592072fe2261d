"""Names by which clients ask for a checkpoint."""

from __future__ import annotations

import pytest

from qwen3tts_engine.model_names import STAND_IN_IDS, given_name, names_of, published_id


@pytest.mark.parametrize(
    ("size", "task", "expected"),
    [
        ("1b7", "custom_voice", "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"),
        ("0b6", "base", "Qwen/Qwen3-TTS-12Hz-0.6B-Base"),
        ("1b7", "voice_design", "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign"),
        ("", "base", ""),
        ("../x", "base", ""),
    ],
)
def test_size_and_task_give_the_id_under_which_a_checkpoint_is_published(
    size: str, task: str, expected: str
) -> None:
    assert published_id(size, task) == expected


def test_an_id_is_also_known_by_its_last_part() -> None:
    assert names_of(["Qwen/A", "", "A", "b"]) == ("Qwen/A", "A", "b")
    assert names_of(STAND_IN_IDS)[1] == "Qwen3-TTS-12Hz-1.7B-CustomVoice"


def test_of_a_folder_only_the_last_part_is_told() -> None:
    assert given_name("Qwen/A", is_folder=False) == "Qwen/A"
    assert given_name("/srv/models/mine/", is_folder=True) == "mine"
    assert given_name("/cache/snapshots/" + "0a" * 20, is_folder=True) == ""
