from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qwen3tts_phone.settings.records import RecordSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"audio_format": "mp3"},
        {"consent": "yes"},
        {"consent": "announcement", "consent_text": " "},
        {"audio_bitrate": 100},
        {"consent": "tone", "consent_every_s": 1.0},
        {"consent_every_s": 15.0},
        {"log_keep_days": -1.0},
        {"audio_keep_days": float("nan")},
        {"log_max_bytes": -1},
        {"log_files": -1},
        {"audio_max_bytes": -5},
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, Any]) -> None:
    name = next(reversed(wrong))
    with pytest.raises(ValueError, match=name):
        RecordSettings(**wrong)


def test_nothing_is_kept_unless_asked_for() -> None:
    settings = RecordSettings()
    assert settings.log is None
    assert not settings.keeps_audio
    assert not settings.keys
    assert not settings.transcript
    assert not settings.name_with_party
    assert RecordSettings(audio=Path("calls")).keeps_audio
