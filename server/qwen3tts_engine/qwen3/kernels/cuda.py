"""CUDA streams and graphs, with synchronous CPU equivalents.

Stream ``frames`` makes codes, ``sound`` decodes them beside it and before it.
"""

from __future__ import annotations

import gc
import logging
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.cpu_streams import CpuThreadStreams
from qwen3tts_engine.qwen3.kernels.cpu_threads import ThreadPlan
from qwen3tts_engine.qwen3.kernels.requirements import LEAST_CAPABILITY
from qwen3tts_engine.qwen3.kernels.step_runner import ReadyTicket, Results, Ticket
from qwen3tts_engine.qwen3.model.sampler import SampledCodes
from qwen3tts_wire.errors import EngineUnavailable

StreamName = Literal["frames", "sound"]
Work = Callable[[], None]


class StreamEvent(Protocol):
    def query(self) -> bool: ...


class Streams(Protocol):
    device: torch.device

    def on(self, stream: StreamName) -> AbstractContextManager[object]: ...

    def run(self, work: Work) -> None: ...

    def share(self, rows: int) -> None:
        """Divide a CPU's threads for a step of so many rows."""
        ...

    def await_first(self, ticket: Ticket) -> None:
        """Wait for a first sound where the next step would delay it."""
        ...

    def record_event(self) -> StreamEvent: ...

    def wait_event(self, event: StreamEvent) -> None: ...

    def upload(self, values: Sequence[Sequence[int]], to: Tensor) -> None: ...

    def download(self, tensor: Tensor) -> Ticket: ...

    def record_use(self, tensors: Sequence[Tensor]) -> None: ...

    def synchronize(self) -> None: ...

    def close(self) -> None: ...


class _DirectStreams:
    def run(self, work: Work) -> None:
        work()

    def share(self, rows: int) -> None: ...

    def await_first(self, ticket: Ticket) -> None: ...

    def close(self) -> None: ...


class CpuStreams(_DirectStreams):
    def __init__(self, device: torch.device) -> None:
        self.device = device

    def on(self, stream: StreamName) -> AbstractContextManager[object]:
        return nullcontext()

    def record_event(self) -> StreamEvent:
        return _PASSED

    def wait_event(self, event: StreamEvent) -> None: ...

    def upload(self, values: Sequence[Sequence[int]], to: Tensor) -> None:
        to.copy_(torch.tensor(values))

    def download(self, tensor: Tensor) -> Ticket:
        return ReadyTicket(tensor.clone().numpy())

    def record_use(self, tensors: Sequence[Tensor]) -> None: ...

    def synchronize(self) -> None: ...


class _CudaEvent(StreamEvent, Protocol):
    def record(self, stream: object) -> None: ...

    def synchronize(self) -> None: ...


class _PassedEvent:
    def query(self) -> bool:
        return True


_PASSED = _PassedEvent()


PRIORITIES: dict[StreamName, int] = {"frames": -1, "sound": -2}
"""Of streams and of the kernels of their graphs: lower goes first. Sound is short, and awaited by a
listener; 0, the lowest, is left to voices and to other libraries."""


