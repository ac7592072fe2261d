"""Sliding-window attention of the codec decoder over a KV ring."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.model.codec_state import CodecState
from qwen3tts_engine.qwen3.model.config import CodecDecoderConfig

ALIGN = 8
"""Alignment of mask rows in elements, required by attention kernels on GPUs."""


@dataclass(frozen=True, slots=True)
class RingView:
    mask: Tensor
    """Additive, [B, 1, T, ring + T]."""
    past: Tensor
    """Keys and values, oldest first: [B, ring, layers, 2, heads, head_dim]."""
    rows: Tensor
    """Ring rows of the new positions, [B, T]."""


@dataclass(frozen=True, slots=True)
class CodecWindow:
    state: CodecState
    slots: Tensor
    position: Tensor
    """Of the first new frame, [B] int64."""
    new: Tensor
    """Positions of the new frames, [B, T]."""
    cos: Tensor
    """[B, T, 3, 1, head_dim] for query, key and value; 1 for the value."""
    sin: Tensor
    """Likewise, negative in the first half; 0 for the value."""
    ring: RingView | None
    """None for a kernel that reads and writes the state's ring itself."""


class SlidingWindowAttention:
    """Position p is in row p modulo ``window - 1``, its key already rotated.

    Angles are float64: positions of a long stream exceed float32.
    """

    def __init__(
        self,
        config: CodecDecoderConfig,
        device: torch.device,
        dtype: torch.dtype,
        *,
        longest: int = 64,
    ) -> None:
        self.ring = config.sliding_window - 1
        dim = config.head_dim
        even = torch.arange(0, dim, 2, dtype=torch.float32)
        # In float32 as in the checkpoint's own code, so that the wavelengths are the same.
        waves = (1.0 / config.rope_theta ** (even / dim)).double()
        # cos(-a) = cos(a) and sin(-a) = -sin(a): one table makes both factors, with the sign of
        # the rotated half, and leaves the value as it is.
        rotated = torch.cat((-waves, waves))
        waves3 = torch.stack((rotated, rotated, torch.zeros_like(rotated)))
        self._waves = waves3.view(1, 1, 3, 1, dim).to(device)
        self._device, self._dtype = device, dtype
        self._longest = longest
        self._tables = self._make(longest)

    def _make(self, longest: int) -> tuple[Tensor, Tensor, Tensor]:
        device = self._device
        width = -(-(self.ring + longest) // ALIGN) * ALIGN
        offsets = torch.arange(-self.ring, width - self.ring, device=device)
        ahead = torch.arange(longest, device=device)[:, None] - offsets
        never = torch.full((), -torch.inf, device=device, dtype=self._dtype)
        seen = torch.where((ahead >= 0) & (ahead <= self.ring), torch.zeros_like(never), never)
        return offsets, seen, never

    def begin(
        self, state: CodecState, slots: Tensor, frames: int, *, gathers: bool = True
    ) -> CodecWindow:
        short = frames <= self._longest
        offsets, seen, never = self._tables if short else self._make(frames)
        keys = self.ring + frames
        width = -(-keys // ALIGN) * ALIGN
        position = state.position.index_select(0, slots)
        view = None
        if gathers:
            at = position[:, None] + offsets[:width]
            rows = at.remainder(self.ring)
            began = (at >= 0)[:, None, None]
            mask = torch.where(began, seen[:frames, :width], never)[..., :keys]
            past = state.kv[slots[:, None], rows[:, : self.ring]]
            view = RingView(mask, past, rows[:, self.ring : keys])
            new = at[:, self.ring : keys]
        else:
            new = position[:, None] + offsets[self.ring : keys]
        angles = new[:, :, None, None, None] * self._waves
        cos, sin = angles.cos().to(self._dtype), angles.sin().to(self._dtype)
        return CodecWindow(state, slots, position, new, cos, sin, view)

    def finish(self, window: CodecWindow, made: list[Tensor]) -> None:
        """Write positions, and new keys and values [B, T, 2, heads, head_dim] of each layer."""
        state, slots = window.state, window.slots
        if window.ring is not None:
            keep = min(window.new.shape[1], self.ring)
            kv = torch.stack([one[:, -keep:] for one in made], dim=2).to(state.kv.dtype)
            state.kv.index_put_((slots[:, None], window.ring.rows[:, -keep:]), kv)
        state.position.index_copy_(0, slots, window.new[:, -1] + 1)


def attend(qkv: Tensor, window: CodecWindow, layer: int) -> tuple[Tensor, Tensor]:
    """Rotate and attend: projections [B T, 3 heads head_dim] to [B T, heads head_dim].

    Also the new keys and values, [B, T, 2, heads, head_dim], for ``finish``.
    """
    view = window.ring
    assert view is not None
    batch, frames = window.new.shape
    heads, dim = view.past.shape[-2:]
    rows = qkv.view(batch, frames, 3, heads, dim)
    halves = rows.roll(dim // 2, dims=-1)
    rows = (rows * window.cos).addcmul_(halves, window.sin)
    made = rows[:, :, 1:]
    kv = torch.cat((view.past[:, :, layer].to(rows.dtype), made), dim=1)
    attended = functional.scaled_dot_product_attention(
        rows[:, :, 0].transpose(1, 2),
        kv[:, :, 0].transpose(1, 2),
        kv[:, :, 1].transpose(1, 2),
        attn_mask=view.mask.to(rows.dtype),
        scale=1.0,
    )
    return attended.transpose(1, 2).reshape(len(qkv), -1), made
