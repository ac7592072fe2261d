"""The GPU kernels, run by Triton's interpreter, against plain torch.

Run by test_triton_kernels.py in a process of its own: Triton must know before its first import
that it is to interpret.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from qwen3tts_engine.qwen3.kernels import (
    attention_kernels,
    layer_kernels,
    prompt_kernels,
    triton_kernels,
)
from qwen3tts_engine.qwen3.model import transformer
from qwen3tts_engine.qwen3.model.config import CONTROL_IDS, ModelConfig
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS, Kernels, RmsNorm
from tests.qwen3.model.small import small_config, small_weights

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
    got = attention_kernels.decode_attention(heads.clone(), norm, rotation, ours, slot, pos, 160)
    want = transformer.decode_attention(heads.clone(), norm, rotation, theirs, slot, pos, 160)
    torch.testing.assert_close(got, want, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("position", [2, 15])
def test_frame_attention(position: int) -> None:
    torch.manual_seed(2)
    norm = RmsNorm.build(16, 1e-6, None, device=CPU, fused=False)
    work = torch.randn(16, 3, 2, 4, 16)
    rotation = a_rotation(1, 2, 16)
    ours, theirs = work.clone(), work.clone()
    got = attention_kernels.frame_attention(ours, norm, rotation, position)
    want = transformer.frame_attention(theirs, norm, rotation, position)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    # What the next position will read.
    torch.testing.assert_close(ours[..., 2:, :], theirs[..., 2:, :], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("only_last", [False, True])
def test_first_attention(only_last: bool) -> None:
    torch.manual_seed(3)
    norm = RmsNorm.build(16, 1e-6, None, device=CPU, fused=True)
    work, rotation = torch.randn(5, 3, 2, 4, 16), torch.randn(2, 1, 1, 3, 2, 2, 8)
    ours, theirs = work.clone(), work.clone()
    got = attention_kernels.first_attention(ours, norm, rotation, only_last=only_last)
    want = transformer.first_attention(theirs, norm, rotation, only_last=only_last)
    assert got.shape == want.shape
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours[..., 2:, :], theirs[..., 2:, :], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("pos", "dtype"),
    [
        *(([pos], torch.float32) for pos in (0, 1, 31, 32, 33, 1024, 2047)),
        ([3, 700], torch.float32),
        ([64], torch.float16),
        ([3, 1025], torch.float16),
    ],
)
def test_split_attention(pos: list[int], dtype: torch.dtype) -> None:
    """One or two rows of two key heads: a position is read by one of up to 16 programs."""
    torch.manual_seed(4)
    rows, places = len(pos), 2048
    assert attention_kernels.splits_of(rows * 2, CPU) == 16
    norm = RmsNorm.build(16, 1e-6, None, device=CPU, fused=True)
    cache = torch.randn(rows + 1, places, 2, 2, 16).to(dtype)
    slot, positions = torch.arange(rows).flip(0), torch.tensor(pos)
    heads = torch.randn(rows, 2, 4, 16).to(dtype)
    rotation = a_rotation(rows, 2, 16)
    ours, theirs = cache.clone(), cache.clone()
    got = attention_kernels.decode_attention(
        heads.clone(), norm, rotation, ours, slot, positions, places
    )
    want = transformer.decode_attention(
        heads.clone(), norm, rotation, theirs, slot, positions, places
    )
    tolerance = 2e-5 if dtype == torch.float32 else 4e-3
    torch.testing.assert_close(got, want, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)
    # The next layer's programs count from zero again.
    assert not attention_kernels.arrival_counters(CPU).any()


def test_a_part_is_only_as_long_as_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what lies behind a row's position not a number, nothing of it is read."""
    cache = torch.full((2, 512, 1, 2, 16), torch.nan)
    cache[0, :300] = torch.randn(300, 1, 2, 16)
    norm = RmsNorm.build(16, 1e-6, None, device=CPU, fused=True)
    slot, pos = torch.tensor([0]), torch.tensor([300])
    heads, rotation = torch.randn(1, 1, 3, 16), a_rotation(1, 1, 16)
    results = []
    for processors in (1, 4, 132):
        monkeypatch.setattr(attention_kernels, "multiprocessors", lambda _, count=processors: count)
        results.append(
            attention_kernels.decode_attention(
                heads.clone(), norm, rotation, cache.clone(), slot, pos, 512
            )
        )
    assert torch.isfinite(results[0]).all()
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("length", "starts", "lengths"),
    [(1, [0], [1]), (16, [0], [16]), (17, [100, 0], [17, 5]), (40, [33, 64], [1, 40])],
)
@pytest.mark.parametrize("fused", [False, True])
def test_prefill_attention(length: int, starts: list[int], lengths: list[int], fused: bool) -> None:
    """Prompts of one and more programs, with padding, behind positions that are there already."""
    torch.manual_seed(6)
    rows, positions = len(starts), 120
    norm = RmsNorm.build(24, 1e-6, None, device=CPU, fused=fused)
    cache = torch.randn(rows + 1, positions, 2, 2, 24)
    slots, steps = torch.arange(rows).flip(0), torch.arange(length)
    at = (torch.tensor(starts)[:, None] + steps).clamp(max=positions - 1)
    valid = steps < torch.tensor(lengths)[:, None]
    places = torch.where(valid, slots[:, None], rows).flatten()
    mask = transformer.length_mask(at, torch.arange(positions), torch.zeros(()))
    heads, rotation = torch.randn(rows * length, 2, 5, 24), a_rotation(rows * length, 3, 24)
    ours, theirs = cache.clone(), cache.clone()
    got = prompt_kernels.prefill_attention(
        heads.clone(), norm, rotation, ours, slots, places, at.flatten(), mask
    )
    want = transformer.prefill_attention(
        heads.clone(), norm, rotation, theirs, slots, places, at.flatten(), mask
    )
    wanted = valid.flatten()
    torch.testing.assert_close(got[wanted], want[wanted], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours[:rows], theirs[:rows], atol=2e-6, rtol=1e-5)


