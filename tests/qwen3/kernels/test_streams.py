"""Streams of a GPU: their device, their priorities, and what must not wait."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qwen3tts_engine.qwen3.engine.loaded import LoadedModel
from qwen3tts_engine.qwen3.kernels.cuda import BackgroundStream, CudaStreams
from qwen3tts_engine.qwen3.kernels.runner import LaunchMode, Runner
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, StepRow
from qwen3tts_engine.qwen3.model import kv_cache as kv_cache_module
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.prompt import Reference, build_prompt
from qwen3tts_engine.qwen3.model.sampling import Sampling
from tests.qwen3.engine.worker_world import World
from tests.qwen3.kernels.fake_cuda import FakeCuda, FakeStreams

SECOND = torch.device("cuda:1")
GREEDY = Sampling(temperature=0.0, predictor_temperature=0.0)


@pytest.fixture
def cuda() -> FakeCuda:
    return FakeCuda()


@pytest.fixture(scope="module")
def model(tiny: dict[str, Path]) -> Qwen3Model:
    return Qwen3Model.load(tiny["custom_voice"])


class SecondGpu(CudaStreams):
    def _pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


# --- the device ---


def test_events_are_recorded_on_the_streams_device(cuda: FakeCuda) -> None:
    """The current device is another: the thread's, in a test or a benchmark."""
    streams = SecondGpu(SECOND, cuda)
    streams.record_event()
    assert cuda.log == ["record on main of 1"]
    cuda.log.clear()
    with streams.on("frames"):
        assert cuda.device == 1
        streams.download(torch.zeros(1))
    with streams.on("sound"):
        assert cuda.device == 1
        streams.record_event()
    assert cuda.device == 0
    assert [line for line in cuda.log if "record" in line] == [
        "record on side 1",
        "record on side 2",
    ]


def test_frames_are_in_order_with_the_callers_stream(cuda: FakeCuda) -> None:
    streams = SecondGpu(SECOND, cuda)
    with streams.on("frames"), streams.on("frames"), streams.on("sound"):
        pass
    assert cuda.log == ["side 1 joins main of 1", "main of 1 joins side 1"]


def test_all_work_of_an_engines_thread_is_on_its_device(cuda: FakeCuda) -> None:
    """Kernels of Triton and pinned memory belong to the current device."""
    world = World()
    streams = SecondGpu(SECOND, cuda)
    seen: list[tuple[int, str]] = []
    world.runner.running = lambda: streams.on("frames")  # type: ignore[method-assign]
    world.runner.fails = lambda _what, _seeds: seen.append((cuda.device, cuda.current))
    _, out = world.say(seed=1)
    world.worker.when_idle(world.worker.close)
    world.worker.run()
    assert out.finished
    assert set(seen) == {(1, "side 1")}


def test_each_launch_of_a_runner_is_on_its_device(model: Qwen3Model, cuda: FakeCuda) -> None:
    streams = FakeStreams(cuda)
    runner = Runner(model, slots=1, positions=64, launch=LaunchMode(streams=streams))
    embeds = torch.zeros(2, model.config.talker.layers.hidden)
    on: list[str] = []
    steps, prefills = runner._stages.step, runner._stages.prefill

    def noted(build: Any) -> Any:
        def run(key: Any) -> Any:
            on.append(cuda.current)
            return build(key)

        return run

    runner._steps._build, runner._prefills._build = noted(steps), noted(prefills)
    runner.prefill([PrefillRow(0, embeds, GREEDY, 0)])
    runner.step([StepRow(0, 0, False)])
    runner.free(0)
    runner.prefill_prefix(0, embeds)
    assert on == ["side 1"] * 3


# --- voices ---


def test_voices_have_a_stream_below_the_frames_and_sound_one_above(cuda: FakeCuda) -> None:
    background = BackgroundStream(SECOND, cuda)
    CudaStreams(SECOND, cuda)
    assert [stream.priority for stream in cuda.made] == [0, -1, -2]
    for _ in range(2):
        with background.running():
            assert (cuda.device, cuda.current) == (1, "side 1")
    assert cuda.log == ["synchronize side 1"] * 2
    with BackgroundStream(torch.device("cpu"), cuda).running():
        assert cuda.current == "main"
    assert len(cuda.made) == 3


def test_a_reference_is_decoded_in_the_background(model: Qwen3Model) -> None:
    within: list[bool] = []
    inside = False

    class Background:
        @contextmanager
        def running(self) -> Iterator[None]:
            nonlocal inside
            inside = True
            yield
            inside = False

    def run(*given: Any) -> Any:
        within.append(inside)
        return model.decoder.run(*given)

    loaded: Any = LoadedModel.__new__(LoadedModel)
    decoder = SimpleNamespace(
        device=model.decoder.device, new_state=model.decoder.new_state, run=run
    )
    loaded.model, loaded._background = SimpleNamespace(decoder=decoder), Background()
    codes = tuple((5,) * model.config.talker.code_groups for _ in range(30))
    snapshot = loaded._state_behind(Reference((1,), codes))
    assert snapshot.bytes > 0
    assert within == [True, True]


