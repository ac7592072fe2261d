"""Memory plan of an engine on its device, computed before allocation."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.quantized import Int8Matrix
from qwen3tts_wire.errors import EngineUnavailable

if TYPE_CHECKING:
    from qwen3tts_engine.qwen3.model.model import Qwen3Model

AUTO_SLOTS = {"cuda": 192, "cpu": 16}
"""Default slots, if they fit. A call occupies its slot for the duration of its speech: 20 calls a
second of 8 s are 160."""
RESERVE = 0.03
"""Share of the free memory left over for the allocator."""
MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    slots: int
    positions: int
    device: str
    per_slot: int
    """Talker and codec state of one row."""
    state: int
    """All slots, and the one for padding."""
    weights: int
    """Already allocated."""
    workspace: int
    """Estimate for steps, decodes and graphs."""
    free: int | None
    """Free when planned; None: unknown."""
    caches: int = 0
    """Reserved bound for voices and prompts."""

    @property
    def total(self) -> int:
        return self.state + self.weights + self.workspace + self.caches

    @property
    def fits(self) -> int:
        """Slots that fit; ``slots`` if the free memory is unknown."""
        if self.free is None:
            return self.slots
        room = int(self.free * (1 - RESERVE)) - self.workspace - self.caches
        return max(0, room // self.per_slot - 1)

    def lines(self) -> list[str]:
        free = "unknown" if self.free is None else format_bytes(self.free)
        return [
            f"weights    {format_bytes(self.weights)}",
            f"a slot     {format_bytes(self.per_slot)} ({self.positions} positions)",
            f"all slots  {format_bytes(self.state)} ({self.slots} and one for padding)",
            f"workspace  about {format_bytes(self.workspace)}",
            f"caches     up to {format_bytes(self.caches)} (voices, prompts)",
            f"in all     {format_bytes(self.total)} on {self.device};"
            f" {free} free beside the weights",
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def format_bytes(size: int) -> str:
    for unit, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << unit:
            return f"{size / (1 << unit):.2f} {name}"
    return f"{size} B"


def plan_memory(
    model: Qwen3Model,
    *,
    slots: int | Literal["auto"],
    positions: int,
    workspace: int = 0,
    caches: int = 0,
    free: int | None = None,
) -> MemoryPlan:
    """Plan, and check against the free memory (``free`` None: the device's).

    Raises:
        EngineUnavailable: does not fit.
    """
    device = model.device
    per_slot = KvCache.bytes_per_slot(model.config, positions, model.dtype)
    per_slot += model.decoder.new_state(0).bytes_per_slot
    free = free_bytes(device) if free is None else free
    wanted = AUTO_SLOTS.get(device.type, 16) if slots == "auto" else slots

    def plan(count: int) -> MemoryPlan:
        return MemoryPlan(
            slots=count,
            positions=positions,
            device=str(device),
            per_slot=per_slot,
            state=(count + 1) * per_slot,
            weights=tensor_bytes([model], device),
            workspace=workspace,
            free=free,
            caches=caches,
        )

    full = plan(wanted)
    if wanted <= full.fits or wanted < 1:
        return full
    if slots == "auto" and full.fits >= 1:
        return plan(full.fits)
    besides = format_bytes(workspace + caches)
    raise EngineUnavailable(
        f"{wanted} slots of {positions} positions need {format_bytes(full.state)} and about"
        f" {besides} of workspace and caches on {device}, which has {format_bytes(free or 0)} free;"
        f" {full.fits} slots would fit.",
        remedy=(
            f"Use {full.fits} slots, fewer positions, or a lower bound for voices."
            if full.fits
            else "Use fewer positions, a smaller model, a lower bound for voices, another device."
        ),
    )


def free_bytes(device: torch.device) -> int | None:
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + held)
    return _free_ram()


def _free_ram() -> int | None:
    try:
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def tensor_bytes(roots: Iterable[object], device: torch.device) -> int:
    """Return the tensor memory reachable from ``roots``, each storage once."""
    storages: dict[int, int] = {}
    seen: set[int] = set()
    todo: list[object] = list(roots)
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, Tensor):
            if each.is_mkldnn and each.device == device:
                # oneDNN's packed weights have no storage.
                storages[-id(each)] = each.numel() * each.itemsize
            elif each.device == device:
                storage = each.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
        elif isinstance(each, Int8Matrix):
            # Nor have FBGEMM's.
            storages[-id(each)] = each.bytes
        elif isinstance(each, dict):
            todo.extend(each.values())
        elif isinstance(each, list | tuple | set):
            todo.extend(each)
        elif type(each).__module__.startswith("qwen3tts_engine"):
            todo.extend(_attributes(each))
    return sum(storages.values())


def _attributes(thing: object) -> Iterable[Any]:
    if is_dataclass(thing):
        return [getattr(thing, field.name) for field in fields(thing)]
    return vars(thing).values() if hasattr(thing, "__dict__") else ()
