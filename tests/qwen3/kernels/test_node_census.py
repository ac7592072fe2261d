"""Kernels of a frame on the CUDA path: limits that only fall, and the rule of counting."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.conftest import require_package
from tests.qwen3.kernels.gpu_benchmarks import benchmark_module

LIMITS = {"step": 553, "codec": 100, "prefill": 243}
"""Kernels of a frame step, of a decode of one frame and of a prefill of 16 positions for up to two
rows: at most. They are lowered with each change that takes kernels away."""
SLACK = 10
"""A limit further above its count would let kernels come back unseen."""


@pytest.fixture(scope="module")
def census() -> Any:
    require_package("triton", "pip install --group kernels")
    return benchmark_module("gpu.census")


@pytest.mark.parametrize(
    ("name", "rows"), [("0.6b-custom_voice", 1), ("1.7b-custom_voice", 1), ("1.7b-custom_voice", 2)]
)
def test_a_frame_takes_no_more_kernels_than_before(census: Any, name: str, rows: int) -> None:
    stages = census.census(name, rows=rows)
    assert 0 < census.step_nodes(stages) <= LIMITS["step"]
    assert 0 < stages["codec"].nodes <= LIMITS["codec"]
    assert 0 < stages["prefill"].nodes <= LIMITS["prefill"]
    if rows == 2:
        assert census.step_nodes(stages) > LIMITS["step"] - SLACK
        assert stages["codec"].nodes > LIMITS["codec"] - SLACK
        assert stages["prefill"].nodes > LIMITS["prefill"] - SLACK


def test_bytes_are_those_of_the_weights_at_one_row(census: Any) -> None:
    """28 layers of the talker, 16 passes of the predictor's five; the rest is small."""
    talker = 2 * 28 * (2048 * (4096 + 2048) + 2048 * 3 * 6144)
    stages = census.census("1.7b-custom_voice", rows=1)
    assert 1 < stages["talker"].bytes / talker < 1.05
    predictor = 2 * 15 * 5 * (1024 * (4096 + 2048) + 1024 * 3 * 3072)
    assert 1 < stages["predictor"].bytes / predictor < 1.1


def test_a_layer_is_five_kernels_up_to_16_rows() -> None:
    """28 layers of the talker and its head; 15 passes of the predictor's five layers and a head."""
    require_package("triton", "pip install --group kernels")
    trace = benchmark_module("gpu.trace")
    model = trace.meta_model("0.6b-custom_voice", torch.bfloat16, torch.float16)

    def layers(rows: int) -> dict[str, Counter[str]]:
        seen = trace.Trace(model, rows)
        seen.step()
        found: dict[str, Counter[str]] = {"talker": Counter(), "predictor": Counter()}
        for node in seen.nodes:
            if node.stage in found and node.name in ("_linear", "_attend", "_attend_first", "mm"):
                found[node.stage][node.name] += 1
        return found

    talker, passes = {"_linear": 28 * 4 + 1, "_attend": 28}, 15
    predictor = {"_linear": passes * (5 * 4 + 1), "_attend": (passes - 1) * 5, "_attend_first": 5}
    assert layers(1) == layers(8) == {"talker": talker, "predictor": predictor}
    # Positions 0 and 1 are twice the rows.
    assert layers(16)["talker"] == talker
    assert layers(16)["predictor"]["mm"] == 5 + 4
    assert layers(17)["talker"] == {"_attend": 28, "mm": 2 * 28 + 1}


class TestRule:
    @pytest.fixture
    def count(self, census: Any) -> Callable[[Callable[[], object]], dict[str, int]]:
        trace = benchmark_module("gpu.trace")
        model = trace.meta_model("0.6b-custom_voice", torch.bfloat16, torch.float16)

        def count(run: Callable[[], object]) -> dict[str, int]:
            seen = trace.Trace(model, 1)
            seen.run("draw", run)
            return {node.name: node.bytes for node in seen.nodes}

        return count

    def test_views_and_memory_are_free(self, count: Any) -> None:
        def run() -> None:
            x = torch.empty(2, 3, 4, device="meta")
            x[0, 1:].transpose(0, 1).expand(2, -1, -1).unbind(0)
            x.new_empty(3)

        assert count(run) == {}

    def test_a_sum_in_place_copies_nothing(self, count: Any) -> None:
        x, a, b = (torch.empty(4, 4, device="meta") for _ in range(3))
        assert count(lambda: x.addmm_(a, b)) == {"addmm_": 4 * 64}
        assert count(lambda: torch.addmm(x, a, b, out=x)) == {"addmm": 4 * 64 + 64}
        assert count(lambda: torch.addmm(x, a, b)) == {"addmm": 4 * 64, "addmm's copy": 2 * 64}
        bias = torch.empty(4, device="meta")
        assert count(lambda: torch.addmm(bias, a, b)) == {"addmm": 3 * 64 + 16}

    def test_a_lookup_reads_only_what_it_gives(self, count: Any) -> None:
        table, ids = (
            torch.empty(999, 4, device="meta"),
            torch.zeros(2, dtype=torch.int64, device="meta"),
        )
        assert count(lambda: table.index_select(0, ids)) == {"index_select": 2 * 32}

    def test_norms_and_attention_are_one_each(self, count: Any) -> None:
        x = torch.empty(1, 2, 3, 8, device="meta")

        def run() -> None:
            torch.nn.functional.rms_norm(x, (8,))
            torch.nn.functional.scaled_dot_product_attention(x, x, x)

        assert list(count(run)) == ["rms_norm", "scaled_dot_product_attention"]


def test_the_table_prints(
    census: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = benchmark_module("node_census")
    monkeypatch.setattr(script, "MODELS", ("1.7b-custom_voice",))
    monkeypatch.setattr(sys, "argv", ["node_census.py", "--kernels"])
    script.main()
    said = capsys.readouterr().out
    assert said.splitlines()[-1].startswith("FIGURE node_census step_nodes_17b=")
    assert "language model step" in said
    assert "rms_norm" in said
