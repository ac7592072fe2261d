"""The codec decoder's transformer: a sliding window over the latest frames, by slot."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.codec_layers import Place, read
from qwen3tts_engine.qwen3.codec_state import CodecState
from qwen3tts_engine.qwen3.config import CodecDecoderConfig
from qwen3tts_engine.qwen3.weights import Weights

ALIGN = 8
"""Rows of the mask begin at multiples of so many elements, as GPU attention wants them."""


@dataclass(frozen=True, slots=True)
class Window:
    """What all layers of one step share."""

    mask: Tensor
    """Added to scores, shape [B, 1, T, ring + T]: 0, or minus infinity."""
    cos: Tensor
    """Shape [B, T, 3, 1, head_dim], for query, key and value; 1 for the value."""
    sin: Tensor
    """Likewise, negative in the first half; 0 for the value."""
    past: Tensor
    """Keys and values by age, oldest first: shape [B, ring, layers, 2, heads, head_dim]."""


class WindowAttention:
    """Positions, mask and rotary embedding of a step, and the ring's reading and writing.

    A stream's ring holds its latest ``window - 1`` positions; position p is in row p modulo that
    number. Keys are kept rotated by their absolute position. Angles are computed in float64, so
    that a stream of hours, whose positions outgrow float32, is as exact as a new one.
    """

    def __init__(self, config: CodecDecoderConfig, place: Place, *, longest: int = 64) -> None:
        """``longest``: steps of up to so many frames read tables made here."""
        self.ring = config.sliding_window - 1
        dim = config.head_dim
        even = torch.arange(0, dim, 2, dtype=torch.float32)
        # In float32 as in the checkpoint's own code, so that the wavelengths are the same.
        waves = (1.0 / config.rope_theta ** (even / dim)).double()
        # cos(-a) = cos(a) and sin(-a) = -sin(a): one table makes both factors, with the sign of
        # the rotated half, and leaves the value as it is.
        rotated = torch.cat((-waves, waves))
        waves3 = torch.stack((rotated, rotated, torch.zeros_like(rotated)))
        self._waves = waves3.view(1, 1, 3, 1, dim).to(place.device)
        self._place = place
        self._longest = longest
        self._tables = self._make(longest)

    def _make(self, longest: int) -> tuple[Tensor, Tensor, Tensor]:
        """Offsets of keys from the first new position, and who may see whom."""
        device = self._place.device
        width = -(-(self.ring + longest) // ALIGN) * ALIGN
        offsets = torch.arange(-self.ring, width - self.ring, device=device)
        ahead = torch.arange(longest, device=device)[:, None] - offsets
        never = torch.full((), -torch.inf, device=device, dtype=self._place.dtype)
        seen = torch.where((ahead >= 0) & (ahead <= self.ring), torch.zeros_like(never), never)
        return offsets, seen, never

    def begin(self, state: CodecState, slots: Tensor, frames: int) -> tuple[Window, Tensor, Tensor]:
        """What the layers need, ring rows to write [B, frames], and the next positions [B]."""
        short = frames <= self._longest
        offsets, seen, never = self._tables if short else self._make(frames)
        keys = self.ring + frames
        width = -(-keys // ALIGN) * ALIGN
        at = state.position.index_select(0, slots)[:, None] + offsets[:width]
        rows = at.remainder(self.ring)
        began = (at >= 0)[:, None, None]
        mask = torch.where(began, seen[:frames, :width], never)[..., :keys]
        new = at[:, self.ring : keys]
        angles = new[:, :, None, None, None] * self._waves
        past = state.kv[slots[:, None], rows[:, : self.ring]]
        window = Window(
            mask, angles.cos().to(self._place.dtype), angles.sin().to(self._place.dtype), past
        )
        return window, rows[:, self.ring : keys], new[:, -1] + 1

    def finish(self, state: CodecState, slots: Tensor, rows: Tensor, made: list[Tensor]) -> None:
        """Keep each layer's new keys and values, shape [B, T, 2, heads, head_dim] each."""
        keep = min(rows.shape[1], self.ring)
        kv = torch.stack([one[:, -keep:] for one in made], dim=2)
        state.kv.index_put_((slots[:, None], rows[:, -keep:]), kv)


