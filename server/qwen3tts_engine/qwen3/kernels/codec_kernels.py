"""Triton kernels of the codec decoder: convolutions and depthwise norm; table of all its kernels.

A convolution is a matrix product whose rows are read from the past (a copy) and the input where
they are: no windows are copied. Sums and Snakes are float32, rounded once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.codec_ring_kernels import MOST_FRAMES, attend
from qwen3tts_engine.qwen3.kernels.layer_kernels import add_linear, gated_linear, norm_linear
from qwen3tts_engine.qwen3.kernels.pdl import launch_options, wait_for_inputs
from qwen3tts_engine.qwen3.model import codec_layers
from qwen3tts_engine.qwen3.model.codec_layers import (
    CONVNEXT_EPS,
    CONVNEXT_KERNEL,
    CodecKernels,
    ConvNeXt,
    Convolution,
)
from qwen3tts_engine.qwen3.model.codec_state import CodecStateReader

MOST_FLOAT32 = 1 << 11
"""Samples of all streams up to which a float32 convolution is ours: it has no tensor cores here,
and a library's larger blocks win. In 2-byte numbers all are: windows are not copied."""
COPIED = 1024
"""Elements of the past that a program moves in one step."""


@triton.jit
def _snake(y, alpha, inverse_beta):
    """sin(pi r)^2 by powers of r^2: the sine's own reduction uses local memory."""
    turns = y * (alpha * 0.3183098861837907)
    r = turns - tl.floor(turns + 0.5)
    s = r * r
    p = 0.7419801127165556 * s - 3.9130777060054234
    p = p * s + 13.20661035011726
    p = p * s - 30.121754359973597
    p = p * s + 42.72838511690505
    p = p * s - 32.46969664558541
    p = p * s + 9.869604400158664
    return y + p * s * inverse_beta


