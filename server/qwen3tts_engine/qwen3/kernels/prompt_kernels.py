"""Triton kernel of attention while a prompt is prefilled.

A program has some tokens of a row and one key head. Keys of the same launch are rotated where they
are read, so that no program waits for another's.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.attention_kernels import (
    LEAST,
    norm_scale,
    places_of,
    rotated,
    store_halves,
)
from qwen3tts_engine.qwen3.kernels.pdl import launch_options, wait_for_inputs
from qwen3tts_engine.qwen3.model.transformer import RmsNorm

TOKENS = 16
"""Tokens of a program."""


@triton.jit
def _add_block(score, v_low, v_high, best, total, sum_low, sum_high, STORED: tl.constexpr):
    peak = tl.maximum(best, tl.max(score, axis=1))
    share = tl.exp(score - peak[:, None])
    old = tl.exp(best - peak)
    total = total * old + tl.sum(share, axis=1)
    share = share.to(STORED)
    sum_low = sum_low * old[:, None] + tl.dot(share, v_low, input_precision="ieee")
    sum_high = sum_high * old[:, None] + tl.dot(share, v_high, input_precision="ieee")
    return peak, total, sum_low, sum_high


@triton.jit(do_not_specialize=["length"])
def _attend_prompt(
    heads,
    rotation,
    keys,
    slots,
    places,
    positions,
    out,
    eps,
    scale,
    softmax_scale,
    length,
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
    BLOCK_TOKENS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Attention of ``BLOCK_TOKENS`` of a row's ``length`` tokens, one key head."""
    wait_for_inputs(PDL)
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    first = tl.program_id(2) * BLOCK_TOKENS
    slot = tl.load(slots + row)
    start = tl.load(positions + row * length).to(tl.int32)
    stored = keys.dtype.element_ty
    d = tl.arange(0, BLOCK_HALF)
    inside = d < HALF
    row_heads = heads + row * length * heads_row + group * heads_group
    row_turns = rotation + row * length * rotation_row
    token = tl.arange(0, BLOCK_TOKENS)
    to_key = QUERIES * 2 * HALF + d
    to_turn = QUERIES * 4 * HALF + d

    # Keys and values of these tokens, for later steps.
    mine = first + token
    kept = (mine < length)[:, None] & inside[None, :]
    place = tl.load(places + row * length + mine, mask=mine < length, other=0)
    position = tl.load(positions + row * length + mine, mask=mine < length, other=0)
    at_key = row_heads + mine[:, None] * heads_row + to_key[None, :]
    at_turn = row_turns + mine[:, None] * rotation_row + to_turn[None, :]
    low, high = rotated(at_key, at_turn, kept, eps, scale, HALF)
    here = keys + place[:, None] * keys_slot + position[:, None] * keys_place
    here += group * keys_group + d[None, :]
    store_halves(here, low, high, kept, HALF)
    low = tl.load(at_key + 2 * HALF, mask=kept, other=0.0)
    high = tl.load(at_key + 3 * HALF, mask=kept, other=0.0)
    store_halves(here + KV_GAP, low, high, kept, HALF)

    # Queries [BLOCK_TOKENS * BLOCK_QUERIES, BLOCK_HALF].
    line = tl.arange(0, BLOCK_TOKENS * BLOCK_QUERIES)
    asker = first + line // BLOCK_QUERIES
    query = line % BLOCK_QUERIES
    asked = ((asker < length) & (query < QUERIES))[:, None] & inside[None, :]
    at_query = asker[:, None] * heads_row + query[:, None] * (2 * HALF) + d[None, :]
    at_turn = asker[:, None] * rotation_row + query[:, None] * (4 * HALF) + d[None, :]
    low, high = rotated(
        row_heads + at_query, row_turns + at_turn, asked, eps, scale * softmax_scale, HALF
    )
    ask_low = low.to(stored)
    ask_high = high.to(stored)
    best = tl.full((BLOCK_TOKENS * BLOCK_QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_TOKENS * BLOCK_QUERIES,), tl.float32)
    sum_low = tl.zeros((BLOCK_TOKENS * BLOCK_QUERIES, BLOCK_HALF), tl.float32)
    sum_high = tl.zeros((BLOCK_TOKENS * BLOCK_QUERIES, BLOCK_HALF), tl.float32)

    # Positions before the prompt's.
    cache = keys + slot * keys_slot + group * keys_group
    offset = tl.arange(0, PLACES)
    for begin in range(0, start, PLACES):
        before = begin + offset < start
        there = before[:, None] & inside[None, :]
        where = cache + (begin + offset)[:, None] * keys_place + d[None, :]
        k_low = tl.load(where, mask=there, other=0.0)
        k_high = tl.load(where + HALF, mask=there, other=0.0)
        v_low = tl.load(where + KV_GAP, mask=there, other=0.0)
        v_high = tl.load(where + KV_GAP + HALF, mask=there, other=0.0)
        score = tl.dot(ask_low, tl.trans(k_low), input_precision="ieee")
        score += tl.dot(ask_high, tl.trans(k_high), input_precision="ieee")
        score = tl.where(before[None, :], score, float("-inf"))
        best, total, sum_low, sum_high = _add_block(
            score, v_low, v_high, best, total, sum_low, sum_high, stored
        )
    # Tokens of the prompt, up to each one's own.
    for begin in range(0, first + 1, BLOCK_TOKENS):
        other = begin + token
        there = (other < length)[:, None] & inside[None, :]
        source = row_heads + other[:, None] * heads_row + to_key[None, :]
        turn = row_turns + other[:, None] * rotation_row + to_turn[None, :]
        k_low, k_high = rotated(source, turn, there, eps, scale, HALF)
        v_low = tl.load(source + 2 * HALF, mask=there, other=0.0)
        v_high = tl.load(source + 3 * HALF, mask=there, other=0.0)
        score = tl.dot(ask_low, tl.trans(k_low.to(stored)), input_precision="ieee")
        score += tl.dot(ask_high, tl.trans(k_high.to(stored)), input_precision="ieee")
        score = tl.where(other[None, :] <= asker[:, None], score, float("-inf"))
        best, total, sum_low, sum_high = _add_block(
            score, v_low, v_high, best, total, sum_low, sum_high, stored
        )
    to = out + (((row * length + asker) * GROUPS + group) * QUERIES + query)[:, None] * (2 * HALF)
    store_halves(to + d[None, :], sum_low / total[:, None], sum_high / total[:, None], asked, HALF)


