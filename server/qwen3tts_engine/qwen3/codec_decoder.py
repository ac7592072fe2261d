"""Codes to samples, frame by frame, equal to decoding all frames at once.

Every part of the 12.5 Hz decoder is causal, so a stream is decoded by keeping each layer's past
(codec_state.py) and computing new frames only. There is no left context to decode again and
nothing to blend at the borders of chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.codec_attention import Layer, WindowAttention, mirrored, unit_rms
from qwen3tts_engine.qwen3.codec_layers import (
    RESIDUAL_KERNEL,
    CausalConv,
    ConvNeXt,
    Linear,
    Place,
    ResidualUnit,
    Snake,
    Upsample,
    phases,
    read,
    read_stored,
)
from qwen3tts_engine.qwen3.codec_state import CodecSnapshot, CodecState, PastLayout, PastReader
from qwen3tts_engine.qwen3.config import CodecDecoderConfig
from qwen3tts_engine.qwen3.weights import Weights
from qwen3tts_wire.errors import BadRequest

__all__ = ["CodecDecoder", "CodecSnapshot", "CodecState"]

DILATIONS = (1, 3, 9)
"""Of the residual units in each block."""
USAGE_FLOOR = 1e-5
"""Least usage that a codebook's sums are divided by."""
DIRECT_CHANNELS = {"cpu": 384}
"""See Place.direct_channels; measured on CPUs, none elsewhere."""


class CodecDecoder:
    """The decoder of one checkpoint. Weights only; streams are in a CodecState."""

    def __init__(
        self, config: CodecDecoderConfig, weights: Weights, place: Place, *, tf32: bool
    ) -> None:
        """See ``from_weights``."""
        self.config = config
        self.device, self.dtype, self.tf32 = place.device, place.dtype, tf32
        past = PastLayout()
        c, latent = config, config.latent_dim
        self._books = place.put(_books(weights.under("quantizer."), c))
        firsts = torch.arange(c.num_quantizers) * c.codebook_size
        self._firsts = firsts.to(place.device)
        transformer = weights.under("pre_transformer.")
        self._enter = _enter(weights, transformer, c, past, place)
        self._attention = WindowAttention(c, place)
        self._layers = [
            Layer(transformer.under(f"layers.{index}."), c, place, index)
            for index in range(c.num_hidden_layers)
        ]
        self._leave = _leave(weights, transformer, c, place)
        self._blocks: list[Upsample | ConvNeXt | CausalConv | ResidualUnit | Snake] = []
        for index, rate in enumerate(c.upsampling_ratios):
            at = weights.under(f"upsample.{index}.")
            if index:
                weight = read_stored(at, "0.conv.weight", latent, latent, rate)
                bias = read(at, "0.conv.bias", latent)
                self._blocks.append(Upsample(weight, bias, rate, past, place))
            self._blocks.append(ConvNeXt(at.under("1."), latent, past, place))
        self._blocks += _vocoder(weights.under("decoder."), c, past, place)
        self._past_length = past.length

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
        """From the speech tokenizer's file: tensors ``decoder.*``.

        Args:
            config: ``config.codec.decoder`` of the checkpoint.
            weights: The whole file's.
            device: Where it runs.
            dtype: Of weights, activations and state: float32, float16 or bfloat16.
            tf32: Whether matrix products of float32 may be rounded to TF32 on a GPU.
            direct_channels: See Place.direct_channels; None: what is best on the device.

        Raises:
            BadCheckpoint: a tensor is missing or has another shape.
            BadRequest: a type that is no floating point.
        """
        if not dtype.is_floating_point:
            raise BadRequest(f"A codec in {dtype}.", remedy="Use float32, float16 or bfloat16.")
        device = torch.device(device)
        if direct_channels is None:
            direct_channels = DIRECT_CHANNELS.get(device.type, 0) if dtype.itemsize > 2 else 0
        place = Place(device, dtype, direct_channels)
        return cls(config, weights.under("decoder."), place, tf32=tf32)

    @property
    def samples_per_frame(self) -> int:
        """Samples that one frame of codes makes; 1920 at 24 kHz."""
        return math.prod((*self.config.upsample_rates, *self.config.upsampling_ratios))

    def new_state(self, slots: int) -> CodecState:
        """Room for ``slots`` streams and the scratch slot, all at their beginning."""
        c = self.config
        kv = (self._attention.ring, c.num_hidden_layers, 2, c.num_attention_heads, c.head_dim)
        return CodecState(
            slots, past=self._past_length, kv=kv, device=self.device, dtype=self.dtype
        )

    @torch.no_grad()
    def run(self, state: CodecState, slots: Tensor, codes: Tensor) -> Tensor:
        """Decode the next frames of some streams.

        The sequence of operations depends on the shapes alone, and nothing waits for the device,
        so that a run can be captured in a CUDA graph (after one uncaptured run of its shape) or
        compiled. Padding rows name ``state.scratch``.

        Args:
            state: From ``new_state``; the streams in it are advanced.
            slots: Shape [B], int64; each slot once, but for the scratch slot.
            codes: Shape [B, n, quantizers], int64; ids out of range count as the nearest.

        Returns:
            Samples, shape [B, n samples_per_frame], float32, full scale ±1.

        Raises:
            BadRequest: a tensor of another shape, type or device.
        """
        self._check(slots, codes)
        with float32_products(self.device, self.dtype, tf32=self.tf32):
            return self._step(state, slots, codes)

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Decode a whole stream in one step: shape [T, quantizers] to [T samples_per_frame].

        Memory grows by several megabytes a frame; ``run`` gives the same samples for less.

        Raises:
            BadRequest: codes of another shape, type or device, or none at all.
        """
        slots = torch.zeros(1, dtype=torch.int64, device=self.device)
        return self.run(self.new_state(0), slots, codes[None])[0]

    def _step(self, state: CodecState, slots: Tensor, codes: Tensor) -> Tensor:
        batch, frames, _ = codes.shape
        past = PastReader(state.past.index_select(0, slots))
        window, rows, position = self._attention.begin(state, slots, frames)
        entries = codes.clamp(0, self.config.codebook_size - 1).add_(self._firsts)
        x = self._enter(torch.embedding(self._books, entries).sum(2), past)
        stream = x.flatten(0, 1)
        made = []
        for layer in self._layers:
            stream, kv = layer(stream, window)
            made.append(kv)
        stream = unit_rms(stream, self.config.rms_norm_eps)
        x = self._leave(stream[None])
        x = x.view(batch, frames * self.config.upsampling_ratios[0], -1)
        for block in self._blocks:
            x = block(x) if isinstance(block, Snake) else block(x, past)
        state.past.index_copy_(0, slots, past.after())
        self._attention.finish(state, slots, rows, made)
        state.position.index_copy_(0, slots, position)
        return x.view(batch, -1).clamp_(-1, 1).float()

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
    """Say whether float32 products on a GPU may be rounded; the process's setting comes back."""
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
    """All books behind their output projection: shape [quantizers codebook_size, codebook_dim]."""
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
    weights: Weights, transformer: Weights, c: CodecDecoderConfig, past: PastLayout, place: Place
) -> CausalConv:
    """The first convolution and the transformer's input projection, in one, mirrored."""
    conv = read(weights, "pre_conv.conv.weight", c.latent_dim, c.codebook_dim, 3)
    bias = read(weights, "pre_conv.conv.bias", c.latent_dim)
    project = mirrored(read(transformer, "input_proj.weight", c.hidden_size, c.latent_dim))
    shift = mirrored(read(transformer, "input_proj.bias", c.hidden_size))
    conv = torch.einsum("oi,ick->ock", project, conv)
    return CausalConv(conv, project @ bias + shift, past, place)


