"""The forecast of a CPU's speed: the engine's layers at the published sizes, here at small ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from qwen3tts_engine.qwen3.kernels import cpu_forecast
from qwen3tts_engine.qwen3.kernels.cpu_threads import ThreadPlan
from qwen3tts_engine.qwen3.model.quantized import usable
from tests.tiny_models.published import PUBLISHED


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("size", ["0.6b", "1.7b"])
def test_the_sizes_are_the_published_ones(size: str) -> None:
    published = PUBLISHED[f"{size}-custom_voice"]
    config = cpu_forecast._config(cpu_forecast.SIZES[size.upper()])
    assert config.talker.layers == published.talker.layers
    assert config.predictor == published.predictor
    assert config.codec.decoder == published.codec.decoder
    assert config.talker.vocab == published.talker.vocab
    assert config.talker.code_groups == published.talker.code_groups


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of a width of 64 and 128, four of them, and a narrow codec."""
    decoder = replace(
        cpu_forecast.CODEC,
        codebook_size=64,
        codebook_dim=32,
        latent_dim=32,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        decoder_dim=32,
    )
    monkeypatch.setattr(cpu_forecast, "CODEC", decoder)
    monkeypatch.setattr(cpu_forecast, "SIZES", {"0.6B": 64, "1.7B": 128})
    monkeypatch.setattr(cpu_forecast, "PREDICTOR", 64)
    monkeypatch.setattr(cpu_forecast, "LAYERS", 4)
    monkeypatch.setattr(cpu_forecast, "DISTINCT_BYTES", 1)
    monkeypatch.setattr(cpu_forecast, "NOISE", 1 << 12)


@pytest.mark.usefixtures("small")
def test_it_measures_each_size_and_quantization(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_forecast, "plan_threads", lambda *_, **__: ThreadPlan(1, 0))
    made = cpu_forecast.forecast()
    assert set(made.threads.values()) == {"1, language model and codec in turn"}
    assert made.seconds > 0
    assert list(made.factors) == ["0.6B", "1.7B"]
    for factors in made.factors.values():
        assert list(factors) == ["none", "int8", "int4"]
        assert all(0 < value < 100 for value in factors.values())


@pytest.mark.usefixtures("small")
def test_it_measures_with_the_codec_beside_the_language_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_forecast, "plan_threads", lambda *_, **__: ThreadPlan(2, 1))
    monkeypatch.setattr(cpu_forecast, "KINDS", (None,))
    made = cpu_forecast.forecast()
    assert made.threads == {"none": str(ThreadPlan(2, 1))}
    assert 0 < made.factors["0.6B"]["none"] < 100


@pytest.mark.usefixtures("small")
def test_layers_repeat_up_to_the_published_number_and_are_quantized() -> None:
    talker = cpu_forecast._talker(cpu_forecast._config(64), "int8")
    layers = talker.stack.layers
    assert len(layers) == 4
    assert layers[0] is layers[2]
    assert layers[0] is not layers[1]
    assert len(talker.stack.head_weights) == 4
    assert isinstance(layers[0].down, torch.Tensor) is not usable(8)
