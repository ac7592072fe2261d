"""The dashboard asks for figures that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from qwen3tts_engine.base import EngineLoad
from qwen3tts_engine.wrapped import WrappedEngine
from qwen3tts_server.metrics import ServerMetrics
from tests.engine.fake_engine import FakeEngine

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
