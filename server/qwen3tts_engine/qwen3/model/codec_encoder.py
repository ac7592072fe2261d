"""Encoder of the Mimi codec: reference audio to codes.

Source: Moshi (arXiv 2410.00037). The configuration names a window of 250 positions, but the
checkpoints' own code attends to all earlier ones; so does this, since codes must be equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.config import CodecConfig, CodecEncoderConfig

SEGMENT_SAMPLES = 5 * 24_000
"""Longer audio is convolved in segments, a multiple of all strides: a minute takes 0.2 GB instead
of 1.8, in the same time."""
USAGE_FLOOR = 1e-5
"""Least usage that a codebook's sums are divided by."""


@dataclass(frozen=True, slots=True)
class _Conv:
    weight: Tensor
    bias: Tensor | None
    stride: int = 1
    dilation: int = 1
    mode: str = "constant"
    """Padding mode; zeros if ``constant``."""

    @property
    def left(self) -> int:
        return (self.weight.shape[-1] - 1) * self.dilation + 1 - self.stride

    def __call__(self, x: Tensor) -> Tensor:
        x = functional.pad(x, (self.left, -x.shape[-1] % self.stride), mode=self.mode)
        return functional.conv1d(
            x, self.weight, self.bias, stride=self.stride, dilation=self.dilation
        )


@dataclass(frozen=True, slots=True)
class _Residual:
    wide: _Conv
    back: _Conv

    def __call__(self, x: Tensor) -> Tensor:
        return x + self.back(functional.elu(self.wide(functional.elu(x))))


@dataclass(frozen=True, slots=True)
class _Stage:
    units: tuple[_Residual, ...]
    conv: _Conv

    def __call__(self, x: Tensor) -> Tensor:
        for unit in self.units:
            x = unit(x)
        return self.conv(functional.elu(x))


