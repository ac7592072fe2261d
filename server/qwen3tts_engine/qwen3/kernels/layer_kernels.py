"""Triton kernels of a decoder layer's projections, for at most ``MOST_ROWS`` rows.

One row is a matrix-vector product in registers; more are padded to 16 for tensor cores. Sums are
float32, rounded once. RMSNorm's factor is applied to the product, except in float16, where the
product of residual stream and norm weights might exceed the range.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeGuard

import torch
import triton
import triton.language as tl
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.pdl import launch_options, prefetch, wait_for_inputs
from qwen3tts_engine.qwen3.model import transformer
from qwen3tts_engine.qwen3.model.transformer import RmsNorm

MOST_ROWS = 16
"""Most rows of these kernels."""
LINE = 128
"""Bytes of a cache line."""
AHEAD = 16 << 10
"""Bytes of weights that a program asks for before its inputs are there."""
SWIGLU_BLOCK = 1024
"""Columns of a program of ``_swiglu``."""


@triton.jit
def _part(pointers, there, EVEN: tl.constexpr):
    if EVEN:
        return tl.load(pointers)
    return tl.load(pointers, mask=there, other=0.0)


@triton.jit(do_not_specialize=["rows"])
def _linear(
    x,
    norm_weight,
    weight,
    out,
    rows,
    x_row,
    out_row,
    floor,
    scale,
    K: tl.constexpr,
    N: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN: tl.constexpr,
    NORM: tl.constexpr,
    WEIGHTED: tl.constexpr,
    NORM_FIRST: tl.constexpr,
    GATED: tl.constexpr,
    ADD: tl.constexpr,
    LINES: tl.constexpr,
    LINE_LENGTH: tl.constexpr,
    PDL: tl.constexpr,
):
    """Columns of ``norm(x) @ weight.t()``, ``weight`` [N or 2 N, K]; gated, or added to ``out``.

    ``EVEN``: all blocks are full. ``NORM_FIRST``: ``x`` is normalized before the product.
    """
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = n < N
    m = tl.arange(0, BLOCK_ROWS)
    real = m < rows
    k = tl.arange(0, BLOCK_K)
    strip = weight + n[:, None] * K
    if PDL:
        # Weights are there before what precedes is done.
        ahead = tl.arange(0, LINES) * LINE_LENGTH
        last = tl.minimum(n, N - 1)[:, None] * K + ahead[None, :]
        prefetch(weight + last)
        if GATED:
            prefetch(weight + N * K + last)
    wait_for_inputs(PDL)
    if BLOCK_ROWS == 1:
        products = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
        others = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
        lengths = tl.zeros((BLOCK_K,), tl.float32)
        for start in tl.range(0, K, BLOCK_K):
            at = start + k
            there = inside[:, None] & (at < K)[None, :]
            v = _part(x + at, at < K, EVEN).to(tl.float32)
            if NORM:
                lengths += v * v
                if WEIGHTED:
                    v *= _part(norm_weight + at, at < K, EVEN).to(tl.float32)
            products += _part(strip + at[None, :], there, EVEN).to(tl.float32) * v[None, :]
            if GATED:
                up = _part(strip + N * K + at[None, :], there, EVEN)
                others += up.to(tl.float32) * v[None, :]
        y = tl.sum(products, axis=1)[None, :]
        gate = tl.sum(others, axis=1)[None, :]
        square = tl.sum(lengths, axis=0) + tl.zeros((1,), tl.float32)
    else:
        y = tl.zeros((BLOCK_ROWS, BLOCK_N), tl.float32)
        gate = tl.zeros((BLOCK_ROWS, BLOCK_N), tl.float32)
        square = tl.zeros((BLOCK_ROWS,), tl.float32)
        factor = square
        if NORM_FIRST:
            for start in tl.range(0, K, BLOCK_K):
                at = start + k
                v = tl.load(
                    x + m[:, None] * x_row + at[None, :],
                    mask=real[:, None] & (at < K)[None, :],
                    other=0.0,
                ).to(tl.float32)
                square += tl.sum(v * v, axis=1)
            factor = scale / tl.sqrt(square + floor)
        for start in tl.range(0, K, BLOCK_K):
            at = start + k
            there = inside[:, None] & (at < K)[None, :]
            v = tl.load(
                x + m[:, None] * x_row + at[None, :],
                mask=real[:, None] & (at < K)[None, :],
                other=0.0,
            )
            if NORM:
                full = v.to(tl.float32)
                if NORM_FIRST:
                    full = full * factor[:, None]
                else:
                    square += tl.sum(full * full, axis=1)
                if WEIGHTED:
                    full *= _part(norm_weight + at, at < K, EVEN).to(tl.float32)[None, :]
                v = full.to(x.dtype.element_ty)
            w = _part(strip + at[None, :], there, EVEN)
            y = tl.dot(v, tl.trans(w), y, input_precision="ieee")
            if GATED:
                up = _part(strip + N * K + at[None, :], there, EVEN)
                gate = tl.dot(v, tl.trans(up), gate, input_precision="ieee")
    if NORM and not NORM_FIRST:
        factor = scale / tl.sqrt(square + floor)
        y = y * factor[:, None]
        gate = gate * factor[:, None]
    if GATED:
        y = y / (1.0 + tl.exp(-y)) * gate
    to = out + m[:, None] * out_row + n[None, :]
    written = real[:, None] & inside[None, :]
    if ADD:
        y += tl.load(to, mask=written, other=0.0).to(tl.float32)
    tl.store(to, y.to(out.dtype.element_ty), mask=written)


@triton.jit
def _swiglu(gate_up, out, FFN: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = at < FFN
    gate = tl.load(gate_up + row * 2 * FFN + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * FFN + FFN + at, mask=inside, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * FFN + at, y.to(out.dtype.element_ty), mask=inside)


class Blocks(NamedTuple):
    rows: int
    n: int
    k: int
    warps: int
    stages: int


def blocks_of(rows: int, n: int, k: int, itemsize: int, *, gated: bool) -> Blocks:
    """Return the blocks of a product of [rows, k] and [k, n] (gated: twice [k, n]).

    A large GPU is busy from some 130 programs on.
    """
    widest = triton.next_power_of_2(k)
    if rows == 1:
        columns = 4 if n < (4096 if gated else 2048) else 8
        # 8 KiB of weights in 128 threads, of both halves where there are two.
        products = 8192 // itemsize // (2 if gated else 1)
        return Blocks(1, columns, min(widest, products // columns), 4, 1)
    columns = 32 if n >= 4096 and not gated else 16
    if itemsize > 2:
        return Blocks(MOST_ROWS, 16, max(16, min(widest, 64)), 4, 3)
    return Blocks(MOST_ROWS, columns, max(16, min(widest, 128)), 4, 4)


def fits(x: Tensor, weight: object) -> TypeGuard[Tensor]:
    return (
        isinstance(weight, Tensor)
        and x.shape[0] <= MOST_ROWS
        and x.dtype == weight.dtype
        and x.stride(1) == 1
        # As loaded: the transposed view of [out, in].
        and weight.stride() == (1, weight.shape[0])
    )


def _launch(
    x: Tensor,
    norm: RmsNorm | None,
    weight: Tensor,
    out: Tensor,
    *,
    gated: bool = False,
    add: bool = False,
) -> Tensor:
    rows, k = x.shape
    n = out.shape[1]
    blocks = blocks_of(rows, n, k, x.element_size(), gated=gated)
    line = LINE // x.element_size()
    lines = min(AHEAD // LINE // blocks.n, k // line)
    _linear[(triton.cdiv(n, blocks.n),)](
        x,
        x if norm is None or norm.weight is None else norm.weight,
        weight,
        out,
        rows,
        x.stride(0),
        out.stride(0),
        0.0 if norm is None else norm.size * norm.eps,
        math.sqrt(k) if norm is not None and norm.fused else 1.0,
        K=k,
        N=n,
        BLOCK_ROWS=blocks.rows,
        BLOCK_N=blocks.n,
        BLOCK_K=blocks.k,
        EVEN=n % blocks.n == 0 and k % blocks.k == 0,
        NORM=norm is not None,
        WEIGHTED=norm is not None and norm.weight is not None,
        NORM_FIRST=norm is not None and blocks.rows > 1 and x.dtype == torch.float16,
        GATED=gated,
        ADD=add,
        LINES=1 << (max(1, lines).bit_length() - 1),
        LINE_LENGTH=line,
        num_warps=blocks.warps,
        num_stages=blocks.stages,
        **launch_options(x.device),
    )
    return out


def norm_linear(x: Tensor, norm: RmsNorm, weight: Tensor, out: Tensor | None = None) -> Tensor:
    if not fits(x, weight):
        return transformer.norm_linear(x, norm, weight, out)
    if out is None:
        out = x.new_empty(x.shape[0], weight.shape[1])
    return _launch(x, norm, weight, out)


def gated_linear(x: Tensor, norm: RmsNorm, weight: Tensor) -> Tensor:
    rows, ffn = x.shape[0], weight.shape[1] // 2
    out = x.new_empty(rows, ffn)
    if fits(x, weight):
        return _launch(x, norm, weight, out, gated=True)
    gate_up = torch.mm(norm(x), weight)
    grid = (rows, triton.cdiv(ffn, SWIGLU_BLOCK))
    _swiglu[grid](gate_up, out, FFN=ffn, WIDTH=SWIGLU_BLOCK, num_warps=4)
    return out


def add_linear(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    if not fits(y, weight):
        return transformer.add_linear(x, y, weight)
    return _launch(y, None, weight, x, add=True)
