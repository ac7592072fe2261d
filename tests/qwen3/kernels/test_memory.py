from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from qwen3tts_engine.qwen3.kernels import memory
from qwen3tts_engine.qwen3.kernels.memory import (
    MemoryPlan,
    format_bytes,
    free_bytes,
    plan_memory,
    tensor_bytes,
)
from qwen3tts_engine.qwen3.kernels.runner import Runner
from qwen3tts_engine.qwen3.kernels.stages import workspace_bytes
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_wire.errors import EngineUnavailable

CPU = torch.device("cpu")
MIB = 1 << 20


@pytest.fixture(scope="module")
def model(tiny: dict[str, Path]) -> Qwen3Model:
    return Qwen3Model.load(tiny["custom_voice"])


def plan(model: Qwen3Model, slots: int, free: int) -> MemoryPlan:
    return plan_memory(model, slots=slots, positions=256, workspace=MIB, free=free)


def test_the_plan_is_what_is_allocated(model: Qwen3Model) -> None:
    runner = Runner(model, slots=3, positions=256)
    allocated = sum(
        part.nbytes
        for state in (runner.kv_cache, runner.codec)
        for part in vars(state).values()
        if isinstance(part, torch.Tensor) and part.dim() > 1
    )
    assert runner.memory.state == pytest.approx(allocated, rel=0.01)
    assert runner.memory.state == runner.kv_cache.bytes + runner.codec.bytes
    assert runner.memory.per_slot * 4 == runner.memory.state
    assert runner.memory.per_slot > KvCache.bytes_per_slot(model.config, 256, torch.float32)


def test_it_is_shown_in_readable_units(model: Qwen3Model) -> None:
    found = plan(model, 3, 1 << 30)
    text = str(found)
    assert "1.00 GiB free" in text
    assert "256 positions" in text
    assert "3 and one for padding" in text
    assert format_bytes(found.total) in text
    assert found.total == found.state + found.weights + MIB
    assert [format_bytes(size) for size in (12, 2048, 3 << 20, 5 << 29)] == [
        "12 B",
        "2.00 KiB",
        "3.00 MiB",
        "2.50 GiB",
    ]


def test_slots_that_do_not_fit_are_refused_with_how_many_would(model: Qwen3Model) -> None:
    slot = plan(model, 1, 1 << 40).per_slot
    with pytest.raises(EngineUnavailable, match="5 slots would fit") as caught:
        plan(model, 9, int((MIB + 6.5 * slot) / 0.97))
    assert "Use 5 slots" in (caught.value.remedy or "")


def test_a_device_without_room_for_one_says_so(model: Qwen3Model) -> None:
    with pytest.raises(EngineUnavailable, match="0 slots would fit") as caught:
        plan(model, 2, MIB)
    assert "smaller model" in (caught.value.remedy or "")


def test_as_many_slots_as_fit_and_are_usual(model: Qwen3Model) -> None:
    slot = plan(model, 1, 1 << 40).per_slot
    usual = plan_memory(model, slots="auto", positions=256, free=1 << 40)
    few = plan_memory(model, slots="auto", positions=256, free=int(7.5 * slot / 0.97))
    assert usual.slots == 16
    assert few.slots == 6
    with pytest.raises(EngineUnavailable, match="0 slots would fit"):
        plan_memory(model, slots="auto", positions=256, free=slot)
    assert Runner(model, slots="auto", positions=64).slots == 16


def test_a_device_that_does_not_tell_is_believed(
    model: Qwen3Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: None)
    found = plan_memory(model, slots=2, positions=256)
    assert found.fits == 2
    assert "unknown free" in str(found)


def test_free_memory_of_a_gpu_counts_what_the_allocator_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (100, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 20)
    assert free_bytes(torch.device("cuda")) == 130


def test_free_memory_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "meminfo"
    told.write_text("MemTotal: 100 kB\nMemAvailable:  7 kB\n", encoding="ascii")
    monkeypatch.setattr(memory, "MEMINFO", told)
    assert free_bytes(CPU) == 7 * 1024
    told.write_text("MemTotal: 100 kB\n", encoding="ascii")
    pages = {"SC_AVPHYS_PAGES": 3, "SC_PAGE_SIZE": 10}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    assert free_bytes(CPU) == 30
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "none")

    def refuse(_: str) -> int:
        raise ValueError("unknown")

    monkeypatch.setattr(os, "sysconf", refuse)
    assert free_bytes(CPU) is None


def test_weights_are_counted_once(model: Qwen3Model) -> None:
    once = tensor_bytes([model.talker], CPU)
    assert tensor_bytes([model.talker, {"a": [model.talker.table[3:]]}], CPU) == once
    assert tensor_bytes([model.talker], torch.device("meta")) == 0
    assert once > model.talker.table.nbytes
    assert tensor_bytes([model], CPU) > once


def test_what_is_kept_of_voices_takes_room_from_slots(model: Qwen3Model) -> None:
    free = 12 * plan(model, 1, 64 * MIB).per_slot
    alone = plan_memory(model, slots="auto", positions=256, free=free)
    beside = plan_memory(model, slots="auto", positions=256, free=free, caches=free // 2)
    assert 1 <= beside.slots < alone.slots
    assert beside.total == beside.state + beside.weights + free // 2
    assert f"up to {format_bytes(free // 2)}" in str(beside)
    with pytest.raises(EngineUnavailable, match="caches") as caught:
        plan_memory(model, slots=1, positions=256, free=free, caches=free)
    assert "lower bound for voices" in caught.value.remedy


def test_graphs_count_into_the_workspace(model: Qwen3Model) -> None:
    plain = workspace_bytes(model, 4, captures=False)
    assert workspace_bytes(model, 4, captures=True) > plain
    assert workspace_bytes(model, "auto", captures=False) > plain


def test_weights_packed_by_onednn_count_their_elements() -> None:
    packed = torch.zeros(8, 16).to_mkldnn()
    assert tensor_bytes([packed], torch.device("cpu")) == 8 * 16 * 4
