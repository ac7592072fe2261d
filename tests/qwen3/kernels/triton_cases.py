"""The GPU kernels, run by Triton's interpreter, against plain torch.

Run by test_triton_kernels.py in a process of its own: Triton must know before its first import
that it is to interpret.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from qwen3tts_engine.qwen3.kernels import triton_kernels
from qwen3tts_engine.qwen3.model import transformer as attention
from qwen3tts_engine.qwen3.model.transformer import RmsNorm

CPU = torch.device("cpu")


def a_rotation(rows: int, queries: int, dim: int) -> torch.Tensor:
    return torch.randn(rows, 1, queries + 1, 2, 2, dim // 2)


@pytest.mark.parametrize(
    ("fused", "groups", "queries", "dim"), [(False, 2, 2, 16), (True, 1, 3, 24), (True, 1, 1, 8)]
)
def test_decode_attention(fused: bool, groups: int, queries: int, dim: int) -> None:
    torch.manual_seed(1)
    slots, places = 7, 160
    norm = RmsNorm.build(dim, 1e-6, None, device=CPU, fused=fused)
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
    norm = RmsNorm.build(16, 1e-6, None, device=CPU, fused=False)
    work = torch.randn(16, 3, 2, 4, 16)
    rotation = a_rotation(1, 2, 16)
    ours, theirs = work.clone(), work.clone()
    got = triton_kernels.frame_attention(ours, norm, rotation, position)
    want = attention.frame_attention(theirs, norm, rotation, position)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    # What the next position will read.
    torch.testing.assert_close(ours[..., 2:, :], theirs[..., 2:, :], atol=1e-6, rtol=1e-5)


def test_gated_linear() -> None:
    x, weight = torch.randn(3, 24), torch.randn(24, 2 * 1100)
    norm = RmsNorm.build(24, 1e-6, None, device=CPU, fused=False)
    gate, up = (norm(x) @ weight).chunk(2, dim=-1)
    ours = triton_kernels.gated_linear(x, norm, weight)
    torch.testing.assert_close(ours, functional.silu(gate) * up)


# The interpreter multiplies no bfloat16.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_all_of_them_can_be_used(dtype: torch.dtype) -> None:
    assert triton_kernels.usable(CPU, dtype) == (triton_kernels.TRITON, {})


def test_a_kernel_that_is_wrong_or_breaks_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> torch.Tensor:
        raise OSError("no compiler")

    wrong = replace(
        triton_kernels.TRITON,
        gated_linear=lambda x, norm, weight: norm(x) @ weight[:, ::2],
        frame_attention=broken,
    )
    monkeypatch.setattr(triton_kernels, "TRITON", wrong)
    found, failed = triton_kernels.usable(CPU, torch.float32)
    assert failed == {"frame_attention": "OSError", "gated_linear": "ArithmeticError"}
    assert found.gated_linear is attention.TORCH_KERNELS.gated_linear
    assert found.frame_attention is attention.TORCH_KERNELS.frame_attention


@pytest.mark.parametrize("name", ["decode_attention", "frame_attention"])
def test_a_kernel_that_leaves_no_key_for_later_steps_is_not_used(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def forgets(first: torch.Tensor, *given: object, **more: object) -> torch.Tensor:
        """Right but for what it should write: that goes into copies."""
        copies = [each.clone() if isinstance(each, torch.Tensor) else each for each in given]
        y: torch.Tensor = getattr(attention, name)(first.clone(), *copies, **more)
        return y

    wrong = replace(triton_kernels.TRITON, **{name: forgets})
    monkeypatch.setattr(triton_kernels, "TRITON", wrong)
    found, failed = triton_kernels.usable(CPU, torch.float32)
    assert failed == {name: "ArithmeticError"}
    assert getattr(found, name) is getattr(attention.TORCH_KERNELS, name)