def test_a_cloned_voices_vector_goes_up_without_waiting(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy from pageable memory waits for all work of its stream."""
    base = Qwen3Model.load(tiny["base"])
    vector = torch.ones(base.config.talker.layers.hidden)
    prompt = build_prompt(base.config, text_ids=[5, 6], has_x_vector=True, layout="full")
    expected = base.embed(prompt, x_vector=vector)
    pinned: list[torch.Tensor] = []
    moved: list[tuple[bool, bool]] = []
    to = torch.Tensor.to

    def pin(numbers: torch.Tensor) -> torch.Tensor:
        pinned.append(numbers)
        return numbers

    def move(self: torch.Tensor, *given: Any, **options: Any) -> torch.Tensor:
        if not any(isinstance(each, torch.device) for each in given):
            return to(self, *given, **options)
        was_pinned = any(each is self for each in pinned)
        moved.append((was_pinned, options.get("non_blocking", False)))
        return self

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", move)
    base.device = torch.device("cuda:1")
    assert torch.equal(base.embed(prompt, x_vector=vector), expected)
    # The ids and the vector.
    assert moved == [(True, True)] * 2


# --- what a row's start costs ---


def test_a_start_clears_what_was_written_and_no_more(
    model: Qwen3Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU a slot is some hundred MiB."""
    runner = Runner(model, slots=2, positions=64)
    cache = runner.kv_cache
    embeds = torch.zeros(3, model.config.talker.layers.hidden)
    runner.prefill([PrefillRow(0, embeds, GREEDY, 0)])
    for _ in range(4):
        runner.step([StepRow(0, 0, False)])
    runner.free(0)
    runner.reset()
    cache.kv[:, 0].fill_(torch.nan)
    cache.kv[:, 0, 7:].fill_(7.0)
    reset = cache.reset

    def reset_on_a_gpu(*given: Any, **options: Any) -> None:
        cache.device = torch.device("cuda")
        reset(*given, **options)
        cache.device = torch.device("cpu")

    monkeypatch.setattr(cache, "reset", reset_on_a_gpu)
    monkeypatch.setattr(
        kv_cache_module,
        "to_device",
        lambda values, dtype, device: torch.tensor(values, dtype=dtype),
    )
    runner.prefill([PrefillRow(0, embeds, GREEDY, 0)])
    assert not cache.kv[:, 0, 3:7].any()
    assert cache.kv[:, 0, :3].isfinite().all()
    assert (cache.kv[:, 0, 7:] == 7.0).all()
    runner.free(0)
    # Of what was cleared nothing is cleared again.
    cache.kv[:, 0, 3:7].fill_(5.0)
    runner.prefill([PrefillRow(0, embeds, GREEDY, 0)])
    assert (cache.kv[:, 0, 3:7] == 5.0).all()


def test_attention_that_plans_each_shape_is_off_on_a_gpu(
    tiny: dict[str, Path], cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its own model: a runner sets its kernels.
    model = Qwen3Model.load(tiny["custom_voice"])
    monkeypatch.setitem(sys.modules, "qwen3tts_engine.qwen3.kernels.triton_kernels", None)

    class Gpu(FakeStreams):
        def __init__(self) -> None:
            super().__init__(cuda)
            self.device = torch.device("cuda")

    enabled: Any = torch.backends.cuda.cudnn_sdp_enabled
    before = enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        Runner(model, slots=1, positions=64, launch=LaunchMode(streams=Gpu()))
        assert not enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_all_frames_of_a_step_can_be_decoded_in_a_captured_size(model: Qwen3Model) -> None:
    runner = Runner(model, slots=256, positions=16)
    decodes = {key for _, key in runner._sizes() if hasattr(key, "frames")}
    assert {(256, 1), (128, 2), (64, 4), (32, 8)} <= {tuple(key) for key in decodes}
    assert (128, 4) not in {tuple(key) for key in decodes}


def test_a_slots_sound_starts_behind_the_last_rows(model: Qwen3Model, cuda: FakeCuda) -> None:
    runner = Runner(model, slots=1, positions=64, launch=LaunchMode(streams=FakeStreams(cuda)))
    embeds = torch.zeros(2, model.config.talker.layers.hidden)
    runner.prefill([PrefillRow(0, embeds, GREEDY, 0)])
    runner.step([StepRow(0, 0, False)])
    cuda.log.clear()
    runner.decode([DecodeRow(0, 0, 1)])
    assert cuda.log == ["side 2 waits for side 1", *["record on side 2"] * 2]
