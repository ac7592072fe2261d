"""Where a phone's spans go, as its settings say it."""

from __future__ import annotations

import pytest

from qwen3tts_phone.phone import PhoneSettings
from qwen3tts_phone.settings.file import config_from
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
