"""Threads of an engine on a CPU. No torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SPLIT_CORES = 4
"""Cores from which the codec has threads of its own. With bfloat16 on two, language model and codec
in turn on both are faster than side by side on one each."""
QUANTIZED_SPLIT_CORES = 2
"""The same with quantized weights, whose products gain little from a second thread."""
STEP_TO_FRAME = 5.0
"""Work of a language model step over that of a codec frame, 0.6B in int8. More rows hardly change
the first, since it is reading weights; each has a codec frame of its own."""
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
TOPOLOGY = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    total: int
    codec: int | None
    """0: the codec runs on the language model's threads, in turn with it; None: by rows."""

    @property
    def splits(self) -> bool:
        return self.codec != 0

    def shares(self, rows: int) -> tuple[int, int]:
        """Return threads of the language model and of the codec."""
        if self.codec == 0:
            return self.total, self.total
        codec = self.codec
        if codec is None:
            codec = round(self.total * rows / (rows + STEP_TO_FRAME))
        codec = max(1, min(codec, self.total - 1))
        return max(1, self.total - codec), codec

    def __str__(self) -> str:
        if not self.splits:
            return f"{self.total}, language model and codec in turn"
        model, codec = self.shares(1)
        more = "" if self.codec is not None else ", more beside several calls"
        return f"{model} for the language model, {codec} for the codec{more}"


def plan_threads(
    threads: int | None, codec_threads: int | None, available: int, *, quantized: bool
) -> ThreadPlan:
    """Divide the threads, None: the machine's; ``available``: ``usable_cores``."""
    total = max(1, available if threads is None else threads)
    if codec_threads:
        # One that is asked for exists beside the language model's, also on a single core.
        return ThreadPlan(max(total, codec_threads + 1), codec_threads)
    least = QUANTIZED_SPLIT_CORES if quantized else SPLIT_CORES
    if codec_threads == 0 or total < least:
        return ThreadPlan(total, 0)
    return ThreadPlan(total, None)


def usable_cores() -> int:
    """Return the physical cores of the process's affinity, at most its cgroups' quota."""
    if hasattr(os, "sched_getaffinity"):
        cpus = os.sched_getaffinity(0)
    else:
        cpus = set(range(os.cpu_count() or 1))
    cores = len({_core(cpu) for cpu in cpus})
    quota = cgroup_quota()
    return max(1, cores if quota is None else min(cores, int(quota)))


def _core(cpu: int) -> str:
    # Threads of one core share this list; without it each counts as a core.
    return _read(TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list") or str(cpu)


def cgroup_quota() -> float | None:
    """Return the CPUs that the control groups, version 1 or 2, allow; None: all."""
    quotas = []
    for line in (_read(OWN_CGROUPS) or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = controllers.split(",")
        if controllers and "cpu" not in names:
            continue
        root = CGROUPS if not controllers else CGROUPS / "cpu"
        at = root / path.strip("/")
        # In a container the path may be that of the host, and the root the container's own.
        for group in {at, root, *(each for each in at.parents if each.is_relative_to(root))}:
            quota = _quota(group)
            if quota is not None:
                quotas.append(quota)
    return min(quotas, default=None)


def _quota(group: Path) -> float | None:
    both = _read(group / "cpu.max")
    if both is None:
        both = f"{_read(group / 'cpu.cfs_quota_us')} {_read(group / 'cpu.cfs_period_us')}"
    quota, _, period = both.partition(" ")
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