def a_norm(size: int, kind: str, dtype: torch.dtype) -> RmsNorm:
    weight = None if kind == "folded" else torch.rand(size).add(0.5).to(dtype)
    return RmsNorm.build(size, 1e-6, weight, device=CPU, fused=kind == "fused")


# Blocks that are full, and blocks that are not; one row, some, and the most.
@pytest.mark.parametrize(
    ("kind", "hidden", "out", "rows"),
    [
        ("fused", 64, 48, 1),
        ("fused", 64, 48, 16),
        ("fused", 1536, 24, 1),
        ("folded", 1536, 24, 3),
        ("folded", 100, 37, 1),
        ("weighted", 100, 37, 3),
        ("weighted", 64, 48, 1),
    ],
)
def test_projections(kind: str, hidden: int, out: int, rows: int) -> None:
    torch.manual_seed(rows)
    norm = a_norm(hidden, kind, torch.float32)
    x, y = 3 * torch.randn(rows, hidden), torch.randn(rows, hidden)
    weight, double = (torch.randn(n, hidden).t() / hidden**0.5 for n in (out, 2 * out))
    near = partial(torch.testing.assert_close, atol=5e-6, rtol=5e-6)
    got = layer_kernels.norm_linear(x, norm, weight)
    near(got, transformer.norm_linear(x, norm, weight))
    # Into a part of a larger tensor, as the predictor's.
    into = torch.zeros(2, rows, out)
    assert layer_kernels.norm_linear(x, norm, weight, into[1]) is not None
    assert torch.equal(into[1], got)
    assert not into[0].any()
    got = layer_kernels.gated_linear(x, norm, double)
    near(got, transformer.gated_linear(x, norm, double))
    residual = torch.randn(rows, out)
    sums = residual.clone()
    assert layer_kernels.add_linear(sums, y, weight) is sums
    near(sums, torch.addmm(residual, y, weight))


