"""The decoder layers that talker and predictor share, packed for few operations.

Source: the Qwen3 decoder (RMSNorm before attention and feed-forward, RMSNorm of each query and
key head, rotary embedding of halves, grouped-query attention, SwiGLU, no biases).

What is packed, once, when a checkpoint is loaded:

- q, k and v are one matrix. Its rows stand by key head: the queries that the key head serves,
  the key, the value. So queries and keys are one view, keys and values another.
- gate and up are one matrix.
- The weights of the q and k norms are multiplied into the rotation, which is a 2 x 2 matrix for
  each pair of dimensions.
- Without a fused RMSNorm, each norm's weight is multiplied into the matrix that follows it, and
  the norm itself is three operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.model_config import LayersConfig
from qwen3tts_engine.qwen3.weights import Weights

FOLD_ROWS = 128
"""Rows of a matrix that are folded together."""


def has_fused_norm(device: torch.device) -> bool:
    """Whether RMSNorm is one kernel there: on CUDA, in newer torch."""
    fused = getattr(torch.ops.aten, "_fused_rms_norm", None)
    # Before CUDA had it, an operation of that name gave one tensor.
    return device.type == "cuda" and fused is not None and len(fused.default._schema.returns) == 2


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm over the last dimension, its sum of squares in float32.

    Fused: ``x / sqrt(mean(x^2) + eps) * weight``. Otherwise ``x / sqrt(sum(x^2) + size * eps)
    * weight``, where ``weight`` holds the ``sqrt(size)`` that is left out, or None: what follows
    holds both.
    """

    size: int
    eps: float
    weight: Tensor | None
    floor: Tensor
    """``sqrt(size * eps)``, float32."""
    fused: bool

    @classmethod
    def build(
        cls, size: int, eps: float, weight: Tensor | None, *, device: torch.device, fused: bool
    ) -> Norm:
        """A norm; ``weight`` is the checkpoint's, or None where what follows holds it."""
        if weight is not None and not fused:
            weight = (weight.float() * math.sqrt(size)).to(weight.dtype)
        floor = torch.tensor(math.sqrt(size * eps), dtype=torch.float32, device=device)
        return cls(size, eps, weight, floor, fused)

    def __call__(self, x: Tensor) -> Tensor:
        """Shape [..., size], dtype of ``x``."""
        if self.fused:
            return functional.rms_norm(x, (self.size,), self.weight, self.eps)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        y = x / torch.hypot(length, self.floor)
        if y.dtype != x.dtype:
            y = y.to(x.dtype)
        return y if self.weight is None else y * self.weight


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights, each as its product wants it: [in, out]."""

    before_attention: Norm
    qkv: Tensor
    """[hidden, kv_heads * (queries per key + 2) * head_dim]."""
    out: Tensor
    """[heads * head_dim, hidden]."""
    before_ffn: Norm
    gate_up: Tensor
    """[hidden, 2 * ffn]."""
    down: Tensor
    """[ffn, hidden]."""

    def feed_forward(self, x: Tensor, gated: Callable[[Tensor], Tensor]) -> Tensor:
        """The feed-forward and the path around it: [N, hidden] to the same.

        ``gated`` is ``swiglu`` or a device's own.
        """
        return torch.addmm(x, gated(torch.mm(self.before_ffn(x), self.gate_up)), self.down)


def swiglu(gate_up: Tensor) -> Tensor:
    """``silu(gate) * up``: [N, 2 * ffn], which is spoilt, to [N, ffn]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate, inplace=True).mul_(up)


@dataclass(frozen=True, slots=True)
class Stack:
    """All layers, and what their attention needs besides."""

    config: LayersConfig
    layers: tuple[Layer, ...]
    head_norm: Norm
    """Of each query and key head, without its weight: the rotation has it."""
    head_weights: Tensor
    """[layers, 1, 1, queries per key + 1, 1, 2, head_dim / 2] float32: weights of the q and k
    norms, for the rotation."""

    @property
    def queries(self) -> int:
        """Query heads for each key head."""
        return self.config.heads // self.config.kv_heads

    def heads(self, qkv: Tensor) -> Tensor:
        """[N, ...] as [N, kv_heads, queries + 2, head_dim]: queries, key, value."""
        config = self.config
        return qkv.view(-1, config.kv_heads, self.queries + 2, config.head_dim)

    def rotations(self, angles: Tensor) -> Tensor:
        """Rotation and norm weights of all layers: [N, 2, 2, head_dim / 2] to
        [layers, N, 1, queries + 1, 2, 2, head_dim / 2], float32."""
        return angles[:, None, None] * self.head_weights

    def rotations_of(self, layer: int, angles: Tensor) -> Tensor:
        """The same for one layer: [N, 1, queries + 1, 2, 2, head_dim / 2]."""
        return angles[:, None, None] * self.head_weights[layer]