class Layer:
    """Attention and SwiGLU, each behind an RMSNorm and scaled before it is added.

    The stream of activations is kept together with its negative, shape [B, T, 2 hidden]: the mean
    of both is zero, so that the library's layer norm over them, one operation with float32 inside,
    is the RMSNorm of either half.
    """

    def __init__(
        self, weights: Weights, config: CodecDecoderConfig, place: Place, index: int
    ) -> None:
        hidden, ffn, dim = config.hidden_size, config.intermediate_size, config.head_dim
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._index, self._heads, self._dim = index, heads, dim
        self._eps, self._ffn = config.rms_norm_eps, ffn
        at = weights.under("self_attn.")
        norm = read(weights, "input_layernorm.weight", hidden)
        query = read(at, "q_proj.weight", heads * dim, hidden) * dim**-0.5
        pair = [
            read(at, f"{one}_proj.weight", kv_heads * dim, hidden)
            .view(kv_heads, dim, hidden)
            # Grouped heads become heads of their own.
            .repeat_interleave(heads // kv_heads, dim=0)
            .view(heads * dim, hidden)
            for one in ("k", "v")
        ]
        scale = read(weights, "self_attn_layer_scale.scale", hidden)
        out = scale[:, None] * read(at, "o_proj.weight", hidden, heads * dim)
        self._qkv = place.put(torch.cat((query, *pair)) * norm).T
        self._out = place.put(mirrored(out)).T
        at = weights.under("mlp.")
        norm = read(weights, "post_attention_layernorm.weight", hidden)
        gate_up = [read(at, f"{one}_proj.weight", ffn, hidden) for one in ("gate", "up")]
        scale = read(weights, "mlp_layer_scale.scale", hidden)
        down = scale[:, None] * read(at, "down_proj.weight", hidden, ffn)
        self._gate_up = place.put(torch.cat(gate_up) * norm).T
        self._down = place.put(mirrored(down)).T

    def __call__(self, x: Tensor, window: Window) -> tuple[Tensor, Tensor]:
        """Shape [B T, 2 hidden], kept; and new keys and values, [B, T, 2, heads, head_dim]."""
        batch, _, frames, _ = window.mask.shape
        qkv = torch.mm(unit_rms(x, self._eps), self._qkv)
        qkv = qkv.view(batch, frames, 3, self._heads, self._dim)
        halves = qkv.roll(self._dim // 2, dims=-1)
        qkv = (qkv * window.cos).addcmul_(halves, window.sin)
        made = qkv[:, :, 1:]
        kv = torch.cat((window.past[:, :, self._index], made), dim=1)
        heard = functional.scaled_dot_product_attention(
            qkv[:, :, 0].transpose(1, 2),
            kv[:, :, 0].transpose(1, 2),
            kv[:, :, 1].transpose(1, 2),
            attn_mask=window.mask,
            scale=1.0,
        )
        x = torch.addmm(x, heard.transpose(1, 2).reshape(len(x), -1), self._out)
        gate, up = torch.split(torch.mm(unit_rms(x, self._eps), self._gate_up), self._ffn, dim=1)
        return torch.addmm(x, functional.silu(gate).mul_(up), self._down), made


def mirrored(weight: Tensor) -> Tensor:
    """A projection that also makes the negative: [out, in] to [2 out, in]."""
    return torch.cat((weight, -weight))


def unit_rms(x: Tensor, eps: float) -> Tensor:
    """RMSNorm without a scale of a mirrored stream: [M, 2 hidden] to [M, hidden], a view."""
    both = functional.layer_norm(x, x.shape[-1:], eps=eps)
    return both[:, : x.shape[-1] // 2]
