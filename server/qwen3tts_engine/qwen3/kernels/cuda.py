"""Two orders of work on one device: the rows' frames, and their sound beside them.

On a GPU each lane is a stream, numbers go up and come down through pinned memory, and the host
waits for nothing but a ticket. On a CPU a thing is done when it is asked for.
"""

from __future__ import annotations

import gc
import logging
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.step_runner import ReadyTicket, Ticket
from qwen3tts_wire.errors import EngineUnavailable

StreamName = Literal["frames", "sound"]
"""Which order."""


class StreamEvent(Protocol):
    """A moment in a lane."""

    def query(self) -> bool:
        """Whether it has passed."""
        ...


class Streams(Protocol):
    """See the module's text."""

    device: torch.device

    def on(self, lane: StreamName) -> AbstractContextManager[object]:
        """What is launched within goes into this lane."""
        ...

    def mark(self) -> StreamEvent:
        """The present moment of the lane that one is in."""
        ...

    def follow(self, mark: StreamEvent) -> None:
        """What comes now in this lane, comes after ``mark``, which is one of the other lane."""
        ...

    def put(self, values: Sequence[Sequence[int]], to: Tensor) -> None:
        """Write integers into a tensor of their shape on the device."""
        ...

    def fetch(self, tensor: Tensor) -> Ticket:
        """Have a copy of a tensor come to the host; the tensor may be written over after."""
        ...

    def holds(self, tensors: Sequence[Tensor]) -> None:
        """This lane reads tensors that the other one made."""
        ...

    def finish(self) -> None:
        """Wait for everything."""
        ...


class CpuStreams:
    """A CPU's."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def on(self, lane: StreamName) -> AbstractContextManager[object]:
        """There is one order only."""
        return nullcontext()

    def mark(self) -> StreamEvent:
        """What was launched is done."""
        return _PASSED

    def follow(self, mark: StreamEvent) -> None:
        """It has passed."""

    def put(self, values: Sequence[Sequence[int]], to: Tensor) -> None:
        """See Lanes."""
        to.copy_(torch.tensor(values))

    def fetch(self, tensor: Tensor) -> Ticket:
        """See Lanes."""
        return ReadyTicket(tensor.clone().numpy())

    def holds(self, tensors: Sequence[Tensor]) -> None:
        """Nothing is done later."""

    def finish(self) -> None:
        """Everything is done."""


class _PassedEvent:
    def query(self) -> bool:
        return True


_PASSED = _PassedEvent()


class CudaStreams:
    """A GPU's: the frames on the thread's own stream, the sound on one beside it."""

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        """``cuda``: the module, or what a test has in its place."""
        self.device = device
        self._cuda = cuda
        self._sound = cuda.Stream(device)

    @contextmanager
    def on(self, lane: StreamName) -> Iterator[None]:
        """See Lanes."""
        if lane == "frames":
            yield
            return
        with self._cuda.stream(self._sound):
            yield

    def mark(self) -> StreamEvent:
        """See Lanes."""
        event: StreamEvent = self._cuda.Event()
        event.record()  # type: ignore[attr-defined]
        return event

    def follow(self, mark: StreamEvent) -> None:
        """See Lanes."""
        self._cuda.current_stream(self.device).wait_event(mark)

    def put(self, values: Sequence[Sequence[int]], to: Tensor) -> None:
        """See Lanes."""
        # The allocator of pinned memory gives this out again only when the copy is done.
        to.copy_(self._pinned(torch.tensor(values)), non_blocking=True)

    def fetch(self, tensor: Tensor) -> Ticket:
        """See Lanes."""
        host = self._pinned(torch.empty(tensor.shape, dtype=tensor.dtype))
        host.copy_(tensor, non_blocking=True)
        return _PendingCopy(host, self.mark())

    def _pinned(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory()

    def holds(self, tensors: Sequence[Tensor]) -> None:
        """See Lanes."""
        stream = self._cuda.current_stream(self.device)
        for tensor in tensors:
            tensor.record_stream(stream)

    def finish(self) -> None:
        """See Lanes."""
        self._cuda.synchronize(self.device)


class _PendingCopy:
    """A copy on its way to pinned memory, which is its own: no later one writes there."""

    def __init__(self, host: Tensor, mark: Any) -> None:
        self._host, self._mark = host, mark

    @property
    def ready(self) -> bool:
        return bool(self._mark.query())

    def wait(self) -> NDArray[Any]:
        self._mark.synchronize()
        # Pinned memory is scarce, and who keeps one row of this would keep all of it.
        result: NDArray[Any] = self._host.numpy().copy()
        return result


def streams_of(device: torch.device) -> Streams:
    """The device's."""
    return CudaStreams(device) if device.type == "cuda" else CpuStreams(device)


