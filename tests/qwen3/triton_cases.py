"""The GPU kernels, run by Triton's interpreter, against plain torch.

Run by test_triton_kernels.py in a process of its own: Triton must know before its first import
that it is to interpret.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from qwen3tts_engine.qwen3 import attention, triton_kernels
from qwen3tts_engine.qwen3.layers import Norm

CPU = torch.device("cpu")


def a_rotation(rows: int, queries: int, dim: int) -> torch.Tensor:
    return torch.randn(rows, 1, queries + 1, 2, 2, dim // 2)


@pytest.mark.parametrize(
    ("fused", "groups", "queries", "dim"), [(False, 2, 2, 16), (True, 1, 3, 24), (True, 1, 1, 8)]
)
def test_decode_attention(fused: bool, groups: int, queries: int, dim: int) -> None:
    torch.manual_seed(1)
    slots, places = 7, 160
    norm = Norm.build(dim, 1e-6, None, device=CPU, fused=fused)
    cache = torch.randn(slots, places, groups, 2, dim)
    slot = torch.tensor([3, 0, 5, 2])
    pos = torch.tensor([0, 1, 64, 150])
    heads = torch.randn(len(pos), groups, queries + 2, dim)
    rotation = a_rotation(len(pos), queries, dim)
    ours, theirs = cache.clone(), cache.clone()
    got = triton_kernels.decode_attention(heads.clone(), norm, rotation, ours, slot, pos, 160)
    want = attention.decode_attention(heads.clone(), norm, rotation, theirs, slot, pos, 160)
    torch.testing.assert_close(got, want, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("position", [2, 15])
def test_frame_attention(position: int) -> None:
    torch.manual_seed(2)
    norm = Norm.build(16, 1e-6, None, device=CPU, fused=False)
    work = torch.randn(16, 3, 2, 4, 16)
    rotation = a_rotation(1, 2, 16)
    ours, theirs = work.clone(), work.clone()
    got = triton_kernels.frame_attention(ours, norm, rotation, position)
    want = attention.frame_attention(theirs, norm, rotation, position)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    # What the next position will read.
    torch.testing.assert_close(ours[..., 2:, :], theirs[..., 2:, :], atol=1e-6, rtol=1e-5)


def test_swiglu() -> None:
    x = torch.randn(3, 2 * 1100)
    gate, up = x.chunk(2, dim=-1)
    torch.testing.assert_close(triton_kernels.swiglu(x), functional.silu(gate) * up)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_check_before_use_passes(dtype: torch.dtype) -> None:
    triton_kernels.check(CPU, dtype)


def test_the_check_before_use_finds_a_kernel_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_kernels, "swiglu", lambda x: x[:, ::2] + 1)
    with pytest.raises(RuntimeError, match="swiglu"):
        triton_kernels.check(CPU, torch.float32)
