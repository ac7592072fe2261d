# ruff: noqa: N803
"""Triton kernels between the matrix products of a decode step.

Each replaces the function of its name in transformer.py or sampling.py by one launch: a large GPU
is bound by launches. Results differ from torch by rounding only. Without a GPU, Triton's
interpreter runs them (``TRITON_INTERPRET=1`` before the import).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS, Kernels, RmsNorm, has_fused_norm

log = logging.getLogger(__name__)

BLOCK = 64
"""Positions of a slot processed together, for 2-byte numbers."""
LEAST = 16
"""Rows and columns of the smallest matrix product."""
FRAME_BLOCK = 16
"""The same within a frame: all positions."""


@triton.jit  # type: ignore[untyped-decorator]  # pragma: no cover - compiled, never called
def _attend(  # type: ignore[no-untyped-def]
    heads,
    rotation,
    keys,
    slots,
    lengths,
    out,
    eps,
    scale,
    softmax_scale,
    heads_row,
    heads_group,
    rotation_row,
    keys_slot,
    keys_place,
    keys_group,
    KV_GAP: tl.constexpr,
    GROUPS: tl.constexpr,
    QUERIES: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    PLACES: tl.constexpr,
    SLOTTED: tl.constexpr,
):
    """Attention of one row and key head; see ``decode_attention``.

    Heads are two halves, for the rotation. ``SLOTTED``: ``keys`` is a cache of slots; otherwise
    rows are the slots, of length ``lengths``.
    """
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    if SLOTTED:
        slot = tl.load(slots + row)
        pos = tl.load(lengths + row)
    else:
        slot = row
        pos = lengths
    d = tl.arange(0, BLOCK_HALF)
    inside = d < HALF
    mine = heads + row * heads_row + group * heads_group
    turn = rotation + row * rotation_row
    cache = keys + slot * keys_slot + group * keys_group

    # Queries [BLOCK_QUERIES, BLOCK_HALF], normalized and rotated.
    query = tl.arange(0, BLOCK_QUERIES)
    asked = (query < QUERIES)[:, None] & inside[None, :]
    at_query = mine + query[:, None] * (2 * HALF) + d[None, :]
    low = tl.load(at_query, mask=asked, other=0.0).to(tl.float32)
    high = tl.load(at_query + HALF, mask=asked, other=0.0).to(tl.float32)
    factor = scale / tl.sqrt(tl.sum(low * low + high * high, axis=1) + eps)
    low = low * factor[:, None]
    high = high * factor[:, None]
    at_turn = turn + query[:, None] * (4 * HALF) + d[None, :]
    r00 = tl.load(at_turn, mask=asked, other=0.0)
    r01 = tl.load(at_turn + HALF, mask=asked, other=0.0)
    r10 = tl.load(at_turn + 2 * HALF, mask=asked, other=0.0)
    r11 = tl.load(at_turn + 3 * HALF, mask=asked, other=0.0)
    q_low = (low * r00 + high * r01) * softmax_scale
    q_high = (low * r10 + high * r11) * softmax_scale

    # The row's own key and value [BLOCK_HALF]: written for later steps, used from registers.
    at_key = mine + QUERIES * 2 * HALF + d
    low_key = tl.load(at_key, mask=inside, other=0.0).to(tl.float32)
    high_key = tl.load(at_key + HALF, mask=inside, other=0.0).to(tl.float32)
    factor_key = scale / tl.sqrt(tl.sum(low_key * low_key + high_key * high_key, axis=0) + eps)
    low_key = low_key * factor_key
    high_key = high_key * factor_key
    at_turn_key = turn + QUERIES * 4 * HALF + d
    s00 = tl.load(at_turn_key, mask=inside, other=0.0)
    s01 = tl.load(at_turn_key + HALF, mask=inside, other=0.0)
    s10 = tl.load(at_turn_key + 2 * HALF, mask=inside, other=0.0)
    s11 = tl.load(at_turn_key + 3 * HALF, mask=inside, other=0.0)
    stored = keys.dtype.element_ty
    key_low = (low_key * s00 + high_key * s01).to(stored)
    key_high = (low_key * s10 + high_key * s11).to(stored)
    value_low = tl.load(at_key + 2 * HALF, mask=inside, other=0.0).to(stored)
    value_high = tl.load(at_key + 3 * HALF, mask=inside, other=0.0).to(stored)
    here = cache + pos * keys_place + d
    tl.store(here, key_low, mask=inside)
    tl.store(here + HALF, key_high, mask=inside)
    tl.store(here + KV_GAP, value_low, mask=inside)
    tl.store(here + KV_GAP + HALF, value_high, mask=inside)

    # Softmax over the positions so far, this one first; rescaled whenever a better one comes.
    # Products of matrices are of the cache's type, their sums float32.
    ask_low = q_low.to(stored)
    ask_high = q_high.to(stored)
    best = tl.sum(q_low * key_low.to(tl.float32)[None, :], axis=1)
    best += tl.sum(q_high * key_high.to(tl.float32)[None, :], axis=1)
    total = tl.full((BLOCK_QUERIES,), 1.0, tl.float32)
    zero = tl.zeros((BLOCK_QUERIES, BLOCK_HALF), tl.float32)
    sum_low = zero + value_low.to(tl.float32)[None, :]
    sum_high = zero + value_high.to(tl.float32)[None, :]
    place = tl.arange(0, PLACES)
    for start in range(0, pos, PLACES):
        at = start + place
        before = at < pos
        there = before[:, None] & inside[None, :]
        where = cache + at[:, None] * keys_place + d[None, :]
        k_low = tl.load(where, mask=there, other=0.0)
        k_high = tl.load(where + HALF, mask=there, other=0.0)
        v_low = tl.load(where + KV_GAP, mask=there, other=0.0)
        v_high = tl.load(where + KV_GAP + HALF, mask=there, other=0.0)
        score = tl.dot(ask_low, tl.trans(k_low), input_precision="ieee")
        score += tl.dot(ask_high, tl.trans(k_high), input_precision="ieee")
        score = tl.where(before[None, :], score, float("-inf"))
        peak = tl.maximum(best, tl.max(score, axis=1))
        share = tl.exp(score - peak[:, None])
        old = tl.exp(best - peak)
        total = total * old + tl.sum(share, axis=1)
        share = share.to(stored)
        sum_low = sum_low * old[:, None] + tl.dot(share, v_low, input_precision="ieee")
        sum_high = sum_high * old[:, None] + tl.dot(share, v_high, input_precision="ieee")
        best = peak
    to = out + ((row * GROUPS + group) * QUERIES + query[:, None]) * (2 * HALF) + d[None, :]
    made = out.dtype.element_ty
    tl.store(to, (sum_low / total[:, None]).to(made), mask=asked)
    tl.store(to + HALF, (sum_high / total[:, None]).to(made), mask=asked)


@triton.jit  # type: ignore[untyped-decorator]  # pragma: no cover - compiled, never called
def _swiglu(  # type: ignore[no-untyped-def]
    gate_up, out, FFN: tl.constexpr, WIDTH: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = at < FFN
    gate = tl.load(gate_up + row * 2 * FFN + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * FFN + FFN + at, mask=inside, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * FFN + at, y.to(out.dtype.element_ty), mask=inside)


def _launch(
    heads: Tensor,
    norm: RmsNorm,
    rotation: Tensor,
    keys: Tensor,
    strides: tuple[int, int, int, int],
    slots: Any,
    lengths: Any,
    *,
    slotted: bool,
) -> Tensor:
    rows, groups, width, dim = heads.shape
    half = dim // 2
    out = heads.new_empty(rows, groups, width - 2, dim)
    _attend[(rows, groups)](
        heads,
        rotation,
        keys,
        slots,
        lengths,
        out,
        dim * norm.eps,
        # What a norm that is not fused leaves to the weights behind it.
        math.sqrt(dim) if norm.fused else 1.0,
        1.0 / math.sqrt(dim),
        heads.stride(0),
        heads.stride(1),
        rotation.stride(0) if rotation.shape[0] > 1 else 0,
        *strides[:3],
        KV_GAP=strides[3],
        GROUPS=groups,
        QUERIES=width - 2,
        BLOCK_QUERIES=max(LEAST, triton.next_power_of_2(width - 2)),
        HALF=half,
        BLOCK_HALF=max(LEAST, triton.next_power_of_2(half)),
        PLACES=places_of(heads.dtype) if slotted else FRAME_BLOCK,
        SLOTTED=slotted,
        num_warps=4,
        # Two blocks of the cache in shared memory: four functions of 64 rows fit beside each other.
        num_stages=2,
    )
    return out


def places_of(dtype: torch.dtype) -> int:
    return BLOCK * 2 // max(2, dtype.itemsize)


def decode_attention(
    heads: Tensor,
    norm: RmsNorm,
    rotation: Tensor,
    cache: Tensor,
    slots: Tensor,
    pos: Tensor,
    kv_len: int,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """See transformer.decode_attention; lengths are read from ``pos`` instead of ``kv_len``."""
    slot, place, group, kv, _ = cache.stride()
    return _launch(
        heads, norm, rotation, cache, (slot, place, group, kv), slots, pos.contiguous(),
        slotted=True,
    )  # fmt: skip


def frame_attention(work: Tensor, norm: RmsNorm, rotation: Tensor, position: int) -> Tensor:
    """See transformer.frame_attention; keys and values are read from ``work``."""
    place, row, group, head, _ = work.stride()
    queries = work.shape[3] - 2
    keys = work[0, :, :, queries]
    return _launch(
        work[position], norm, rotation, keys, (row, place, group, head), 0, position,
        slotted=False,
    )  # fmt: skip


def gated_linear(x: Tensor, norm: RmsNorm, weight: Tensor) -> Tensor:
    """See transformer.gated_linear."""
    gate_up = torch.mm(norm(x), weight)
    rows, ffn = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, ffn)
    width = 1024
    _swiglu[(rows, triton.cdiv(ffn, width))](gate_up, out, FFN=ffn, WIDTH=width, num_warps=4)
    return out


TRITON = Kernels(
    decode_attention=decode_attention,
    frame_attention=frame_attention,
    gated_linear=gated_linear,
)
"""Kernels for NVIDIA GPUs."""


def usable(device: torch.device, dtype: torch.dtype) -> tuple[Kernels, dict[str, str]]:
    """Return kernels that compile and agree with torch, and failures by name.

    torch replaces those that failed.
    """
    draw = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw).to(device)

    queries, dim, rows, groups, places = 2, 16, 2, 2, 72
    norm = RmsNorm.build(dim, 1e-6, None, device=device, fused=has_fused_norm(device))
    rotation = random(rows, 1, queries + 1, 2, 2, dim // 2) / 2
    heads = random(rows, groups, queries + 2, dim).to(dtype)
    slots = torch.tensor([2, 0], device=device)
    pos = torch.tensor([70, 3], device=device)
    cache = random(3, places, groups, 2, dim).to(dtype)
    work = random(4, rows, groups, queries + 2, dim).to(dtype)
    x, weight = random(rows, 16).to(dtype), random(16, 2 * 24).to(dtype)

    # Of attention, what it leaves for later steps counts as well as what it gives.
    def decoded(kernels: Kernels) -> Tensor:
        kept = cache.clone()
        y = kernels.decode_attention(heads.clone(), norm, rotation, kept, slots, pos, places)
        return torch.cat((y.flatten(), kept.flatten()))

    def framed(kernels: Kernels) -> Tensor:
        kept = work.clone()
        y = kernels.frame_attention(kept, norm, rotation[:1], 3)
        return torch.cat((y.flatten(), kept[..., queries:, :].flatten()))

    tries: dict[str, Callable[[Kernels], Tensor]] = {
        "decode_attention": decoded,
        "frame_attention": framed,
        "gated_linear": lambda kernels: kernels.gated_linear(x, norm, weight),
    }
    found, failed = TRITON, dict[str, str]()
    for name, run in tries.items():
        try:
            ours, plain = run(TRITON).float(), run(TORCH_KERNELS).float()
            if not torch.allclose(ours, plain, atol=5e-2, rtol=5e-2):
                raise ArithmeticError(f"{name} does not do what plain torch does")
        except Exception as error:
            log.warning("the kernel %s cannot be used", name, exc_info=error)
            failed[name] = type(error).__name__
            found = replace(found, **{name: getattr(TORCH_KERNELS, name)})
    return found, failed
