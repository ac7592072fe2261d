"""Triton kernels of attention within a decode step, one launch each.

A row's positions are split over programs where rows alone leave a GPU idle; the last program of a
row and key head to arrive combines the parts, always in the same order.
"""

from __future__ import annotations

import functools
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.pdl import launch_options, wait_for_inputs
from qwen3tts_engine.qwen3.model.transformer import RmsNorm

BLOCK = 64
"""Positions of a slot processed together, for 2-byte numbers."""
LEAST = 16
"""Rows and columns of the smallest matrix product."""
FRAME_BLOCK = 16
"""Positions of a frame processed together: all."""
MOST_SPLITS = 16
"""Most programs that share the positions of one row and key head."""
STATISTICS = 16
"""Floats behind a program's sums: largest score, sum of weights, padding."""
ROW_HEADS = 1024
"""Rows times key heads that may be split; fewer than half a GPU's multiprocessors are."""


@triton.jit
def rotated(at, turn, asked, eps, scale, HALF: tl.constexpr):
    """Return the halves of heads, normalized and rotated, float32."""
    low = tl.load(at, mask=asked, other=0.0).to(tl.float32)
    high = tl.load(at + HALF, mask=asked, other=0.0).to(tl.float32)
    factor = scale / tl.sqrt(tl.sum(low * low + high * high, axis=-1, keep_dims=True) + eps)
    low = low * factor
    high = high * factor
    r00 = tl.load(turn, mask=asked, other=0.0)
    r01 = tl.load(turn + HALF, mask=asked, other=0.0)
    r10 = tl.load(turn + 2 * HALF, mask=asked, other=0.0)
    r11 = tl.load(turn + 3 * HALF, mask=asked, other=0.0)
    return low * r00 + high * r01, low * r10 + high * r11


@triton.jit
def store_halves(to, low, high, asked, HALF: tl.constexpr):
    made = to.dtype.element_ty
    tl.store(to, low.to(made), mask=asked)
    tl.store(to + HALF, high.to(made), mask=asked)


