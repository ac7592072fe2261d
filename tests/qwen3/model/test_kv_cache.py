"""One allocation, its size known beforehand; slots that begin clean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from qwen3tts_engine.qwen3.model.kv_cache import (
    KEY_HIGH,
    KEY_LOW,
    TOP_K,
    KvCache,
    KvSnapshot,
    lazy_zeros,
    out_of_memory,
    to_device,
)
from qwen3tts_engine.qwen3.model.sampling import ALL, NO_TOP_P, Sampling, seed_key
from qwen3tts_wire.errors import EngineUnavailable
from tests.qwen3.model.small import small_config
from tests.tiny_models.published import PUBLISHED

CONFIG = small_config(projection=False)
STATM = Path("/proc/self/statm")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_its_bytes_are_what_it_allocates(dtype: torch.dtype) -> None:
    kv_cache = KvCache(CONFIG, slots=3, positions=20, dtype=dtype)
    parts = (
        *(kv_cache.kv, kv_cache.hidden, kv_cache.logits, kv_cache.seen),
        *(kv_cache.counters, kv_cache.knobs, kv_cache.codes),
    )
    assert kv_cache.bytes == sum(part.nbytes for part in parts)
    assert kv_cache.bytes == 4 * KvCache.bytes_per_slot(CONFIG, 20, dtype)


def test_a_slot_of_the_published_models_is_as_large_as_the_counts_say() -> None:
    """114,688 bytes a position in half precision, at either size."""
    for name in ("0.6b-base", "1.7b-base"):
        size = KvCache.bytes_per_slot(PUBLISHED[name], 1024, torch.bfloat16)
        assert 0 < size - 1024 * 114_688 < 40_000


def test_reset_clears_a_slot_and_no_other() -> None:
    kv_cache = KvCache(CONFIG, slots=2, positions=6)
    parts = (kv_cache.kv.transpose(0, 1), kv_cache.hidden, kv_cache.logits, kv_cache.codes)
    for part in parts:
        part.fill_(3)
    kv_cache.seen.fill_(True)
    kv_cache.counters.fill_(9)
    kv_cache.kv[:, 1] = torch.nan
    sampling = Sampling(0.5, 0, 0.75, 1.25, 0.0, 7, 1.0)
    kv_cache.reset(1, sampling, -5)
    assert not any(part[1].any() for part in parts)
    assert all((part[0] == 3).all() and (part[2] == 3).all() for part in parts)
    assert kv_cache.seen.all(dim=1).tolist() == [True, False, True]
    assert kv_cache.pos.tolist() == [9, 0, 9]
    assert kv_cache.frame.tolist() == [9, 0, 9]
    assert kv_cache.counters[1, [KEY_LOW, KEY_HIGH]].tolist() == [*seed_key(-5)]
    assert kv_cache.counters[1, TOP_K:].tolist() == [ALL] + [7] * 15
    assert kv_cache.knobs[1].tolist() == [2.0] + [0.0] * 15 + [0.75] + [NO_TOP_P] * 15 + [1.25]


def test_reset_clears_as_far_as_a_row_went_and_leaves_other_memory_untouched() -> None:
    kv_cache = KvCache(CONFIG, slots=2, positions=6)
    kv_cache.kv.fill_(3)
    kv_cache.pos[1] = 2
    kv_cache.reset(1, Sampling(), 0)
    assert not kv_cache.kv[:, 1, :3].any()
    assert (kv_cache.kv[:, 1, 3:] == 3).all()
    kv_cache.restore(1, kv_cache.snapshot(0, 4))
    kv_cache.reset(1, Sampling(), 0)
    assert not kv_cache.kv[:, 1, :4].any()


@pytest.mark.skipif(not STATM.exists(), reason="needs /proc")
def test_slots_that_no_row_was_in_take_no_memory() -> None:
    def resident() -> int:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    kv_cache = KvCache(CONFIG, slots=1100, positions=128)
    assert kv_cache.kv.nbytes > 64 << 20
    kv_cache.reset(7, Sampling(), 0)
    assert resident() - before < kv_cache.kv.nbytes / 2
    assert not kv_cache.kv[:, 900, :4].any()


@pytest.mark.skipif(not STATM.exists(), reason="needs /proc")
def test_untouched_memory_is_taken_by_the_page_however_scattered_the_rows() -> None:
    """Numpy asks for huge pages, so that each scattered row took 2 MiB and its clearing."""
    table = lazy_zeros((64, 2 << 20), torch.uint8, torch.device("cpu"))
    before = int(STATM.read_text().split()[1])
    table[:, 7] = 1
    taken = (int(STATM.read_text().split()[1]) - before) * os.sysconf("SC_PAGE_SIZE")
    assert taken < table.nbytes / 4
    assert table.sum(dtype=torch.int64) == 64


@pytest.mark.parametrize("size", [1 << 50, 1 << 70])
def test_memory_that_the_machine_does_not_have_is_refused(size: int) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        lazy_zeros((size,), torch.uint8, torch.device("cpu"))


def test_a_snapshot_is_a_copy() -> None:
    kv_cache = KvCache(CONFIG, slots=2, positions=6)
    kv_cache.kv.normal_()
    snapshot = kv_cache.snapshot(0, 4)
    kept = snapshot.kv.clone()
    kv_cache.kv[:, 0] = 0
    kv_cache.restore(1, snapshot)
    assert torch.equal(kv_cache.kv[:, 1, :4], kept)
    assert isinstance(snapshot, KvSnapshot)
    assert (snapshot.length, snapshot.bytes) == (4, kept.nbytes)


@pytest.mark.parametrize(("slots", "positions"), [(0, 8), (1, 0), (1, 129)])
def test_senseless_sizes_are_refused(slots: int, positions: int) -> None:
    with pytest.raises(
        EngineUnavailable, match=f"{slots} slots of {positions} positions"
    ) as caught:
        KvCache(CONFIG, slots=slots, positions=positions)
    assert "1 to 128 positions" in caught.value.remedy


class TestOutOfMemory:
    def test_an_arena_without_room_says_how_much_it_needs(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object, **__: object) -> None:
            raise torch.OutOfMemoryError

        monkeypatch.setattr(torch, "zeros", full)
        with pytest.raises(
            EngineUnavailable, match=r"2 slots of 6 positions need 0\.00 GiB on cpu"
        ):
            KvCache(CONFIG, slots=2, positions=6)

    def test_on_a_gpu_it_says_what_is_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1 << 30, 3 << 30))
        error = out_of_memory("64 slots", 5 << 30, torch.device("cuda"))
        assert error.message == "64 slots need 5.00 GiB on cuda, which has 1.00 of 3.00 GiB free."
        assert "fewer slots" in error.remedy


def test_numbers_go_to_a_gpu_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """From pinned memory, which is not reused before the copy is done."""
    pinned, moved = [], []

    def pin(numbers: torch.Tensor) -> torch.Tensor:
        pinned.append(numbers.tolist())
        return numbers

    def move(_: torch.Tensor, device: torch.device, *, non_blocking: bool) -> str:
        moved.append((device.type, non_blocking))
        return "there"

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", move)
    for kind in ("cuda", "cpu"):
        there: object = to_device([1, 2], torch.int64, torch.device(kind))
        assert there == "there"
    assert pinned == [[1, 2]]
    assert moved == [("cuda", True), ("cpu", True)]