def _leave(weights: Weights, transformer: Weights, c: CodecDecoderConfig, place: Place) -> Linear:
    """The transformer's last norm and output projection and the first upsampling, in one."""
    latent, rate = c.latent_dim, c.upsampling_ratios[0]
    norm = read(transformer, "norm.weight", c.hidden_size)
    project = read(transformer, "output_proj.weight", latent, c.hidden_size) * norm
    shift = read(transformer, "output_proj.bias", latent)
    at = weights.under("upsample.0.0.conv.")
    up = phases(read(at, "weight", latent, latent, rate), rate)[..., 0]
    bias = read(at, "bias", latent).repeat(rate)
    return Linear.fold(up @ project, up @ shift + bias, place)


def _vocoder(
    weights: Weights, c: CodecDecoderConfig, past: PastLayout, place: Place
) -> list[Upsample | ConvNeXt | CausalConv | ResidualUnit | Snake]:
    """Convolutions from the latent to samples, in the order in which they run."""

    def conv(index: int, out: int, channels: int) -> CausalConv:
        at = weights.under(f"{index}.conv.")
        weight = read_stored(at, "weight", out, channels, RESIDUAL_KERNEL)
        return CausalConv(weight, read(at, "bias", out), past, place)

    width = c.decoder_dim
    blocks: list[Upsample | ConvNeXt | CausalConv | ResidualUnit | Snake] = [
        conv(0, width, c.latent_dim)
    ]
    for index, rate in enumerate(c.upsample_rates, start=1):
        at = weights.under(f"{index}.block.")
        blocks.append(Snake.read(at.under("0."), width, place))
        weight = read_stored(at, "1.conv.weight", width, width // 2, 2 * rate)
        width //= 2
        blocks.append(Upsample(weight, read(at, "1.conv.bias", width), rate, past, place))
        blocks += [
            ResidualUnit(at.under(f"{unit}."), width, dilation, past, place)
            for unit, dilation in enumerate(DILATIONS, start=2)
        ]
    last = len(c.upsample_rates) + 1
    blocks.append(Snake.read(weights.under(f"{last}."), width, place))
    blocks.append(conv(last + 1, 1, width))
    return blocks
