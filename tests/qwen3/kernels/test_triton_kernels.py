"""The GPU kernels: against plain torch, by Triton's interpreter; and compiled, without a GPU."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from qwen3tts_engine.qwen3.model.model import Qwen3Model
from tests.conftest import require_package
from tests.qwen3.model.small import small_config, small_weights

NAMES = (
    "norm_linear",
    "gated_linear",
    "add_linear",
    "decode_attention",
    "prefill_attention",
    "frame_attention",
    "first_attention",
)
FOLDER = Path(__file__).parent


@pytest.mark.parametrize("cases", ["triton_cases", "sampling_cases"])
def test_the_kernels_do_what_plain_torch_does(cases: str) -> None:
    require_package("triton", "pip install --group kernels")
    file = FOLDER / f"{cases}.py"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        cwd=FOLDER.parents[2],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "passed" in run.stdout


class Launches:
    """Stand-in for a kernel: records its launches and does nothing, or what it was given."""

    def __init__(self, does: Callable[..., object] = lambda *_: None) -> None:
        self.seen: list[tuple[tuple[int, ...], dict[str, Any]]] = []
        self._does = does

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any, **constants: Any) -> None:
            self.seen.append((grid, constants))
            self._does(*arguments)

        return launch


def test_kernels_that_do_nothing_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    require_package("triton", "pip install --group kernels")
    folder = "qwen3tts_engine.qwen3.kernels"
    kernels = importlib.import_module(f"{folder}.triton_kernels")
    attention = importlib.import_module(f"{folder}.attention_kernels")
    layers = importlib.import_module(f"{folder}.layer_kernels")
    attend, linear = Launches(), Launches()
    monkeypatch.setattr(attention, "_attend", attend)
    monkeypatch.setattr(attention, "_attend_first", Launches())
    prompt = importlib.import_module(f"{folder}.prompt_kernels")
    monkeypatch.setattr(prompt, "_attend_prompt", Launches())
    monkeypatch.setattr(layers, "_linear", linear)
    monkeypatch.setattr(kernels, "TRITON", replace(kernels.TORCH_KERNELS, **{
        name: getattr(kernels, name) for name in NAMES
    }))  # fmt: skip
    zeros = torch.Tensor.new_zeros
    monkeypatch.setattr(torch.Tensor, "new_empty", zeros)
    config = small_config(projection=True)
    model = Qwen3Model.from_weights(config, *small_weights(config), fused_norm=True)
    found, failed = kernels.usable(model)
    assert found == kernels.TORCH_KERNELS
    assert set(failed) == set(NAMES)
    slotted, framed = attend.seen
    # A row of two key heads; blocks of the cache are of the same bytes.
    assert (slotted[0], framed[0]) == ((1, 2, 16), (2, 2, 1))
    assert (slotted[1]["PLACES"], framed[1]["PLACES"]) == (32, 16)
    assert slotted[1]["BLOCK_QUERIES"] == slotted[1]["BLOCK_HALF"] == attention.LEAST
    # Tried at the model's own shapes, at one row.
    talker = config.talker.layers
    grid, constants = linear.seen[0]
    out = (talker.heads + 2 * talker.kv_heads) * talker.head_dim
    assert (constants["K"], constants["N"], constants["BLOCK_ROWS"]) == (talker.hidden, out, 1)
    assert grid == (-(-out // constants["BLOCK_N"]),)
    assert constants["PDL"] is False


def test_few_rows_share_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    require_package("triton", "pip install --group kernels")
    attention = importlib.import_module("qwen3tts_engine.qwen3.kernels.attention_kernels")
    cpu = torch.device("cpu")
    assert [attention.splits_of(8 * rows, cpu) for rows in (1, 2, 4, 8, 16, 64)] == [
        16, 8, 4, 2, 1, 1,
    ]  # fmt: skip
    monkeypatch.setattr(attention, "multiprocessors", lambda _device: 24)
    assert [attention.splits_of(8 * rows, cpu) for rows in (1, 2, 4)] == [2, 1, 1]


@pytest.mark.parametrize(
    ("capability", "driver", "early"),
    [
        ((8, 9), 13000, False),
        ((9, 0), 13000, True),
        ((12, 0), 12030, True),
        ((9, 0), 12020, False),
        ((9, 0), None, False),
    ],
)
def test_a_launch_is_early_where_gpu_and_driver_can(
    capability: tuple[int, int],
    driver: int | None,
    early: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_package("triton", "pip install --group kernels")
    pdl = importlib.import_module("qwen3tts_engine.qwen3.kernels.pdl")
    pdl.has_pdl.cache_clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    if driver is not None:
        monkeypatch.setattr(torch._C, "_cuda_getDriverVersion", lambda: driver, raising=False)
    options = pdl.launch_options(torch.device("cuda", 0))
    pdl.has_pdl.cache_clear()
    assert options == ({"PDL": True, "launch_pdl": True} if early else {"PDL": False})
    assert pdl.launch_options(torch.device("cpu")) == {"PDL": False}