def prefill_attention(
    heads: Tensor,
    norm: RmsNorm,
    rotation: Tensor,
    cache: Tensor,
    slots: Tensor,
    places: Tensor,
    positions: Tensor,
    mask: Tensor,
) -> Tensor:
    tokens, groups, width, dim = heads.shape
    rows = slots.shape[0]
    length, half = tokens // rows, dim // 2
    out = heads.new_empty(tokens, groups, width - 2, dim)
    slot, place, group, kv, _ = cache.stride()
    _attend_prompt[(rows, groups, triton.cdiv(length, TOKENS))](
        heads,
        rotation,
        cache,
        slots,
        places,
        positions,
        out,
        dim * norm.eps,
        norm_scale(norm, dim),
        1.0 / math.sqrt(dim),
        length,
        heads.stride(0),
        heads.stride(1),
        rotation.stride(0),
        slot,
        place,
        group,
        KV_GAP=kv,
        GROUPS=groups,
        QUERIES=width - 2,
        BLOCK_QUERIES=triton.next_power_of_2(width - 2),
        HALF=half,
        BLOCK_HALF=max(LEAST, triton.next_power_of_2(half)),
        PLACES=places_of(heads.dtype),
        BLOCK_TOKENS=TOKENS,
        num_warps=4 if heads.element_size() <= 2 else 8,
        num_stages=2,
        **launch_options(heads.device),
    )
    return out
