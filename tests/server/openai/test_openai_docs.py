"""docs/dialects/openai.md and the code say the same."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from qwen3tts_server.app import create_app
from qwen3tts_server.dialects.encoding import FORMS, content_type
from qwen3tts_server.dialects.openai_page import Upload
from qwen3tts_server.dialects.openai_request import SpeechRequest
from qwen3tts_server.dialects.openai_settings import OpenAISettings
from tests.engine.fake_engine import FakeEngine

PAGE = Path(__file__).parents[3] / "docs" / "dialects" / "openai.md"
TEXT = PAGE.read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    text = TEXT.partition(f"{heading}\n")[2]
    table = re.search(r"^\|.*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert table is not None, heading
    lines = table[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_field_is_described() -> None:
    told = [name for row in rows("## `POST /v1/audio/speech`") for name in named(row[0])]
    assert sorted(told) == sorted(SpeechRequest.model_fields)


def test_every_form_is_described() -> None:
    told = {named(row[0])[0]: named(row[1])[0] for row in rows("### Forms")}
    assert told == {form: content_type(form) for form in FORMS}


def test_every_field_of_an_upload_is_described() -> None:
    told = [name for row in rows("## Voices") for name in named(row[0])]
    assert sorted(told) == sorted(Upload.model_fields)


def test_every_setting_is_described_with_its_default() -> None:
    told = {named(row[0])[0]: row[1].replace("`", "") for row in rows("## Settings")}
    settings = OpenAISettings()
    assert sorted(told) == sorted(each.name for each in fields(settings))
    for name, shown in told.items():
        value = getattr(settings, name)
        assert shown == (
            ", ".join(value)
            if isinstance(value, tuple)
            else f"{value:g}"
            if isinstance(value, float)
            else str(value)
        )


@pytest.mark.parametrize("route", ["/v1/audio/speech", "/v1/audio/voices", "/v1/models"])
def test_the_routes_are_served(route: str) -> None:
    assert route in create_app(FakeEngine()).openapi()["paths"]
    assert f"`{'POST' if 'speech' in route else 'GET'} {route}`" in TEXT
