"""Streaming codec decoder, equal to decoding all frames in one batch.

Every part is causal: CodecState keeps each layer's past.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.codec_attention import CodecWindow, SlidingWindowAttention
from qwen3tts_engine.qwen3.model.codec_layers import (
    PACKED_CODEC_KERNELS,
    RESIDUAL_KERNEL,
    TORCH_CODEC_KERNELS,
    CodecKernels,
    ConvNeXt,
    Convolution,
    Epilogue,
    Placement,
    ResidualUnit,
    Snake,
    read,
    read_stored,
    transposed_as_convolution,
)
from qwen3tts_engine.qwen3.model.codec_packed import can_pack, pack_matrix
from qwen3tts_engine.qwen3.model.codec_state import (
    CodecState,
    CodecStateLayout,
    CodecStateReader,
)
from qwen3tts_engine.qwen3.model.config import CodecDecoderConfig
from qwen3tts_engine.qwen3.model.transformer import RmsNorm, has_fused_norm
from qwen3tts_wire.errors import BadRequest


class CodecDecoderLayer:
    def __init__(
        self, weights: Weights, config: CodecDecoderConfig, place: Placement, index: int
    ) -> None:
        hidden, ffn, dim = config.hidden_size, config.intermediate_size, config.head_dim
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._index = index
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
        qkv = torch.cat((query, *pair)) * norm
        at = weights.under("mlp.")
        norm = read(weights, "post_attention_layernorm.weight", hidden)
        gate_up = [read(at, f"{one}_proj.weight", ffn, hidden) for one in ("gate", "up")]
        gated = torch.cat(gate_up) * norm
        scale = read(weights, "mlp_layer_scale.scale", hidden)
        down = scale[:, None] * read(at, "down_proj.weight", hidden, ffn)
        self.norm, factor = norm_of(config, place)
        folded = [one * factor for one in (qkv, gated)]
        self._dtype = place.dtype_of(f"transformer layer {index}", *folded, out, down)
        self.qkv, self.gate_up, self.out, self.down = (
            put_matrix(one, place, self._dtype) for one in (folded[0], folded[1], out, down)
        )

    def __call__(
        self, x: Tensor, window: CodecWindow, kernels: CodecKernels
    ) -> tuple[Tensor, Tensor]:
        """[B T, hidden], overwritten; also new keys and values [B, T, 2, heads, head_dim]."""
        x = x.to(self._dtype)
        qkv = kernels.norm_linear(x, self.norm, self.qkv)
        attended, made = kernels.attend(qkv, window, self._index)
        x = kernels.add_linear(x, attended, self.out)
        gated = kernels.gated_linear(x, self.norm, self.gate_up)
        return kernels.add_linear(x, gated, self.down), made


def norm_of(config: CodecDecoderConfig, place: Placement) -> tuple[RmsNorm, float]:
    size, wide = config.hidden_size, place.dtype == torch.float64
    fused = wide or has_fused_norm(place.device)
    norm = RmsNorm.build(size, config.rms_norm_eps, None, device=place.device, fused=fused)
    return norm, 1.0 if fused else math.sqrt(size)


def put_matrix(weight: Tensor, place: Placement, dtype: torch.dtype) -> Tensor:
    """[out, in] to [in, out], or packed."""
    # Stored transposed: products of few rows are more exact that way.
    matrix = place.put(weight, dtype).T
    return pack_matrix(matrix) if place.packed else matrix


DILATIONS = (1, 3, 9)
"""Dilations of each block's residual units."""
USAGE_FLOOR = 1e-5
"""Least usage that a codebook's sums are divided by."""
DIRECT_CHANNELS = {"cpu": 384}
"""See Placement.direct_channels; measured on CPUs."""


