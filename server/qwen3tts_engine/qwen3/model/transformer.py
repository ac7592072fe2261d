"""Decoder layers of talker and code predictor, and their attention.

Source: the Qwen3 decoder. Packed at load time for few operations: q, k, v by key head (its queries,
key, value); gate and up; the weights of the q and k norms in the rotation, a 2 x 2 matrix a pair of
dimensions; without a fused RMSNorm, each norm's weight in the matrix behind it.

Shapes: N rows of one token; S slots of P positions; K key heads; Q query heads for each; D
dimensions. ``heads`` [N, K, Q + 2, D]; KV cache of a layer [S, P, K, 2, D]; attention [N, K, Q,
D].
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
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.quantized import Matrix, add_product, multiply
from qwen3tts_engine.qwen3.model.sampler import MakeSampler, Sampler, TorchSampler

FOLD_ROWS = 128
"""Rows folded together."""


def has_fused_norm(device: torch.device) -> bool:
    fused = getattr(torch.ops.aten, "_fused_rms_norm", None)
    # Before CUDA had it, an operation of that name gave one tensor.
    return device.type == "cuda" and fused is not None and len(fused.default._schema.returns) == 2


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """RMSNorm over the last dimension, sum of squares in float32.

    Not fused: ``x / sqrt(sum(x^2) + size * eps) * weight``, where ``weight`` includes
    ``sqrt(size)``; None: folded into what follows.
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
        if weight is not None and not fused:
            weight = (weight.float() * math.sqrt(size)).to(weight.dtype)
        floor = torch.tensor(math.sqrt(size * eps), dtype=torch.float32, device=device)
        return cls(size, eps, weight, floor, fused)

    def __call__(self, x: Tensor) -> Tensor:
        if self.fused:
            return functional.rms_norm(x, (self.size,), self.weight, self.eps)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        y = x / torch.hypot(length, self.floor)
        if y.dtype != x.dtype:
            y = y.to(x.dtype)
        return y if self.weight is None else y * self.weight


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    before_attention: RmsNorm
    qkv: Matrix
    """[hidden, kv_heads * (queries per key + 2) * head_dim]."""
    out: Matrix
    """[heads * head_dim, hidden]."""
    before_ffn: RmsNorm
    gate_up: Matrix
    """[hidden, 2 * ffn]."""
    down: Matrix
    """[ffn, hidden]."""

    def project(self, x: Tensor, kernels: Kernels, out: Tensor | None = None) -> Tensor:
        """Return queries, keys and values of ``x`` [N, hidden], in ``out`` if given."""
        return kernels.norm_linear(x, self.before_attention, self.qkv, out)

    def add(self, x: Tensor, attended: Tensor, kernels: Kernels) -> Tensor:
        """Add attention's output and the feed-forward to ``x`` [N, hidden]."""
        kernels.add_linear(x, attended.reshape(len(x), -1), self.out)
        gated = kernels.gated_linear(x, self.before_ffn, self.gate_up)
        return kernels.add_linear(x, gated, self.down)


def norm_linear(x: Tensor, norm: RmsNorm, weight: Matrix, out: Tensor | None = None) -> Tensor:
    """``norm(x) @ weight``: [N, in] to [N, out]."""
    return multiply(norm(x), weight, out)


def gated_linear(x: Tensor, norm: RmsNorm, weight: Matrix) -> Tensor:
    """``silu(gate) * up`` of ``norm(x) @ weight``: [N, in] to [N, out / 2]."""
    return swiglu(multiply(norm(x), weight))


def add_linear(x: Tensor, y: Tensor, weight: Matrix) -> Tensor:
    """Add ``y @ weight`` to ``x`` [N, out] in place."""
    return add_product(x, y, weight)