@triton.jit
def _keep_past(
    x,
    rows,
    state,
    slots,
    batch,
    time,
    row_length,
    program,
    programs,
    span,
    C,
    BLOCK: tl.constexpr,
):
    """Write the last ``span`` inputs of each stream to its slot."""
    total = batch * span * C
    for start in tl.range(program * BLOCK, total, programs * BLOCK):
        at = start + tl.arange(0, BLOCK)
        real = at < total
        b = (at // (span * C)).to(tl.int64)
        inner = at % (span * C)
        source = time - span + inner // C
        channel = inner % C
        fresh = real & (source >= 0)
        new = tl.load(x + (b * time + source) * C + channel, mask=fresh, other=0.0)
        old = tl.load(
            rows + b * row_length + (source + span) * C + channel,
            mask=real & (source < 0),
            other=0.0,
        )
        value = tl.where(source >= 0, new.to(tl.float32), old.to(tl.float32))
        slot = tl.load(slots + b, mask=real, other=0)
        tl.store(state + slot * row_length + inner, value.to(state.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["batch", "time", "dilation"])
def _convolve(
    x,
    rows,
    state,
    slots,
    weight,
    bias,
    add,
    alpha,
    inverse_beta,
    sums,
    out,
    batch,
    time,
    row_length,
    dilation,
    C,
    N,
    OUT,
    KERNEL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ADD: tl.constexpr,
    SNAKE: tl.constexpr,
    GELU: tl.constexpr,
    KEEPS: tl.constexpr,
    COPY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Causal convolution of ``batch`` streams of ``time`` samples; ``weight`` [N, KERNEL C].

    ``rows``, ``state``: this convolution's past in the copy and in the state.
    """
    span = (KERNEL - 1) * dilation
    wait_for_inputs(PDL)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    real = m < batch * time
    inside = n < N
    k = tl.arange(0, BLOCK_K)
    b = (m // time).to(tl.int64)
    t = m % time
    begin = x + b * time * C
    before = rows + b * row_length
    y = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    steps = (C + BLOCK_K - 1) // BLOCK_K
    for step in tl.range(0, KERNEL * steps):
        tap = step // steps
        c = (step % steps) * BLOCK_K + k
        source = t + tap * dilation - span
        there = c < C
        v = tl.load(
            begin[:, None] + source[:, None] * C + c[None, :],
            mask=(real & (source >= 0))[:, None] & there[None, :],
            other=0.0,
        )
        if KERNEL > 1:
            old = tl.load(
                before[:, None] + (source[:, None] + span) * C + c[None, :],
                mask=(real & (source < 0))[:, None] & there[None, :],
                other=0.0,
            )
            v = tl.where((source >= 0)[:, None], v, old.to(v.dtype))
        w = tl.load(
            weight + n[:, None] * (KERNEL * C) + tap * C + c[None, :],
            mask=inside[:, None] & there[None, :],
            other=0.0,
        )
        y = tl.dot(v.to(w.dtype), tl.trans(w), y, input_precision="ieee")
    y += tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)[None, :]
    at = m[:, None].to(tl.int64) * N + n[None, :]
    written = real[:, None] & inside[None, :]
    if ADD:
        y += tl.load(add + at, mask=written, other=0.0).to(tl.float32)
    if KEEPS:
        tl.store(sums + at, y.to(sums.dtype.element_ty), mask=written)
    if SNAKE:
        # Samples of one position follow each other.
        channel = n % OUT
        a = tl.load(alpha + channel, mask=inside, other=0.0).to(tl.float32)
        i = tl.load(inverse_beta + channel, mask=inside, other=0.0).to(tl.float32)
        y = _snake(y, a[None, :], i[None, :])
    if GELU:
        y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    tl.store(out + at, y.to(out.dtype.element_ty), mask=written)
    if KERNEL > 1:
        program = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
        programs = tl.num_programs(0) * tl.num_programs(1)
        _keep_past(x, rows, state, slots, batch, time, row_length, program, programs, span, C, COPY)


@triton.jit(do_not_specialize=["batch", "time"])
def _depthwise(
    x,
    rows,
    state,
    slots,
    taps,
    bias,
    out,
    batch,
    time,
    row_length,
    eps,
    KERNEL: tl.constexpr,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    COPY: tl.constexpr,
    PDL: tl.constexpr,
):
    """Depthwise convolution and layer norm of one sample; ``taps`` [KERNEL, C]."""
    wait_for_inputs(PDL)
    program = tl.program_id(0)
    b = (program // time).to(tl.int64)
    t = program % time
    c = tl.arange(0, BLOCK_C)
    inside = c < C
    y = tl.load(bias + c, mask=inside, other=0.0).to(tl.float32)
    for tap in tl.static_range(KERNEL):
        source = t + tap - (KERNEL - 1)
        new = tl.load(x + (b * time + source) * C + c, mask=inside & (source >= 0), other=0.0).to(
            tl.float32
        )
        old = tl.load(
            rows + b * row_length + (source + KERNEL - 1) * C + c,
            mask=inside & (source < 0),
            other=0.0,
        ).to(tl.float32)
        y += (new + old) * tl.load(taps + tap * C + c, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(tl.where(inside, y, 0.0), axis=0) / C
    y = tl.where(inside, y - mean, 0.0)
    y = y / tl.sqrt(tl.sum(y * y, axis=0) / C + eps)
    tl.store(out + program.to(tl.int64) * C + c, y.to(out.dtype.element_ty), mask=inside)
    _keep_past(
        x, rows, state, slots, batch, time, row_length, program, tl.num_programs(0),
        KERNEL - 1, C, COPY,
    )  # fmt: skip


class Blocks(NamedTuple):
    m: int
    n: int
    k: int
    warps: int
    stages: int


def blocks_of(rows: int, n: int, channels: int, itemsize: int) -> Blocks:
    """Return the blocks of a product of [rows, channels] and [channels, n], for each tap.

    Few rows are bound by the weights, which many narrow programs read at the same time.
    """
    k = max(16, min(triton.next_power_of_2(channels), 64 if itemsize > 2 else 128))
    narrow = max(16, min(triton.next_power_of_2(n), 32 if n >= 4096 else 16))
    if rows <= 32:
        return Blocks(16 if rows <= 16 else 32, narrow, k, 4, 3)
    k = min(k, 32 if itemsize > 2 else 64)
    wide = max(16, min(triton.next_power_of_2(n), 64))
    if rows <= 1024 or itemsize > 2:
        return Blocks(32, min(wide, 32), k, 4, 3)
    return Blocks(64, wide, k, 4, 3)


def convolve(
    conv: Convolution, x: Tensor, past: CodecStateReader, add: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return sums (None where not kept) and outputs; see codec_layers.convolve."""
    batch, time, channels = x.shape
    samples, itemsize = batch * time, conv.matrix.element_size()
    if itemsize > 4 or (itemsize == 4 and samples > MOST_FLOAT32):
        return codec_layers.convolve(conv, x, past, add)
    then, snake = conv.then, conv.then.snake
    x = x.contiguous()
    n = conv.out * then.rate
    shape = (batch, time * then.rate, conv.out)
    activates = snake is not None or then.gelu
    keeps = activates and then.keeps
    out = x.new_empty(shape, dtype=conv.dtype if snake is None else snake.out)
    sums = x.new_empty(shape, dtype=conv.dtype) if keeps else out
    blocks = blocks_of(samples, n, channels, itemsize)
    rows, state = past.rows[:, conv.span.begin :], past.state.past[:, conv.span.begin :]
    _convolve[(triton.cdiv(samples, blocks.m), triton.cdiv(n, blocks.n))](
        x,
        rows,
        state,
        past.slots,
        conv.matrix,
        conv.bias,
        x if add is None else add.contiguous(),
        x if snake is None else snake.alpha,
        x if snake is None else snake.inverse_beta,
        sums,
        out,
        batch,
        time,
        rows.stride(0),
        conv.dilation,
        channels,
        n,
        conv.out,
        KERNEL=conv.kernel,
        BLOCK_M=blocks.m,
        BLOCK_N=blocks.n,
        BLOCK_K=blocks.k,
        ADD=add is not None,
        SNAKE=snake is not None,
        GELU=then.gelu,
        KEEPS=keeps,
        COPY=COPIED,
        num_warps=blocks.warps,
        num_stages=blocks.stages,
        **launch_options(x.device),
    )
    return sums, out


def depthwise(block: ConvNeXt, x: Tensor, past: CodecStateReader) -> Tensor:
    batch, time, channels = x.shape
    x = x.contiguous()
    out = torch.empty_like(x)
    rows, state = past.rows[:, block.span.begin :], past.state.past[:, block.span.begin :]
    _depthwise[(batch * time,)](
        x,
        rows,
        state,
        past.slots,
        block.taps,
        block.bias,
        out,
        batch,
        time,
        rows.stride(0),
        CONVNEXT_EPS,
        KERNEL=CONVNEXT_KERNEL,
        C=channels,
        BLOCK_C=triton.next_power_of_2(channels),
        COPY=COPIED,
        num_warps=4,
        **launch_options(x.device),
    )
    return out


TRITON_CODEC = CodecKernels(
    convolve=convolve,
    depthwise=depthwise,
    attend=attend,
    norm_linear=norm_linear,
    gated_linear=gated_linear,
    add_linear=add_linear,
    ring_frames=MOST_FRAMES,
)
"""Kernels for NVIDIA GPUs."""
