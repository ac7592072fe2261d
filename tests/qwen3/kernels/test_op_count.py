"""How many operations a frame takes: what bounds a large GPU at few rows."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

LIMITS = {"cpu": 2500, "cuda": 2000}
"""For the whole frame; plain torch takes 6537."""


@pytest.fixture(scope="module")
def module() -> Any:
    return importlib.import_module("benchmarks.op_count")


@pytest.mark.parametrize(
    ("device", "dtype"), [("cpu", torch.float32), ("cuda", torch.bfloat16)], ids=["cpu", "cuda"]
)
def test_a_frame_of_the_large_model_stays_under_the_limit(
    module: Any, device: str, dtype: torch.dtype
) -> None:
    """All 28, 5 and 8 layers, and the projection between talker and predictor."""
    counts = module.frame_ops("1.7b-custom_voice", device=device, dtype=dtype)
    sums = {part: count.total() for part, count in counts.items()}
    assert sum(sums.values()) < LIMITS[device]
    for part, plain in module.PLAIN_TORCH.items():
        assert 0 < sums[part] < 0.6 * plain


def test_more_rows_take_no_more_operations(module: Any) -> None:
    few, many = (
        sum(part.total() for part in module.frame_ops("0.6b-custom_voice", rows=rows).values())
        for rows in (2, 9)
    )
    assert few == many


class TestRule:
    def test_views_and_memory_are_free(self, module: Any) -> None:
        def run() -> None:
            x = torch.empty(2, 3, 4)
            x.t if x.dim() == 2 else x.view(6, 4).t()
            x[0, 1:].transpose(0, 1).expand(2, -1, -1).unbind(0)
            x.new_empty(3)

        assert not module.count_ops(run)

    def test_what_computes_counts_as_it_comes_apart(self, module: Any) -> None:
        x, weight, bias = torch.ones(2, 3), torch.ones(4, 3), torch.ones(4)

        def run() -> None:
            torch.nn.functional.linear(x, weight)
            torch.nn.functional.linear(x, weight, bias)
            x.add_(1)

        assert module.count_ops(run) == {"mm": 1, "addmm": 1, "add_": 1}

    def test_a_fused_norm_counts_once_where_the_device_has_it(self, module: Any) -> None:
        x = torch.ones(2, 8)

        def run() -> None:
            torch.nn.functional.rms_norm(x, (8,))

        assert module.count_ops(run, device="cuda") == {"rms_norm": 1}
        assert module.count_ops(run).total() > 3

    def test_attention_counts_once(self, module: Any) -> None:
        q = torch.ones(1, 2, 3, 8)

        def run() -> None:
            torch.nn.functional.scaled_dot_product_attention(q, q, q)

        for device in ("cpu", "cuda"):
            assert module.count_ops(run, device=device).total() == 1


def test_the_table_prints(
    module: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MODELS", ("1.7b-custom_voice",))
    monkeypatch.syspath_prepend(str(Path(module.__file__).parent))
    monkeypatch.setattr(sys, "argv", ["op_count.py"])
    module.main()
    said = capsys.readouterr().out
    assert said.splitlines()[-1].startswith("FIGURE op_count ops_17b_cpu=")
    assert "1.7b-custom_voice" in said
    assert "6537" in said