@triton.jit
def _attend(
    heads,
    rotation,
    keys,
    slots,
    lengths,
    out,
    partial,
    arrived,
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
    SPLITS: tl.constexpr,
    WIDTH: tl.constexpr,
    PDL: tl.constexpr,
):
    """Attention of one row and key head, or one of ``SPLITS`` parts of its positions.

    ``SLOTTED``: ``keys`` is a cache of slots; otherwise rows are the slots, of length ``lengths``.
    ``partial``: sums of values and statistics of each part [QUERIES, WIDTH]; ``arrived`` counts
    parts and is left at 0.
    """
    wait_for_inputs(PDL)
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    if SLOTTED:
        slot = tl.load(slots + row)
        pos = tl.load(lengths + row).to(tl.int32)
    else:
        slot = row
        pos = lengths
    split = 0
    parts = 1
    begin = 0
    end = pos
    if SPLITS > 1:
        split = tl.program_id(2)
        # Combining parts takes as long as two blocks.
        span = tl.maximum(tl.cdiv(tl.cdiv(pos, SPLITS), PLACES), 1) * PLACES
        span = tl.where(pos <= 2 * PLACES, 2 * PLACES, span)
        parts = tl.maximum(tl.cdiv(pos, span), 1)
        begin = split * span
        end = tl.minimum(begin + span, pos)
        if split >= parts:
            return
    d = tl.arange(0, BLOCK_HALF)
    inside = d < HALF
    mine = heads + row * heads_row + group * heads_group
    turn = rotation + row * rotation_row
    cache = keys + slot * keys_slot + group * keys_group

    # Queries [BLOCK_QUERIES, BLOCK_HALF], normalized and rotated.
    query = tl.arange(0, BLOCK_QUERIES)
    asked = (query < QUERIES)[:, None] & inside[None, :]
    at_query = mine + query[:, None] * (2 * HALF) + d[None, :]
    at_turn = turn + query[:, None] * (4 * HALF) + d[None, :]
    q_low, q_high = rotated(at_query, at_turn, asked, eps, scale, HALF)
    q_low = q_low * softmax_scale
    q_high = q_high * softmax_scale

    # The row's own key and value [BLOCK_HALF]: written for later steps, used from registers, by
    # the first part.
    own = split == 0
    ours = inside & own
    at_key = mine + QUERIES * 2 * HALF + d
    key_low, key_high = rotated(at_key, turn + QUERIES * 4 * HALF + d, inside, eps, scale, HALF)
    stored = keys.dtype.element_ty
    key_low = key_low.to(stored)
    key_high = key_high.to(stored)
    value_low = tl.load(at_key + 2 * HALF, mask=inside, other=0.0).to(stored)
    value_high = tl.load(at_key + 3 * HALF, mask=inside, other=0.0).to(stored)
    here = cache + pos * keys_place + d
    if not SLOTTED:
        # The key is rotated where it stands: all threads have read it before one writes.
        tl.debug_barrier()
    tl.store(here, key_low, mask=ours)
    tl.store(here + HALF, key_high, mask=ours)
    tl.store(here + KV_GAP, value_low, mask=ours)
    tl.store(here + KV_GAP + HALF, value_high, mask=ours)

    # Softmax over the positions so far, this one first; rescaled whenever a better one comes.
    # Products of matrices are of the cache's type, their sums float32.
    ask_low = q_low.to(stored)
    ask_high = q_high.to(stored)
    best = tl.sum(q_low * key_low.to(tl.float32)[None, :], axis=1)
    best += tl.sum(q_high * key_high.to(tl.float32)[None, :], axis=1)
    best = tl.where(own, best, float("-inf"))
    share_own = tl.where(own, 1.0, 0.0)
    total = tl.zeros((BLOCK_QUERIES,), tl.float32) + share_own
    zero = tl.zeros((BLOCK_QUERIES, BLOCK_HALF), tl.float32)
    sum_low = zero + (value_low.to(tl.float32) * share_own)[None, :]
    sum_high = zero + (value_high.to(tl.float32) * share_own)[None, :]
    place = tl.arange(0, PLACES)
    for start in range(begin, end, PLACES):
        at = start + place
        before = at < end
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
    if SPLITS == 1:
        store_halves(to, sum_low / total[:, None], sum_high / total[:, None], asked, HALF)
    else:
        head = row * GROUPS + group
        line = partial + (head * SPLITS * QUERIES + query) * WIDTH
        real = query < QUERIES
        if parts == 1:
            store_halves(to, sum_low / total[:, None], sum_high / total[:, None], asked, HALF)
        else:
            left = line + split * (QUERIES * WIDTH)
            store_halves(left[:, None] + d[None, :], sum_low, sum_high, asked, HALF)
            tl.store(left + 2 * HALF, best, mask=real)
            tl.store(left + 2 * HALF + 1, total, mask=real)
            # All threads' sums are written before one of them counts the part.
            tl.debug_barrier()
            count = tl.atomic_add(arrived + head, 1, sem="acq_rel", scope="gpu")
            tl.debug_barrier()
            if count == parts - 1:
                best = tl.full((BLOCK_QUERIES,), float("-inf"), tl.float32)
                total = tl.zeros((BLOCK_QUERIES,), tl.float32)
                sum_low = zero
                sum_high = zero
                for part in range(0, parts):
                    left = line + part * (QUERIES * WIDTH)
                    at_sum = left[:, None] + d[None, :]
                    low = tl.load(at_sum, mask=asked, other=0.0, cache_modifier=".cg")
                    high = tl.load(at_sum + HALF, mask=asked, other=0.0, cache_modifier=".cg")
                    theirs = tl.load(left + 2 * HALF, mask=real, other=0.0, cache_modifier=".cg")
                    weight = tl.load(
                        left + 2 * HALF + 1, mask=real, other=1.0, cache_modifier=".cg"
                    )
                    peak = tl.maximum(best, theirs)
                    old = tl.exp(best - peak)
                    new = tl.exp(theirs - peak)
                    total = total * old + weight * new
                    sum_low = sum_low * old[:, None] + low * new[:, None]
                    sum_high = sum_high * old[:, None] + high * new[:, None]
                    best = peak
                store_halves(to, sum_low / total[:, None], sum_high / total[:, None], asked, HALF)
                tl.store(arrived + head, 0)


