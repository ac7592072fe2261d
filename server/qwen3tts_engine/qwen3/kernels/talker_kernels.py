"""Triton kernels around the talker's layers: sum of embeddings, and what a step leaves."""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.layer_kernels import norm_linear
from qwen3tts_engine.qwen3.kernels.pdl import launch_options, wait_for_inputs
from qwen3tts_engine.qwen3.model.kv_cache import FRAME, POS, TOP_K, KvCache
from qwen3tts_engine.qwen3.model.transformer import RmsNorm

EMBED_BLOCK = 256
"""Columns of a program of ``embed``."""
LOGITS_BLOCK = 1024
"""Logits copied by a program of ``store``."""
_POS, _FRAME, _TOP_K = tl.constexpr(POS), tl.constexpr(FRAME), tl.constexpr(TOP_K)


@triton.jit(do_not_specialize=["rows"], do_not_specialize_on_alignment=["rows", "text"])
def _embed(
    ids, text, offsets, table, out, rows,
    TERMS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    wait_for_inputs(PDL)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    entry = tl.load(text + row) + tl.load(offsets + TERMS - 1)
    last = tl.load(table + entry * WIDTH + column, mask=inside, other=0.0)
    total = tl.zeros((BLOCK,), tl.float32)
    for term in tl.static_range(TERMS - 1):
        entry = tl.load(ids + term * rows + row) + tl.load(offsets + term)
        total += tl.load(table + entry * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    total += last.to(tl.float32)
    tl.store(out + row * WIDTH + column, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["scratch"], do_not_specialize_on_alignment=["scratch", "slots"])
def _store(
    x, weight, logits, slots, hidden, kept, counters, floor, scale, x_row, scratch,
    COLUMNS: tl.constexpr, WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr, VOCAB: tl.constexpr,
    BLOCK: tl.constexpr, ADVANCE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Some logits of one row; the first program its hidden state and counters too."""
    wait_for_inputs(PDL)
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    slot = tl.load(slots + row)
    at = part * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * VOCAB + at, mask=at < VOCAB, other=0.0)
    tl.store(kept + slot * VOCAB + at, value.to(tl.float32), mask=at < VOCAB)
    if part == 0:
        d = tl.arange(0, WIDTH_BLOCK)
        y = tl.load(x + row * x_row + d, mask=d < WIDTH, other=0.0).to(tl.float32)
        y = y * (scale / tl.sqrt(tl.sum(y * y, axis=0) + floor))
        y = y * tl.load(weight + d, mask=d < WIDTH, other=0.0).to(tl.float32)
        tl.store(hidden + slot * WIDTH + d, y.to(hidden.dtype.element_ty), mask=d < WIDTH)
        if ADVANCE:
            # Padding rows share the scratch slot, whose counters stay 0.
            step = tl.where(slot == scratch, 0, 1)
            counter = counters + slot * COLUMNS
            tl.store(counter + _POS, tl.load(counter + _POS) + step)
            tl.store(counter + _FRAME, tl.load(counter + _FRAME) + step)


def embed(ids: Tensor, text: Tensor, offsets: Tensor, table: Tensor) -> Tensor:
    """See transformer.embed; the last of ``ids`` is not written."""
    terms, rows = ids.shape
    width = table.shape[1]
    out = table.new_empty(rows, width)
    _embed[(rows, triton.cdiv(width, EMBED_BLOCK))](
        ids,
        text,
        offsets,
        table,
        out,
        rows,
        TERMS=terms,
        WIDTH=width,
        BLOCK=EMBED_BLOCK,
        num_warps=2,
        **launch_options(table.device),
    )
    return out


def store(
    kv_cache: KvCache, slots: Tensor, x: Tensor, norm: RmsNorm, head: Tensor, *, advance: bool
) -> None:
    logits = norm_linear(x, norm, head)
    rows, vocab = logits.shape
    assert norm.weight is not None
    _store[(rows, triton.cdiv(vocab, LOGITS_BLOCK))](
        x,
        norm.weight,
        logits,
        slots,
        kv_cache.hidden,
        kv_cache.logits,
        kv_cache.counters,
        norm.size * norm.eps,
        # What a norm that is not fused has in its weights.
        math.sqrt(norm.size) if norm.fused else 1.0,
        x.stride(0),
        kv_cache.scratch,
        COLUMNS=kv_cache.counters.shape[1],
        WIDTH=norm.size,
        WIDTH_BLOCK=triton.next_power_of_2(norm.size),
        VOCAB=vocab,
        BLOCK=LOGITS_BLOCK,
        ADVANCE=advance,
        num_warps=4,
        **launch_options(x.device),
    )
