"""How many threads an engine on a CPU takes, and how it divides them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
from qwen3tts_engine.qwen3.kernels import cpu_threads
from qwen3tts_engine.qwen3.kernels.cpu_threads import ThreadPlan, plan_threads


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight CPUs, two of each core, of which six may be used; no control groups yet."""
    for cpu in range(8):
        topology = tmp_path / "cpus" / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    monkeypatch.setattr(cpu_threads, "TOPOLOGY", tmp_path / "cpus")
    monkeypatch.setattr(cpu_threads, "CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(cpu_threads, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 4, 5, 6}, raising=False)
    return tmp_path


def group(machine: Path, path: str, **files: str) -> None:
    folder = machine / "groups" / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_threads_of_one_core_count_once(machine: Path) -> None:
    assert cpu_threads.usable_cores() == 3


def test_each_cpu_is_a_core_where_the_machine_does_not_say(machine: Path) -> None:
    cpu_threads.TOPOLOGY.rename(machine / "elsewhere")
    assert cpu_threads.usable_cores() == 6


def test_a_system_without_affinity_counts_its_cpus(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert cpu_threads.usable_cores() == 4


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("200000 100000", 2), ("250000 100000", 2), ("50000 100000", 1), ("max 100000", 3)],
)
def test_a_quota_of_the_control_group_bounds_the_cores(
    machine: Path, quota: str, cores: int
) -> None:
    (machine / "own").write_text("0::/app/part\n")
    group(machine, "app/part", cpu__max="max 100000")
    group(machine, "app", cpu__max=quota)
    assert cpu_threads.usable_cores() == cores


def test_a_container_sees_its_quota_at_the_root(machine: Path) -> None:
    (machine / "own").write_text("0::/of/the/host\n")
    group(machine, "", cpu__max="100000 100000")
    assert cpu_threads.usable_cores() == 1


def test_the_older_control_groups_bound_as_well(machine: Path) -> None:
    (machine / "own").write_text("4:memory:/app\n2:cpu,cpuacct:/app\n0::/\n")
    group(machine, "cpu/app", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    group(machine, "memory/app", cpu__cfs_quota_us="100000", cpu__cfs_period_us="100000")
    assert cpu_threads.cgroup_quota() == 2


@pytest.mark.parametrize("text", ["", "-1 100000", "1 0", "x y", "\x00\x00", "100000"])
def test_a_quota_that_makes_no_sense_is_no_bound(machine: Path, text: str) -> None:
    (machine / "own").write_text("0::/\nnonsense\n")
    group(machine, "", cpu__max=text)
    assert cpu_threads.usable_cores() == 3


@pytest.mark.parametrize(
    ("threads", "codec", "cores", "plan"),
    [
        (None, None, 2, ThreadPlan(2, 0)),
        (None, None, 4, ThreadPlan(4, None)),
        (2, None, 16, ThreadPlan(2, 0)),
        (8, None, 2, ThreadPlan(8, None)),
        (None, 0, 16, ThreadPlan(16, 0)),
        (None, 1, 2, ThreadPlan(2, 1)),
        (None, 2, 1, ThreadPlan(3, 2)),
        (None, None, 0, ThreadPlan(1, 0)),
    ],
)
def test_a_plan_follows_settings_and_cores(
    threads: int | None, codec: int | None, cores: int, plan: ThreadPlan
) -> None:
    assert plan_threads(threads, codec, cores, quantized=False) == plan


@pytest.mark.parametrize(
    ("threads", "codec", "cores", "plan"),
    [
        (None, None, 1, ThreadPlan(1, 0)),
        (None, None, 2, ThreadPlan(2, None)),
        (None, None, 8, ThreadPlan(8, None)),
        (1, None, 8, ThreadPlan(1, 0)),
        (None, 0, 2, ThreadPlan(2, 0)),
    ],
)
def test_quantized_weights_leave_the_codec_a_core_from_two_on(
    threads: int | None, codec: int | None, cores: int, plan: ThreadPlan
) -> None:
    assert plan_threads(threads, codec, cores, quantized=True) == plan


def test_in_turn_both_have_all_threads() -> None:
    assert ThreadPlan(2, 0).shares(4) == (2, 2)
    assert str(ThreadPlan(2, 0)) == "2, language model and codec in turn"


def test_more_rows_give_the_codec_more_threads_and_both_always_have_one() -> None:
    plan = ThreadPlan(8, None)
    shares = [plan.shares(rows) for rows in (1, 4, 16, 1000)]
    assert shares == [(7, 1), (4, 4), (2, 6), (1, 7)]
    for total in range(2, 33):
        for rows in (1, 2, 5, 64):
            model, codec = ThreadPlan(total, None).shares(rows)
            assert model >= 1
            assert codec >= 1
            assert model + codec == total
    assert ThreadPlan(8, 3).shares(64) == (5, 3)
    assert str(plan) == "7 for the language model, 1 for the codec, more beside several calls"
    assert str(ThreadPlan(8, 3)) == "5 for the language model, 3 for the codec"


@pytest.mark.parametrize(
    "wrong",
    [
        {"threads": 0},
        {"threads": -1},
        {"codec_threads": -1},
        {"threads": 2.5},
        {"threads": True},
        {"codec_threads": 5000},
        {"threads": "all"},
    ],
)
def test_a_number_of_threads_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"^{name}="):
        Qwen3Settings("model", **wrong)  # type: ignore[arg-type]