@triton.jit
def _attend_first(
    work,
    rotation,
    out,
    eps,
    scale,
    softmax_scale,
    work_place,
    work_row,
    work_group,
    rotation_place,
    out_place,
    GROUPS: tl.constexpr,
    QUERIES: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BOTH: tl.constexpr,
    PDL: tl.constexpr,
):
    """Attention of positions 0 and 1 of a frame; ``BOTH``: position 0's output as well."""
    wait_for_inputs(PDL)
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    d = tl.arange(0, BLOCK_HALF)
    inside = d < HALF
    query = tl.arange(0, BLOCK_QUERIES)
    asked = (query < QUERIES)[:, None] & inside[None, :]
    first = work + row * work_row + group * work_group
    second = first + work_place
    later = rotation + rotation_place
    stored = work.dtype.element_ty
    at_key = QUERIES * 2 * HALF + d
    at_turn = QUERIES * 4 * HALF + d
    # Keys are rotated in place, for later positions.
    low, high = rotated(first + at_key, rotation + at_turn, inside, eps, scale, HALF)
    first_low = low.to(stored)
    first_high = high.to(stored)
    low, high = rotated(second + at_key, later + at_turn, inside, eps, scale, HALF)
    second_low = low.to(stored)
    second_high = high.to(stored)
    # All threads have read the keys before one writes.
    tl.debug_barrier()
    store_halves(first + at_key, first_low, first_high, inside, HALF)
    store_halves(second + at_key, second_low, second_high, inside, HALF)
    at_value = at_key + 2 * HALF
    v0_low = tl.load(first + at_value, mask=inside, other=0.0).to(tl.float32)
    v0_high = tl.load(first + at_value + HALF, mask=inside, other=0.0).to(tl.float32)
    v1_low = tl.load(second + at_value, mask=inside, other=0.0).to(tl.float32)
    v1_high = tl.load(second + at_value + HALF, mask=inside, other=0.0).to(tl.float32)

    q_low, q_high = rotated(
        second + query[:, None] * (2 * HALF) + d[None, :],
        later + query[:, None] * (4 * HALF) + d[None, :],
        asked,
        eps,
        scale * softmax_scale,
        HALF,
    )
    score = tl.sum(q_low * first_low.to(tl.float32)[None, :], axis=1)
    score += tl.sum(q_high * first_high.to(tl.float32)[None, :], axis=1)
    own = tl.sum(q_low * second_low.to(tl.float32)[None, :], axis=1)
    own += tl.sum(q_high * second_high.to(tl.float32)[None, :], axis=1)
    share = (1.0 / (1.0 + tl.exp(own - score)))[:, None]
    low = v0_low[None, :] * share + v1_low[None, :] * (1.0 - share)
    high = v0_high[None, :] * share + v1_high[None, :] * (1.0 - share)
    to = out + ((row * GROUPS + group) * QUERIES + query[:, None]) * (2 * HALF) + d[None, :]
    if BOTH:
        zero = tl.zeros((BLOCK_QUERIES, BLOCK_HALF), tl.float32)
        store_halves(to, zero + v0_low[None, :], zero + v0_high[None, :], asked, HALF)
        to += out_place
    store_halves(to, low, high, asked, HALF)


def places_of(dtype: torch.dtype) -> int:
    return BLOCK * 2 // max(2, dtype.itemsize)