def swiglu(gate_up: Tensor) -> Tensor:
    """[N, 2 * ffn], overwritten, to [N, ffn]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate, inplace=True).mul_(up)


@dataclass(frozen=True, slots=True)
class DecoderStack:
    config: LayersConfig
    layers: tuple[DecoderLayer, ...]
    head_norm: RmsNorm
    """Norm of each query and key head; its weight is in the rotation."""
    head_weights: Tensor
    """[layers, 1, 1, queries per key + 1, 1, 2, head_dim / 2] float32: weights of the q and k
    norms."""

    @property
    def queries(self) -> int:
        return self.config.heads // self.config.kv_heads

    def heads(self, qkv: Tensor) -> Tensor:
        """View [N, ...] as [N, kv_heads, queries + 2, head_dim]."""
        config = self.config
        return qkv.view(-1, config.kv_heads, self.queries + 2, config.head_dim)

    def rotations(self, angles: Tensor) -> Tensor:
        """[N, 2, 2, head_dim / 2] to [layers, N, 1, queries + 1, 2, 2, head_dim / 2]."""
        return angles[:, None, None] * self.head_weights

    def rotations_of(self, layer: int, angles: Tensor) -> Tensor:
        return angles[:, None, None] * self.head_weights[layer]


def load_stack(
    weights: Weights,
    config: LayersConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
    fused: bool,
) -> DecoderStack:
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
        c, rows = self.config, self.config.heads * self.config.head_dim
        first = self.take("input_layernorm", c.hidden)
        second = self.take("post_attention_layernorm", c.hidden)
        return DecoderLayer(
            self.norm(first),
            self.matrix("qkv", self.qkv, first),
            self.matrix("out", lambda: self.take("self_attn.o_proj", c.hidden, rows)),
            self.norm(second),
            self.matrix("gate_up", self.gate_up, second),
            self.matrix("down", lambda: self.take("mlp.down_proj", c.hidden, c.ffn)),
        )

    def matrix(self, name: str, make: Callable[[], Tensor], norm: Tensor | None = None) -> Matrix:
        """Return [out, in] of ``make``, with the weight of the norm before it, packed or [in, out].

        Quantized without that weight, which would widen the range of each output's row.
        """
        if self.weights.packing is not None:
            return self.weights.packing.matrix(name, make)
        made = make()
        if norm is not None:
            made = fold_columns(made, norm, fused=self.fused, spoil=True)
        return made.t()

    def qkv(self) -> Tensor:
        c = self.config
        group = c.heads // c.kv_heads
        # Converted and packed by one copy.
        qkv = self.room(c.kv_heads, group + 2, c.head_dim, c.hidden)
        self.fill(qkv[:, :group], "self_attn.q_proj")
        self.fill(qkv[:, group], "self_attn.k_proj")
        self.fill(qkv[:, group + 1], "self_attn.v_proj")
        return qkv.view(-1, c.hidden)

    def gate_up(self) -> Tensor:
        c = self.config
        gate_up = self.room(2 * c.ffn, c.hidden)
        self.fill(gate_up[: c.ffn], "mlp.gate_proj")
        self.fill(gate_up[c.ffn :], "mlp.up_proj")
        return gate_up

    def norm(self, weight: Tensor) -> RmsNorm:
        return RmsNorm.build(
            weight.shape[0],
            self.config.rms_eps,
            weight if self.fused or self.weights.packing is not None else None,
            device=self.device,
            fused=self.fused,
        )

    def head_weights(self) -> Tensor:
        c = self.config
        group = c.heads // c.kv_heads
        q = self.take("self_attn.q_norm", c.head_dim).float()
        k = self.take("self_attn.k_norm", c.head_dim).float()
        both = torch.cat([q.expand(group, -1), k[None]])
        if not self.fused:
            both = both * math.sqrt(c.head_dim)
        return both.view(1, 1, group + 1, 1, 2, c.head_dim // 2)


def rotary_angles(config: LayersConfig, positions: int, device: torch.device) -> Tensor:
    """[positions, 2, 2, head_dim / 2] float32."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    speed = 1.0 / config.rope_theta**half
    angle = torch.arange(positions).float()[:, None] * speed
    cos, sin = angle.cos(), angle.sin()
    rows = [torch.stack([cos, -sin], dim=1), torch.stack([sin, cos], dim=1)]
    return torch.stack(rows, dim=1).to(device)


