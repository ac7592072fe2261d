from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from qwen3tts_engine.qwen3.kernels import cuda as cuda_module
from qwen3tts_engine.qwen3.kernels import cuda as graphs
from qwen3tts_engine.qwen3.kernels import selection
from qwen3tts_engine.qwen3.kernels import stages as warmup
from qwen3tts_engine.qwen3.kernels.cuda import (
    CudaGraphBackend,
    EagerBackend,
    GraphCache,
    StaticWork,
    bucket_for,
    buckets_up_to,
    graph_backend,
)
from qwen3tts_engine.qwen3.kernels.requirements import Missing
from qwen3tts_engine.qwen3.kernels.runner import LaunchMode, Runner
from qwen3tts_engine.qwen3.kernels.stages import DecodeKey
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, StepRow
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS, Kernels
from qwen3tts_wire.errors import EngineUnavailable
from tests.qwen3.kernels.fake_cuda import FakeCuda, FakeStream, FakeStreams, Recorder

CPU = torch.device("cpu")
KERNELS = "qwen3tts_engine.qwen3.kernels.triton_kernels"
CODEC_TRIALS = "qwen3tts_engine.qwen3.kernels.codec_trials"
CODEC = SimpleNamespace(usable=lambda decoder: (decoder.kernels, {}))
"""A GPU whose codec keeps its kernels."""
GREEDY = Sampling(temperature=0.0, predictor_temperature=0.0)
FREE = Sampling(temperature=0.7, top_k=0, top_p=0.9)


@pytest.fixture(scope="module")
def model(tiny: dict[str, Path]) -> Qwen3Model:
    return Qwen3Model.load(tiny["custom_voice"])


@pytest.fixture
def backend() -> Recorder:
    return Recorder()


@pytest.fixture
def cuda() -> FakeCuda:
    return FakeCuda()


def captured(model: Qwen3Model, backend: Recorder, **fields: object) -> Runner:
    """A runner as on a GPU, warmed up."""
    values = {"slots": 5, "positions": 96, **fields}
    runner = Runner(model, launch=LaunchMode(static=True, backend=backend), **values)  # type: ignore[arg-type]
    runner.warmup()
    return runner


