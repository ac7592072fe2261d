"""Sound in a thread of its own on a CPU: order, events, faults, the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from qwen3tts_engine.qwen3.kernels.cpu_streams import CpuThreadStreams
from qwen3tts_engine.qwen3.kernels.cpu_threads import ThreadPlan
from qwen3tts_engine.qwen3.kernels.cuda import CpuStreams, streams_of
from qwen3tts_engine.qwen3.kernels.runner import LaunchMode, Runner
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeFault, DecodeRow, PrefillRow, StepRow
from qwen3tts_engine.qwen3.model.kv_cache import CODE_RING
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampling import Sampling

CPU = torch.device("cpu")
GREEDY = Sampling(temperature=0.0, predictor_temperature=0.0)
WAIT_S = 20.0
"""Bound of a wait in a test that fails."""


@pytest.fixture(scope="module")
def model(tiny: dict[str, Path]) -> Qwen3Model:
    return Qwen3Model.load(tiny["custom_voice"])


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def streams() -> Iterator[CpuThreadStreams]:
    made = CpuThreadStreams(CPU, ThreadPlan(2, 1))
    yield made
    made.close()


class Gate:
    """Holds the sound thread until it is opened."""

    def __init__(self, streams: CpuThreadStreams) -> None:
        self._event = threading.Event()
        with streams.on("sound"):
            streams.run(partial(self._wait))

    def _wait(self) -> None:
        assert self._event.wait(WAIT_S)

    def open(self) -> None:
        self._event.set()


def runner_of(model: Qwen3Model, streams: CpuThreadStreams | CpuStreams) -> Runner:
    return Runner(model, slots=2, positions=128, launch=LaunchMode(streams=streams))


def prefilled(runner: Runner, slot: int = 0, seed: int = 1) -> None:
    hidden = runner.model.config.talker.layers.hidden
    embeds = torch.linspace(-1, 1, 3 * hidden).view(3, hidden)
    runner.prefill([PrefillRow(slot, embeds, GREEDY, seed)])


def step(runner: Runner, *slots: int) -> NDArray[np.int64]:
    pad = runner.model.config.text_ids.tts_pad
    codes: NDArray[np.int64] = runner.step([StepRow(slot, pad, False) for slot in slots]).wait()
    return codes


def test_a_plan_that_splits_has_a_thread_and_one_that_does_not_has_none() -> None:
    assert isinstance(streams_of(CPU, ThreadPlan(2, 0)), CpuStreams)
    streams = streams_of(CPU, ThreadPlan(2, 1))
    assert isinstance(streams, CpuThreadStreams)
    streams.close()


def test_sound_of_the_thread_is_bit_for_bit_that_of_one_thread(
    model: Qwen3Model, streams: CpuThreadStreams
) -> None:
    made = []
    for each in (CpuStreams(CPU), streams):
        torch.set_num_threads(1)
        runner, sounds = runner_of(model, each), []
        prefilled(runner, 0)
        prefilled(runner, 1, seed=2)
        for first in range(0, 24, 4):
            for _ in range(4):
                step(runner, 0, 1)
            sounds.append(runner.decode([DecodeRow(slot, first, 4) for slot in (0, 1)]))
        made.append(np.concatenate([ticket.wait() for ticket in sounds], axis=1))
    assert np.array_equal(made[0], made[1])
    assert np.abs(made[0]).max() > 0.01


def test_a_step_does_not_wait_for_sound_and_a_first_sound_is_waited_for(
    model: Qwen3Model, streams: CpuThreadStreams
) -> None:
    runner = runner_of(model, streams)
    prefilled(runner)
    step(runner, 0)
    assert runner.decode([DecodeRow(0, 0, 1)]).ready
    gate = Gate(streams)
    step(runner, 0)
    later = runner.decode([DecodeRow(0, 1, 1)])
    step(runner, 0)
    assert not later.ready
    # A first sound behind others' is not waited for.
    prefilled(runner, 1)
    step(runner, 1)
    first = runner.decode([DecodeRow(1, 0, 1)])
    assert not first.ready
    gate.open()
    assert later.wait().shape == first.wait().shape == (1, 1920)
    assert later.ready


def test_codes_that_are_still_to_be_decoded_are_not_written_over(
    model: Qwen3Model, streams: CpuThreadStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runner_of(model, streams)
    prefilled(runner)
    step(runner, 0)
    runner.decode([DecodeRow(0, 0, 1)])
    gate = Gate(streams)
    step(runner, 0)
    late = runner.decode([DecodeRow(0, 1, 1)])
    waited: list[bool] = []
    wait = streams.wait_event

    def wait_event(event: Any) -> None:
        waited.append(event.query())
        gate.open()
        wait(event)

    monkeypatch.setattr(streams, "wait_event", wait_event)
    for _ in range(CODE_RING - 1):
        step(runner, 0)
    assert not waited
    # The next frame takes the place of frame 1.
    step(runner, 0)
    assert waited == [False]
    assert late.wait().shape == (1, 1920)


def test_a_slots_next_row_begins_behind_the_sound_of_its_last(
    model: Qwen3Model, streams: CpuThreadStreams
) -> None:
    runner = runner_of(model, streams)
    prefilled(runner)
    for _ in range(3):
        step(runner, 0)
    alone = runner.decode([DecodeRow(0, 0, 3)]).wait()
    gate = Gate(streams)
    step(runner, 0)
    cancelled = runner.decode([DecodeRow(0, 3, 1)])
    runner.free(0)
    prefilled(runner)
    for _ in range(3):
        step(runner, 0)
    assert not cancelled.ready
    gate.open()
    assert np.array_equal(runner.decode([DecodeRow(0, 0, 3)]).wait(), alone)


def test_a_fault_ends_its_block_alone_and_the_row_can_be_replayed(
    model: Qwen3Model, streams: CpuThreadStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runner_of(model, streams)
    prefilled(runner)
    codes = np.concatenate([step(runner, 0) for _ in range(4)])
    whole = model.decoder.decode(torch.from_numpy(codes)).numpy()
    runner.decode([DecodeRow(0, 0, 1)]).wait()

    def broken(*_: object) -> torch.Tensor:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(model.decoder, "run", broken)
        lost = runner.decode([DecodeRow(0, 1, 1)])
        with pytest.raises(DecodeFault, match="MemoryError"):
            lost.wait()
    assert lost.ready
    again = runner.replay(0, None, codes[:2])
    assert np.abs(again - whole[: 2 * 1920]).max() < 1e-4
    rest = runner.decode([DecodeRow(0, 2, 2)]).wait()[0]
    assert np.abs(rest - whole[2 * 1920 :]).max() < 1e-4


def test_what_follows_a_fault_in_its_block_is_left_out(streams: CpuThreadStreams) -> None:
    ran: list[str] = []

    def fail() -> None:
        raise ValueError

    with streams.on("sound"):
        streams.run(fail)
        streams.run(partial(ran.append, "same block"))
        ticket = streams.download(torch.zeros(1))
        event = streams.record_event()
    with streams.on("sound"):
        streams.run(partial(ran.append, "next block"))
    streams.wait_event(event)
    streams.synchronize()
    assert event.query()
    assert ran == ["next block"]
    with pytest.raises(DecodeFault, match="ValueError"):
        ticket.wait()


def test_each_side_has_its_threads_and_they_follow_the_rows() -> None:
    streams = CpuThreadStreams(CPU, ThreadPlan(4, None))
    counts: list[int] = []

    def counted() -> list[int]:
        counts.clear()
        with streams.on("sound"):
            streams.run(lambda: counts.append(torch.get_num_threads()))
        streams.synchronize()
        return [torch.get_num_threads(), *counts]

    assert counted() == [3, 1]
    streams.share(16)
    assert counted() == [1, 3]
    streams.share(1)
    assert counted() == [3, 1]
    streams.close()


def test_at_the_end_the_work_under_way_is_finished_and_the_rest_left_out() -> None:
    streams = CpuThreadStreams(CPU, ThreadPlan(2, 1))
    started, ran = threading.Event(), []
    gate = threading.Event()

    def hold() -> None:
        started.set()
        assert gate.wait(WAIT_S)
        ran.append("held")

    with streams.on("sound"):
        streams.run(hold)
        streams.run(partial(ran.append, "left out"))
    assert started.wait(WAIT_S)
    closing = threading.Thread(target=streams.close)
    closing.start()
    gate.set()
    closing.join(WAIT_S)
    assert ran[0] == "held"
    assert not any(each.name.startswith("qwen3 codec") for each in threading.enumerate())
    streams.synchronize()
    streams.close()