class CodecDecoder:
    def __init__(
        self, config: CodecDecoderConfig, weights: Weights, place: Placement, *, tf32: bool
    ) -> None:
        self.config = config
        self.device, self.dtype, self.tf32 = place.device, place.dtype, tf32
        self.kernels = PACKED_CODEC_KERNELS if place.packed else TORCH_CODEC_KERNELS
        past = CodecStateLayout()
        c, latent = config, config.latent_dim
        books = _books(weights.under("quantizer."), c)
        books_dtype = place.dtype_of("codebooks", books)
        self._books = place.put(books, books_dtype)
        firsts = torch.arange(c.num_quantizers) * c.codebook_size
        self._firsts = firsts.to(place.device)
        transformer = weights.under("pre_transformer.")
        wide = books_dtype != place.dtype
        self._enter = _enter(weights, transformer, c, past, place, wide=wide)
        self.attention = SlidingWindowAttention(c, place.device, place.dtype)
        self.layers = [
            CodecDecoderLayer(transformer.under(f"layers.{index}."), c, place, index)
            for index in range(c.num_hidden_layers)
        ]
        self._norm, factor = norm_of(c, place)
        self._leave = _leave(weights, transformer, factor, c, past, place)
        self._upsampling: list[Convolution | ConvNeXt] = []
        for index, rate in enumerate(c.upsampling_ratios):
            at = weights.under(f"upsample.{index}.")
            if index:
                weight = read_stored(at, "0.conv.weight", latent, latent, rate)
                bias = read(at, "0.conv.bias", latent)
                self._upsampling.append(_upsample(weight, bias, rate, past, place))
            self._upsampling.append(ConvNeXt(at.under("1."), latent, past, place))
        self._vocoder = _vocoder(weights.under("decoder."), c, past, place)
        self._past = past
        self.float32_layers = tuple(dict.fromkeys(place.risks))
        """Layers that run in float32, since the dtype cannot hold their numbers."""

    @classmethod
    def from_weights(
        cls,
        config: CodecDecoderConfig,
        weights: Weights,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        tf32: bool = False,
        direct_channels: int | None = None,
    ) -> CodecDecoder:
        """Load ``decoder.*`` of the speech tokenizer.

        ``tf32`` allows TF32 in float32 products; ``direct_channels``: see Placement.
        """
        if not dtype.is_floating_point:
            raise BadRequest(f"A codec in {dtype}.", remedy="Use float32, float16 or bfloat16.")
        device = torch.device(device)
        if direct_channels is None:
            packed = can_pack(device, dtype)
            wide = dtype.itemsize > 2 or packed
            direct_channels = DIRECT_CHANNELS.get(device.type, 0) if wide else 0
        else:
            packed = False
        place = Placement(device, dtype, direct_channels, packed)
        return cls(config, weights.under("decoder."), place, tf32=tf32)

    @property
    def samples_per_frame(self) -> int:
        return math.prod((*self.config.upsample_rates, *self.config.upsampling_ratios))

    def new_state(self, slots: int) -> CodecState:
        c = self.config
        kv = (self.attention.ring, c.num_hidden_layers, 2, c.num_attention_heads, c.head_dim)
        return CodecState(
            slots,
            past=self._past.length,
            kv=kv,
            device=self.device,
            dtype=self.dtype,
            past_dtype=torch.float32 if self._past.wide else self.dtype,
        )

    def convolutions(self) -> Iterator[tuple[Convolution, int]]:
        time = 1
        parts: list[Convolution] = [self._enter, self._leave]
        for stage in (*self._upsampling, *self._vocoder):
            parts += [stage] if isinstance(stage, Convolution) else stage.convolutions
        for conv in parts:
            yield conv, time
            time *= conv.then.rate

    def depthwise_blocks(self) -> Iterator[tuple[ConvNeXt, int]]:
        time = 1
        for stage, rate in zip(
            (one for one in self._upsampling if isinstance(one, ConvNeXt)),
            self.config.upsampling_ratios,
            strict=True,
        ):
            time *= rate
            yield stage, time

    @torch.no_grad()
    def run(self, state: CodecState, slots: Tensor, codes: Tensor) -> Tensor:
        """Decode the next frames of streams: [B, n samples_per_frame], float32 in ±1.

        Can be captured in a CUDA graph, after one eager run of its shape.

        Args:
            state: Advanced.
            slots: [B] int64, distinct except for the scratch slot.
            codes: [B, n, quantizers] int64; ids out of range are clamped.

        Raises:
            BadRequest: another shape, type or device.
        """
        self._check(slots, codes)
        with float32_products(self.device, self.dtype, tf32=self.tf32):
            return self._step(state, slots, codes)

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Decode a whole stream; takes megabytes a frame, unlike ``run``."""
        slots = torch.zeros(1, dtype=torch.int64, device=self.device)
        return self.run(self.new_state(0), slots, codes[None])[0]

    def _step(self, state: CodecState, slots: Tensor, codes: Tensor) -> Tensor:
        batch, frames, _ = codes.shape
        kernels, past = self.kernels, CodecStateReader(state, slots)
        gathers = frames > kernels.ring_frames
        window = self.attention.begin(state, slots, frames, gathers=gathers)
        entries = codes.clamp(0, self.config.codebook_size - 1).add_(self._firsts)
        entered = torch.embedding(self._books, entries).sum(2)
        stream = kernels.convolve(self._enter, entered, past)[0].flatten(0, 1)
        made = []
        for layer in self.layers:
            stream, kv = layer(stream, window, kernels)
            made.append(kv)
        # What leaves is a frame of its own for each row; the past is empty.
        x = kernels.convolve(self._leave, self._norm(stream)[None], past)[0]
        x = x.view(batch, frames * self.config.upsampling_ratios[0], -1)
        for stage in self._upsampling:
            if isinstance(stage, ConvNeXt):
                x = stage(x, past, kernels)
            else:
                x = kernels.convolve(stage, x, past)[0]
        sums = x
        for block in self._vocoder:
            if isinstance(block, ResidualUnit):
                sums, x = block(sums, x, past, kernels)
            else:
                sums, x = kernels.convolve(block, x, past)
        past.finish()
        self.attention.finish(window, made)
        return x.view(batch, -1).float().clamp_(-1, 1)

    def _check(self, slots: Tensor, codes: Tensor) -> None:
        wanted = self.config.num_quantizers
        if codes.dim() != 3 or codes.shape[1] < 1 or codes.shape[2] != wanted:
            _refuse("codes", list(codes.shape), f"[B, n, {wanted}], n at least 1")
        if slots.dim() != 1 or len(slots) != len(codes) or not len(slots):
            _refuse("slots", list(slots.shape), f"[{len(codes)}], one for each row of codes")
        for name, tensor in (("codes", codes), ("slots", slots)):
            if tensor.dtype != torch.int64:
                _refuse(name, tensor.dtype, "torch.int64")
            if tensor.device.type != self.device.type:
                _refuse(name, tensor.device, self.device)


@contextmanager
def float32_products(device: torch.device, dtype: torch.dtype, *, tf32: bool) -> Iterator[None]:
    if device.type != "cuda" or dtype != torch.float32:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _refuse(name: str, found: object, wanted: object) -> None:
    raise BadRequest(f"Codec {name}: {found}.", remedy=f"Give {wanted}.")


def _books(weights: Weights, c: CodecDecoderConfig) -> Tensor:
    half = c.codebook_dim // 2
    books = []
    for part, count in (("rvq_first", 1), ("rvq_rest", c.num_quantizers - 1)):
        at = weights.under(f"{part}.")
        project = read(at, "output_proj.weight", c.codebook_dim, half, 1)[..., 0]
        for index in range(count):
            book = at.under(f"vq.layers.{index}._codebook.")
            usage = read(book, "cluster_usage", c.codebook_size).clamp(min=USAGE_FLOOR)
            sums = read(book, "embedding_sum", c.codebook_size, half)
            books.append((sums / usage[:, None]) @ project.T)
    return torch.cat(books)


def _enter(
    weights: Weights,
    transformer: Weights,
    c: CodecDecoderConfig,
    past: CodecStateLayout,
    place: Placement,
    *,
    wide: bool,
) -> Convolution:
    conv = read(weights, "pre_conv.conv.weight", c.latent_dim, c.codebook_dim, 3)
    bias = read(weights, "pre_conv.conv.bias", c.latent_dim)
    project = read(transformer, "input_proj.weight", c.hidden_size, c.latent_dim)
    shift = read(transformer, "input_proj.bias", c.hidden_size)
    conv = torch.einsum("oi,ick->ock", project, conv)
    return Convolution(conv, project @ bias + shift, past, place, wide=wide)


def _leave(
    weights: Weights,
    transformer: Weights,
    factor: float,
    c: CodecDecoderConfig,
    past: CodecStateLayout,
    place: Placement,
) -> Convolution:
    latent, rate = c.latent_dim, c.upsampling_ratios[0]
    norm = read(transformer, "norm.weight", c.hidden_size) * factor
    project = read(transformer, "output_proj.weight", latent, c.hidden_size) * norm
    shift = read(transformer, "output_proj.bias", latent)
    at = weights.under("upsample.0.0.conv.")
    up = transposed_as_convolution(read(at, "weight", latent, latent, rate), rate)[..., 0]
    bias = up @ shift + read(at, "bias", latent).repeat(rate)
    return Convolution((up @ project)[..., None], bias, past, place, then=Epilogue(rate=rate))


def _upsample(
    weight: Tensor,
    bias: Tensor,
    rate: int,
    past: CodecStateLayout,
    place: Placement,
    *,
    before: Snake | None = None,
    then: Snake | None = None,
) -> Convolution:
    epilogue = Epilogue(then, keeps=then is not None, rate=rate)
    weight, bias = transposed_as_convolution(weight, rate), bias.repeat(rate)
    return Convolution(weight, bias, past, place, before=before, then=epilogue)


def _vocoder(
    weights: Weights, c: CodecDecoderConfig, past: CodecStateLayout, place: Placement
) -> list[Convolution | ResidualUnit]:
    def conv(index: int, out: int, channels: int, before: Snake | None, then: Epilogue) -> None:
        at = weights.under(f"{index}.conv.")
        weight = read_stored(at, "weight", out, channels, RESIDUAL_KERNEL)
        bias = read(at, "bias", out)
        blocks.append(Convolution(weight, bias, past, place, before=before, then=then))

    width, last = c.decoder_dim, len(c.upsample_rates) + 1
    blocks: list[Convolution | ResidualUnit] = []
    snake = Snake(weights, "1.block.0.", width, place)
    conv(0, width, c.latent_dim, None, Epilogue(snake))
    for index, rate in enumerate(c.upsample_rates, start=1):
        at = weights.under(f"{index}.block.")
        weight = read_stored(at, "1.conv.weight", width, width // 2, 2 * rate)
        width //= 2
        bias = read(at, "1.conv.bias", width)
        snakes = [
            (Snake(at, f"{unit}.act1.", width, place), Snake(at, f"{unit}.act2.", width, place))
            for unit in range(2, 2 + len(DILATIONS))
        ]
        blocks.append(_upsample(weight, bias, rate, past, place, before=snake, then=snakes[0][0]))
        name = f"{last}." if index + 1 == last else f"{index + 1}.block.0."
        snake = Snake(weights, name, width, place)
        for unit, dilation in enumerate(DILATIONS):
            final = unit + 1 == len(DILATIONS)
            then = Epilogue(snake) if final else Epilogue(snakes[unit + 1][0], keeps=True)
            unit_weights = at.under(f"{unit + 2}.")
            blocks.append(
                ResidualUnit(unit_weights, width, dilation, past, place, snakes[unit], then)
            )
    conv(last + 1, 1, width, snake, Epilogue())
    return blocks