def prompts(model: Qwen3Model, count: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    table = model.talker.table
    return [
        table[torch.randint(0, len(table), (4 + 3 * row,), generator=draw)] for row in range(count)
    ]


def speak(
    runner: Runner, embeds: list[torch.Tensor], frames: int, sampling: Sampling = GREEDY
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """All rows from the beginning: codes [frames, rows, 16], samples [rows, n]."""
    rows = range(len(embeds))
    runner.prefill([PrefillRow(row, embeds[row], sampling, row) for row in rows])
    pad = runner.model.config.text_ids.tts_pad
    codes = [runner.step([StepRow(row, pad, False) for row in rows]) for _ in range(frames)]
    sound = [runner.decode([DecodeRow(row, 0, 1) for row in rows])]
    sound.append(runner.decode([DecodeRow(row, 1, frames - 1) for row in rows]))
    result = np.stack([ticket.wait() for ticket in codes])
    samples = np.concatenate([ticket.wait() for ticket in sound], axis=1)
    for row in rows:
        runner.free(row)
    return result, samples


# --- sizes ---


def test_a_batch_takes_the_smallest_size_that_holds_it() -> None:
    sizes = buckets_up_to(5)
    assert sizes == (1, 2, 4, 5)
    assert [bucket_for(rows, sizes) for rows in (1, 2, 3, 4, 5)] == [1, 2, 4, 4, 5]
    assert bucket_for(9, sizes) == 9
    assert buckets_up_to(1) == (1,)


def test_a_size_that_was_not_captured_has_buffers_of_its_own() -> None:
    made: list[int] = []

    def build(size: int) -> StaticWork:
        made.append(size)
        zeros = torch.zeros(1, size, dtype=torch.int64)
        return StaticWork(zeros, zeros, (lambda: None,))

    stage = GraphCache("frames", build)
    stage.capture(2, Recorder())
    assert stage.get(2) is stage.get(2)
    assert stage.get(3) is not stage.get(3)
    assert made == [2, 3, 3]
    assert len(stage) == 1
    assert 2 in stage
    stage.clear()
    assert 2 not in stage


# --- CUDA's own ---


def test_work_runs_before_it_is_captured_and_each_stream_has_its_own_memory(cuda: FakeCuda) -> None:
    backend = CudaGraphBackend(CPU, cuda)
    ran: list[str] = []
    first, second = backend.capture([lambda: ran.append("a"), lambda: ran.append("b")], "frames")
    assert ran == ["a", "b", "a", "b", "a", "b"]
    backend.capture([lambda: None], "sound")
    backend.capture([lambda: None], "frames")
    assert [graph.pool for graph in cuda.graphs] == ["pool 1", "pool 1", "pool 2", "pool 1"]
    streams = [graph.stream for graph in cuda.graphs]
    assert streams == ["side 1", "side 1", "side 2", "side 1"]
    assert [(each.name, each.priority) for each in cuda.made] == [("side 1", -1), ("side 2", -2)]
    cuda.log.clear()
    first()
    second()
    assert cuda.log == ["replay", "replay"]


def test_each_graph_is_replayed_once_at_its_capture(cuda: FakeCuda) -> None:
    """The first replay uploads it: not while a caller waits."""
    CudaGraphBackend(CPU, cuda).capture([lambda: None, lambda: None], "sound")
    captured = cuda.log.index("captured into pool 1")
    assert cuda.log[captured:] == [
        *["captured into pool 1"] * 2,
        *["replay on side 1"] * 2,
        "synchronize",
    ]


def test_graphs_are_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(graph_backend(CPU, True), EagerBackend)
    made = Recorder()
    monkeypatch.setattr(graphs, "CudaGraphBackend", lambda device: made)
    gpu = torch.device("cuda")
    assert graph_backend(gpu, "auto") is made
    assert isinstance(graph_backend(gpu, False), EagerBackend)


# --- the runner ---


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_captured_sizes_and_padding_rows_change_nothing(
    model: Qwen3Model, backend: Recorder, rows: int
) -> None:
    plain = Runner(model, slots=5, positions=96)
    embeds = prompts(model, rows)
    codes, samples = speak(plain, embeds, 9)
    runner = captured(model, backend)
    before = len(backend.captured)
    got, heard = speak(runner, embeds, 9)
    assert np.array_equal(got, codes)
    assert np.abs(heard - samples).max() < 1e-4
    assert len(backend.captured) == before
    # Prefill, nine steps of two works, two decodes.
    assert backend.replays >= 1 + 18 + 2


def test_every_usual_size_is_captured(model: Qwen3Model, backend: Recorder) -> None:
    runner = captured(model, backend)
    count, _ = runner.captured
    # Steps of 1, 2, 4, 5 rows and two that sort all scores; 3 lengths of prompts of as
    # many rows; decodes of 1, 2, 4, 8 frames.
    assert count == len(backend.captured) == 6 + 12 + 16
    backend.replays = 0
    for rows in range(1, 6):
        embeds = prompts(model, rows)
        runner.prefill([PrefillRow(row, embeds[row], GREEDY, 0) for row in range(rows)])
        assert backend.replays == 1
        runner.step([StepRow(row, 0, True) for row in range(rows)])
        for frames in (1, 2, 4, 8):
            runner.decode([DecodeRow(row, 0, frames) for row in range(rows)])
        assert backend.replays == 1 + 2 + 4
        backend.replays = 0


def test_decodes_of_more_frames_than_a_plan_has_are_not_captured(model: Qwen3Model) -> None:
    runner = Runner(model, slots=40, positions=64)
    sizes = [key for _, key in runner._sizes() if isinstance(key, DecodeKey)]
    assert DecodeKey(40, 1) in sizes
    assert DecodeKey(32, 4) in sizes
    assert DecodeKey(40, 4) not in sizes


def test_what_a_compiler_sees_does_the_same(
    model: Qwen3Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    embeds = prompts(model, 2)
    codes, _ = speak(Runner(model, slots=2, positions=64), embeds, 4)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert np.array_equal(speak(Runner(model, slots=2, positions=64), embeds, 4)[0], codes)


def test_a_warm_up_captures_once(model: Qwen3Model, backend: Recorder) -> None:
    told: list[tuple[str, int, int]] = []
    runner = Runner(model, slots=2, positions=64, launch=LaunchMode(static=True, backend=backend))
    runner.warmup(lambda *what: told.append(what))
    count = len(backend.captured)
    runner.warmup()
    assert len(backend.captured) == count == runner.captured[0]
    graphs_told = [(done, of) for what, done, of in told if what == "capturing graphs"]
    assert graphs_told == [(done, count) for done in range(count + 1)]


def test_padding_rows_stay_short(model: Qwen3Model, backend: Recorder) -> None:
    runner = captured(model, backend)
    speak(runner, prompts(model, 3), 9)
    assert not runner.kv_cache.counters[runner.kv_cache.scratch].any()


def test_a_row_that_needs_all_scores_has_sizes_of_its_own(
    model: Qwen3Model, backend: Recorder
) -> None:
    embeds = prompts(model, 2)
    codes, _ = speak(Runner(model, slots=5, positions=96), embeds, 5, FREE)
    runner = captured(model, backend)
    backend.replays = 0
    got, _ = speak(runner, embeds, 5, FREE)
    assert np.array_equal(got, codes)
    assert backend.replays == 1 + 10 + 2


def test_a_restored_beginning_changes_nothing(model: Qwen3Model, backend: Recorder) -> None:
    (embeds,) = prompts(model, 1)
    embeds = embeds.repeat(5, 1)
    codes, _ = speak(Runner(model, slots=2, positions=600), [embeds], 4)
    runner = captured(model, backend, slots=2, positions=600)
    kept = runner.prefill_prefix(1, embeds[:12])
    for positions in (600, 400):
        if positions == 400:
            runner = captured(model, Recorder(), slots=2, positions=400)
        runner.prefill([PrefillRow(0, embeds[12:], GREEDY, 0, prefix=kept)])
        got = [runner.step([StepRow(0, model.config.text_ids.tts_pad, False)]) for _ in range(4)]
        assert np.array_equal(np.stack([each.wait() for each in got]), codes)


def test_longer_prompts_and_other_chunks_run_uncaptured(
    model: Qwen3Model, backend: Recorder
) -> None:
    embeds = [prompts(model, 1)[0].repeat(80, 1)]
    assert len(embeds[0]) > 256
    codes, samples = speak(Runner(model, slots=1, positions=400), embeds, 4)
    runner = captured(model, backend, slots=1, positions=400)
    got, heard = speak(runner, embeds, 4)
    assert np.array_equal(got, codes)
    assert np.abs(heard - samples).max() < 1e-4


def test_lengths_that_attention_reads_need_one_set_of_sizes(
    model: Qwen3Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Recorder()
    captured(model, plain, slots=1, positions=600)
    reading = Recorder()
    monkeypatch.setattr(Runner, "reads_lengths", True)
    captured(model, reading, slots=1, positions=600)
    # 256, 512 and 600 positions; each with and without all scores sorted.
    assert len(plain.captured) - len(reading.captured) == 4


# --- what cannot be had ---


def test_graphs_that_cannot_be_captured_are_done_without(
    model: Qwen3Model, backend: Recorder
) -> None:
    backend.fails = lambda number: RuntimeError("no") if number == 3 else None
    runner = captured(model, backend)
    assert runner.captured[0] == 0
    assert "Without CUDA graphs" in runner.notes[0]
    embeds = prompts(model, 2)
    codes, _ = speak(Runner(model, slots=5, positions=96), embeds, 4)
    assert np.array_equal(speak(runner, embeds, 4)[0], codes)


def test_graphs_that_were_demanded_are_missed(model: Qwen3Model, backend: Recorder) -> None:
    backend.fails = lambda number: RuntimeError("no")
    with pytest.raises(EngineUnavailable, match="cannot be captured"):
        captured(model, backend, graphs=True)


def test_graphs_without_room_name_a_remedy(model: Qwen3Model, backend: Recorder) -> None:
    backend.fails = lambda number: torch.OutOfMemoryError("no")
    with pytest.raises(EngineUnavailable, match="no room"):
        captured(model, backend)


def test_what_is_compiled_is_what_is_captured(
    model: Qwen3Model, backend: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def compile_fake(function: Callable[..., object], **_: object) -> Callable[..., object]:
        def run(*args: object, **kwargs: object) -> object:
            ran.append(function.__name__)
            return function(*args, **kwargs)

        return run

    monkeypatch.setattr(torch, "compile", compile_fake)
    runner = captured(model, backend, slots=1, compile=True)
    assert {"sample_codes", "advance_talker"} < set(ran)
    ran.clear()
    codes, _ = speak(runner, prompts(model, 1), 4)
    # What was captured runs as it was; the decode of three frames was not.
    assert set(ran) == {"sample_codes", "advance_talker", "_run_decoder"}
    assert ran.count("_run_decoder") == 1
    want, _ = speak(Runner(model, slots=1, positions=96), prompts(model, 1), 4)
    assert np.array_equal(codes, want)


def test_sizes_that_gain_are_compiled_and_the_rest_is_noted(
    model: Qwen3Model, backend: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dynamo compiles a function for 8 sizes by default, and runs all others eagerly, unseen."""
    sizes: dict[str, set[tuple[int, ...]]] = {}

    def compile_fake(function: Callable[..., object], **_: object) -> Callable[..., object]:
        def run(*args: Any, **kwargs: Any) -> object:
            shape = args[-1].shape if function.__name__ == "_run_decoder" else args[2].shape
            sizes.setdefault(function.__name__, set()).add(tuple(shape))
            return function(*args, **kwargs)

        return run

    monkeypatch.setattr(torch, "compile", compile_fake)
    runner = captured(model, backend, slots=20, compile=True)
    small = {1, 2, 4, 8, 12, 16}
    assert {rows for (rows,) in sizes["sample_codes"]} == small
    assert {shape[:2] for shape in sizes["_run_decoder"]} == {
        (rows, frames) for rows in small for frames in (1, 2)
    }
    (note,) = runner.notes
    assert f"used for 18 of {runner.captured[0]} sizes" in note


def test_the_compiler_takes_as_many_sizes_as_there_are_and_refuses_more() -> None:
    compiled: list[int] = []

    def count(graph: Any, inputs: list[torch.Tensor]) -> Any:
        compiled.append(len(inputs[0]))
        return graph.forward

    double = torch.compile(lambda x: 2 * x, backend=count, dynamic=False)
    with warmup._recompilations(11):
        for size in range(2, 13):
            double(torch.ones(size))
        assert compiled == list(range(2, 13))
        double(torch.ones(20))
        with pytest.raises(Exception, match="recompile_limit"):
            double(torch.ones(21))


def test_a_compiler_that_fails_is_done_without(
    model: Qwen3Model, backend: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_fake(function: object, **_: object) -> Callable[..., object]:
        def run(*args: object, **kwargs: object) -> object:
            raise TypeError("no compiler")

        return run

    monkeypatch.setattr(torch, "compile", compile_fake)
    runner = captured(model, backend, compile=True)
    assert runner.captured[0] == len(backend.captured)
    assert len(runner.notes) == 1
    assert "torch.compile failed (TypeError)" in runner.notes[0]


def test_memory_that_runs_out_while_compiling_is_no_fault_of_the_compiler(
    model: Qwen3Model, backend: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    backend.fails = lambda number: torch.OutOfMemoryError("no")
    with pytest.raises(EngineUnavailable, match="no room"):
        captured(model, backend, compile=True)


def test_a_device_that_does_not_tell_its_memory_is_captured_on_all_the_same(
    model: Qwen3Model, backend: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "free_bytes", lambda _: None)
    assert captured(model, backend, slots=1).captured == (len(backend.captured), 0)


class GpuLanes(FakeStreams):
    """Of a device that has a GPU's name."""

    def __init__(self) -> None:
        super().__init__(FakeCuda())
        self.device = torch.device("cuda")


@pytest.fixture
def own_model(tiny: dict[str, Path]) -> Qwen3Model:
    """One that may be changed."""
    return Qwen3Model.load(tiny["custom_voice"])


def test_a_gpu_has_kernels_of_its_own(
    own_model: Qwen3Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = replace(TORCH_KERNELS)
    checked: list[object] = []

    def usable(*what: object) -> tuple[Kernels, dict[str, str]]:
        checked.append(what)
        return kernels, {"gated_linear": "OSError"}

    monkeypatch.setattr(selection, "missing", lambda: None)
    monkeypatch.setitem(sys.modules, CODEC_TRIALS, CODEC)
    monkeypatch.setitem(sys.modules, KERNELS, SimpleNamespace(usable=usable))
    runner = Runner(own_model, slots=1, positions=64, launch=LaunchMode(streams=GpuLanes()))
    assert own_model.kernels is kernels
    assert checked == [(own_model,)]
    assert runner.notes == ["The kernel gated_linear cannot be used (OSError); it is slower."]
    Runner(own_model, slots=1, positions=64, launch=LaunchMode(streams=GpuLanes()))
    assert len(checked) == 1


def test_kernels_that_cannot_be_built_are_one_note_with_the_remedy(
    own_model: Qwen3Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {"swiglu": "RuntimeError", "sampler": "RuntimeError"}
    module = SimpleNamespace(usable=lambda *_: (TORCH_KERNELS, failed))
    monkeypatch.setitem(sys.modules, CODEC_TRIALS, CODEC)
    monkeypatch.setitem(sys.modules, KERNELS, module)
    lacks = Missing("there is no C compiler", "Install gcc.")
    monkeypatch.setattr(selection, "missing", lambda: lacks)
    runner = Runner(own_model, slots=1, positions=64, launch=LaunchMode(streams=GpuLanes()))
    (note,) = runner.notes
    assert "cannot build its kernels: there is no C compiler. Install gcc." in note


def test_a_machine_without_triton_does_without(
    own_model: Qwen3Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, CODEC_TRIALS, CODEC)
    monkeypatch.setitem(sys.modules, KERNELS, None)
    runner = Runner(own_model, slots=1, positions=64, launch=LaunchMode(streams=GpuLanes()))
    assert own_model.kernels is TORCH_KERNELS
    assert "Triton cannot be used" in runner.notes[0]


# --- streams of a GPU ---


def test_a_gpu_has_streams_and_a_cpu_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.device] = []
    monkeypatch.setattr(cuda_module, "CudaStreams", made.append)
    cuda_module.streams_of(torch.device("cuda"))
    assert made == [torch.device("cuda")]
    assert isinstance(cuda_module.streams_of(CPU), cuda_module.CpuStreams)


def test_what_goes_up_or_down_is_pinned_and_what_another_stream_reads_is_kept(
    cuda: FakeCuda,
) -> None:
    used: list[str] = []

    class Pinned:
        def pin_memory(self) -> Pinned:
            return self

        def record_stream(self, stream: FakeStream) -> None:
            used.append(stream.name)

    tensor: Any = Pinned()
    streams = cuda_module.CudaStreams(CPU, cuda)
    assert streams._pinned(tensor) is tensor
    with streams.on("sound"):
        streams.record_use([tensor])
    with streams.on("frames"):
        streams.record_use([tensor])
    assert used == ["side 2", "side 1"]


def test_a_cpu_works_synchronously(model: Qwen3Model) -> None:
    works = EagerBackend().capture([lambda: None], "sound")
    assert len(works) == 1
    works[0]()
    streams = cuda_module.CpuStreams(CPU)
    with streams.on("sound"):
        streams.wait_event(streams.record_event())
        assert streams.record_event().query()
        streams.record_use([])
        streams.synchronize()


def test_sound_follows_the_codes_and_goes_beside_the_frames(
    model: Qwen3Model, cuda: FakeCuda
) -> None:
    streams = FakeStreams(cuda)
    runner = Runner(
        model,
        slots=2,
        positions=96,
        launch=LaunchMode(static=True, streams=streams, backend=Recorder()),
    )
    runner.warmup()
    embeds = prompts(model, 2)
    codes, _ = speak(Runner(model, slots=2, positions=96), embeds, 6)
    cuda.log.clear()
    got, _ = speak(runner, embeds, 6)
    assert np.array_equal(got, codes)
    # Twice a step: the codes are there; they are on the host. Then a decode.
    log = [line for line in cuda.log if "joins" not in line]
    assert log[:12] == ["record on side 1"] * 12
    assert log[12:15] == ["side 2 waits for side 1", "record on side 2", "record on side 2"]


def test_nothing_waits_before_a_ticket_is_asked(model: Qwen3Model, cuda: FakeCuda) -> None:
    runner = Runner(model, slots=2, positions=96, launch=LaunchMode(streams=FakeStreams(cuda)))
    cuda.quick = False
    (embeds,) = prompts(model, 1)
    runner.prefill([PrefillRow(0, embeds, GREEDY, 0)])
    tickets = [runner.step([StepRow(0, 0, False)]) for _ in range(3)]
    assert not any(ticket.ready for ticket in tickets)
    later = runner.step([StepRow(0, 0, False)])
    first = tickets[0].wait().copy()
    assert tickets[0].ready
    assert not later.ready
    later.wait()
    assert np.array_equal(tickets[0].wait(), first)


def test_codes_that_are_still_to_be_read_are_not_written_over(
    model: Qwen3Model, cuda: FakeCuda
) -> None:
    runner = Runner(model, slots=2, positions=128, launch=LaunchMode(streams=FakeStreams(cuda)))
    cuda.quick = False
    (embeds,) = prompts(model, 1)
    runner.prefill([PrefillRow(0, embeds, GREEDY, 0)])
    pad = StepRow(0, model.config.text_ids.tts_pad, False)
    runner.step([pad])
    done = runner.decode([DecodeRow(0, 0, 1)])
    done.wait()
    runner.step([pad])
    runner.decode([DecodeRow(0, 1, 1)])
    cuda.log.clear()
    for _ in range(63):
        runner.step([pad])
    assert not any("waits" in line for line in cuda.log)
    runner.step([pad])
    assert [line for line in cuda.log if "waits" in line] == ["side 1 waits for side 2"]


def test_a_voices_snapshot_is_held_until_it_was_read(model: Qwen3Model, cuda: FakeCuda) -> None:
    streams = FakeStreams(cuda)
    runner = Runner(model, slots=2, positions=96, launch=LaunchMode(streams=streams))
    snapshot = runner.codec.snapshot(1)
    (embeds,) = prompts(model, 1)
    runner.prefill([PrefillRow(0, embeds, GREEDY, 0, codec=snapshot)])
    assert streams.held == 3


def test_a_reset_waits_for_the_device(model: Qwen3Model, cuda: FakeCuda) -> None:
    runner = Runner(model, slots=2, positions=96, launch=LaunchMode(streams=FakeStreams(cuda)))
    cuda.log.clear()
    runner.reset()
    assert cuda.log == ["synchronize"]
