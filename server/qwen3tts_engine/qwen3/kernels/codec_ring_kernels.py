"""Triton kernel of the codec decoder's attention, in place in the KV ring."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.pdl import launch_options, wait_for_inputs
from qwen3tts_engine.qwen3.model import codec_attention
from qwen3tts_engine.qwen3.model.codec_attention import CodecWindow

MOST_FRAMES = 16
"""Most new frames of a stream in the attention kernel."""
PLACES = 32
"""Positions of the ring processed together."""


@triton.jit(do_not_specialize=["time"])
def _attend_ring(
    qkv,
    cos,
    sin,
    ring,
    slots,
    positions,
    out,
    time,
    turn_row,
    ring_slot,
    ring_place,
    KV_GAP: tl.constexpr,
    RING: tl.constexpr,
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PLACES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Attention of one head of one stream; ``ring``: this layer's keys of slot 0.

    A program reads and writes only its own head of the ring.
    """
    wait_for_inputs(PDL)
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    slot = tl.load(slots + row)
    pos = tl.load(positions + row)
    t = tl.arange(0, BLOCK_T)
    d = tl.arange(0, BLOCK_D)
    inside = d < DIM
    new = t < time
    real = new[:, None] & inside[None, :]
    at = qkv + ((row * time + t[:, None]) * 3 * HEADS + head) * DIM
    other = (d + DIM // 2) % DIM
    turn = (row * time + t[:, None]) * turn_row
    c = tl.load(cos + turn + d[None, :], mask=real, other=0.0).to(tl.float32)
    s = tl.load(sin + turn + d[None, :], mask=real, other=0.0).to(tl.float32)
    stored = ring.dtype.element_ty
    q = tl.load(at + d[None, :], mask=real, other=0.0).to(tl.float32) * c
    q += tl.load(at + other[None, :], mask=real, other=0.0).to(tl.float32) * s
    at += HEADS * DIM
    key = tl.load(at + d[None, :], mask=real, other=0.0).to(tl.float32) * c
    key += tl.load(at + other[None, :], mask=real, other=0.0).to(tl.float32) * s
    value = tl.load(at + HEADS * DIM + d[None, :], mask=real, other=0.0).to(stored)
    ask = q.to(stored)
    key_new = key.to(stored)
    score = tl.dot(ask, tl.trans(key_new), input_precision="ieee")
    behind = t[:, None] - t[None, :]
    seen_new = (behind >= 0) & (behind <= RING) & new[None, :]
    # A row of padding sees the first, for a softmax of something.
    seen_new = seen_new | ((t[:, None] >= time) & (t[None, :] == 0))
    score = tl.where(seen_new, score, float("-inf"))
    best = tl.max(score, axis=1)
    share = tl.exp(score - best[:, None])
    total = tl.sum(share, axis=1)
    y = tl.dot(share.to(stored), value, input_precision="ieee")
    mine = ring + slot * ring_slot + head * DIM
    place = tl.arange(0, PLACES)
    last = pos - 1
    for start in tl.range(0, RING, PLACES):
        r = start + place
        # The latest position before this step in each row of the ring.
        older = (last - r + RING) % RING
        held = (r < RING) & (older <= last)
        there = held[:, None] & inside[None, :]
        where = mine + r[:, None].to(tl.int64) * ring_place + d[None, :]
        k_old = tl.load(where, mask=there, other=0.0)
        v_old = tl.load(where + KV_GAP, mask=there, other=0.0)
        past_score = tl.dot(ask, tl.trans(k_old), input_precision="ieee")
        seen = held[None, :] & (older[None, :] + 1 + t[:, None] <= RING)
        past_score = tl.where(seen, past_score, float("-inf"))
        peak = tl.maximum(best, tl.max(past_score, axis=1))
        past_share = tl.exp(past_score - peak[:, None])
        old = tl.exp(best - peak)
        total = total * old + tl.sum(past_share, axis=1)
        y = y * old[:, None] + tl.dot(past_share.to(stored), v_old, input_precision="ieee")
        best = peak
    # All threads have read the rows that are overwritten.
    tl.debug_barrier()
    to = mine + ((pos + t) % RING)[:, None] * ring_place + d[None, :]
    kept = real & (t >= time - RING)[:, None]
    tl.store(to, key_new, mask=kept)
    tl.store(to + KV_GAP, value, mask=kept)
    where = out + ((row * time + t[:, None]) * HEADS + head) * DIM + d[None, :]
    tl.store(where, (y / total[:, None]).to(out.dtype.element_ty), mask=real)


def attend(qkv: Tensor, window: CodecWindow, layer: int) -> tuple[Tensor, Tensor]:
    if window.ring is not None:
        return codec_attention.attend(qkv, window, layer)
    ring = window.state.kv[:, :, layer]
    _, places, _, heads, dim = ring.shape
    batch, time = window.new.shape
    out = qkv.new_empty(batch * time, heads * dim)
    _attend_ring[(batch, heads)](
        qkv,
        window.cos,
        window.sin,
        ring,
        window.slots,
        window.position,
        out,
        time,
        window.cos.stride(1),
        ring.stride(0),
        ring.stride(1),
        KV_GAP=ring.stride(2),
        RING=places,
        HEADS=heads,
        DIM=dim,
        BLOCK_T=MOST_FRAMES,
        BLOCK_D=max(16, triton.next_power_of_2(dim)),
        PLACES=PLACES,
        num_warps=4,
        num_stages=2,
        **launch_options(qkv.device),
    )
    return out, out
