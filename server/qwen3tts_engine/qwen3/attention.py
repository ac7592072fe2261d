"""Attention over slots, and the places where a device's own kernels may step in.

``Kernels`` names them. ``PLAIN`` is plain torch, for every device; a GPU's own kernels are
another object of the same type, given to ``Qwen3Model``.

Shapes. N rows, each one token; S slots; P positions of a slot; K key heads; Q query heads for
each key head; D dimensions of a head. ``heads`` [N, K, Q + 2, D] is what the packed projection
gives: queries, key and value of each key head. A cache [S, P, K, 2, D] holds a layer's keys and
values. Attention leaves [N, K, Q, D], which is the model's own order of query heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.layers import Norm, swiglu
from qwen3tts_engine.qwen3.sampling import choose


def rotate(heads: Tensor, norm: Norm, rotation: Tensor) -> None:
    """Normalize and rotate queries and keys, in place.

    Args:
        heads: [..., K, Q + 2, D].
        norm: Of a head, without weight.
        rotation: [..., 1, Q + 1, 2, 2, D / 2] float32: rotation of each pair of dimensions,
            with the norms' weights in it; what stands before is broadcast.
    """
    x = heads[..., :-1, :]
    place = x.view(*x.shape[:-1], 2, -1)
    halves = norm(x).view(*x.shape[:-1], 1, 2, -1)
    # A compiler takes no output that is not contiguous, and needs none.
    if heads.dtype == rotation.dtype and not torch.compiler.is_compiling():
        torch.sum(halves * rotation, dim=-2, out=place)
    else:
        place.copy_(torch.sum(halves * rotation, dim=-2))


def write_kv(cache: Tensor, slots: Tensor, positions: Tensor, kv: Tensor) -> None:
    """Put keys and values [N, K, 2, D] into ``cache[slots, positions]``."""
    cache.index_put_((slots, positions), kv)


def length_mask(positions: Tensor, places: Tensor, zero: Tensor) -> Tensor:
    """[..., kv_len]: 0 up to and including each position, minus infinity behind it.

    ``places`` is [0, 1, ... kv_len - 1], ``zero`` a scalar of the dtype wanted.
    """
    return zero.masked_fill(places > positions[..., None], -torch.inf)


def slot_attention(
    q: Tensor,
    cache: Tensor,
    slots: Tensor,
    pos: Tensor,
    kv_len: int,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """One query position of each row over its slot's positions 0 to ``pos``.

    Args:
        q: [N, K, Q, D], rotated.
        cache: [S, P, K, 2, D], keys rotated.
        slots: [N] int64.
        pos: [N] int64, the row's own position, already written.
        kv_len: Above every ``pos``; what is read of a slot where the lengths cannot be read.
        mask: ``length_mask`` of ``pos``, for whoever has it.

    Returns:
        [N, K, Q, D].
    """
    if mask is None:
        places = torch.arange(kv_len, device=pos.device)
        mask = length_mask(pos, places, q.new_zeros(()))
    k, v = cache[:, :kv_len].index_select(0, slots).transpose(1, 2).unbind(3)
    # The queries of one key head stand where a sequence of queries would: no key is repeated.
    return functional.scaled_dot_product_attention(q, k, v, mask[:, None, None])


def decode_attention(
    heads: Tensor,
    norm: Norm,
    rotation: Tensor,
    cache: Tensor,
    slots: Tensor,
    pos: Tensor,
    kv_len: int,
    *,
    mask: Tensor | None = None,
) -> Tensor:
    """All between the two projections, for one position of each row: [N, K, Q, D].

    The arguments are those of ``rotate``, ``write_kv`` and ``slot_attention``.
    """
    rotate(heads, norm, rotation)
    write_kv(cache, slots, pos, heads[:, :, -2:])
    return slot_attention(heads[:, :, :-2], cache, slots, pos, kv_len, mask=mask)


def prefill_attention(
    heads: Tensor,
    norm: Norm,
    rotation: Tensor,
    cache: Tensor,
    slots: Tensor,
    places: Tensor,
    positions: Tensor,
    kv_len: int,
    mask: Tensor,
) -> Tensor:
    """The same for T positions of each of B rows, N = B * T: [N, K, Q, D].

    Args:
        heads: [B * T, K, Q + 2, D].
        norm: As for ``rotate``.
        rotation: As for ``rotate``.
        cache: [S, P, K, 2, D].
        slots: [B] whose positions are read.
        places: [B * T] slots that are written: the scratch slot for what is only padding.
        positions: [B * T] positions that are written.
        kv_len: How many positions of a slot are read.
        mask: [B, T, kv_len].
    """
    rotate(heads, norm, rotation)
    write_kv(cache, places, positions, heads[:, :, -2:])
    rows, length = mask.shape[:2]
    kv_heads, dim = heads.shape[1], heads.shape[3]
    k, v = cache[:, :kv_len].index_select(0, slots).transpose(1, 2).unbind(3)
    q = heads[:, :, :-2].view(rows, length, kv_heads, -1, dim)
    q = q.permute(0, 2, 1, 3, 4).reshape(rows, kv_heads, -1, dim)
    wide = mask[:, :, None].expand(-1, -1, q.shape[2] // length, -1).flatten(1, 2)
    y = functional.scaled_dot_product_attention(q, k, v, wide[:, None])
    y = y.view(rows, kv_heads, length, -1, dim).transpose(1, 2)
    return y.reshape(rows * length, kv_heads, -1, dim)


def frame_attention(work: Tensor, norm: Norm, rotation: Tensor, position: int) -> Tensor:
    """One position of a frame's own short sequence over those before it: [N, K, Q, D].

    Args:
        work: [positions, N, K, Q + 2, D]: projections of the positions so far, the last not yet
            rotated.
        norm: As for ``rotate``.
        rotation: As for ``rotate``, of this position.
        position: Index of the last position.
    """
    heads = work[position]
    rotate(heads, norm, rotation)
    k, v = work[: position + 1, :, :, -2:].permute(3, 1, 2, 0, 4).unbind(0)
    return functional.scaled_dot_product_attention(heads[:, :, :-2], k, v)


@dataclass(frozen=True, slots=True)
class Kernels:
    """What a device may do in its own way; each has the meaning of the function it replaces."""

    decode_attention: Callable[..., Tensor] = decode_attention
    frame_attention: Callable[..., Tensor] = frame_attention
    swiglu: Callable[[Tensor], Tensor] = swiglu
    choose: Callable[..., Tensor] = choose


PLAIN = Kernels()
"""Plain torch."""
