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

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.config import LayersConfig
from qwen3tts_engine.qwen3.model.sampling import choose

FOLD_ROWS = 128
"""Rows of a matrix that are folded together."""


def has_fused_norm(device: torch.device) -> bool:
    """Whether RMSNorm is one kernel there: on CUDA, in newer torch."""
    fused = getattr(torch.ops.aten, "_fused_rms_norm", None)
    # Before CUDA had it, an operation of that name gave one tensor.
    return device.type == "cuda" and fused is not None and len(fused.default._schema.returns) == 2


@dataclass(frozen=True, slots=True)
class RmsNorm:
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
    ) -> RmsNorm:
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
class DecoderLayer:
    """One layer's weights, each as its product wants it: [in, out]."""

    before_attention: RmsNorm
    qkv: Tensor
    """[hidden, kv_heads * (queries per key + 2) * head_dim]."""
    out: Tensor
    """[heads * head_dim, hidden]."""
    before_ffn: RmsNorm
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
class DecoderStack:
    """All layers, and what their attention needs besides."""

    config: LayersConfig
    layers: tuple[DecoderLayer, ...]
    head_norm: RmsNorm
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
) -> DecoderStack:
    """Read and pack the layers of ``<prefix>layers.N.``; see the module's text.

    Raises:
        BadCheckpoint: a tensor is missing or has another shape.
    """
    layers, head_weights = [], []
    for number in range(config.layers):
        reader = _LayerPacker(weights.under(f"layers.{number}."), config, device, dtype, fused)
        layers.append(reader.layer())
        head_weights.append(reader.head_weights())
    dim = config.head_dim
    return DecoderStack(
        config,
        tuple(layers),
        RmsNorm.build(dim, config.rms_eps, None, device=device, fused=fused),
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
class _LayerPacker:
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

    def layer(self) -> DecoderLayer:
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
        return DecoderLayer(
            self.norm(first),
            fold_columns(qkv, first, fused=self.fused, spoil=True).t(),
            self.take("self_attn.o_proj", c.hidden, rows).t(),
            self.norm(second),
            fold_columns(gate_up, second, fused=self.fused, spoil=True).t(),
            self.take("mlp.down_proj", c.hidden, c.ffn).t(),
        )

    def norm(self, weight: Tensor) -> RmsNorm:
        return RmsNorm.build(
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


def rotate(heads: Tensor, norm: RmsNorm, rotation: Tensor) -> None:
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
    norm: RmsNorm,
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
    norm: RmsNorm,
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


def frame_attention(work: Tensor, norm: RmsNorm, rotation: Tensor, position: int) -> Tensor:
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


TORCH_KERNELS = Kernels()
"""Plain torch."""
