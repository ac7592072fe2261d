from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_engine.qwen3.model import codec_encoder
from qwen3tts_engine.qwen3.model.checkpoint import open_weights
from qwen3tts_engine.qwen3.model.codec_encoder import CodecEncoder
from qwen3tts_engine.qwen3.model.config import (
    CodecConfig,
    CodecDecoderConfig,
    CodecEncoderConfig,
    ModelConfig,
)
from tests.qwen3.model import formula
from tests.qwen3.model.test_speaker_encoder import FormulaWeights

ENCODER = CodecEncoderConfig(
    sampling_rate=24_000,
    hidden_size=16,
    num_filters=4,
    num_residual_layers=1,
    upsampling_ratios=(8, 6, 5, 4),
    kernel_size=7,
    last_kernel_size=3,
    residual_kernel_size=3,
    dilation_growth_rate=2,
    compress=2,
    codebook_size=16,
    codebook_dim=8,
    num_quantizers=6,
    num_semantic_quantizers=1,
    vector_quantization_hidden_dimension=8,
    num_hidden_layers=2,
    intermediate_size=32,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=8,
    norm_eps=1e-5,
    rope_theta=10_000.0,
    sliding_window=250,
)
DECODER = CodecDecoderConfig(
    codebook_size=16,
    codebook_dim=16,
    num_quantizers=4,
    latent_dim=16,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=1,
    num_key_value_heads=1,
    head_dim=16,
    sliding_window=72,
    rms_norm_eps=1e-5,
    rope_theta=10_000.0,
    decoder_dim=16,
    upsample_rates=(8, 5, 4, 3),
    upsampling_ratios=(2, 2),
)
# From transformers 4.57.3 (MimiModel.encode, the first four books) with the same weights and
# samples; the nearest entry is nearer than the next by 0.2 % at least.
CODES = [
    [5, 14, 9, 11],
    [6, 12, 9, 7],
    [7, 10, 11, 10],
    [15, 13, 9, 10],
    [15, 13, 2, 11],
    [15, 12, 9, 15],
    [15, 12, 3, 7],
    [15, 12, 2, 13],
    [15, 12, 2, 13],
    [15, 12, 3, 10],
    [15, 12, 2, 13],
    [15, 12, 2, 7],
    [6, 12, 2, 15],
    [15, 12, 2, 7],
    [15, 13, 2, 10],
    [6, 12, 2, 15],
]


def small_encoder(config: CodecEncoderConfig = ENCODER) -> CodecEncoder:
    whole = CodecConfig(decoder=DECODER, encoder=config, quantizers=4)
    return CodecEncoder.from_weights(whole, FormulaWeights())


SMALL = small_encoder()


def codes(encoder: CodecEncoder, samples: int) -> list[list[int]]:
    found: list[list[int]] = encoder.encode(torch.from_numpy(formula.voice(samples))).tolist()
    return found


def test_codes_are_those_of_the_checkpoints_code() -> None:
    encoder = SMALL
    assert codes(encoder, 30_001) == CODES
    assert codes(encoder, 1920) == [[5, 14, 9, 11]]
    assert codes(encoder, 1919) == [[5, 14, 9, 11]]
    assert codes(encoder, 1) == [[5, 5, 9, 5]]


def test_shared_heads_and_books_as_wide_as_the_model() -> None:
    encoder = small_encoder(
        replace(
            ENCODER,
            num_key_value_heads=1,
            codebook_dim=16,
            vector_quantization_hidden_dimension=16,
        )
    )
    # From the same source.
    found = codes(encoder, 30_001)
    assert found[:4] == [[6, 3, 5, 0], [6, 0, 5, 3], [3, 0, 5, 3], [6, 0, 9, 3]]
    assert found[-2:] == [[3, 4, 9, 3], [3, 0, 9, 3]]
    assert codes(encoder, 1) == [[9, 5, 3, 9]]


@given(st.integers(1, 6000))
@settings(deadline=None, max_examples=20)
def test_there_is_a_frame_for_every_begun_1920_samples(samples: int) -> None:
    assert len(codes(SMALL, samples)) == -(-samples // 1920)


@given(st.integers(1, 15))
@settings(deadline=None, max_examples=6)
def test_a_frame_does_not_depend_on_what_follows_it(frames: int) -> None:
    assert codes(SMALL, 1920 * frames) == CODES[:frames]


def test_a_long_recording_is_encoded_in_pieces_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = SMALL
    whole = codes(encoder, 30_001)
    seen = encoder.history
    monkeypatch.setattr(codec_encoder, "SEGMENT_SAMPLES", 960 * 7)
    assert codes(encoder, 30_001) == whole
    # A vector's own 960 samples, and what lies before them.
    assert 3000 < seen < 4000


def test_the_history_is_what_the_convolutions_see() -> None:
    encoder = SMALL
    quiet = torch.zeros(9600)
    for distance, seen in ((encoder.history, True), (encoder.history + 1, False)):
        loud = quiet.clone()
        loud[8640 - distance] = 1
        vectors = encoder._convolve(loud) - encoder._convolve(quiet)
        assert bool(vectors[:, 9].any()) is seen


def test_the_beginning_is_heard_beyond_the_window_that_the_configuration_names() -> None:
    encoder = small_encoder(replace(ENCODER, sliding_window=2))
    assert codes(encoder, 30_001) == CODES


def test_a_tiny_checkpoints_encoder_uses_all_its_tensors(
    tiny: dict[str, Path], tiny_config: Callable[[str], ModelConfig]
) -> None:
    config = tiny_config("base").codec
    weights = open_weights(tiny["base"] / "speech_tokenizer" / "model.safetensors")
    encoder = CodecEncoder.from_weights(config, weights)
    # Left are books beyond the first, and what would go back from codes to vectors.
    left = weights.under("encoder.").unused()
    assert [one for one in left if "codebook" not in one and "output_proj" not in one] == []
    found = encoder.encode(torch.from_numpy(formula.voice(24_000)))
    assert found.shape == (13, config.quantizers)
    assert found.dtype == torch.int64
    assert found.min() >= 0
    assert found.max() < config.encoder.codebook_size
