"""What the server counts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from qwen3tts_engine.base import EngineLoad
from qwen3tts_engine.wrapped import WrappedEngine
from qwen3tts_server.app import create_app
from qwen3tts_server.dialects.native.connection import NAME as NATIVE
from qwen3tts_server.metrics import ServerMetrics
from qwen3tts_server.run import running_server
from qwen3tts_server.service import Service
from qwen3tts_server.settings import ServerSettings
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.context import Context
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.events import Audio, Done
from tests.engine.fake_engine import FakeEngine


def figures(meter: ServerMetrics) -> dict[str, float]:
    """Every sample as ``name{label=value}``, without buckets."""
    body, _ = meter.exposition("", ready=True)
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            if "le" not in sample.labels and family.name.startswith("qwen3tts"):
                name = sample.name.removeprefix("qwen3tts_")
                found[",".join([name, *sample.labels.values()])] = sample.value
    return found


async def until(context: Context, kind: type) -> None:
    async for event in context:
        if isinstance(event, kind):
            return


@pytest.mark.network
async def test_what_becomes_of_utterances_is_counted() -> None:
    engine = FakeEngine()
    async with running_server(engine) as server:
        meter = server.service.meter
        async with await SpeechClient.connect(server.url) as client:
            said = await client.open()
            await said.append("abc de.")
            await said.end()
            await until(said, Done)
            await said.report(1000, "starved")
            await said.cancel(2000)
            broken = await client.open(voice="unlisted")
            with pytest.raises(SpeechError):
                await until(broken, Done)
            failed = await client.open(voice="fail-late")
            await failed.append("abcdefgh.")
            await failed.end()
            with pytest.raises(SpeechError):
                await until(failed, Done)
            cancelled = await client.open(voice="stall")
            await cancelled.append("abcdefgh.")
            await cancelled.flush()
            await until(cancelled, Audio)
            assert figures(meter)[f"utterances_open,{NATIVE}"] == 1
            assert figures(meter)[f"connections,{NATIVE}"] == 1
            await cancelled.cancel(0)
            left = await client.open(voice="stall")
            await left.append("abcdefgh.")
            await left.flush()
            await until(left, Audio)
        await server.service.drain(5)
        counted = figures(meter)
    assert counted[f"utterances_total,{NATIVE},done"] == 1
    assert counted[f"utterances_total,{NATIVE},cancelled_done"] == 1
    assert counted[f"utterances_total,{NATIVE},engine_failed"] == 1
    assert counted[f"utterances_total,{NATIVE},cancelled"] == 1
    assert counted[f"utterances_total,{NATIVE},gone"] == 1
    assert counted[f"utterances_open,{NATIVE}"] == 0
    assert counted[f"connections,{NATIVE}"] == 0
    assert counted[f"errors_total,unknown_voice,{NATIVE}"] == 1
    assert counted[f"errors_total,engine_failed,{NATIVE}"] == 1
    assert counted[f"starved_reports_total,{NATIVE}"] == 1
    assert counted[f"lead_seconds_count,{NATIVE}"] == 1
    assert counted[f"first_audio_seconds_count,{NATIVE}"] == 4
    assert counted[f"characters_total,{NATIVE}"] == 7 + 3 * 9


async def test_the_page_has_the_engines_load_and_what_runs() -> None:
    class Busy(FakeEngine):
        def load(self) -> object:
            from qwen3tts_engine.base import EngineLoad

            return EngineLoad(slots=4, busy=3, waiting=2)

    class Starters(WrappedEngine):
        hits, misses, bytes, entries = 5, 6, 700, 8

    app = create_app(Starters(Busy()), ServerSettings())
    service: Service = app.state.service
    await service.start()
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        plain = await client.get("/metrics")
        openmetrics = await client.get(
            "/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}
        )
    await service.close()
    assert plain.status_code == 200
    assert plain.headers["content-type"].startswith("text/plain")
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")
    lines = plain.text.splitlines()
    for line in (
        "qwen3tts_engine_slots 4.0",
        "qwen3tts_engine_busy 3.0",
        "qwen3tts_engine_waiting 2.0",
        "qwen3tts_starter_hits_total 5.0",
        "qwen3tts_starter_misses_total 6.0",
        "qwen3tts_starter_bytes 700.0",
        "qwen3tts_starter_entries 8.0",
        "qwen3tts_ready 1.0",
    ):
        assert line in lines
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)
    assert 'engine="fake"' in plain.text


def test_two_servers_in_one_process_count_apart() -> None:
    one, other = ServerMetrics(FakeEngine()), ServerMetrics(FakeEngine())
    one.connected("x", 1)
    assert figures(one)["connections,x"] == 1
    assert "connections,x" not in figures(other)


FILE = Path(__file__).parents[2] / "deploy" / "grafana" / "speech_server.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text("utf-8"))


class Busy(FakeEngine):
    def load(self) -> EngineLoad:
        return EngineLoad(slots=4, busy=3, waiting=2)


class Starters(WrappedEngine):
    hits, misses, bytes, entries = 1, 1, 1, 1


def served() -> set[str]:
    meter = ServerMetrics(Starters(Busy()))
    body, _ = meter.exposition("", ready=True)
    names = set()
    for family in text_string_to_metric_families(body.decode()):
        names.add(family.name + ("_total" if family.type == "counter" else ""))
        names |= {family.name + end for end in ("_bucket", "_count", "_sum")}
    return names


def test_every_figure_asked_for_is_served() -> None:
    asked = set()
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            asked |= set(re.findall(r"\b(?:qwen3tts|process)_\w+", target["expr"]))
    assert len(asked) > 15
    assert asked <= served()


def test_panels_have_their_own_place_and_number() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
