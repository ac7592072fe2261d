"""One frame of many rows, and the prompts before it: the same code on every device.

Shapes are static, nothing waits for the device, nothing depends on values: a CUDA graph can hold
it, a compiler can have it, and a CPU runs it as it stands. Rows are named by slot; a padding row
names the arena's scratch slot, any number of times.
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
    arena: KvCache,
    slots: Tensor,
    embeds: Tensor,
    lengths: Tensor,
    starts: Tensor,
    *,
    kv_len: int | None = None,
) -> None:
    """Take prompts into slots that were reset: keys, values, last hidden states, first scores.

    Args:
        model: The model.
        arena: Written in place.
        slots: [B] int64; the scratch slot for padding rows.
        embeds: [B, T, hidden]; behind a prompt's end anything finite.
        lengths: [B] int64, 1 to T: positions that count.
        starts: [B] int64: positions that were restored before; 0 for a whole prompt. No
            ``starts + lengths`` may be above ``arena.positions``: the caller sees to it.
        kv_len: At least every ``starts + lengths``; None: all positions of the arena. T where
            nothing was restored.
    """
    rows, length, hidden = embeds.shape
    kv_len = arena.positions if kv_len is None else kv_len
    steps = torch.arange(length, device=embeds.device)
    positions = (starts[:, None] + steps).clamp(max=arena.positions - 1)
    # What is only padding is written where nobody reads it.
    places = torch.where(steps < lengths[:, None], slots[:, None], arena.scratch)
    # First, so that a reset clears what is written even where this fails half way.
    arena.pos.index_copy_(0, slots, starts + lengths)
    x = model.talker.prefill(
        embeds.reshape(rows * length, hidden),
        arena.caches,
        slots,
        places.flatten(),
        positions.flatten(),
        kv_len,
        length_mask(positions, arena.places[:kv_len], arena.zero),
        model.kernels,
    )
    last = (lengths - 1)[:, None, None].expand(-1, 1, hidden)
    _store(model, arena, slots, x.view(rows, length, hidden).gather(1, last)[:, 0])


def _store(model: Qwen3Model, arena: KvCache, slots: Tensor, x: Tensor) -> None:
    hidden = model.talker.norm(x)
    arena.hidden.index_copy_(0, slots, hidden)
    arena.logits.index_copy_(0, slots, model.talker.scores(hidden))


@torch.no_grad()
def frame_step(
    model: Qwen3Model,
    arena: KvCache,
    slots: Tensor,
    text: Tensor,
    eos_allowed: Tensor,
    kv_len: int,
    *,
    full_sort: bool = False,
) -> Tensor:
    """Make the next frame of each row, then the scores of the frame after it.

    Args:
        model: The model.
        arena: Written in place: codes, keys, values, hidden states, scores, counters.
        slots: [B] int64; each slot once, but the scratch slot any number of times.
        text: [B] int64: id of the text track that is added behind this frame.
        eos_allowed: [B] bool: whether this frame may be the end. The first two never are.
        kv_len: Above every row's ``pos``, at most ``arena.positions``.
        full_sort: Needed where a row's ``Sampling.needs_full_sort``; slower, and the same for
            every row that does not need it.

    Returns:
        [B, 16] int64. Where code 0 is eos the row has ended, and that frame yields no audio;
        where it is NOT_FINITE the row is lost, and the other codes mean nothing.
    """
    drawn = sample_codes(model, arena, slots, eos_allowed, full_sort=full_sort)
    advance_talker(model, arena, slots, text, drawn, kv_len)
    return drawn.codes


class SampledCodes(NamedTuple):
    """A frame's codes, on their way from ``sample_codes`` to ``advance_talker``."""

    codes: Tensor
    """[B, 16], as ``frame_step`` returns them."""
    ids: Tensor
    """[17, B] int64: codes as drawn, and room for the text id."""
    pos: Tensor
    """[B] int64: where the frame goes in the talker's sequence."""


@torch.no_grad()
def sample_codes(
    model: Qwen3Model,
    arena: KvCache,
    slots: Tensor,
    eos_allowed: Tensor,
    *,
    full_sort: bool = False,
) -> SampledCodes:
    """The first half of ``frame_step``: the codes. The codec may begin behind it."""
    constants = model.constants
    counters = arena.counters.index_select(0, slots)
    knobs = arena.knobs.index_select(0, slots)
    draws = sampling_inputs(constants, counters, knobs, full_sort=full_sort)
    groups = draws.greedy.shape[1]
    frame, pos = counters[:, FRAME], counters[:, POS].clamp(max=arena.positions - 1)

    scores = apply_repetition_penalty(
        arena.logits.index_select(0, slots), arena.seen.index_select(0, slots), knobs[:, -1:]
    ).add_(constants.barred)
    # Barred: not allowed, or too early. On truth values "<=" is "implies".
    scores[:, constants.eos].masked_fill_(
        (eos_allowed <= (frame < MIN_FRAMES))[:, None], -torch.inf
    )

    # Codes 0 to 15 and the text id, one row each.
    ids = slots.new_empty(groups + 1, slots.shape[0])
    best = draws.choose(0, scores, ids[0], model.kernels)
    model.predictor.predict(arena.hidden.index_select(0, slots), ids, draws, model.kernels)
    arena.seen.index_put_((slots, ids[0]), constants.true)
    codes = ids[:groups].t().contiguous()
    # As reported: a row whose best score is no number is none.
    first = codes[:, :1]
    # A compiler takes no output that is not contiguous, and needs none.
    if torch.compiler.is_compiling():
        first.copy_(torch.where(best < torch.inf, first, constants.not_finite))
    else:
        torch.where(best < torch.inf, first, constants.not_finite, out=first)
    arena.codes.index_put_((slots, frame % CODE_RING), codes)
    return SampledCodes(codes, ids, pos)


@torch.no_grad()
def advance_talker(
    model: Qwen3Model, arena: KvCache, slots: Tensor, text: Tensor, drawn: SampledCodes, kv_len: int
) -> None:
    """The second half of ``frame_step``: the talker takes the frame in."""
    _, ids, pos = drawn
    talker = model.talker
    ids[-1].copy_(text)
    x = talker.embed(ids + talker.offsets)
    mask = length_mask(pos, arena.places[:kv_len], arena.zero)
    x = talker.decode(x, arena.caches, slots, pos, kv_len, mask, model.kernels)
    _store(model, arena, slots, x)
    arena.counters[:, :2].index_add_(0, slots, model.constants.advance.expand(slots.shape[0], -1))


def sampling_inputs(
    constants: SamplingConstants, counters: Tensor, knobs: Tensor, *, full_sort: bool
) -> SamplingInputs:
    """Noise by rank for all codebooks of the frame at once, and the rows' ways to draw."""
    groups = counters.shape[1] - TOP_K
    ranks = constants.ranks.shape[0] if full_sort else TOP_K_LIMIT
    at = counters[:, :, None, None]
    noise = gumbel(
        uniform(at[:, KEY_LOW], at[:, KEY_HIGH], at[:, FRAME], constants.stream_keys[:, :ranks])
    )
    noise.masked_fill_(constants.ranks[:ranks] >= counters[:, TOP_K:, None], -torch.inf)
    coolness = knobs[:, :groups]
    top_p = knobs[:, groups : 2 * groups] if full_sort else None
    return SamplingInputs(noise, coolness, coolness == 0, top_p)