def test_a_row_is_the_same_beside_others() -> None:
    """In two rows and sixteen: products of the same blocks."""
    x, weight, norm = torch.randn(16, 64), torch.randn(48, 64).t(), a_norm(64, "fused", torch.half)
    one, all_ = (
        layer_kernels.norm_linear(rows.half(), norm, weight.half()) for rows in (x[3:5], x)
    )
    assert torch.equal(one, all_[3:5])


@pytest.mark.parametrize("rows", [1, 2])
def test_a_large_residual_stream_in_float16_does_not_overflow(rows: int) -> None:
    norm = RmsNorm.build(64, 1e-6, torch.full((64,), 40.0).half(), device=CPU, fused=True)
    x, weight = torch.full((rows, 64), 30_000.0).half(), torch.eye(64).half()
    got = layer_kernels.norm_linear(x, norm, weight)
    torch.testing.assert_close(got, torch.full((rows, 64), 40.0).half())


def test_bfloat16_is_rounded_as_plain_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside float64: not further off than products of plain torch. One row and several."""
    multiply_bfloat16(monkeypatch)
    torch.manual_seed(5)
    hidden, bf16 = 256, torch.bfloat16
    norm = a_norm(hidden, "fused", bf16)
    assert norm.weight is not None
    exact_norm = replace(norm, weight=norm.weight.double())
    weight = (torch.randn(64, hidden) / 16).to(bf16).t()
    for rows in (1, 5):
        x = torch.randn(rows, hidden).to(bf16)
        exact = transformer.norm_linear(x.double(), exact_norm, weight.double())
        ours, plain = (
            float((module.norm_linear(x, norm, weight).double() - exact).square().mean())
            for module in (layer_kernels, transformer)
        )
        assert 0 < ours < 1.2 * plain
        sums = torch.randn(rows, 64).to(bf16)
        exact = torch.addmm(sums.double(), x.double(), weight.double())
        got = layer_kernels.add_linear(sums.clone(), x, weight)
        torch.testing.assert_close(got, exact.to(bf16), atol=0, rtol=2**-7)


def multiply_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter keeps bfloat16 as integers: it would multiply those, and rounds to zero."""
    from triton.runtime import interpreter

    cast = interpreter.InterpreterBuilder.cast_impl

    def floats(handle: Any) -> Any:
        if handle.dtype.scalar.name != "bf16":
            return handle.data
        return (handle.data.astype(np.uint32) << 16).view(np.float32)

    def dot(_: object, a: Any, b: Any, total: Any, *__: object) -> Any:
        y = np.matmul(floats(a), floats(b), dtype=total.data.dtype) + total.data
        return interpreter.TensorHandle(y, total.dtype.scalar)

    def rounded(builder: object, given: Any, to: Any) -> Any:
        if (given.dtype.scalar.name, to.scalar.name) != ("fp32", "bf16"):
            return cast(builder, given, to)
        bits = torch.from_numpy(np.ascontiguousarray(given.data)).bfloat16().view(torch.int16)
        return interpreter.TensorHandle(bits.numpy().view(np.uint16), to.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "cast_impl", rounded)
    for name in ("create_fp_trunc", "create_fp_ext"):
        monkeypatch.setattr(interpreter.InterpreterBuilder, name, rounded)


def test_many_rows_are_multiplied_by_torch() -> None:
    x, norm = torch.randn(17, 24), a_norm(24, "fused", torch.float32)
    weight = torch.randn(2 * 1100, 24).t()
    want = transformer.gated_linear(x, norm, weight)
    torch.testing.assert_close(layer_kernels.gated_linear(x, norm, weight), want)
    assert torch.equal(
        layer_kernels.norm_linear(x, norm, weight), transformer.norm_linear(x, norm, weight)
    )
    # A matrix that is laid out otherwise than loaded ones.
    other = torch.randn(24, 24)
    assert torch.equal(
        layer_kernels.add_linear(x[:2].clone(), x[:2], other), x[:2].addmm(x[:2], other)
    )


