"""Computed beginnings of prompts, kept within a bound of bytes. No torch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Protocol


class Snapshot(Protocol):
    """arena.KvSnapshot."""

    @property
    def bytes(self) -> int:
        """Memory it takes."""
        ...


class PrefixStore(Protocol):
    """Something that keeps them."""

    def get(self, key: Hashable) -> Snapshot | None:
        """What is kept under ``key``."""
        ...

    def put(self, key: Hashable, snapshot: Snapshot) -> None:
        """Keep it, if there is room."""
        ...


class Prefixes:
    """The least recently used go when there is no room."""

    def __init__(self, bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        self.bytes = 0
        self._kept: OrderedDict[Hashable, Snapshot] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> Snapshot | None:
        """What is kept under ``key``."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Hashable, snapshot: Snapshot) -> None:
        """Keep it, if it fits at all."""
        if key in self._kept or snapshot.bytes > self.bound_bytes:
            return
        self._kept[key] = snapshot
        self.bytes += snapshot.bytes
        while self.bytes > self.bound_bytes:
            _, gone = self._kept.popitem(last=False)
            self.bytes -= gone.bytes

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self.bytes = 0
