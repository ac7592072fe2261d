"""A checkpoint in memory: what is read, what is refused, what a prompt becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from qwen3tts_engine.qwen3.model import model as module
from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.config_fields import BadCheckpoint
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model, count_parameters
from qwen3tts_engine.qwen3.model.prompt import NO_TEXT, Prompt
from qwen3tts_engine.qwen3.model.quantized import Matrix, plain
from qwen3tts_wire.errors import BadRequest, EngineUnavailable
from tests.qwen3.model.small import small_config, small_weights

TASKS = ("custom_voice", "voice_design", "base")


@pytest.mark.parametrize("task", TASKS)
def test_the_tiny_checkpoints_load(tiny: dict[str, Path], task: str) -> None:
    model = Qwen3Model.load(tiny[task])
    assert model.config.task == task
    assert model.tokenizer is not None
    assert model.tokenizer.encode("text")
    assert (model.speaker_encoder is not None) == (task == "base")
    assert (model.codec_encoder is not None) == (task == "base")
    assert (model.device, model.dtype) == (torch.device("cpu"), torch.float32)
    assert model.decoder.dtype == torch.float32


def test_talker_and_codec_have_their_own_precision(tiny: dict[str, Path]) -> None:
    model = Qwen3Model.load(tiny["base"], dtype=torch.bfloat16, codec_dtype=torch.float16)
    matrices = (model.talker.head, model.predictor.heads[0], model.talker.stack.layers[0].qkv)
    assert {plain(each).dtype for each in matrices} == {model.dtype} == {torch.bfloat16}
    assert model.decoder.dtype == torch.float16
    assert model.talker.angles.dtype == model.talker.stack.head_weights.dtype == torch.float32


@pytest.mark.parametrize("projection", [False, True])
def test_its_size_is_known(projection: bool) -> None:
    config = small_config(projection=projection)
    model = Qwen3Model.from_weights(config, *small_weights(config))
    matrices: list[Matrix] = [model.talker.table, model.talker.head, *model.predictor.heads]
    for stack in (model.talker.stack, model.predictor.stack):
        for layer in stack.layers:
            matrices += [layer.qkv, layer.out, layer.gate_up, layer.down]
    if projection:
        matrices += [*model.predictor.inputs, model.predictor.projection[0]]  # type: ignore[index]
    count = sum(plain(one).numel() for one in matrices)
    # The row of zeros is not counted.
    assert count - config.talker.layers.hidden == count_parameters(config)


class TestEmbed:
    @pytest.fixture(scope="class")
    @staticmethod
    def model(tiny: dict[str, Path]) -> Qwen3Model:
        return Qwen3Model.load(tiny["base"])

    def test_a_position_is_the_sum_of_its_tracks(self, model: Qwen3Model) -> None:
        talker, hidden = model.talker, model.config.talker.layers.hidden
        frame = tuple(range(100, 116))
        prompt = Prompt(
            text=(7, NO_TEXT, 9, NO_TEXT, 11, 12),
            codec=(None, 2150, frame, None, "speaker", 33),
            trailing=(),
            prefix=0,
        )
        vector = torch.linspace(-1, 1, hidden)
        found = model.embed(prompt, x_vector=vector)
        table, groups = talker.table, talker.rows.groups
        expected = torch.stack(
            [
                table[7],
                table[groups[0] + 2150],
                torch.stack([table[g + c] for g, c in zip(groups, frame, strict=True)]).sum(0)
                + table[9],
                torch.zeros(hidden),
                table[11] + vector,
                table[groups[0] + 33] + table[12],
            ]
        )
        torch.testing.assert_close(found, expected)

    def test_no_positions(self, model: Qwen3Model) -> None:
        assert model.embed(Prompt((), (), (), 0)).shape == (0, model.config.talker.layers.hidden)

    @pytest.mark.parametrize("vector", [None, torch.zeros(3)])
    def test_a_speakers_vector_must_fit(
        self, model: Qwen3Model, vector: torch.Tensor | None
    ) -> None:
        prompt = Prompt((1,), ("speaker",), (), 0)
        with pytest.raises(BadRequest, match="speaker vector") as caught:
            model.embed(prompt, x_vector=vector)
        assert str(model.config.talker.layers.hidden) in caught.value.remedy


class TestRefused:
    config = small_config(projection=False)

    def test_no_folder(self) -> None:
        with pytest.raises(EngineUnavailable, match="no folder"):
            Qwen3Model.load("/nowhere/at all")

    def test_a_type_that_is_no_floating_point(self) -> None:
        with pytest.raises(BadRequest, match="int8") as caught:
            Qwen3Model.from_weights(self.config, *small_weights(self.config), dtype=torch.int8)
        assert "bfloat16" in caught.value.remedy

    @pytest.mark.parametrize("count", [1, 5])
    def test_tensors_that_nothing_knows(self, count: int) -> None:
        known, codec = small_weights(self.config)
        shapes = {name: tuple(known[name].shape) for name in known.names()}
        shapes |= {f"other.{number}": (2,) for number in range(count)}
        weights = Weights("some file", shapes, lambda name: known[name])
        with pytest.raises(BadCheckpoint, match=rf"some file holds {count} tensors.*other\.0"):
            Qwen3Model.from_weights(self.config, weights, codec)

    def test_a_device_without_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object, **__: object) -> None:
            raise torch.OutOfMemoryError

        monkeypatch.setattr(module, "load_code_predictor", full)
        with pytest.raises(EngineUnavailable, match=r"weights need 0\.\d\d GiB on cpu") as caught:
            Qwen3Model.from_weights(self.config, *small_weights(self.config))
        assert "another device" in caught.value.remedy

    @pytest.mark.parametrize("kind", [AssertionError, RuntimeError])
    def test_a_device_that_is_not_there(
        self, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise kind("not compiled with CUDA")

        monkeypatch.setattr(module, "load_talker", fail)
        with pytest.raises(EngineUnavailable, match="cuda cannot be used") as caught:
            Qwen3Model.from_weights(self.config, *small_weights(self.config), device="cuda")
        assert "cpu" in caught.value.remedy
        with pytest.raises(kind):
            Qwen3Model.from_weights(self.config, *small_weights(self.config))


def test_many_arenas_share_one_model() -> None:
    config = small_config(projection=False)
    model = Qwen3Model.from_weights(config, *small_weights(config))
    one, other = (KvCache(model.config, slots=1, positions=4) for _ in range(2))
    assert one.kv.data_ptr() != other.kv.data_ptr()