def narrow_config() -> ModelConfig:
    """Few codes: the interpreter takes a millisecond for each program of a head."""
    config, codes = small_config(projection=True), 128
    ids = replace(config.talker.ids, pad=codes, bos=codes + 1, eos=codes + 2)
    talker = replace(config.talker, vocab=codes + CONTROL_IDS, ids=ids)
    return replace(config, talker=talker, predictor=replace(config.predictor, vocab=codes))


CONFIG = narrow_config()


def a_model() -> Qwen3Model:
    return Qwen3Model.from_weights(CONFIG, *small_weights(CONFIG), fused_norm=True)


def test_all_of_them_can_be_used() -> None:
    assert triton_kernels.usable(a_model()) == (triton_kernels.TRITON, {})


def tried(monkeypatch: pytest.MonkeyPatch, **kernels: Any) -> tuple[Kernels, dict[str, str]]:
    """Of a table of plain functions, some of which are wrong, what a trial keeps."""
    monkeypatch.setattr(triton_kernels, "TRITON", replace(TORCH_KERNELS, **kernels))
    return triton_kernels.usable(a_model())


def test_a_kernel_that_is_wrong_or_breaks_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> torch.Tensor:
        raise OSError("no compiler")

    def gated(x: torch.Tensor, norm: RmsNorm, weight: torch.Tensor) -> torch.Tensor:
        return norm(x) @ weight[:, ::2]

    found, failed = tried(monkeypatch, gated_linear=gated, frame_attention=broken)
    assert failed == {"frame_attention": "OSError", "gated_linear": "ArithmeticError"}
    assert found == TORCH_KERNELS


def test_a_kernel_that_is_wrong_only_at_the_models_widths_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a miscompile would be: one column of one matrix, which no small trial has."""

    def projected(
        x: torch.Tensor, norm: RmsNorm, weight: torch.Tensor, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        y = transformer.norm_linear(x, norm, weight, out)
        if weight.shape == (CONFIG.predictor.layers.hidden, CONFIG.predictor.vocab):
            y[:, -1] *= 1.01
        return y

    def added(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        transformer.add_linear(x, y, weight)
        if len(x) == 16 and weight.shape[0] == CONFIG.talker.layers.ffn:
            x[-1, -1] += 0.01
        return x

    found, failed = tried(monkeypatch, norm_linear=projected, add_linear=added)
    assert failed == {"norm_linear": "ArithmeticError", "add_linear": "ArithmeticError"}
    assert found == TORCH_KERNELS


def test_a_kernel_that_is_wrong_only_at_a_long_position_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def short(*given: Any, **more: Any) -> torch.Tensor:
        y = transformer.decode_attention(*given, **more)
        pos = given[5]
        assert CONFIG.talker.max_positions == 128
        return y * torch.where(pos == 127, 1.01, 1.0)[:, None, None, None]

    _, failed = tried(monkeypatch, decode_attention=short)
    assert failed == {"decode_attention": "ArithmeticError"}


@pytest.mark.parametrize(
    "name",
    ["decode_attention", "frame_attention", "first_attention", "prefill_attention"],
)
def test_a_kernel_that_leaves_no_key_for_later_steps_is_not_used(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def forgets(first: torch.Tensor, *given: object, **more: object) -> torch.Tensor:
        """Right but for what it should write: that goes into copies."""
        copies = [each.clone() if isinstance(each, torch.Tensor) else each for each in given]
        y: torch.Tensor = getattr(transformer, name)(first.clone(), *copies, **more)
        return y

    found, failed = tried(monkeypatch, **{name: forgets})
    assert failed == {name: "ArithmeticError"}
    assert found == TORCH_KERNELS
