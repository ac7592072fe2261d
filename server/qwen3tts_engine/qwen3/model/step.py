"""Prefill and frame step of many rows, on every device.

Shapes are static and nothing synchronizes: capture, compile, or run eagerly. Padding rows use the
scratch slot.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.config import MIN_FRAMES
from qwen3tts_engine.qwen3.model.kv_cache import (
    CODE_RING,
    FRAME,
    KEY_HIGH,
    KEY_LOW,
    POS,
    TOP_K,
    KvCache,
)
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampling import (
    TOP_K_LIMIT,
    SamplingConstants,
    apply_repetition_penalty,
    gumbel,
    uniform,
)
from qwen3tts_engine.qwen3.model.talker import SamplingInputs
from qwen3tts_engine.qwen3.model.transformer import length_mask


@torch.no_grad()
def prefill(
    model: Qwen3Model,
    kv_cache: KvCache,
    slots: Tensor,
    embeds: Tensor,
    lengths: Tensor,
    starts: Tensor,
    *,
    kv_len: int | None = None,
) -> None:
    """Prefill reset slots: keys, values, last hidden states, first logits.

    ``embeds`` are [B, T, hidden] with ``lengths`` [B] valid positions, behind ``starts`` [B]
    restored ones; ``kv_len`` is at least every ``starts + lengths`` (None: all positions).
    """
    rows, length, hidden = embeds.shape
    kv_len = kv_cache.positions if kv_len is None else kv_len
    steps = torch.arange(length, device=embeds.device)
    positions = (starts[:, None] + steps).clamp(max=kv_cache.positions - 1)
    # Padding is written to the scratch slot.
    places = torch.where(steps < lengths[:, None], slots[:, None], kv_cache.scratch)
    # Before the writes, so that a reset finds them after a failure.
    kv_cache.pos.index_copy_(0, slots, starts + lengths)
    x = model.talker.prefill(
        embeds.reshape(rows * length, hidden),
        kv_cache.caches,
        slots,
        places.flatten(),
        positions.flatten(),
        length_mask(positions, kv_cache.places[:kv_len], kv_cache.zero),
        model.kernels,
    )
    last = (lengths - 1)[:, None, None].expand(-1, 1, hidden)
    _store(model, kv_cache, slots, x.view(rows, length, hidden).gather(1, last)[:, 0])


def _store(model: Qwen3Model, kv_cache: KvCache, slots: Tensor, x: Tensor) -> None:
    hidden = model.talker.norm(x)
    kv_cache.hidden.index_copy_(0, slots, hidden)
    kv_cache.logits.index_copy_(0, slots, model.talker.logits(hidden))


@torch.no_grad()
def frame_step(
    model: Qwen3Model,
    kv_cache: KvCache,
    slots: Tensor,
    text: Tensor,
    eos_allowed: Tensor,
    kv_len: int,
    *,
    full_sort: bool = False,
) -> Tensor:
    """Sample each row's next frame, then compute the logits after it.

    ``text`` [B] are text ids added behind this frame; ``eos_allowed`` [B] is ignored in the first
    MIN_FRAMES frames; ``kv_len`` is above every row's ``pos``; ``full_sort``: see
    ``Sampling.needs_full_sort``.

    Returns:
        [B, 16] int64. Code 0 is EOS at a row's end, NOT_FINITE for a lost row; neither is audio.
    """
    sampled = sample_codes(model, kv_cache, slots, eos_allowed, full_sort=full_sort)
    advance_talker(model, kv_cache, slots, text, sampled, kv_len)
    return sampled.codes


class SampledCodes(NamedTuple):
    codes: Tensor
    """[B, 16], as ``frame_step`` returns them."""
    ids: Tensor
    """[17, B] int64: sampled codes, and space for the text id."""
    pos: Tensor
    """[B] int64: position of the frame in the talker's sequence."""


@torch.no_grad()
def sample_codes(
    model: Qwen3Model,
    kv_cache: KvCache,
    slots: Tensor,
    eos_allowed: Tensor,
    *,
    full_sort: bool = False,
) -> SampledCodes:
    constants = model.constants
    counters = kv_cache.counters.index_select(0, slots)
    knobs = kv_cache.knobs.index_select(0, slots)
    inputs = sampling_inputs(constants, counters, knobs, full_sort=full_sort)
    groups = inputs.greedy.shape[1]
    frame, pos = counters[:, FRAME], counters[:, POS].clamp(max=kv_cache.positions - 1)

    logits = apply_repetition_penalty(
        kv_cache.logits.index_select(0, slots), kv_cache.seen.index_select(0, slots), knobs[:, -1:]
    ).add_(constants.barred)
    # Barred: not allowed, or too early. On truth values "<=" is "implies".
    logits[:, constants.eos].masked_fill_(
        (eos_allowed <= (frame < MIN_FRAMES))[:, None], -torch.inf
    )

    # Codes 0 to 15 and the text id, one row each.
    ids = slots.new_empty(groups + 1, slots.shape[0])
    best = inputs.sample(0, logits, ids[0], model.kernels)
    model.predictor.predict(kv_cache.hidden.index_select(0, slots), ids, inputs, model.kernels)
    kv_cache.seen.index_put_((slots, ids[0]), constants.true)
    codes = ids[:groups].t().contiguous()
    # A row whose best logit is not finite is lost.
    first = codes[:, :1]
    # A compiler takes no output that is not contiguous, and needs none.
    if torch.compiler.is_compiling():
        first.copy_(torch.where(best < torch.inf, first, constants.not_finite))
    else:
        torch.where(best < torch.inf, first, constants.not_finite, out=first)
    kv_cache.codes.index_put_((slots, frame % CODE_RING), codes)
    return SampledCodes(codes, ids, pos)


@torch.no_grad()
def advance_talker(
    model: Qwen3Model,
    kv_cache: KvCache,
    slots: Tensor,
    text: Tensor,
    sampled: SampledCodes,
    kv_len: int,
) -> None:
    _, ids, pos = sampled
    talker = model.talker
    ids[-1].copy_(text)
    x = talker.embed(ids + talker.offsets)
    mask = length_mask(pos, kv_cache.places[:kv_len], kv_cache.zero)
    x = talker.decode(x, kv_cache.caches, slots, pos, kv_len, mask, model.kernels)
    _store(model, kv_cache, slots, x)
    kv_cache.counters[:, :2].index_add_(
        0, slots, model.constants.advance.expand(slots.shape[0], -1)
    )


def sampling_inputs(
    constants: SamplingConstants, counters: Tensor, knobs: Tensor, *, full_sort: bool
) -> SamplingInputs:
    """Return noise by rank for all codebooks, and rows' sampling parameters."""
    groups = counters.shape[1] - TOP_K
    ranks = constants.ranks.shape[0] if full_sort else TOP_K_LIMIT
    at = counters[:, :, None, None]
    noise = gumbel(
        uniform(at[:, KEY_LOW], at[:, KEY_HIGH], at[:, FRAME], constants.stream_keys[:, :ranks])
    )
    noise.masked_fill_(constants.ranks[:ranks] >= counters[:, TOP_K:, None], -torch.inf)
    inv_temperature = knobs[:, :groups]
    top_p = knobs[:, groups : 2 * groups] if full_sort else None
    return SamplingInputs(noise, inv_temperature, inv_temperature == 0, top_p)
