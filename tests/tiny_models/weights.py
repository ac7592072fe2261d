"""Weights of a tiny checkpoint: random, but so that it speaks up and comes to an end.

**The end.** Two dimensions of the talker's hidden state are set apart. Dimension COUNT says what a
position is: TEXT at a piece of text beside something on the codec track, minus FRAME at a frame,
else 0. Head 0 of the first layer attends to all positions alike (its queries are zero) and writes
the mean of COUNT to dimension MEAN, which nothing else writes. The eos row of ``codec_head`` reads
MEAN alone, negated: eos stays out of reach until there are TEXT / FRAME frames for each piece of
text, and grows from there on. So the length of the speech follows that of the text in every
layout, as with real weights, and instructions do not change it.

**The sound.** The kernels of the codec's last stages are smooth, so that the samples are, as those
of a voice; the very last passes no direct current and is scaled to about 0.1 rms with peaks below
full scale (LOUDNESS, checked by the tests for seed 0).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.config import CodecConfig, ModelConfig
from tests.tiny_models.tensor_names import codec_tensors, model_tensors

COUNT, MEAN = 0, 1
TEXT, FRAME = 0.5, 0.2
"""Two and a half frames for each piece of text: five pieces a second."""
URGE = 400.0
"""Steepness of the end."""
LOGITS = 2.0
"""Standard deviation of the codes' logits: clear winners, and still a choice."""
LOUDNESS = 0.65
CALM = 0.25
"""Factor on what the residual units add: two dozen sines in one another amplify rounding, and
with this audio of two correct decoders agrees to 1e-5."""
ROUGHNESS = 0.1
"""Share of noise in the smooth kernels."""


def tiny_model(config: ModelConfig, seed: int) -> dict[str, Tensor]:
    """What ``model.safetensors`` holds, bfloat16 as in the published files."""
    draw = torch.Generator().manual_seed(seed)
    tensors = {name: _random(name, shape, draw) for name, shape in model_tensors(config).items()}
    _set_apart(tensors, config)
    return {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}


def tiny_codec(config: CodecConfig, seed: int) -> dict[str, Tensor]:
    """What ``speech_tokenizer/model.safetensors`` holds, float32 as in the published file."""
    draw = torch.Generator().manual_seed(seed + 1)
    tensors = {name: _random(name, shape, draw) for name, shape in codec_tensors(config).items()}
    for name, tensor in tensors.items():
        if name.startswith("decoder.decoder.") and tensor.dim() == 3 and tensor.shape[2] > 1:
            tensors[name] = _smooth(tensor)
        elif name.startswith("decoder.decoder.") and name.endswith("conv2.conv.weight"):
            tensors[name] = CALM * tensor
    last = f"decoder.decoder.{len(config.decoder.upsample_rates) + 2}.conv."
    kernel = tensors[f"{last}weight"]
    taps = kernel.shape[2]
    wave = torch.sin(2 * math.pi * (torch.arange(taps) + 0.5) / taps)
    tensors[f"{last}weight"] = LOUDNESS * torch.sign(kernel[:, :, :1]) * wave
    tensors[f"{last}bias"] = torch.zeros(1)
    return tensors


def _smooth(kernel: Tensor) -> Tensor:
    """The same energy, [out, in, taps], in kernels that are a window with a little noise."""
    taps = kernel.shape[2]
    window = torch.sin(math.pi * (torch.arange(taps) + 0.5) / taps)
    even = kernel[:, :, :1] * window * math.sqrt(2)
    return even + ROUGHNESS * kernel


def _random(name: str, shape: tuple[int, ...], draw: torch.Generator) -> Tensor:
    """A tensor of a scale that suits its name."""
    noise = torch.randn(shape, generator=draw)
    leaf = name.rpartition(".")[2]
    match leaf:
        case "initialized":
            return torch.ones(shape)
        case "cluster_usage":
            return 1 + 0.5 * torch.tanh(noise.abs())
        case "embedding_sum" | "embed_sum":
            return noise
        case "scale" | "gamma":
            return 0.3 + 0.03 * noise
        case "alpha":
            # Slow sines, which make few overtones.
            return 0.2 * noise - 0.7
        case "beta":
            return 0.2 * noise
        case "bias":
            return 0.05 * noise
    if len(shape) == 1:
        return 1 + 0.1 * noise
    if "text_embedding" in name:
        return noise
    if "code_predictor.model.codec_embedding" in name:
        # Fifteen of them together weigh as much as the code that they follow.
        return noise * (0.5 / math.sqrt(15))
    if "codec_embedding" in name:
        return 0.5 * noise
    if "codec_head" in name or "lm_head" in name:
        return noise * (LOGITS / math.sqrt(shape[1]))
    fan_in = math.prod(shape[1:])
    return noise / math.sqrt(fan_in)


def _set_apart(tensors: dict[str, Tensor], config: ModelConfig) -> None:
    """Make dimensions COUNT and MEAN what they are."""
    ids, talker = config.text_ids, config.talker
    apart = [COUNT, MEAN]
    text = tensors["talker.model.text_embedding.weight"]
    text[:, apart] = 0.0
    # The codec track adds TEXT everywhere; what is no text beside it takes it away.
    text[[ids.tts_pad, ids.tts_bos, ids.tts_eos], COUNT] = -TEXT
    for layer in ("1", "2"):
        weight = tensors[f"talker.text_projection.linear_fc{layer}.weight"]
        weight[apart, :] = 0.0
        weight[:, apart] = 0.0
        weight[COUNT, COUNT] = 1.0
        tensors[f"talker.text_projection.linear_fc{layer}.bias"][apart] = 0.0
    # SiLU stands between the two: undone for the one value that is not 0.
    tensors["talker.text_projection.linear_fc2.weight"][COUNT, COUNT] = 1 + math.exp(TEXT)
    codes = tensors["talker.model.codec_embedding.weight"]
    codes[:, apart] = 0.0
    codes[:, COUNT] = TEXT
    codes[: talker.codes, COUNT] = TEXT - FRAME
    if config.speaker is not None:
        tensors["speaker_encoder.fc.weight"][apart] = 0.0
        tensors["speaker_encoder.fc.bias"][apart] = torch.tensor([TEXT, 0.0])
    for name in _written(tensors):
        tensors[name][apart, :] = 0.0
    for name in (name for name in tensors if "code_predictor.model.codec_embedding" in name):
        tensors[name][:, apart] = 0.0
    first = "talker.model.layers.0."
    for norm in (f"{first}input_layernorm", "talker.model.norm"):
        tensors[f"{norm}.weight"][apart] = 1.0
    tensors[f"{first}self_attn.q_proj.weight"][: talker.layers.head_dim] = 0.0
    value = tensors[f"{first}self_attn.v_proj.weight"]
    value[0] = 0.0
    value[0, COUNT] = 1.0
    tensors[f"{first}self_attn.o_proj.weight"][MEAN, 0] = 1.0
    head = tensors["talker.codec_head.weight"]
    head[:, apart] = 0.0
    head[talker.ids.eos] = 0.0
    head[talker.ids.eos, MEAN] = -URGE


def _written(tensors: dict[str, Tensor]) -> Iterator[str]:
    """The projections that add to the talker's hidden state."""
    for name in tensors:
        if name.startswith("talker.model.layers.") and name.endswith(
            ("o_proj.weight", "down_proj.weight")
        ):
            yield name


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