class CudaStreams(_DirectStreams):
    """Two GPU streams; within ``on`` their device is the current one."""

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self.device = device
        self._cuda = cuda
        self._streams = {
            name: cuda.Stream(device, priority=priority) for name, priority in PRIORITIES.items()
        }

    @contextmanager
    def on(self, stream: StreamName) -> Iterator[None]:
        """Launch on a stream; frames are in order with the caller's own stream."""
        caller, entered = self._cuda.current_stream(self.device), self._streams[stream]
        joins = stream == "frames" and caller != entered
        if joins:
            entered.wait_stream(caller)
        with self._cuda.stream(entered):
            yield
        if joins:
            caller.wait_stream(entered)

    def record_event(self) -> _CudaEvent:
        event: _CudaEvent = self._cuda.Event()
        # By default it is recorded on the current device, which may be another.
        event.record(self._cuda.current_stream(self.device))
        return event

    def wait_event(self, event: StreamEvent) -> None:
        self._cuda.current_stream(self.device).wait_event(event)

    def upload(self, values: Sequence[Sequence[int]], to: Tensor) -> None:
        # The allocator of pinned memory gives this out again only when the copy is done.
        to.copy_(self._pinned(torch.tensor(values)), non_blocking=True)

    def download(self, tensor: Tensor) -> Ticket:
        host = self._pinned(torch.empty(tensor.shape, dtype=tensor.dtype))
        host.copy_(tensor, non_blocking=True)
        return _PendingCopy(host, self.record_event())

    def _pinned(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory()

    def record_use(self, tensors: Sequence[Tensor]) -> None:
        stream = self._cuda.current_stream(self.device)
        for tensor in tensors:
            tensor.record_stream(stream)

    def synchronize(self) -> None:
        self._cuda.synchronize(self.device)


class BackgroundStream:
    """Stream of the lowest priority, for a voice for example."""

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self._cuda = cuda
        # One for all: each stream keeps freed memory for itself.
        self._stream = cuda.Stream(device, priority=0) if device.type == "cuda" else None

    @contextmanager
    def running(self) -> Iterator[None]:
        if self._stream is None:
            yield
            return
        with self._cuda.stream(self._stream):
            yield
            self._stream.synchronize()


class _PendingCopy:
    def __init__(self, host: Tensor, event: _CudaEvent) -> None:
        self._host, self._event = host, event

    @property
    def ready(self) -> bool:
        return self._event.query()

    def wait(self) -> Results:
        self._event.synchronize()
        # Pinned memory is scarce, and a reference to one row would keep all of it.
        result: Results = self._host.numpy().copy()
        return result


def streams_of(device: torch.device, threads: ThreadPlan | None = None) -> Streams:
    if device.type == "cuda":
        return CudaStreams(device)
    if threads is not None and threads.splits:
        return CpuThreadStreams(device, threads)
    return CpuStreams(device)


log = logging.getLogger(__name__)

BUCKETS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Rows of a graph; a batch takes the smallest that fits."""
WARM_RUNS = 2
"""Runs before a capture: libraries choose and load their kernels in the first."""
GRAPH_BYTES = 24 << 20
"""Driver memory of a graph of about a thousand kernels; for estimates."""


class GraphBackend(Protocol):
    captures: bool
    """True if ``capture`` does more than return the work."""

    def capture(self, works: Sequence[Work], stream: StreamName) -> tuple[Work, ...]:
        """Run the works in order, and return them in a faster form."""
        ...


class EagerBackend:
    captures = False

    def capture(self, works: Sequence[Work], stream: StreamName) -> tuple[Work, ...]:
        return tuple(works)


class CudaGraphBackend:
    """CUDA graphs; a stream's share a memory pool: they never overlap."""

    captures = True

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self._device = device
        self._cuda = cuda
        self._places: dict[StreamName, tuple[object, object]] = {}
        """Stream and pool, by stream name."""

    def capture(self, works: Sequence[Work], stream: StreamName) -> tuple[Work, ...]:
        cuda = self._cuda
        if stream not in self._places:
            side = cuda.Stream(self._device, priority=PRIORITIES[stream])
            self._places[stream] = side, cuda.graph_pool_handle()
        side, pool = self._places[stream]
        cuda.synchronize(self._device)
        with cuda.stream(side):
            for _ in range(WARM_RUNS):
                for work in works:
                    work()
        cuda.synchronize(self._device)
        graphs = []
        for work in works:
            graph = cuda.CUDAGraph()
            # Other threads may use the device meanwhile: a voice is being made.
            with cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                work()
            graphs.append(graph)
        # The first replay uploads a graph: not while a caller waits.
        with cuda.stream(side):
            for graph in graphs:
                graph.replay()
        cuda.synchronize(self._device)
        return tuple(graph.replay for graph in graphs)


def graph_backend(device: torch.device, graphs: bool | str) -> GraphBackend:
    if device.type == "cuda" and graphs:
        return CudaGraphBackend(device)
    return EagerBackend()


@dataclass(frozen=True, slots=True)
class StaticWork:
    integers: Tensor
    """[kinds, rows] int64 inputs."""
    output: Tensor
    """One row of results per row."""
    works: tuple[Work, ...]
    """In order of execution."""
    floats: Tensor | None = None
    """Further inputs."""
    sampled: list[SampledCodes] = field(default_factory=list)
    """What a step's first work leaves for its second; empty before its first run."""


Key = TypeVar("Key", bound=Hashable)


class GraphCache(Generic[Key]):
    """Captured sizes of one kind of work; other sizes run eagerly."""

    def __init__(self, stream: StreamName, build: Callable[[Key], StaticWork]) -> None:
        self.stream: StreamName = stream
        self._build = build
        self._captured: dict[Key, StaticWork] = {}

    def __len__(self) -> int:
        return len(self._captured)

    def __contains__(self, key: Key) -> bool:
        return key in self._captured

    def capture(self, key: Key, backend: GraphBackend) -> None:
        made = self._build(key)
        works = backend.capture(made.works, self.stream)
        self._captured[key] = replace(made, works=works)

    def get(self, key: Key) -> StaticWork:
        found = self._captured.get(key)
        return self._build(key) if found is None else found

    def clear(self) -> None:
        self._captured.clear()


def bucket_for(size: int, buckets: Sequence[int]) -> int:
    at = bisect_left(buckets, size)
    return buckets[at] if at < len(buckets) else size


def buckets_up_to(most: int, buckets: Sequence[int] = BUCKETS) -> tuple[int, ...]:
    return (*(each for each in buckets if each < most), most)


def pin_attention() -> None:
    """Keep torch from cuDNN's attention: it plans some 350 ms for a new shape."""
    torch.backends.cuda.enable_cudnn_sdp(False)


def find_device(name: str) -> torch.device:
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
        check_architecture(device)
    return device


def check_architecture(device: torch.device, cuda: Any = torch.cuda) -> None:
    """Raise EngineUnavailable where this PyTorch has no code for the GPU."""
    major, minor = cuda.get_device_capability(device)
    built = cuda.get_arch_list()
    for name in built:
        kind, _, number = name.partition("_")
        if not number.isdigit():
            # sm_90a and the like are for that architecture alone.
            if number.rstrip("af") == f"{major}{minor}":
                return
            continue
        of = divmod(int(number), 10)
        # Machine code runs on later GPUs of its major version, PTX on all later ones.
        if of <= (major, minor) and (kind == "compute" or of[0] == major):
            return
    if built:
        raise EngineUnavailable(
            f"{cuda.get_device_name(device)} (sm_{major}{minor}) has no code in PyTorch"
            f" {torch.__version__}, which is built for {', '.join(built)}.",
            remedy="Install a PyTorch built for this GPU, or use device cpu.",
        )


def device_notes(device: torch.device, dtype: torch.dtype, cuda: Any = torch.cuda) -> list[str]:
    if device.type != "cuda" or dtype != torch.bfloat16:
        return []
    capability = cuda.get_device_capability(device)
    if capability >= LEAST_CAPABILITY:
        return []
    name = cuda.get_device_name(device)
    return [f"{name} does not compute in bfloat16; it is slower. Use dtype float16."]


def free_device_memory() -> None:
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
