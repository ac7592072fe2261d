"""The profiler's routes."""

from __future__ import annotations

import pstats
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from qwen3tts_server.app import Profiler, create_app
from qwen3tts_server.settings import AccessSettings, ServerSettings
from tests.engine.fake_engine import FakeEngine


def client_of(**settings: Any) -> httpx.AsyncClient:
    app = create_app(FakeEngine(), ServerSettings(**settings))
    transport = httpx.ASGITransport(app=app)
    return httpx.AsyncClient(transport=transport, base_url="http://tts")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(profiler=True, profile_folder=str(tmp_path / "profiles")) as client:
        yield client


async def test_a_profile_is_written_and_told(client: httpx.AsyncClient, tmp_path: Path) -> None:
    assert (await client.post("/start_profile")).json() == {"status": "ok"}
    again = await client.post("/start_profile")
    assert again.status_code == 409
    assert set(again.json()["error"]) == {"message", "type", "param", "code"}
    await client.get("/health")
    told = (await client.post("/stop_profile")).json()
    assert Path(told["file"]).parent == tmp_path / "profiles"
    assert any("cumulative" in line for line in told["table"])
    assert pstats.Stats(told["file"]).total_calls > 0  # type: ignore[attr-defined]
    assert (await client.post("/stop_profile")).status_code == 409


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with client_of(profiler=True, profile_folder=str(tmp_path / "file")) as client:
        await client.post("/start_profile")
        answer = await client.post("/stop_profile")
    assert answer.status_code == 409


async def test_without_the_setting_there_are_no_such_routes() -> None:
    async with client_of() as client:
        assert (await client.post("/start_profile")).status_code == 404


async def test_the_profiler_asks_for_a_key(tmp_path: Path) -> None:
    access = AccessSettings(api_keys=("a-key",))
    async with client_of(profiler=True, access=access) as client:
        assert (await client.post("/start_profile")).status_code == 401


async def test_a_profile_that_nobody_stops_stops_itself(tmp_path: Path) -> None:
    profiler = Profiler(tmp_path)
    profiler.start()
    profiler._stop_late()
    profiler._stop_late()
    assert not profiler.running
    assert len(list(tmp_path.iterdir())) == 1
