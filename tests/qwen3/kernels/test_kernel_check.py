"""The kernels that the published models launch compile for GPUs, within their limits."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import require_package
from tests.qwen3.kernels.gpu_benchmarks import benchmark_module

OTHERS = {"_swiglu", "_store_codes"}
"""Kernels of more than 16 rows, and of rows whose sampling needs a full sort."""

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def kernels() -> Any:
    require_package("triton", "pip install --group kernels")
    return benchmark_module("gpu.kernels")


def test_the_kernels_of_the_large_model_keep_the_rules(kernels: Any, tmp_path: Path) -> None:
    """One shape of each for an H100; benchmarks/kernel_check.py compiles all for all."""
    found = kernels.compile_all(
        90,
        torch.bfloat16,
        models=("1.7b-custom_voice",),
        rows=(1,),
        large=False,
        most=1,
        cache=tmp_path,
    )
    assert [fault for one in found for fault in one.faults()] == []
    # No rule is left of a kernel that is launched no more.
    seen = {one.kernel for one in found}
    assert {rule.kernel for rule in kernels.RULES} - seen <= OTHERS


@pytest.fixture
def good(kernels: Any) -> Any:
    return kernels.Compiled(
        "_attend", 90, torch.bfloat16, 4, 80, 0, 38912, True, True, dependent=True, waits=True
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"stack": 8}, "8 bytes of local memory"),
        ({"registers": 255, "warps": 16}, "255 registers, 16 warps"),
        ({"shared": 200 << 10}, "200.0 KiB of shared memory"),
        ({"products": False}, "tensor cores"),
        ({"copies": False}, "asynchronous"),
        ({"waits": False}, "griddepcontrol"),
        ({"kernel": "_unknown"}, "has no limits"),
    ],
    ids=["spill", "registers", "shared", "products", "copies", "dependent", "unknown"],
)
def test_what_breaks_a_rule_is_named(good: Any, change: dict[str, Any], says: str) -> None:
    assert list(good.faults()) == []
    (fault,) = replace(good, **change).faults()
    assert says in fault


def test_float32_needs_no_tensor_cores(good: Any) -> None:
    plain = replace(good, dtype=torch.float32, products=False, copies=False)
    assert list(plain.faults()) == []


def test_the_script_ends_with_1_for_a_fault(
    kernels: Any, good: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = benchmark_module("kernel_check")
    monkeypatch.setattr(sys, "argv", ["kernel_check.py", "--quick"])
    found = [good, replace(good, stack=16)]
    monkeypatch.setattr(script, "compile_all", lambda *_, **__: found)
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert "FAULT _attend sm_90 bf16: 16 bytes of local memory a thread" in said
    assert said.splitlines()[-1] == "FIGURE kernel_check kernels=1 faults=1"
    found.pop()
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 0
