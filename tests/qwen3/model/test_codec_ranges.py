"""A codec whose numbers exceed float16: such layers run in float32, and the rest as asked."""

from __future__ import annotations

import pytest
import torch

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.codec_decoder import CodecDecoder
from qwen3tts_engine.qwen3.model.config_fields import BadCheckpoint
from tests.qwen3.model.small import small_config, small_weights

CONFIG = small_config(projection=False).codec.decoder
UNIT = "decoder.decoder.2.block.3."


def weights_of(changes: dict[str, float | tuple[float, float]]) -> Weights:
    """The small checkpoint's: a number fills every second channel, a pair scales all."""
    _, weights = small_weights(small_config(projection=False))
    tensors = {name: weights[name].clone() for name in weights.names()}
    for name, change in changes.items():
        if isinstance(change, tuple):
            tensors[name] *= change[0]
        else:
            tensors[name][::2] = change
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    return Weights("test", shapes, tensors.__getitem__)


def snr_db(weights: Weights, dtype: torch.dtype) -> tuple[float, CodecDecoder]:
    """Of the sound in this dtype against float32, streamed."""
    codes = torch.randint(0, 2048, (12, 16), generator=torch.Generator().manual_seed(2))
    exact = CodecDecoder.from_weights(CONFIG, weights).decode(codes)
    decoder = CodecDecoder.from_weights(CONFIG, weights, dtype=dtype)
    state, slot = decoder.new_state(1), torch.zeros(1, dtype=torch.int64)
    made = torch.cat([decoder.run(state, slot, part[None])[0] for part in torch.split(codes, 3)])
    assert bool(made.isfinite().all())
    error = (made - exact).square().mean()
    return float(10 * torch.log10(exact.square().mean() / error)), decoder


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_an_ordinary_codec_runs_whole_as_asked(dtype: torch.dtype) -> None:
    _, decoder = snr_db(weights_of({}), dtype)
    assert decoder.float32_layers == ()
    assert decoder.new_state(1).past.dtype == dtype


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        # 1 / (exp(-16) + 1e-9) is 9e6, an infinity in float16; weights behind it bring it back.
        (
            {f"{UNIT}act1.beta": -16.0, f"{UNIT}conv1.conv.weight": (1e-7, 0)},
            ["act1"],
        ),
        # A million times, and back.
        (
            {f"{UNIT}conv1.conv.weight": (1e6, 0), f"{UNIT}conv2.conv.weight": (1e-6, 0)},
            ["convolution"],
        ),
        # A phase of exp(9) radians a unit.
        ({f"{UNIT}act2.alpha": 9.0}, ["act2"]),
        (
            {
                "decoder.quantizer.rvq_first.output_proj.weight": (1e6, 0),
                "decoder.pre_conv.conv.weight": (1e-6, 0),
            },
            ["codebooks"],
        ),
    ],
    ids=["beta", "weight", "alpha", "codebooks"],
)
def test_a_layer_that_float16_cannot_hold_runs_in_float32(
    changes: dict[str, float | tuple[float, float]], layers: list[str]
) -> None:
    _, decoder = snr_db(weights_of(changes), torch.float16)
    assert all(any(layer in found for found in decoder.float32_layers) for layer in layers)
    assert len(decoder.float32_layers) <= 2 * len(layers)


def test_sound_behind_a_large_snake_is_that_of_float32() -> None:
    changes: dict[str, float | tuple[float, float]] = {
        f"{UNIT}act1.beta": -16.0,
        f"{UNIT}conv1.conv.weight": (1e-7, 0),
    }
    ordinary, _ = snr_db(weights_of({}), torch.float16)
    found, decoder = snr_db(weights_of(changes), torch.float16)
    assert found > ordinary - 6
    assert decoder.new_state(1).past.dtype == torch.float32
    assert decoder.new_state(1).kv.dtype == torch.float16


def test_an_alpha_without_an_exponential_is_refused() -> None:
    with pytest.raises(BadCheckpoint, match=r"act1\.alpha"):
        CodecDecoder.from_weights(CONFIG, weights_of({f"{UNIT}act1.alpha": 200.0}))
