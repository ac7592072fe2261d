"""Work of static shape, captured in CUDA graphs or run as it stands.

A large GPU is bound by the number of launches: a frame of the real model is more than a thousand
of them, and a graph is one. A graph reads and writes fixed memory, so all work here is a function
without arguments over buffers that are made once; the caller fills and reads these.

Without graphs the same functions run over the same buffers. So nothing of buckets, padding rows
and buffers is left untested where there is no GPU.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.lanes import Lane

log = logging.getLogger(__name__)

Work = Callable[[], None]
BUCKETS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Rows of a graph; a batch takes the smallest that holds it."""
WARM_RUNS = 2
"""Runs before a capture: libraries choose and load their kernels in the first."""
GRAPH_BYTES = 24 << 20
"""What a driver keeps for a graph of about a thousand kernels; for estimates only."""


class Backend(Protocol):
    """How static work runs on a device."""

    captures: bool
    """Whether ``capture`` does more than to hand the work back."""

    def capture(self, works: Sequence[Work], lane: Lane) -> tuple[Work, ...]:
        """The same works in a form that is quicker to launch; they run in this order here.

        Raises:
            Exception: whatever the device says against it.
        """
        ...


class Direct:
    """Runs it as it stands."""

    captures = False

    def capture(self, works: Sequence[Work], lane: Lane) -> tuple[Work, ...]:
        """See Backend."""
        return tuple(works)


class CudaGraphs:
    """CUDA graphs. Those of a lane share one pool of memory: they never run at once.

    Each lane is captured on a stream of its own, for a library's scratch memory belongs to the
    stream of the capture, and the lanes run at once.
    """

    captures = True

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        """``cuda``: the module, or what a test has in its place."""
        self._device = device
        self._cuda = cuda
        self._places: dict[Lane, tuple[Any, Any]] = {}
        """Stream and pool of each lane."""

    def capture(self, works: Sequence[Work], lane: Lane) -> tuple[Work, ...]:
        """See Backend."""
        cuda = self._cuda
        if lane not in self._places:
            self._places[lane] = cuda.Stream(self._device), cuda.graph_pool_handle()
        stream, pool = self._places[lane]
        cuda.synchronize(self._device)
        with cuda.stream(stream):
            for _ in range(WARM_RUNS):
                for work in works:
                    work()
        cuda.synchronize(self._device)
        graphs = []
        for work in works:
            graph = cuda.CUDAGraph()
            # Other threads may use the device meanwhile: a voice is being made.
            with cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                work()
            graphs.append(graph)
        return tuple(graph.replay for graph in graphs)


def backend_of(device: torch.device, graphs: bool | str) -> Backend:
    """Graphs where there is a GPU, unless they are not wanted."""
    if device.type == "cuda" and graphs:
        return CudaGraphs(device)
    return Direct()


@dataclass(frozen=True, slots=True)
class Static:
    """Work over fixed buffers."""

    integers: Tensor
    """[kinds, rows] int64: what each row is told."""
    output: Tensor
    """What it makes, a row for each."""
    works: tuple[Work, ...]
    """In their order."""
    floats: Tensor | None = None
    """More that it reads."""


Key = TypeVar("Key", bound=Hashable)


class Stage(Generic[Key]):
    """One kind of work in all sizes that were captured; any other size runs as it stands."""

    def __init__(self, lane: Lane, build: Callable[[Key], Static]) -> None:
        """``build`` makes a size's buffers and work."""
        self.lane: Lane = lane
        self._build = build
        self._captured: dict[Key, Static] = {}

    def __len__(self) -> int:
        return len(self._captured)

    def __contains__(self, key: Key) -> bool:
        return key in self._captured

    def capture(self, key: Key, backend: Backend) -> None:
        """Keep a size ready; see Backend.capture."""
        made = self._build(key)
        works = backend.capture(made.works, self.lane)
        self._captured[key] = Static(made.integers, made.output, works, made.floats)

    def get(self, key: Key) -> Static:
        """A size; buffers of one that was not captured are its own."""
        found = self._captured.get(key)
        return self._build(key) if found is None else found

    def clear(self) -> None:
        """Forget all."""
        self._captured.clear()


def bucket(size: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds ``size``; ``size`` itself where none does."""
    at = bisect_left(buckets, size)
    return buckets[at] if at < len(buckets) else size


def buckets_up_to(most: int, buckets: Sequence[int] = BUCKETS) -> tuple[int, ...]:
    """Those below ``most``, and ``most``."""
    return (*(each for each in buckets if each < most), most)
