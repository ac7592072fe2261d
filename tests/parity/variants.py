"""Checkpoints of other shapes than the tiny ones, made by the official classes themselves.

Runs inside the oracle's environment only. Names, shapes and layout of the tensors are therefore the
official ones, whatever our own writer of tiny checkpoints believes.
"""

from __future__ import annotations

import importlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def build_variant(like: Path, out: Path, variant: dict[str, Any]) -> None:
    """Write a checkpoint folder like another one, with fields changed and weights drawn anew."""
    (out / "speech_tokenizer").mkdir(parents=True)
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(like / name, out / name)
    name = "speech_tokenizer/preprocessor_config.json"
    shutil.copy(like / name, out / name)
    generator = torch.Generator().manual_seed(variant["seed"])
    core = importlib.import_module("qwen_tts.core")
    models = importlib.import_module("qwen_tts.core.models")

    config = changed(like / "config.json", out / "config.json", variant["model"])
    talker = models.Qwen3TTSForConditionalGeneration(models.Qwen3TTSConfig(**config))
    draw(talker, generator)
    save(talker, out / "model.safetensors")

    folder = out / "speech_tokenizer"
    read_from = like / "speech_tokenizer" / "config.json"
    config = changed(read_from, folder / "config.json", variant["codec"])
    codec = core.Qwen3TTSTokenizerV2Model(core.Qwen3TTSTokenizerV2Config(**config))
    draw(codec, generator)
    level(codec, generator)
    save(codec, folder / "model.safetensors")


def changed(read_from: Path, write_to: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """Copy a JSON file with fields changed; returns what was written."""
    config: dict[str, Any] = merged(json.loads(read_from.read_text()), changes)
    write_to.write_text(json.dumps(config, indent=2))
    return config


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Nested objects are merged; everything else is replaced."""
    result = dict(values)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(values.get(key), dict)
        result[key] = merged(values[key], value) if nested else value
    return result


def draw(model: Any, generator: torch.Generator) -> None:
    """Fill every tensor so that every part of the model matters to the result."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point() and tensor.numel() > 1:
                tensor.copy_(drawn(name, tensor, generator))


def drawn(name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    """New values for one tensor, by what it is."""
    last = name.rsplit(".", 1)[-1]
    noise = torch.randn(tensor.shape, generator=generator)
    if last == "cluster_usage":
        return noise.abs() + 0.5
    if last in ("alpha", "beta"):  # logarithms of SnakeBeta's frequency and size
        return noise * 0.3
    if last in ("scale", "gamma"):  # LayerScale and ConvNeXt's: far above their 0.01 at birth
        return noise * 0.1 + 0.3
    if "norm" in name:
        return noise * 0.1 + (0.0 if last == "bias" else 1.0)
    if last == "bias":
        return noise * 0.1
    if tensor.dim() < 2 or "embed" in name:
        return noise
    return noise / math.sqrt(tensor[0].numel())


def level(codec: Any, generator: torch.Generator) -> None:
    """Tame the decoder: about 0.15 rms, so that the clamp at 1 is seldom met, and small residuals.

    Twenty-four sines of large arguments, one in the other, would make chaos of rounding errors.
    """
    last = codec.decoder.decoder[-1].conv
    codes = torch.randint(2048, (1, 16, 20), generator=generator)
    with torch.no_grad():
        for name, weight in codec.decoder.named_parameters():
            if name.endswith("conv2.conv.weight"):
                weight.mul_(0.25)
        last.bias.zero_()
        last.weight.mul_(1e-3)
        last.weight.mul_(0.15 / codec.decoder(codes).square().mean().sqrt())


def save(model: Any, file: Path) -> None:
    """Write all tensors as the published files hold them."""
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    importlib.import_module("safetensors.torch").save_file(tensors, file, {"format": "pt"})