def rotate(heads: Tensor, norm: RmsNorm, rotation: Tensor) -> None:
    """Normalize and rotate ``heads`` [..., K, Q + 2, D] in place.

    ``rotation`` is [..., 1, Q + 1, 2, 2, D / 2] float32, with norm weights.
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
    cache.index_put_((slots, positions), kv)


def length_mask(positions: Tensor, places: Tensor, zero: Tensor) -> Tensor:
    """Return the additive mask [..., kv_len], minus infinity behind each position."""
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
    """Attend from one query [N, K, Q, D] a row to positions 0 to ``pos``, below ``kv_len``."""
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
    """Rotate, write the KV cache and attend, one position a row."""
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
    mask: Tensor,
) -> Tensor:
    """Rotate, write the KV cache and attend, T positions of each of B rows.

    ``places``, ``positions`` [B * T] are written; ``slots`` [B] read; ``mask`` is [B, T, kv_len].
    """
    rotate(heads, norm, rotation)
    write_kv(cache, places, positions, heads[:, :, -2:])
    rows, length, kv_len = mask.shape
    kv_heads, dim = heads.shape[1], heads.shape[3]
    k, v = cache[:, :kv_len].index_select(0, slots).transpose(1, 2).unbind(3)
    q = heads[:, :, :-2].view(rows, length, kv_heads, -1, dim)
    q = q.permute(0, 2, 1, 3, 4).reshape(rows, kv_heads, -1, dim)
    wide = mask[:, :, None].expand(-1, -1, q.shape[2] // length, -1).flatten(1, 2)
    y = functional.scaled_dot_product_attention(q, k, v, wide[:, None])
    y = y.view(rows, kv_heads, length, -1, dim).transpose(1, 2)
    return y.reshape(rows * length, kv_heads, -1, dim)


def frame_attention(work: Tensor, norm: RmsNorm, rotation: Tensor, position: int) -> Tensor:
    """Attend from one position of a frame's sequence to earlier ones.

    ``work`` [positions, N, K, Q + 2, D]: projections so far.
    """
    heads = work[position]
    rotate(heads, norm, rotation)
    k, v = work[: position + 1, :, :, -2:].permute(3, 1, 2, 0, 4).unbind(0)
    return functional.scaled_dot_product_attention(heads[:, :, :-2], k, v)


def first_attention(
    work: Tensor, norm: RmsNorm, rotation: Tensor, *, only_last: bool = False
) -> Tensor:
    """Attention of a frame's positions 0 and 1, [2, N, K, Q, D]; ``only_last``: of 1."""
    two = work[:2]
    rotate(two, norm, rotation)
    k, v = two[:, :, :, -2:].permute(3, 1, 2, 0, 4).unbind(0)
    y = functional.scaled_dot_product_attention(two[1, :, :, :-2], k, v)
    if only_last:
        return y
    # Position 0 attends only to itself.
    return torch.stack((two[0, :, :, -1:].expand(y.shape), y))


def embed(ids: Tensor, text: Tensor, offsets: Tensor, table: Tensor) -> Tensor:
    """Sum a frame's embeddings: [B, width], of ``table`` [entries, width].

    ``ids`` [17, B] are codes and space for the ids ``text`` [B]; ``offsets`` [17, 1] begin their
    entries.
    """
    ids[-1].copy_(text)
    return functional.embedding(ids + offsets, table).sum(dim=0)


def store(
    kv_cache: KvCache, slots: Tensor, x: Tensor, norm: RmsNorm, head: Matrix, *, advance: bool
) -> None:
    """Keep ``norm(x)`` [B, hidden] and its product with ``head``; count a frame if ``advance``."""
    hidden = norm(x)
    kv_cache.hidden.index_copy_(0, slots, hidden)
    kv_cache.logits.index_copy_(0, slots, multiply(hidden, head).float())
    if advance:
        kv_cache.counters[:, :2].index_add_(0, slots, kv_cache.one.expand(len(slots), -1))
        kv_cache.counters[kv_cache.scratch].zero_()


@dataclass(frozen=True, slots=True)
class Kernels:
    """Functions that a device may replace by its own kernels."""

    norm_linear: Callable[..., Tensor] = norm_linear
    gated_linear: Callable[..., Tensor] = gated_linear
    add_linear: Callable[..., Tensor] = add_linear
    decode_attention: Callable[..., Tensor] = decode_attention
    prefill_attention: Callable[..., Tensor] = prefill_attention
    frame_attention: Callable[..., Tensor] = frame_attention
    first_attention: Callable[..., Tensor] = first_attention
    sampler: MakeSampler = TorchSampler
    embed: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = embed
    store: Callable[..., None] = store
    predict: Callable[[Tensor, Sampler], bool] | None = None
    """Codes 1 to 15 by one kernel, see ``persistent_predictor``; False: not these rows."""

    @property
    def reads_lengths(self) -> bool:
        """True if attention reads the rows' lengths: it needs no mask, and one shape fits all."""
        return self.decode_attention is not decode_attention


TORCH_KERNELS = Kernels()
"""Plain torch."""
