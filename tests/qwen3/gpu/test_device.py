"""Whether the engine is right on a GPU; the same checks walk on a CPU that stands for one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from qwen3tts_engine.qwen3.kernels.runner import LaunchMode
from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS
from tests.qwen3.kernels.fake_cuda import FakeCuda, FakeStreams
from tests.qwen3.kernels.gpu_benchmarks import benchmark_module
from tests.qwen3.kernels.strict_replay import StrictReplay

CPU = torch.device("cpu")
NAMES = ("graphs", "kernels", "codes", "persistent", "codec", "devices")


@pytest.fixture(scope="module")
def check() -> Any:
    return benchmark_module("gpu.check")


def as_on_a_gpu() -> LaunchMode:
    return LaunchMode(static=True, streams=FakeStreams(FakeCuda()), backend=StrictReplay())


@pytest.fixture(scope="module")
def place(check: Any) -> Iterator[Any]:
    """A CPU in place of the GPU: few columns, float32, strict replay in place of graphs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    parts = benchmark_module("gpu.parts")
    config = check.few_layers(parts.narrow(check.PUBLISHED["1.7b-custom_voice"]))
    yield check.Place(
        CPU,
        config=config,
        dtype=torch.float32,
        codec_dtype=torch.float32,
        slots=2,
        others=(CPU,),
        launch=as_on_a_gpu,
    )
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", NAMES)
def test_a_cpu_passes_every_check(check: Any, place: Any, name: str) -> None:
    results = list(check.CHECKS[name](place))
    assert results
    assert [result for result in results if not result.passed] == []


def test_all_checks_are_run(check: Any) -> None:
    assert tuple(check.CHECKS) == NAMES


def test_a_kernel_that_is_wrong_fails_its_check(check: Any, place: Any) -> None:
    model = place.here
    right = model.kernels
    wrong = {name: _twice(getattr(right, name)) for name in ("decode_attention",)}
    model.kernels = replace(TORCH_KERNELS, **wrong)
    try:
        (result,) = check.kernels(place)
    finally:
        model.kernels = right
    assert not result.passed


def _twice(function: Any) -> Any:
    return lambda *args, **kwargs: 2 * function(*args, **kwargs)


def test_a_graph_that_changes_codes_fails_its_check(check: Any, place: Any) -> None:
    class Wrong(StrictReplay):
        def capture(self, works: Any, stream: Any) -> Any:
            captured = super().capture(works, stream)
            # The talker is left out: its logits stay as they are.
            return (*captured[:1], lambda: None) if len(captured) > 1 else captured

    broken = replace(place, launch=lambda: replace(as_on_a_gpu(), backend=Wrong()))
    results = {result.name: result for result in check.graphs(broken)}
    assert not results["graph = eager"].passed
    assert "codes differ" in results["graph = eager"].text


def test_other_codes_than_the_cpus_fail_their_checks(check: Any, place: Any) -> None:
    torch.manual_seed(1)
    other = replace(place)
    other.reference = {**place.reference, "codes": place.reference["codes"] + 1}
    assert not any(result.passed for result in check.codes(other))
    assert not any(result.passed for result in check.codec(other))
    assert not any(result.passed for result in check.devices(other))


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_passes_every_check(check: Any, name: str) -> None:
    if not torch.cuda.is_available():
        # Not left_out(): a machine without a GPU leaves nothing out.
        pytest.skip("no GPU here")
    results = list(check.CHECKS[name](check.this_gpu(torch.device("cuda", 0))))
    assert [result for result in results if not result.passed] == []
