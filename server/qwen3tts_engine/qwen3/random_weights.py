"""Random weights of any size without a file: for benchmarks and for shape tests."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model_config import ModelConfig
from qwen3tts_engine.qwen3.published import PUBLISHED
from qwen3tts_engine.qwen3.tensor_names import codec_tensors, model_tensors
from qwen3tts_engine.qwen3.weights import Weights

__all__ = ["PUBLISHED", "random_weights"]


def random_weights(
    config: ModelConfig,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> tuple[Weights, Weights]:
    """The tensors of ``model.safetensors`` and of ``speech_tokenizer/model.safetensors``.

    Each is drawn on the device and in the dtype when it is asked for, by a seed of its own, so it
    is the same whatever was asked for before. Numbers differ between kinds of device. The scale
    keeps the activations of every layer near 1, so that nothing overflows in half precision.

    Args:
        config: Of any size; PUBLISHED holds the published ones.
        seed: Of all tensors.
        device: Where they are drawn; ``meta``: shapes alone.
        dtype: In which they are drawn; floating point.
    """
    return (
        _source("random model", model_tensors(config), seed, device, dtype),
        _source("random speech tokenizer", codec_tensors(config.codec), seed + 1, device, dtype),
    )


def _source(
    name: str,
    shapes: Mapping[str, tuple[int, ...]],
    seed: int,
    device: torch.device | str,
    dtype: torch.dtype,
) -> Weights:
    # The CPU's generator takes 32 bits of a seed; a model has fewer tensors than 4096.
    seeds = {tensor: (seed * 4096 + at) % (1 << 32) for at, tensor in enumerate(shapes)}

    def load(tensor: str) -> Tensor:
        noise = torch.empty(shapes[tensor], device=device, dtype=dtype)
        if noise.is_meta:
            return noise
        draw = torch.Generator(noise.device).manual_seed(seeds[tensor])
        mean, deviation = _spread(tensor, shapes[tensor])
        return noise.normal_(mean, deviation, generator=draw)

    return Weights(name, shapes, load)


def _spread(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    """Mean and standard deviation by the kind of tensor."""
    leaf = name.rpartition(".")[2]
    if leaf in ("initialized", "cluster_usage"):
        return 1.0, 0.0
    if leaf in ("scale", "gamma"):
        return 0.1, 0.0
    if leaf in ("alpha", "beta"):
        return 0.0, 0.1
    if leaf == "bias":
        return 0.0, 0.02
    if len(shape) == 1:
        return 1.0, 0.0
    if leaf in ("embedding_sum", "embed_sum"):
        return 0.0, 0.25
    if "embedding" in name:
        return 0.0, 0.25
    return 0.0, 1.0 / math.sqrt(math.prod(shape[1:]))
