"""The codec's GPU kernels: by Triton's interpreter, and how many a frame takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import torch

from tests.conftest import require_package
from tests.qwen3.kernels.gpu_benchmarks import benchmark_module

CASES = Path(__file__).with_name("codec_cases.py")
NODES = 100
"""Kernels of a decode of one frame, at most; plain torch takes 361."""


def test_the_interpreted_kernels_do_what_plain_torch_does() -> None:
    require_package("triton", "pip install --group kernels")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)],
        cwd=CASES.parents[3],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "passed" in run.stdout


def test_a_frame_is_a_hundred_kernels_and_reads_its_weights_once() -> None:
    require_package("triton", "pip install --group kernels")
    trace = benchmark_module("gpu.trace")
    model = trace.meta_model("0.6b-custom_voice", torch.bfloat16, torch.float16)
    weights = sum(conv.matrix.nbytes for conv, _ in model.decoder.convolutions())
    weights += sum(
        part.nbytes
        for layer in model.decoder.layers
        for part in (layer.qkv, layer.out, layer.gate_up, layer.down)
    )

    def decoded(rows: int, frames: int) -> tuple[Counter[str], int]:
        seen = trace.Trace(model, rows)
        seen.decode(frames)
        return Counter(node.name for node in seen.nodes), sum(node.bytes for node in seen.nodes)

    names, size = decoded(1, 1)
    assert names.total() <= NODES
    assert names["_convolve"] == 5 + 2 + 2 + 4 * 7
    assert names["_attend_ring"] == model.config.codec.decoder.num_hidden_layers
    # Activations, pasts and the ring; gathered windows were 118 MB.
    assert (size - weights) / 1e6 < 45
    # As many for all captured sizes.
    assert decoded(16, 8)[0]["_convolve"] == names["_convolve"]
