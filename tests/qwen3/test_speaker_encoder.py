from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.checkpoint import Weights, open_weights
from qwen3tts_engine.qwen3.model.config import ModelConfig, SpeakerEncoderConfig
from qwen3tts_engine.qwen3.model.config_fields import BadCheckpoint
from qwen3tts_engine.qwen3.model.speaker_encoder import SpeakerEncoder
from tests.qwen3 import formula

CONFIG = SpeakerEncoderConfig(
    enc_dim=8,
    sample_rate=24_000,
    enc_channels=(16, 16, 16, 16, 48),
    enc_attention_channels=8,
    enc_se_channels=8,
)
# From qwen-tts 0.1.1 with the same weights and samples.
X_VECTOR = [1.293977, 0.249613, -0.133566, 1.203703, 1.766466, 0.405668, 0.299036, -1.281308]


class FormulaWeights(Weights):
    """Any tensor of any shape, by formula."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__("a formula", {}, self._none, prefix=prefix)
        self._at = prefix

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return formula.tensor(self._at + name, shape)

    def under(self, prefix: str) -> Weights:
        return FormulaWeights(self._at + prefix)

    @staticmethod
    def _none(name: str) -> Tensor:
        raise AssertionError(name)


def test_a_vector_is_that_of_the_checkpoints_code() -> None:
    encoder = SpeakerEncoder.from_weights(CONFIG, FormulaWeights())
    vector = encoder.x_vector(torch.from_numpy(formula.voice(30_001)))
    assert vector.tolist() == pytest.approx(X_VECTOR, abs=2e-5)


def test_a_narrower_type_gives_nearly_the_same_vector() -> None:
    encoder = SpeakerEncoder.from_weights(CONFIG, FormulaWeights(), dtype=torch.bfloat16)
    vector = encoder.x_vector(torch.from_numpy(formula.voice(30_001)))
    assert vector.dtype == torch.bfloat16
    assert vector.tolist() == pytest.approx(X_VECTOR, abs=0.05)


def test_a_tiny_checkpoints_encoder_uses_all_its_tensors(
    tiny: dict[str, Path], tiny_config: Callable[[str], ModelConfig]
) -> None:
    config = tiny_config("base").speaker
    assert config is not None
    weights = open_weights(tiny["base"] / "model.safetensors")
    encoder = SpeakerEncoder.from_weights(config, weights)
    assert weights.under("speaker_encoder.").unused() == []
    voice = torch.from_numpy(formula.voice(24_000))
    vector = encoder.x_vector(voice)
    assert vector.shape == (config.enc_dim,)
    assert vector.isfinite().all()
    assert not vector.requires_grad
    assert not torch.allclose(vector, encoder.x_vector(voice.flip(0)))


def test_a_checkpoint_without_the_encoder_names_the_tensor(tiny: dict[str, Path]) -> None:
    weights = open_weights(tiny["custom_voice"] / "model.safetensors")
    with pytest.raises(BadCheckpoint, match=r"speaker_encoder\.blocks\.0\.conv\.weight"):
        SpeakerEncoder.from_weights(CONFIG, weights)
