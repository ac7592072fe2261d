"""The OpenAPI page is true: what it describes is served, what it does not is refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
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

from qwen3tts_engine.base import Recogniser, Voice
from qwen3tts_server.app import create_app
from qwen3tts_server.run import running_server
from tests.engine.fake_engine import VOICES, CloningEngine
from tests.server.openai.caller import SPEECH
from tests.server.openai.recogniser import FakeRecogniser

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