log = logging.getLogger(__name__)

Work = Callable[[], None]
BUCKETS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Rows of a graph; a batch takes the smallest that holds it."""
WARM_RUNS = 2
"""Runs before a capture: libraries choose and load their kernels in the first."""
GRAPH_BYTES = 24 << 20
"""What a driver keeps for a graph of about a thousand kernels; for estimates only."""


class GraphBackend(Protocol):
    """How static work runs on a device."""

    captures: bool
    """Whether ``capture`` does more than to hand the work back."""

    def capture(self, works: Sequence[Work], lane: StreamName) -> tuple[Work, ...]:
        """The same works in a form that is quicker to launch; they run in this order here.

        Raises:
            Exception: whatever the device says against it.
        """
        ...


class EagerBackend:
    """Runs it as it stands."""

    captures = False

    def capture(self, works: Sequence[Work], lane: StreamName) -> tuple[Work, ...]:
        """See Backend."""
        return tuple(works)


class CudaGraphBackend:
    """CUDA graphs. Those of a lane share one pool of memory: they never run at once.

    Each lane is captured on a stream of its own, for a library's scratch memory belongs to the
    stream of the capture, and the lanes run at once.
    """

    captures = True

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        """``cuda``: the module, or what a test has in its place."""
        self._device = device
        self._cuda = cuda
        self._places: dict[StreamName, tuple[Any, Any]] = {}
        """Stream and pool of each lane."""

    def capture(self, works: Sequence[Work], lane: StreamName) -> tuple[Work, ...]:
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


def graph_backend(device: torch.device, graphs: bool | str) -> GraphBackend:
    """Graphs where there is a GPU, unless they are not wanted."""
    if device.type == "cuda" and graphs:
        return CudaGraphBackend(device)
    return EagerBackend()


@dataclass(frozen=True, slots=True)
class StaticWork:
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


class GraphCache(Generic[Key]):
    """One kind of work in all sizes that were captured; any other size runs as it stands."""

    def __init__(self, lane: StreamName, build: Callable[[Key], StaticWork]) -> None:
        """``build`` makes a size's buffers and work."""
        self.lane: StreamName = lane
        self._build = build
        self._captured: dict[Key, StaticWork] = {}

    def __len__(self) -> int:
        return len(self._captured)

    def __contains__(self, key: Key) -> bool:
        return key in self._captured

    def capture(self, key: Key, backend: GraphBackend) -> None:
        """Keep a size ready; see Backend.capture."""
        made = self._build(key)
        works = backend.capture(made.works, self.lane)
        self._captured[key] = StaticWork(made.integers, made.output, works, made.floats)

    def get(self, key: Key) -> StaticWork:
        """A size; buffers of one that was not captured are its own."""
        found = self._captured.get(key)
        return self._build(key) if found is None else found

    def clear(self) -> None:
        """Forget all."""
        self._captured.clear()


def bucket_for(size: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds ``size``; ``size`` itself where none does."""
    at = bisect_left(buckets, size)
    return buckets[at] if at < len(buckets) else size


def buckets_up_to(most: int, buckets: Sequence[int] = BUCKETS) -> tuple[int, ...]:
    """Those below ``most``, and ``most``."""
    return (*(each for each in buckets if each < most), most)


def find_device(name: str) -> torch.device:
    """The device that a setting names.

    Raises:
        EngineUnavailable: it is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise EngineUnavailable(
                f"There is no device {name}: PyTorch {torch.__version__} sees {count} GPUs.",
                remedy="Use device auto or cpu, or check the driver; `mr-qwen3tts doctor` helps.",
            )
    return device


def free_device_memory() -> None:
    """Give back to the device what nothing holds any more, for other programs."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
