"""The OpenAPI page is true: what it describes is served, what it does not is refused."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from qwen3tts_engine.base import Voice
from qwen3tts_engine.recogniser import Recogniser
from qwen3tts_server.app import create_app
from qwen3tts_server.dialects.encoding import FORMS, content_type
from qwen3tts_server.dialects.openai.openapi import BatchResults, ItemResult, Recording, Upload
from qwen3tts_server.dialects.openai.request import SpeechRequest
from qwen3tts_server.run import running_server
from qwen3tts_server.settings import OpenAISettings
from tests.engine.fake_engine import VOICES, CloningEngine, FakeEngine
from tests.server.openai.caller import SPEECH, FakeRecogniser, calling

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ROUTES = [
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/v1/audio/voices"),
    ("POST", "/v1/audio/voices"),
    ("DELETE", "/v1/audio/voices/{name}"),
    ("POST", "/v1/audio/speech"),
    ("POST", "/v1/audio/speech/batch"),
    ("POST", "/v1/audio/transcriptions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("GET", "/v1/voices"),
]
BODIES = ("/v1/audio/speech", "/v1/audio/voices")
CASES = [(GenerationMode.POSITIVE, *route) for route in ROUTES] + [
    (GenerationMode.NEGATIVE, "POST", path) for path in BODIES
]
SEARCH = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Willing(CloningEngine):
    """One that has only voices that speak."""

    def voices(self) -> Sequence[Voice]:
        return VOICES[:2]

    def recogniser(self) -> Recogniser | None:
        return FakeRecogniser()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where a server listens, in a thread of its own."""
    found: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with running_server(Willing()) as server:
            found.append(f"http://127.0.0.1:{server.port}")
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(20)
    yield found[0]
    done.set()
    thread.join(20)
    assert not thread.is_alive()


def page() -> dict[str, Any]:
    return create_app(Willing()).openapi()


def test_the_page_lists_all_routes() -> None:
    paths = page()["paths"]
    listed = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert listed == set(ROUTES)


def test_every_route_states_its_errors_in_one_shape() -> None:
    for methods in page()["paths"].values():
        for operation in methods.values():
            assert set(operation["responses"]) == {"200", "default"}
            shown = operation["responses"]["default"]["content"]["application/json"]["schema"]
            assert shown == {"$ref": "#/components/schemas/ErrorAnswer"}


@pytest.mark.network
@pytest.mark.parametrize(("mode", "method", "path"), CASES)
def test_a_route_answers_as_the_page_says(
    address: str, mode: GenerationMode, method: str, path: str
) -> None:
    operation = schemathesis.openapi.from_dict(page())[path][method]
    statuses: set[int] = set()

    @SEARCH
    @given(case=operation.as_strategy(generation_mode=mode))
    def search(case: Any) -> None:
        statuses.add(case.call_and_validate(base_url=address, checks=CHECKS).status_code)

    search()
    if mode is GenerationMode.NEGATIVE:
        assert statuses
        # In a form everything is text: a number where text is due cannot be told from text.
        assert path != SPEECH or all(400 <= each < 500 for each in statuses)
    elif "{" not in path:
        assert 200 in statuses


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
