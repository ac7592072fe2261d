"""What a process has open and holds: tasks, file handles, memory; its own and its children's."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Held:
    """A count of what is held at one moment."""

    tasks: int
    handles: int
    """Files and sockets of this process."""
    child_handles: int
    """Those of the media process."""
    objects: int
    """Python objects that the garbage collector knows."""
    memory_kb: int
    """Resident memory of this process."""
    child_memory_kb: int
    """That of the media process."""

    def beyond(self, earlier: Held) -> dict[str, int]:
        """What is held more than before, by name."""
        return {
            each.name: getattr(self, each.name) - getattr(earlier, each.name)
            for each in fields(self)
        }


def now_held(children: tuple[int, ...]) -> Held:
    """Count, after the garbage is collected and given back."""
    for _ in range(3):
        gc.collect()
    _give_back()
    return Held(
        tasks=len(asyncio.all_tasks()),
        handles=_handles(os.getpid()),
        child_handles=sum(map(_handles, children)),
        objects=len(gc.get_objects()),
        memory_kb=_memory_kb(os.getpid()),
        child_memory_kb=sum(map(_memory_kb, children)),
    )


def kinds() -> Counter[str]:
    """Python objects by their type, to see what is left over."""
    return Counter(
        f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects()
    )


def children_of(parent: int) -> frozenset[int]:
    """Processes that were started by one and still run."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat[1]) == parent and stat[0] != "Z":
            found.add(int(folder.name))
    return frozenset(found)


def _handles(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _memory_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


def _give_back() -> None:
    """Free memory that is kept for later would hide what is held (glibc)."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return
