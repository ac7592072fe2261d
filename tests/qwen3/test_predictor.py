"""The code predictor against its layers written the ordinary way, one code after the other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.talker import SamplingInputs
from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS
from tests.qwen3.small import plain_layers, small_config, small_weights

ROWS = 3


def greedy(groups: int) -> SamplingInputs:
    none = torch.zeros(ROWS, groups)
    return SamplingInputs(none[:, :, None], none, none == 0, None)


def plain(config: ModelConfig, weights: Weights, hidden: Tensor, code: int) -> list[int]:
    """Codes 0 to 15 of one row, nothing packed, nothing cached."""
    at = weights.under("talker.code_predictor.")
    inputs = [hidden, weights["talker.model.codec_embedding.weight"][code]]
    codes = [code]
    for group in range(config.predictor.groups):
        x = torch.stack(inputs)
        if "small_to_mtp_projection.weight" in at:
            matrix, bias = (at[f"small_to_mtp_projection.{one}"] for one in ("weight", "bias"))
            x = functional.linear(x, matrix, bias)
        last = plain_layers(x, at.under("model."), config.predictor.layers)[-1]
        codes.append(int((at[f"lm_head.{group}.weight"] @ last).argmax()))
        inputs.append(at[f"model.codec_embedding.{group}.weight"][codes[-1]])
    return codes


@pytest.mark.parametrize("projection", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_it_is_the_plain_layers(fused: bool, projection: bool) -> None:
    config = small_config(projection=projection)
    weights, codec = small_weights(config)
    model = Qwen3Model.from_weights(config, weights, codec, fused_norm=fused)
    assert (model.predictor.projection is None) != projection
    draw = torch.Generator().manual_seed(1)
    hidden = torch.randn(ROWS, config.talker.layers.hidden, generator=draw)
    codes = torch.zeros(17, ROWS, dtype=torch.int64)
    codes[0] = torch.tensor([5, 2047, config.talker.ids.eos])
    model.predictor.predict(hidden, codes, greedy(16), TORCH_KERNELS)
    for row in range(ROWS):
        expected = plain(config, weights, hidden[row], int(codes[0, row]))
        assert codes[:16, row].tolist() == expected
    assert not codes[16].any()


def test_without_a_projection_it_reads_the_talkers_table() -> None:
    config = small_config(projection=False)
    model = Qwen3Model.from_weights(config, *small_weights(config))
    start = model.talker.table.untyped_storage().data_ptr()
    for table in model.predictor.inputs:
        assert table.untyped_storage().data_ptr() == start


def test_nothing_is_kept_between_frames() -> None:
    config = small_config(projection=True)
    model = Qwen3Model.from_weights(config, *small_weights(config))
    hidden = torch.randn(ROWS, 40, generator=torch.Generator().manual_seed(2))
    first, second = torch.zeros(2, 16, ROWS, dtype=torch.int64).unbind(0)
    model.predictor.predict(hidden, first, greedy(16), TORCH_KERNELS)
    other = torch.ones(16, ROWS, dtype=torch.int64)
    model.predictor.predict(-hidden, other, greedy(16), TORCH_KERNELS)
    model.predictor.predict(hidden, second, greedy(16), TORCH_KERNELS)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
