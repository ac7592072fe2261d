"""The GPU benchmark, walked through on a CPU that stands for a GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from qwen3tts_engine.qwen3.kernels.runner import LaunchMode
from qwen3tts_wire.errors import EngineUnavailable
from tests.qwen3.kernels.fake_cuda import FakeCuda, FakeStreams
from tests.qwen3.kernels.gpu_benchmarks import benchmark_module
from tests.qwen3.kernels.strict_replay import StrictReplay

Walk = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    threads, interval = torch.get_num_threads(), sys.getswitchinterval()
    module = benchmark_module("engine_gpu")
    loads = benchmark_module("gpu.loads")
    # An utterance of a fifth of a second, one of each kind of load.
    monkeypatch.setattr(module, "TINY", loads.Sizes(1, 0.1, 0.3, 0.3, 0.2, (0.3, 0.4)))
    monkeypatch.setattr(module, "ROWS", (1, 2))
    monkeypatch.setattr(module, "RATES", (20.0,))
    yield module
    torch.set_num_threads(threads)
    sys.setswitchinterval(interval)


@pytest.fixture
def walk(
    script: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Walk:
    def walk(*options: str) -> tuple[int, dict[str, Any], str]:
        file = tmp_path / "figures.json"
        argv = ["engine_gpu.py", "--device", "cpu", "--json", str(file), *options]
        monkeypatch.setattr(sys, "argv", argv)
        status = 0
        try:
            script.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        return status, json.loads(file.read_text(encoding="utf-8")), capsys.readouterr().out

    return walk


def as_on_a_gpu(**_: object) -> LaunchMode:
    return LaunchMode(static=True, streams=FakeStreams(FakeCuda()), backend=StrictReplay())


def test_every_part_gives_its_figures(
    walk: Walk, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "LaunchMode", as_on_a_gpu)
    status, record, said = walk("--slots", "2", "--positions", "128")
    assert record["failed"] == {}
    assert status == 0
    figures = record["figures"]
    for name in ("first_ms_p50_1call", "first_ms_p50_streaming", "first_ms_p50_clone"):
        assert figures[name] > 0
    assert figures["step_ms_1row"] > 0
    assert figures["first_ms_p95_20rps"] >= figures["first_ms_p50_20rps"] > 0
    assert figures["audio_s_per_s"] == figures["audio_s_per_s_2rows"] > 0
    assert figures["captured"] > 0
    assert figures["slots"] == 2
    rows = [row["rows"] for row in next(v for k, v in record["tables"].items() if "step" in k)]
    assert rows == [1, 1, 2]
    assert {row["what"] for row in record["tables"]["machine"]} >= {"torch", "triton", "device"}
    assert said.splitlines()[-1].startswith("FIGURE engine_gpu gpu=cpu model=1.7b")
    # What a CPU has not.
    assert figures["step_ms_64rows"] == "none"


def test_a_part_that_fails_is_recorded_and_the_rest_goes_on(
    walk: Walk, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> float:
        raise RuntimeError("CUDA error: device lost")

    monkeypatch.setattr(script.Loads, "throughput", lost)
    options = [f"--part={part}" for part in ("throughput", "first")]
    status, record, said = walk("--slots=1", *options)
    assert status == 1
    assert record["failed"] == {"throughput": "RuntimeError: CUDA error: device lost"}
    assert record["figures"]["first_ms_p50_1call"] > 0
    assert record["figures"]["audio_s_per_s"] == "none"
    assert "FIGURE engine_gpu" in said


def test_a_model_that_does_not_fit_is_recorded(
    walk: Walk, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise EngineUnavailable("No room.", remedy="Take less.")

    monkeypatch.setattr(script, "Runner", full)
    status, record, _ = walk()
    assert status == 1
    assert record["failed"] == {"load": "EngineUnavailable: No room. Take less."}
    assert record["figures"]["step_ms_1row"] == "none"


def test_slots_are_those_that_fit_if_none_are_asked_for(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    def runner(_: object, *, slots: object, **__: object) -> str:
        tried.append(slots)
        if slots == script.MOST_SLOTS:
            raise EngineUnavailable("No room for 256.", remedy="Take less.")
        return "made"

    monkeypatch.setattr(script, "Runner", runner)
    run = script.Run.__new__(script.Run)
    monkeypatch.setattr(script.Run, "note", lambda *_: None)
    run.model = None
    run.args = type(
        "Args", (), {"slots": None, "positions": 8, "compile": False, "persistent": False}
    )
    assert run.make_runner() == "made"
    assert tried == [256, "auto"]


def test_the_check_says_whether_the_engine_is_right_here(
    walk: Walk, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = {"graphs": script.CHECKS["graphs"], "devices": script.CHECKS["devices"]}
    monkeypatch.setattr(script, "CHECKS", checks)
    status, record, said = walk("--check")
    assert (status, record["figures"]["failed"], record["figures"]["checks"]) == (0, 0, 3)
    assert "passed graph = eager" in said

    def broken(_: object) -> Iterator[object]:
        raise RuntimeError("no kernel image")

    checks["graphs"] = broken
    status, record, _ = walk("--check")
    assert (status, record["figures"]["failed"]) == (1, 1)
    assert record["failed"] == {"graphs": "RuntimeError: no kernel image"}
