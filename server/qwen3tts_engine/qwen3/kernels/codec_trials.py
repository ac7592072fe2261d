"""Trial of the codec's kernels at a decoder's own shapes, against plain torch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.codec_kernels import TRITON_CODEC
from qwen3tts_engine.qwen3.kernels.layer_kernels import MOST_ROWS
from qwen3tts_engine.qwen3.kernels.triton_kernels import Draw, compare
from qwen3tts_engine.qwen3.model.codec_decoder import CodecDecoder, CodecDecoderLayer
from qwen3tts_engine.qwen3.model.codec_layers import (
    TORCH_CODEC_KERNELS,
    CodecKernels,
    ConvNeXt,
    Convolution,
)
from qwen3tts_engine.qwen3.model.codec_state import CodecState, CodecStateReader

log = logging.getLogger(__name__)


@torch.no_grad()
def usable(decoder: CodecDecoder) -> tuple[CodecKernels, dict[str, str]]:
    """Return kernels that agree with torch (torch's for others), and failures by name.

    Shapes are those of one frame of two streams.
    """
    found, failed = TRITON_CODEC, dict[str, str]()
    draw = Draw(decoder.device, decoder.dtype)
    for name, run in (*convolution_trials(decoder, draw), *attention_trials(decoder, draw)):
        if name in failed:
            continue
        try:
            for ours, plain in zip(run(TRITON_CODEC), run(TORCH_CODEC_KERNELS), strict=True):
                compare(name, ours, plain)
        except Exception as error:
            log.warning("the kernel %s cannot be used", name, exc_info=error)
            failed[name] = type(error).__name__
            found = replace(found, **{name: getattr(TORCH_CODEC_KERNELS, name)})
            if name == "attend":
                found = replace(found, ring_frames=0)
    return found, {f"codec {name}": why for name, why in failed.items()}


CodecTrial = tuple[str, Callable[[CodecKernels], tuple[Tensor, ...]]]
"""Kernel's name, and its results with a table's kernel."""


def convolution_trials(decoder: CodecDecoder, draw: Draw) -> Iterator[CodecTrial]:
    slots = draw.integers(1, 0)

    def state() -> CodecState:
        state = decoder.new_state(2)
        noise = Draw(decoder.device, state.past.dtype)
        state.past.copy_(noise(*state.past.shape))
        return state

    for conv, time in decoder.convolutions():
        x = draw(2, time, conv.channels).to(conv.dtype)
        shape = (2, time * conv.then.rate, conv.out)
        # Of a stream's residual sums.
        add = (
            draw(*shape)
            if conv.kernel == 1 and conv.then.rate == 1 and not conv.then.gelu
            else None
        )

        def convolved(
            kernels: CodecKernels, conv: Convolution = conv, x: Tensor = x, add: Tensor | None = add
        ) -> tuple[Tensor, ...]:
            past = CodecStateReader(state(), slots)
            sums, out = kernels.convolve(conv, x, past, None if add is None else add.clone())
            past.finish()
            kept = past.state.past[:, conv.span.begin :][:, : conv.span.rows * conv.channels]
            found = (sums, out) if conv.then.keeps else (out,)
            return (*found, kept) if conv.span.rows else found

        yield "convolve", convolved
    for block, time in decoder.depthwise_blocks():
        x = draw(2, time, block.channels)

        def normalized(
            kernels: CodecKernels, block: ConvNeXt = block, x: Tensor = x
        ) -> tuple[Tensor, ...]:
            past = CodecStateReader(state(), slots)
            y = kernels.depthwise(block, x, past)
            past.finish()
            kept = past.state.past[:, block.span.begin :][:, : block.span.rows * block.channels]
            return y, kept

        yield "depthwise", normalized


def attention_trials(decoder: CodecDecoder, draw: Draw) -> Iterator[CodecTrial]:
    config, slots = decoder.config, draw.integers(1, 0)
    width = config.num_attention_heads * config.head_dim
    for frames in (1, 8):
        qkv = draw(2 * frames, 3 * width)

        def attended(
            kernels: CodecKernels, frames: int = frames, qkv: Tensor = qkv
        ) -> tuple[Tensor, ...]:
            state = decoder.new_state(2)
            state.kv.copy_(Draw(decoder.device, decoder.dtype)(*state.kv.shape))
            state.position.copy_(draw.integers(3, 1000, 0))
            gathers = frames > kernels.ring_frames
            window = decoder.attention.begin(state, slots, frames, gathers=gathers)
            y, made = kernels.attend(qkv / 4, window, 0)
            decoder.attention.finish(window, [made] * config.num_hidden_layers)
            return y, state.kv[:, :, 0]

        yield "attend", attended
    for rows in (1, MOST_ROWS):
        x, y = draw(rows, config.hidden_size), draw(rows, width)
        yield from product_trials(decoder.layers[0], x, y)


def product_trials(layer: CodecDecoderLayer, x: Tensor, y: Tensor) -> Iterator[CodecTrial]:
    yield "norm_linear", lambda kernels: (kernels.norm_linear(x, layer.norm, layer.qkv),)
    yield "gated_linear", lambda kernels: (kernels.gated_linear(x, layer.norm, layer.gate_up),)
    yield "add_linear", lambda kernels: (kernels.add_linear(x.clone(), y, layer.out),)
