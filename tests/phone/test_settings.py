"""Settings of telemetry and of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qwen3tts_phone.phone import PhoneSettings
from qwen3tts_phone.settings.file import config_from
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.softphone.settings import SoftphoneSettings
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_settings.entries import BadConfiguration, from_yaml


def test_the_file_names_the_collector() -> None:
    config = config_from(from_yaml("speech: {otel: 'http://127.0.0.1:4318'}", "phone.yaml"))
    assert config.settings().otel == "http://127.0.0.1:4318"


def test_an_address_that_is_none_is_told_with_its_place() -> None:
    with pytest.raises(BadConfiguration, match=r"otel='ftp://x' is no address.*phone\.yaml:1"):
        config_from(from_yaml("speech: {otel: 'ftp://x'}", "phone.yaml"))


@pytest.mark.parametrize("kind", [PhoneSettings, StreamSettings, SoftphoneSettings])
def test_every_line_refuses_what_is_no_address(kind: type) -> None:
    assert kind().otel is None
    with pytest.raises(ValueError, match=r"^otel="):
        kind(otel="collector")


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
