from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qwen3tts_engine.qwen3.model.checkpoint import Weights, open_weights
from qwen3tts_engine.qwen3.model.config import ModelConfig, SpeakerEncoderConfig
from qwen3tts_engine.qwen3.model.config_fields import BadCheckpoint
from qwen3tts_engine.qwen3.model.speaker_encoder import (
    SpeakerEncoder,
    filterbank,
    hz_to_mel,
    log_mel,
    mel_to_hz,
)
from tests.qwen3.model import formula

MEL_CONFIG = SpeakerEncoderConfig(enc_dim=8, sample_rate=24_000)


@given(st.floats(0, 12_000))
@settings(deadline=None)
def test_the_mel_scale_goes_back_to_hertz(hz: float) -> None:
    assert mel_to_hz(hz_to_mel(np.array(hz))) == pytest.approx(hz, abs=1e-9)


def test_the_mel_scale_is_slaneys() -> None:
    assert hz_to_mel(np.array([0, 200 / 3, 1000, 6400])) == pytest.approx([0, 1, 15, 42])


def test_the_filterbank_is_librosas() -> None:
    bank = filterbank(24_000, 1024, 128, 0.0, 12_000.0)
    # From librosa 0.11 (filters.mel).
    assert bank.shape == (128, 513)
    assert bank.sum() == pytest.approx(5.4594154, abs=1e-5)
    assert bank[0, 1] == pytest.approx(0.03355042636394501, abs=4e-9)
    assert bank[90, 180] == pytest.approx(0.005554442759603262, abs=4e-9)
    assert bank[127, 508] == pytest.approx(0.0009127134690061212, abs=4e-9)
    assert bank[[0, 40, 80, 127]].sum(axis=1) == pytest.approx(
        [0.04211951, 0.04074875, 0.04254261, 0.04264145], abs=1e-7
    )


def test_the_filterbank_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        filterbank(24_000, 1024, 128, 0.0, 12_000.0)[0, 0] = 1


def test_a_spectrogram_is_that_of_the_checkpoints_code() -> None:
    mel = log_mel(torch.from_numpy(formula.voice(30_001)), MEL_CONFIG)
    # From qwen-tts 0.1.1 (mel_spectrogram) on the same samples.
    assert mel.shape == (128, 117)
    for band, column, values in (
        (0, 0, [-2.851819, -4.747804, -6.987321]),
        (10, 50, [-0.240648, -0.400551, -0.608026]),
        (60, 3, [-3.605814, -4.197708, -5.01261]),
        (127, 110, [-11.512925, -11.512925, -11.512925]),
    ):
        # A logarithm of next to nothing: rounding differs by processor, 2.6e-5 was seen.
        assert mel[band, column : column + 3].tolist() == pytest.approx(values, abs=1e-4)
    assert mel.mean().item() == pytest.approx(-7.714922904968262, abs=1e-5)


def test_silence_is_the_floor() -> None:
    mel = log_mel(torch.zeros(2400), MEL_CONFIG)
    assert torch.equal(mel, torch.full_like(mel, 1e-5).log())


@given(st.integers(400, 5000))
@settings(deadline=None, max_examples=30)
def test_there_is_a_column_for_every_whole_hop(samples: int) -> None:
    assert log_mel(torch.zeros(samples), MEL_CONFIG).shape == (128, samples // 256)


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
