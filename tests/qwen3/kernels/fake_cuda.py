"""A fake GPU: what the streams and graphs use of torch.cuda, and a device that does things
only when somebody waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.cuda import CudaStreams, StreamName, Work


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.stream: str | None = None
        self.done = cuda.quick

    def record(self, stream: FakeStream | None = None) -> None:
        # As torch's: without a stream, the current one of the current device.
        self.stream = self._cuda.current if stream is None else stream.name
        self._cuda.log.append(f"record on {self.stream}")
        self._cuda.events.setdefault(self.stream, []).append(self)

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        before = self._cuda.events[self.stream or ""]
        for event in before[: before.index(self) + 1]:
            event.done = True


class FakeStream:
    def __init__(
        self, cuda: FakeCuda, name: str, device: torch.device | None = None, priority: int = 0
    ) -> None:
        self._cuda, self.name, self.device, self.priority = cuda, name, device, priority

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FakeStream) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def wait_stream(self, stream: FakeStream) -> None:
        self._cuda.log.append(f"{self.name} joins {stream.name}")

    def synchronize(self) -> None:
        self._cuda.log.append(f"synchronize {self.name}")

    def wait_event(self, event: FakeEvent) -> None:
        self._cuda.log.append(f"{self.name} waits for {event.stream}")


class FakeGraph:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.pool: object = None
        self.stream: str | None = None

    def replay(self) -> None:
        on = "" if self._cuda.current == "main" else f" on {self._cuda.current}"
        self._cuda.log.append(f"replay{on}")


class FakeCuda:
    """In place of torch.cuda."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.device = 0
        """Current one."""
        self.currents: dict[int, str] = {}
        """Current stream of each device."""
        self.made: list[FakeStream] = []
        self.quick = True
        """Whether launched work finishes immediately."""
        self.graphs: list[FakeGraph] = []
        self.pools = 0
        self.events: dict[str, list[FakeEvent]] = {}

    @property
    def current(self) -> str:
        return self.current_of(self.device)

    def current_of(self, device: int) -> str:
        return self.currents.get(device, f"main of {device}" if device else "main")

    def Stream(self, device: torch.device, priority: int = 0) -> FakeStream:  # noqa: N802
        stream = FakeStream(self, f"side {len(self.made) + 1}", device, priority)
        self.made.append(stream)
        return stream

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        assert stream.device is not None
        device = stream.device.index or 0
        before, self.device = self.device, device
        inner, self.currents[device] = self.current_of(device), stream.name
        try:
            yield
        finally:
            self.device, self.currents[device] = before, inner

    def current_stream(self, device: torch.device) -> FakeStream:
        return FakeStream(self, self.current_of(device.index or 0), device)

    def Event(self) -> FakeEvent:  # noqa: N802
        return FakeEvent(self)

    def synchronize(self, device: torch.device) -> None:
        self.log.append("synchronize")

    def graph_pool_handle(self) -> str:
        self.pools += 1
        return f"pool {self.pools}"

    def CUDAGraph(self) -> FakeGraph:  # noqa: N802
        self.graphs.append(FakeGraph(self))
        return self.graphs[-1]

    @contextmanager
    def graph(
        self, graph: FakeGraph, *, pool: object, stream: FakeStream, capture_error_mode: str
    ) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        graph.pool, graph.stream = pool, stream.name
        with self.stream(stream):
            yield
        self.log.append(f"captured into {pool}")


class FakeStreams(CudaStreams):
    """Those of a GPU, on a machine that pins no memory."""

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__(torch.device("cpu"), cuda)
        self.held = 0

    def _pinned(self, tensor: Tensor) -> Tensor:
        return tensor

    def record_use(self, tensors: Sequence[Tensor]) -> None:
        self.held += len(tensors)


class Recorder:
    """A backend that captures: it replays the works over their buffers, and counts."""

    captures = True

    def __init__(self) -> None:
        self.captured: list[StreamName] = []
        self.replays = 0
        self.fails: Any = None
        """Raised at a capture, by its number."""

    def capture(self, works: Sequence[Work], stream: StreamName) -> tuple[Work, ...]:
        if self.fails is not None:
            error = self.fails(len(self.captured))
            if error is not None:
                raise error
        for _ in range(2):
            for work in works:
                work()
        self.captured.append(stream)

        def replayed(work: Work) -> Work:
            def replay() -> None:
                self.replays += 1
                work()

            return replay

        return tuple(replayed(work) for work in works)
