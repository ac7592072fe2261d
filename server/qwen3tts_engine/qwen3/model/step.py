"""Prefill and frame step of many rows, on every device.

Shapes are static and nothing synchronizes: capture, compile, or run eagerly. Padding rows use the
scratch slot.
"""

from __future__ import annotations

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampler import FrameRows, SampledCodes
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
    """Compute keys, values, last hidden states and first logits of reset slots.

    ``embeds`` [B, T, hidden] hold ``lengths`` [B] positions behind ``starts`` [B] restored ones;
    ``kv_len`` is at least every sum of these (None: all positions).
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
    x = x.view(rows, length, hidden).gather(1, last)[:, 0]
    talker = model.talker
    model.kernels.store(kv_cache, slots, x, talker.norm, talker.head, advance=False)


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
    """Sample each row's next frame [B, 16] int64, then compute the logits after it.

    ``text`` [B] ids are added behind this frame; ``kv_len`` is above every ``pos``. Code 0 is EOS
    at a row's end, NOT_FINITE for a lost row; neither is audio. ``eos_allowed`` is ignored in the
    first MIN_FRAMES frames.
    """
    sampled = sample_codes(model, kv_cache, slots, eos_allowed, full_sort=full_sort)
    advance_talker(model, kv_cache, slots, text, sampled, kv_len)
    return sampled.codes


@torch.no_grad()
def sample_codes(
    model: Qwen3Model,
    kv_cache: KvCache,
    slots: Tensor,
    eos_allowed: Tensor,
    *,
    full_sort: bool = False,
) -> SampledCodes:
    rows = FrameRows(model.constants, kv_cache, slots, eos_allowed, full_sort)
    sampler = model.kernels.sampler(rows)
    model.predictor.predict(sampler, model.kernels)
    return sampler.finish()


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
    talker, kernels = model.talker, model.kernels
    x = kernels.embed(ids, text, talker.offsets, talker.table)
    mask = None
    if not kernels.reads_lengths:
        mask = length_mask(pos, kv_cache.places[:kv_len], kv_cache.zero)
    x = talker.decode(x, kv_cache.caches, slots, pos, kv_len, mask, kernels)
    kernels.store(kv_cache, slots, x, talker.norm, talker.head, advance=True)
