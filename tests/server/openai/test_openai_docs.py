"""docs/dialects/openai.md and the code say the same."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_server.app import create_app
from qwen3tts_server.dialects.encoding import FORMS, content_type
from qwen3tts_server.dialects.openai.openapi import BatchResults, ItemResult, Recording, Upload
from qwen3tts_server.dialects.openai.request import SpeechRequest
from qwen3tts_server.settings import OpenAISettings
from tests.engine.fake_engine import FakeEngine
from tests.server.openai.caller import calling

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


def test_every_field_of_a_recording_is_described() -> None:
    told = [name for row in rows("## `POST /v1/audio/transcriptions`") for name in named(row[0])]
    assert sorted(told) == sorted(Recording.model_fields)


def test_every_setting_of_batches_is_a_bound_that_the_page_names() -> None:
    text = TEXT.partition("## `POST /v1/audio/speech/batch`\n")[2].partition("\n## ")[0]
    for name in ("max_batch_items", "max_batch_chars", "batch_slots"):
        assert f"`openai.{name}`" in text
    for name in (*BatchResults.model_fields, *ItemResult.model_fields):
        assert f"`{name}`" in text, name


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


def properties(path: str, kind: str) -> dict[str, dict[str, Any]]:
    body = create_app(FakeEngine()).openapi()["paths"][path]["post"]["requestBody"]
    found: dict[str, dict[str, Any]] = body["content"][kind]["schema"]["properties"]
    return found


async def test_the_schema_of_a_seed_has_the_bounds_that_the_route_has() -> None:
    seed = properties("/v1/audio/speech", "application/json")["seed"]
    whole = next(each for each in seed["anyOf"] if each["type"] == "integer")
    assert whole["format"] == "int64"
    # Digit by digit: as floats they would read as 9223372036854776000 elsewhere.
    assert '"minimum": -9223372036854775808' in json.dumps(whole)
    assert '"exclusiveMaximum": 9223372036854775808' in json.dumps(whole)
    least, most = whole["minimum"], whole["exclusiveMaximum"] - 1
    async with calling(FakeEngine()) as caller:
        for good in (least, most, 0):
            assert (await caller.speak(seed=good)).status == 200
        for bad in (least - 1, most + 1, 2**64, 1.5, "1"):
            answer = await caller.speak(seed=bad)
            assert answer.status == 400
            assert answer.error["param"] == "seed"


def test_the_schema_of_a_form_has_no_null() -> None:
    upload = properties("/v1/audio/voices", "multipart/form-data")
    assert set(upload) == set(Upload.model_fields)
    for name, field in upload.items():
        assert field["type"] == "string", name
        assert "default" not in field, name
    assert upload["x_vector_only_mode"]["enum"] == ["true", "false"]
    assert "speaker embedding" in upload["x_vector_only_mode"]["description"]
    speech = properties("/v1/audio/speech", "application/json")
    assert {"type": "boolean"} in speech["x_vector_only_mode"]["anyOf"]