@functools.cache
def multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 132
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def splits_of(programs: int, device: torch.device) -> int:
    """Return the parts of each program's positions: a power of two."""
    fit = max(1, multiprocessors(device) // programs)
    return min(MOST_SPLITS, 1 << (fit.bit_length() - 1))


@functools.cache
def arrival_counters(device: torch.device) -> Tensor:
    return torch.zeros(ROW_HEADS, dtype=torch.int32, device=device)


def _blocks(width: int, dim: int) -> dict[str, int]:
    return {
        "QUERIES": width - 2,
        "BLOCK_QUERIES": max(LEAST, triton.next_power_of_2(width - 2)),
        "HALF": dim // 2,
        "BLOCK_HALF": max(LEAST, triton.next_power_of_2(dim // 2)),
    }


def norm_scale(norm: RmsNorm, dim: int) -> float:
    """Return what a norm that is not fused leaves to the weights behind it."""
    return math.sqrt(dim) if norm.fused else 1.0


def _launch(
    heads: Tensor,
    norm: RmsNorm,
    rotation: Tensor,
    keys: Tensor,
    strides: tuple[int, int, int, int],
    slots: Tensor | int,
    lengths: Tensor | int,
) -> Tensor:
    rows, groups, width, dim = heads.shape
    slotted = isinstance(slots, Tensor)
    out = heads.new_empty(rows, groups, width - 2, dim)
    splits = splits_of(rows * groups, heads.device) if slotted else 1
    partial, arrived = out, out
    if splits > 1:
        parts = (rows * groups * splits, width - 2, dim + STATISTICS)
        partial = heads.new_empty(parts, dtype=torch.float32)
        arrived = arrival_counters(heads.device)
    _attend[(rows, groups, splits)](
        heads,
        rotation,
        keys,
        slots,
        lengths,
        out,
        partial,
        arrived,
        dim * norm.eps,
        norm_scale(norm, dim),
        1.0 / math.sqrt(dim),
        heads.stride(0),
        heads.stride(1),
        rotation.stride(0) if rotation.shape[0] > 1 else 0,
        *strides[:3],
        KV_GAP=strides[3],
        GROUPS=groups,
        **_blocks(width, dim),
        PLACES=places_of(heads.dtype) if slotted else FRAME_BLOCK,
        SLOTTED=slotted,
        SPLITS=splits,
        WIDTH=dim + STATISTICS,
        num_warps=4,
        # Two blocks of the cache in shared memory: four functions of 64 rows fit beside each other.
        num_stages=2,
        **launch_options(heads.device),
    )
    return out


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
    """Read lengths from ``pos`` instead of ``kv_len``."""
    slot, place, group, kv, _ = cache.stride()
    return _launch(heads, norm, rotation, cache, (slot, place, group, kv), slots, pos.contiguous())


def frame_attention(work: Tensor, norm: RmsNorm, rotation: Tensor, position: int) -> Tensor:
    place, row, group, head, _ = work.stride()
    queries = work.shape[3] - 2
    keys = work[0, :, :, queries]
    return _launch(work[position], norm, rotation, keys, (row, place, group, head), 0, position)


def first_attention(
    work: Tensor, norm: RmsNorm, rotation: Tensor, *, only_last: bool = False
) -> Tensor:
    _, rows, groups, width, dim = work.shape
    out = work.new_empty(1 if only_last else 2, rows, groups, width - 2, dim)
    _attend_first[(rows, groups)](
        work,
        rotation,
        out,
        dim * norm.eps,
        norm_scale(norm, dim),
        1.0 / math.sqrt(dim),
        *work.stride()[:3],
        rotation.stride(0),
        out.stride(0),
        GROUPS=groups,
        **_blocks(width, dim),
        BOTH=not only_last,
        num_warps=1,
        **launch_options(work.device),
    )
    return out[0] if only_last else out
