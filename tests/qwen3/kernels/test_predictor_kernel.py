"""The persistent predictor: by Triton's interpreter, compiled for GPUs, refused, and counted."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from qwen3tts_engine.qwen3.kernels import persistent_predictor as module
from qwen3tts_engine.qwen3.kernels.persistent_predictor import PersistentPredictor, PredictorRefused
from qwen3tts_engine.qwen3.kernels.runner import LaunchMode, Runner
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.quantized import plain
from tests.conftest import require_package
from tests.qwen3.kernels.gpu_benchmarks import benchmark_module
from tests.qwen3.model.small import small_config, small_weights
from tests.tiny_models.published import PUBLISHED

CASES = Path(__file__).with_name("predictor_cases.py")


def test_the_interpreted_kernel_samples_the_codes_of_plain_torch() -> None:
    require_package("triton", "pip install --group kernels")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)],
        cwd=CASES.parents[3],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "passed" in run.stdout


@pytest.fixture(scope="module")
def model() -> Qwen3Model:
    config = small_config(projection=True)
    return Qwen3Model.from_weights(config, *small_weights(config))


class TestRefused:
    def test_without_a_gpu_it_is_a_note_and_the_plain_path(self, model: Qwen3Model) -> None:
        runner = Runner(model, slots=1, positions=64, launch=LaunchMode(persistent=True))
        (note,) = runner.notes
        assert note == "The persistent predictor cannot be used (it needs a GPU)."
        assert model.kernels.predict is None

    @pytest.fixture
    def on_gpu(self, model: Qwen3Model, monkeypatch: pytest.MonkeyPatch) -> Qwen3Model:
        """The model as if it were on a GPU, of which nothing but its size is asked."""
        monkeypatch.setattr(model, "device", torch.device("cuda:0"))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (9, 0))

        class Properties:
            multi_processor_count = 132

        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: Properties)
        return model

    def test_an_old_gpu(self, on_gpu: Qwen3Model, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (7, 5))
        with pytest.raises(PredictorRefused, match=r"compute capability 8\.0"):
            module.persistent_predictor(on_gpu)

    @pytest.mark.parametrize(
        ("error", "says"),
        [
            (ArithmeticError("its logits are not those of plain torch"), "its logits"),
            (RuntimeError("CUDA error: too many blocks in cooperative launch"), "RuntimeError"),
            (torch.OutOfMemoryError(), "OutOfMemoryError"),
        ],
    )
    def test_a_check_that_fails(
        self, on_gpu: Qwen3Model, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
    ) -> None:
        require_package("triton", "pip install --group kernels")

        def check(_model: Qwen3Model, persistent: PersistentPredictor) -> None:
            assert persistent.constants["GRID"] == 132
            raise error

        monkeypatch.setattr(module, "check", check)
        with pytest.raises(PredictorRefused, match=says):
            module.persistent_predictor(on_gpu)

    def test_weights_of_another_layout(self, on_gpu: Qwen3Model) -> None:
        require_package("triton", "pip install --group kernels")
        heads = tuple(plain(head).contiguous() for head in on_gpu.predictor.heads)
        turned = replace(on_gpu.predictor, heads=heads)
        with pytest.raises(ValueError, match="plain matrices"):
            PersistentPredictor.build(turned, on_gpu.config.predictor, programs=1)

    def test_a_machine_without_triton(
        self, on_gpu: Qwen3Model, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "qwen3tts_engine.qwen3.kernels.predictor_kernel", None)
        with pytest.raises(PredictorRefused, match="Triton"):
            module.persistent_predictor(on_gpu)


def test_404_barriers_a_frame_at_the_published_shape() -> None:
    assert module.barriers(PUBLISHED["1.7b-custom_voice"].predictor) == 15 * (5 * 5 + 2) - 1 == 404


@pytest.mark.parametrize(
    ("rows", "programs", "tile"), [(4096, 132, 16), (1024, 132, 8), (3072, 132, 8), (2048, 58, 8)]
)
def test_tiles_leave_the_busiest_program_least(rows: int, programs: int, tile: int) -> None:
    assert module.tile_rows(rows, programs) == tile


@pytest.fixture(scope="module")
def persistent_benchmark() -> Any:
    require_package("triton", "pip install --group kernels")
    return benchmark_module("gpu.persistent")


@pytest.mark.parametrize("name", ["0.6b-custom_voice", "1.7b-custom_voice"])
def test_a_step_with_it_is_at_most_200_kernels(persistent_benchmark: Any, name: str) -> None:
    nodes = persistent_benchmark.step_nodes(name, rows=1)
    assert nodes["_predict"] == 1
    assert sum(nodes.values()) <= 200


def test_predicted_time_is_barriers_and_bytes(persistent_benchmark: Any) -> None:
    predictor = PUBLISHED["0.6b-custom_voice"].predictor
    predicted = persistent_benchmark.predicted_ms
    free = predicted(predictor, rows=1, bandwidth=1e30, barrier_us=1.2)
    assert free == pytest.approx(404 * 1.2e-3)
    slow = predicted(predictor, rows=1, bandwidth=3e12, barrier_us=0.0)
    weights = 2 * 15 * (5 * 1024 * (4096 + 2048 + 3 * 3072) + 1024 * 2048)
    assert slow == pytest.approx(weights / 3e9, rel=0.01)
    assert predicted(predictor, rows=8, bandwidth=3e12) > free + slow