def load_stack(
    weights: Weights,
    config: LayersConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
    fused: bool,
) -> Stack:
    """Read and pack the layers of ``<prefix>layers.N.``; see the module's text.

    Raises:
        BadCheckpoint: a tensor is missing or has another shape.
    """
    layers, head_weights = [], []
    for number in range(config.layers):
        reader = _Reader(weights.under(f"layers.{number}."), config, device, dtype, fused)
        layers.append(reader.layer())
        head_weights.append(reader.head_weights())
    dim = config.head_dim
    return Stack(
        config,
        tuple(layers),
        Norm.build(dim, config.rms_eps, None, device=device, fused=fused),
        torch.stack(head_weights),
    )


def fold_columns(matrix: Tensor, norm: Tensor, *, fused: bool, spoil: bool = False) -> Tensor:
    """The [out, in] matrix behind a norm, with the norm's weight in it unless the norm is fused.

    ``spoil``: the given one may be spoilt.
    """
    if fused:
        return matrix
    scale = norm.float() * math.sqrt(norm.shape[0])
    if not spoil:
        return (matrix.float() * scale).to(matrix.dtype)
    # By parts that stay in a processor's cache while they are float32.
    for start in range(0, len(matrix), FOLD_ROWS):
        part = matrix[start : start + FOLD_ROWS]
        part.copy_(part.float().mul_(scale))
    return matrix


@dataclass(frozen=True, slots=True)
class _Reader:
    """Packs one layer."""

    weights: Weights
    config: LayersConfig
    device: torch.device
    dtype: torch.dtype
    fused: bool

    def take(self, name: str, *shape: int) -> Tensor:
        return self.weights.take(f"{name}.weight", shape).to(self.device, self.dtype)

    def room(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def fill(self, part: Tensor, name: str) -> None:
        shape = (math.prod(part.shape[:-1]), part.shape[-1])
        part.copy_(self.weights.take_stored(f"{name}.weight", shape).view(part.shape))

    def layer(self) -> Layer:
        c = self.config
        rows, group = c.heads * c.head_dim, c.heads // c.kv_heads
        first = self.take("input_layernorm", c.hidden)
        second = self.take("post_attention_layernorm", c.hidden)
        # Converted and packed by one copy.
        qkv = self.room(c.kv_heads, group + 2, c.head_dim, c.hidden)
        self.fill(qkv[:, :group], "self_attn.q_proj")
        self.fill(qkv[:, group], "self_attn.k_proj")
        self.fill(qkv[:, group + 1], "self_attn.v_proj")
        qkv = qkv.view(-1, c.hidden)
        gate_up = self.room(2 * c.ffn, c.hidden)
        self.fill(gate_up[: c.ffn], "mlp.gate_proj")
        self.fill(gate_up[c.ffn :], "mlp.up_proj")
        return Layer(
            self.norm(first),
            fold_columns(qkv, first, fused=self.fused, spoil=True).t(),
            self.take("self_attn.o_proj", c.hidden, rows).t(),
            self.norm(second),
            fold_columns(gate_up, second, fused=self.fused, spoil=True).t(),
            self.take("mlp.down_proj", c.hidden, c.ffn).t(),
        )

    def norm(self, weight: Tensor) -> Norm:
        return Norm.build(
            weight.shape[0],
            self.config.rms_eps,
            weight if self.fused else None,
            device=self.device,
            fused=self.fused,
        )

    def head_weights(self) -> Tensor:
        """[1, 1, queries + 1, 1, 2, head_dim / 2]."""
        c = self.config
        group = c.heads // c.kv_heads
        q = self.take("self_attn.q_norm", c.head_dim).float()
        k = self.take("self_attn.k_norm", c.head_dim).float()
        both = torch.cat([q.expand(group, -1), k[None]])
        if not self.fused:
            both = both * math.sqrt(c.head_dim)
        return both.view(1, 1, group + 1, 1, 2, c.head_dim // 2)


def rotary_angles(config: LayersConfig, positions: int, device: torch.device) -> Tensor:
    """[positions, 2, 2, head_dim / 2] float32: the rotation of each pair (d, d + head_dim / 2).

    ``[[cos, -sin], [sin, cos]]`` of ``position / theta^(2d / head_dim)``, in float32 as the
    reference computes it.
    """
    half = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    speed = 1.0 / config.rope_theta**half
    angle = torch.arange(positions).float()[:, None] * speed
    cos, sin = angle.cos(), angle.sin()
    rows = [torch.stack([cos, -sin], dim=1), torch.stack([sin, cos], dim=1)]
    return torch.stack(rows, dim=1).to(device)