@dataclass(frozen=True, slots=True)
class _Layer:
    config: CodecEncoderConfig
    norms: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]
    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    up: Tensor
    down: Tensor
    scales: tuple[Tensor, Tensor]

    def __call__(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.scales[0] * self._attention(self._norm(0, x), rope)
        y = functional.gelu(functional.linear(self._norm(1, x), self.up))
        return x + self.scales[1] * functional.linear(y, self.down)

    def _norm(self, which: int, x: Tensor) -> Tensor:
        weight, bias = self.norms[which]
        return functional.layer_norm(x, (x.shape[-1],), weight, bias, self.config.norm_eps)

    def _attention(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            functional.linear(x, weight)
            .view(batch, length, -1, self.config.head_dim)
            .transpose(1, 2)
            for weight in (self.query, self.key, self.value)
        )
        shared = q.shape[1] // k.shape[1]
        y = functional.scaled_dot_product_attention(
            _rotate(q, rope),
            _rotate(k, rope).repeat_interleave(shared, dim=1),
            v.repeat_interleave(shared, dim=1),
            is_causal=True,
        )
        return functional.linear(y.transpose(1, 2).reshape(batch, length, -1), self.out)


def _rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    cos, sin = rope
    return x * cos + torch.cat((-second, first), dim=-1) * sin


@dataclass(frozen=True, slots=True)
class _Quantizer:
    project: Tensor | None
    books: tuple[Tensor, ...]
    """[entries, width] each, float32."""

    def __call__(self, x: Tensor) -> list[Tensor]:
        if self.project is not None:
            x = functional.conv1d(x[None], self.project)[0]
        rest = x.T
        codes = []
        for book in self.books:
            nearest = torch.cdist(rest[None].float(), book[None])[0].argmin(dim=-1)
            rest = rest - book[nearest].to(rest.dtype)
            codes.append(nearest)
        return codes


class CodecEncoder:
    """Codes of recordings. Immutable and thread-safe."""

    def __init__(
        self,
        config: CodecEncoderConfig,
        *,
        first: _Conv,
        stages: tuple[_Stage, ...],
        layers: tuple[_Layer, ...],
        halve: _Conv,
        quantizers: tuple[_Quantizer, ...],
    ) -> None:
        self.config = config
        self._first = first
        self._stages = stages
        self._layers = layers
        self._halve = halve
        self._quantizers = quantizers
        self._hop = math.prod(config.upsampling_ratios)
        """Samples per transformer position."""

    @classmethod
    def from_weights(
        cls,
        config: CodecConfig,
        weights: Weights,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> CodecEncoder:
        """Load ``encoder.*`` of the speech tokenizer; without unused codebooks.

        Equal codes need float32 without TF32, a process setting: keep it on the CPU, where 10 s
        take 1.5 s of one core.
        """
        return _EncoderLoader(config.encoder, weights.under("encoder."), device, dtype).encoder(
            config.quantizers
        )

    @torch.no_grad()
    def encode(self, samples: Tensor) -> Tensor:
        """Return codes [ceil(N / 1920), quantizers] of samples [N >= 1] at 24 kHz."""
        weight = self._first.weight
        x = self._convolve(samples.to(weight.device, weight.dtype))[None].transpose(1, 2)
        rope = self._rope(x.shape[1], x)
        for layer in self._layers:
            x = layer(x, rope)
        x = self._halve(x.transpose(1, 2))[0]
        return torch.stack([codes for one in self._quantizers for codes in one(x)], dim=1)

    def _convolve(self, samples: Tensor) -> Tensor:
        history = -(-self.history // self._hop)
        parts = []
        for start in range(0, len(samples), SEGMENT_SAMPLES):
            before = min(start // self._hop, history)
            piece = samples[start - before * self._hop : start + SEGMENT_SAMPLES]
            x = self._first(piece[None, None])
            for stage in self._stages:
                x = stage(x)
            parts.append(x[0, :, before:])
        return torch.cat(parts, dim=1)

    @property
    def history(self) -> int:
        seen, step = self._first.left, 1
        for stage in self._stages:
            for unit in stage.units:
                seen += step * (unit.wide.left + unit.back.left)
            # A convolution's own stride of inputs is not before it.
            seen += step * stage.conv.left
            step *= stage.conv.stride
        return seen

    def _rope(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        half = torch.arange(0, self.config.head_dim, 2, device=like.device) / self.config.head_dim
        turns = torch.arange(length, device=like.device)[:, None] * (
            1.0 / self.config.rope_theta**half
        )
        angles = torch.cat((turns, turns), dim=1)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


@dataclass(frozen=True, slots=True)
class _EncoderLoader:
    config: CodecEncoderConfig
    at: Weights
    device: torch.device | str
    dtype: torch.dtype

    def encoder(self, quantizers: int) -> CodecEncoder:
        config = self.config
        hidden, width = config.hidden_size, config.num_filters
        strides = tuple(reversed(config.upsampling_ratios))
        widths = [width << n for n in range(len(strides) + 1)]
        stages, index = [], 1
        for (narrow, wide), stride in zip(pairwise(widths), strides, strict=True):
            units = tuple(
                self.residual(index + n, narrow, config.dilation_growth_rate**n)
                for n in range(config.num_residual_layers)
            )
            # A unit is one module of the file's list, the ELU before the convolution another.
            index += len(units) + 1
            stages.append(
                _Stage(units, self.conv(f"{index}", wide, narrow, 2 * stride, stride=stride))
            )
            index += 1
        stages.append(
            _Stage((), self.conv(f"{index + 1}", hidden, widths[-1], config.last_kernel_size))
        )
        semantic = config.num_semantic_quantizers
        return CodecEncoder(
            config,
            first=self.conv("0", width, 1, config.kernel_size),
            stages=tuple(stages),
            layers=tuple(self.layer(n) for n in range(config.num_hidden_layers)),
            halve=_Conv(
                self.take("downsample.conv.weight", hidden, hidden, 4),
                None,
                stride=2,
                mode="replicate",
            ),
            quantizers=(
                self.quantizer("semantic", semantic),
                self.quantizer("acoustic", quantizers - semantic),
            ),
        )

    def take(self, name: str, *shape: int) -> Tensor:
        return self.at.take(name, shape).to(self.device, self.dtype)

    def conv(
        self, name: str, out: int, into: int, kernel: int, *, stride: int = 1, dilation: int = 1
    ) -> _Conv:
        name = f"encoder.layers.{name}.conv"
        weight = self.take(f"{name}.weight", out, into, kernel)
        return _Conv(weight, self.take(f"{name}.bias", out), stride, dilation)

    def residual(self, index: int, width: int, dilation: int) -> _Residual:
        narrow, kernel = width // self.config.compress, self.config.residual_kernel_size
        return _Residual(
            self.conv(f"{index}.block.1", narrow, width, kernel, dilation=dilation),
            self.conv(f"{index}.block.3", width, narrow, 1),
        )

    def layer(self, index: int) -> _Layer:
        config = self.config
        name, hidden = f"encoder_transformer.layers.{index}", config.hidden_size
        inner, shared = (
            n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads)
        )

        def norm(which: str) -> tuple[Tensor, Tensor]:
            at = f"{name}.{which}_layernorm"
            return self.take(f"{at}.weight", hidden), self.take(f"{at}.bias", hidden)

        return _Layer(
            config,
            norms=(norm("input"), norm("post_attention")),
            query=self.take(f"{name}.self_attn.q_proj.weight", inner, hidden),
            key=self.take(f"{name}.self_attn.k_proj.weight", shared, hidden),
            value=self.take(f"{name}.self_attn.v_proj.weight", shared, hidden),
            out=self.take(f"{name}.self_attn.o_proj.weight", hidden, inner),
            up=self.take(f"{name}.mlp.fc1.weight", config.intermediate_size, hidden),
            down=self.take(f"{name}.mlp.fc2.weight", hidden, config.intermediate_size),
            scales=(
                self.take(f"{name}.self_attn_layer_scale.scale", hidden),
                self.take(f"{name}.mlp_layer_scale.scale", hidden),
            ),
        )

    def quantizer(self, kind: str, books: int) -> _Quantizer:
        config = self.config
        name = f"quantizer.{kind}_residual_vector_quantizer"
        width = config.vector_quantization_hidden_dimension
        # The file has a projection only where the widths differ.
        project = (
            self.take(f"{name}.input_proj.weight", width, config.hidden_size, 1)
            if width != config.hidden_size
            else None
        )
        return _Quantizer(
            project, tuple(self.book(f"{name}.layers.{n}.codebook") for n in range(books))
        )

    def book(self, name: str) -> Tensor:
        size, width = self.config.codebook_size, self.config.codebook_dim
        used = self.at.take(f"{name}.cluster_usage", (size,)).to(self.device, torch.float32)
        total = self.at.take(f"{name}.embed_sum", (size, width)).to(self.device, torch.float32)
        return total / used.clamp(min=USAGE_FLOOR)[:, None]
