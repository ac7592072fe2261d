"""Attention of a CPU row by row: a batch's products are rounded by its longest row."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.model.transformer import Kernels, RmsNorm, rotate, write_kv


def row_attention(
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
    rotate(heads, norm, rotation)
    write_kv(cache, slots, pos, heads[:, :, -2:])
    queries = heads[:, :, :-2]
    y = queries.new_empty(queries.shape)
    for row, (slot, last) in enumerate(zip(slots.tolist(), pos.tolist(), strict=True)):
        k, v = cache[slot, : last + 1].transpose(0, 1).unbind(2)
        y[row] = functional.scaled_dot_product_attention(queries[row], k, v)
    return y


ROW_KERNELS = Kernels(decode_attention=row_attention)
