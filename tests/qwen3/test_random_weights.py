"""Random weights: the published counts, drawn without a file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from qwen3tts_engine.qwen3.model.checkpoint import open_weights
from qwen3tts_engine.qwen3.model.config import ModelConfig
from tests.tiny_models.published import PUBLISHED
from tests.tiny_models.tensor_names import codec_tensors, model_tensors
from tests.tiny_models.weights import random_weights


@pytest.mark.parametrize(
    ("name", "tensors", "parameters"),
    [
        ("0.6b-base", 478, 914_643_008),
        ("1.7b-base", 480, 1_928_677_440),
        ("1.7b-custom_voice", 404, 1_916_676_352),
        ("1.7b-voice_design", 404, 1_916_676_352),
    ],
)
def test_the_published_models_have_the_published_counts(
    name: str, tensors: int, parameters: int
) -> None:
    shapes = model_tensors(PUBLISHED[name])
    assert len(shapes) == tensors
    assert sum(map(math.prod, shapes.values())) == parameters


def test_the_published_decoder_has_the_published_counts() -> None:
    shapes = codec_tensors(PUBLISHED["0.6b-base"].codec)
    decoder = [shape for name, shape in shapes.items() if name.startswith("decoder.")]
    assert len(decoder) == 271
    assert round(sum(map(math.prod, decoder)) / 1e6, 1) == 114.3


def test_books_as_wide_as_the_encoder_need_no_projection() -> None:
    codec = PUBLISHED["0.6b-base"].codec
    wide = dataclasses.replace(
        codec.encoder, codebook_dim=512, vector_quantization_hidden_dimension=512
    )
    names = set(codec_tensors(dataclasses.replace(codec, encoder=wide)))
    gone = set(codec_tensors(codec)) - names
    assert len(gone) == 4
    assert all("_proj" in name and "quantizer" in name for name in gone)


def test_real_size_needs_no_time() -> None:
    """Nothing is drawn before it is asked for: the whole 1.7B would not fit a test."""
    model, codec = random_weights(PUBLISHED["1.7b-base"], device="meta", dtype=torch.bfloat16)
    table = model["talker.model.text_embedding.weight"]
    assert (table.shape, table.dtype) == ((151_936, 2048), torch.bfloat16)
    assert "decoder.pre_conv.conv.weight" in codec


def test_the_same_seed_draws_the_same_in_any_order(
    tiny_config: Callable[[str], ModelConfig],
) -> None:
    names = ("talker.codec_head.weight", "talker.model.norm.weight")
    first, _ = random_weights(tiny_config("base"), seed=3)
    again, _ = random_weights(tiny_config("base"), seed=3)
    other, _ = random_weights(tiny_config("base"), seed=4)
    drawn = [first[name] for name in names]
    assert all(torch.equal(again[name], drawn[at]) for at, name in reversed([*enumerate(names)]))
    assert not torch.equal(other[names[0]], drawn[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_tensor_is_finite_and_of_a_sane_size(
    tiny_config: Callable[[str], ModelConfig], dtype: torch.dtype
) -> None:
    for weights in random_weights(tiny_config("base"), dtype=dtype):
        for name in weights.names():
            tensor = weights[name]
            assert tensor.dtype == dtype
            assert tensor.isfinite().all()
            assert tensor.abs().max() < 6


@pytest.mark.parametrize("task", ["custom_voice", "voice_design", "base"])
def test_the_names_are_those_in_the_files(
    tiny: dict[str, Path], tiny_config: Callable[[str], ModelConfig], task: str
) -> None:
    config = tiny_config(task)
    for file, shapes in (
        ("model.safetensors", model_tensors(config)),
        ("speech_tokenizer/model.safetensors", codec_tensors(config.codec)),
    ):
        weights = open_weights(tiny[task] / file)
        assert weights.names() == sorted(shapes)
        assert all(weights.take(name, shape).shape == shape for name, shape in shapes.items())
        assert weights.unused() == []
