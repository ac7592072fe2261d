"""The GPU kernels: against plain torch, by Triton's interpreter; and compiled, without a GPU."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from qwen3tts_engine.qwen3.model.transformer import swiglu
from tests.conftest import require_package

CASES = Path(__file__).with_name("triton_cases.py")


def test_the_kernels_do_what_plain_torch_does() -> None:
    require_package("triton", "pip install --group kernels")
    root = CASES.parents[2]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)],
        cwd=root,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "passed" in run.stdout


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("slotted", "element"), [(True, "bf16"), (False, "bf16"), (True, "fp32")])
def test_the_attention_kernel_compiles_for_a_gpu(
    slotted: bool, element: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_package("triton", "pip install --group kernels")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernels = importlib.import_module("qwen3tts_engine.qwen3.kernels.triton_kernels")
    dtype = torch.bfloat16 if element == "bf16" else torch.float32
    constants = {
        "KV_GAP": 128,
        "GROUPS": 8,
        "QUERIES": 2,
        "BLOCK_QUERIES": kernels.LEAST,
        "HALF": 64,
        "BLOCK_HALF": 64,
        "PLACES": kernels.places_of(dtype) if slotted else kernels.FRAME_BLOCK,
        "SLOTTED": slotted,
    }
    types = dict.fromkeys(("heads", "keys", "out"), f"*{element}")
    types |= {"rotation": "*fp32", "eps": "fp32", "scale": "fp32", "softmax_scale": "fp32"}
    types |= dict.fromkeys(("slots", "lengths"), "*i64" if slotted else "i32")
    made = compiled(kernels._attend, types, constants, num_warps=4, num_stages=2)
    # What every NVIDIA GPU since 2020 gives to a block: 99 KiB.
    assert 0 < made.metadata.shared <= 99 * 1024


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
    kernels = importlib.import_module("qwen3tts_engine.qwen3.kernels.triton_kernels")
    launches = {name: Launches() for name in ("_attend", "_swiglu")}
    launches["_swiglu"] = Launches(lambda x, out: out.copy_(swiglu(x)))
    for name, launch in launches.items():
        monkeypatch.setattr(kernels, name, launch)
    zeros = torch.Tensor.new_zeros
    monkeypatch.setattr(torch.Tensor, "new_empty", zeros)
    found, failed = kernels.usable(torch.device("cpu"), torch.float32)
    assert found == replace(kernels.TORCH_KERNELS, gated_linear=kernels.gated_linear)
    assert set(failed) == {"decode_attention", "frame_attention"}
    slotted, framed = launches["_attend"].seen
    # Two rows and two key heads, each a program; blocks of the cache are of the same bytes.
    assert slotted[0] == framed[0] == (2, 2)
    assert (slotted[1]["PLACES"], framed[1]["PLACES"]) == (32, 16)
    assert slotted[1]["BLOCK_QUERIES"] == slotted[1]["BLOCK_HALF"] == kernels.LEAST


def compiled(
    kernel: Any, types: Mapping[str, str], constants: Mapping[str, object], **options: int
) -> Any:
    """The kernel's code for an H200, whose compute capability is 9.0; other arguments are int32."""
    triton = importlib.import_module("triton")
    compiler = importlib.import_module("triton.compiler")
    backends = importlib.import_module("triton.backends.compiler")
    names = kernel.arg_names
    source = compiler.ASTSource(
        fn=kernel,
        signature={
            name: "constexpr" if name in constants else types.get(name, "i32") for name in names
        },
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    made = triton.compile(source, target=backends.GPUTarget("cuda", 90, 32), options=options)
    assert made.asm["cubin"]
    return made
