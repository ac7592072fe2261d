"""The garbage collector of a process that sounds come from.

A full collection looks through every object that there is: with 230,000 of them, which is what an
agent host has loaded, it stops the process for some 100 ms, and a caller hears a hole. So what is
there when everything is loaded is taken out of the collector's sight (`gc.freeze`); full
collections then look through what came since, which takes some 10 ms. While no sound plays, `sweep`
looks through all of it, so that what became garbage meanwhile is freed, and what has come is out of
sight, too. The thresholds stay: rarer full collections find more garbage each time, and take longer
(`benchmarks/host_heap.py`: 180 ms with ten times the third threshold).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

DUE = 10
"""After so many full collections a sweep is due: 700,000 objects at least have come."""


class Heap:
    """The collector as its holders need it; as it was before when the last one leaves."""

    def __init__(self) -> None:
        self.holders = 0
        self._busy: list[Callable[[], bool]] = []
        self._swept = 0
        """Full collections by the last sweep."""

    @property
    def held(self) -> bool:
        """Whether somebody holds it."""
        return self.holders > 0

    @property
    def due(self) -> bool:
        """Whether enough has come to look through everything while no sound plays."""
        return self.held and _full_collections() - self._swept >= DUE

    def hold(self, *, collect: bool = True) -> None:
        """Everything is loaded: what is there now stays. `release` it as often.

        Args:
            collect: free what is garbage first, which stops the process once, for as long as a full
                collection does; without it that garbage stays until a `sweep`.
        """
        self.holders += 1
        if collect:
            gc.collect()
        gc.freeze()
        self._swept = _full_collections()

    @contextlib.contextmanager
    def held_by(self, busy: Callable[[], bool], *, collect: bool = False) -> Iterator[None]:
        """Hold it for the duration of the block.

        Args:
            busy: whether the holder plays sound now; `sweep_if_idle` then does nothing.
            collect: as for `hold`; not while another holder may play sound.
        """
        with self.heeds(busy):
            self.hold(collect=collect)
            try:
                yield
            finally:
                self.release()

    @contextlib.contextmanager
    def heeds(self, busy: Callable[[], bool]) -> Iterator[None]:
        """Have `sweep_if_idle` do nothing while ``busy``, without holding it."""
        self._busy.append(busy)
        try:
            yield
        finally:
            self._busy.remove(busy)

    def sweep_if_idle(self) -> None:
        """`sweep` where one is due and no holder is busy. Call it when a call has ended."""
        if self.due and not any(busy() for busy in self._busy):
            self.sweep()

    def sweep(self) -> None:
        """Look through everything, and take it out of sight again. Call it while no sound plays."""
        if self.held:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._swept = _full_collections()

    def release(self) -> None:
        """One holder less."""
        if self.held:
            self.holders -= 1
            if self.holders == 0:
                gc.unfreeze()


def _full_collections() -> int:
    """How many there were in this process."""
    return int(gc.get_stats()[2]["collections"])


heap = Heap()
"""There is one collector in a process."""
