"""The list of voices: what a published voice's name tells."""

from __future__ import annotations

import pytest

from qwen3tts_engine.piper.catalogue import LoadedVoice, PiperCatalogue


@pytest.mark.parametrize(
    ("name", "sex"),
    [
        ("en_US-joe-medium", "male"),
        ("en_GB-southern_english_female-low", "female"),
        ("en_US-amy-low", "female"),
        ("en_US-libritts-high", None),
        ("joe", None),
    ],
)
def test_the_sex_of_a_published_voice_is_known_by_its_name(name: str, sex: str | None) -> None:
    catalogue = PiperCatalogue([LoadedVoice(name, 22_050, "en-US")], name)
    assert [voice.gender for voice in catalogue.voices] == [sex]


def test_of_a_speaker_the_name_of_the_voice_says_nothing() -> None:
    catalogue = PiperCatalogue([LoadedVoice("en_US-joe-medium", 22_050, "en-US", ("a", "b"))], "")
    assert [voice.gender for voice in catalogue.voices] == ["male", None, None]
