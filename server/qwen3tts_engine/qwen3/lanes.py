"""Two orders of work on one device: the rows' frames, and their sound beside them.

On a GPU each lane is a stream, numbers go up and come down through pinned memory, and the host
waits for nothing but a ticket. On a CPU a thing is done when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from qwen3tts_engine.qwen3.rows import Ready, Ticket

Lane = Literal["frames", "sound"]
"""Which order."""


class Mark(Protocol):
    """A moment in a lane."""

    def query(self) -> bool:
        """Whether it has passed."""
        ...


class Lanes(Protocol):
    """See the module's text."""

    device: torch.device

    def on(self, lane: Lane) -> AbstractContextManager[object]:
        """What is launched within goes into this lane."""
        ...

    def mark(self) -> Mark:
        """The present moment of the lane that one is in."""
        ...

    def follow(self, mark: Mark) -> None:
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


class HostLanes:
    """A CPU's."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def on(self, lane: Lane) -> AbstractContextManager[object]:
        """There is one order only."""
        return nullcontext()

    def mark(self) -> Mark:
        """What was launched is done."""
        return _PASSED

    def follow(self, mark: Mark) -> None:
        """It has passed."""

    def put(self, values: Sequence[Sequence[int]], to: Tensor) -> None:
        """See Lanes."""
        to.copy_(torch.tensor(values))

    def fetch(self, tensor: Tensor) -> Ticket:
        """See Lanes."""
        return Ready(tensor.clone().numpy())

    def holds(self, tensors: Sequence[Tensor]) -> None:
        """Nothing is done later."""

    def finish(self) -> None:
        """Everything is done."""


class _Passed:
    def query(self) -> bool:
        return True


_PASSED = _Passed()


class CudaLanes:
    """A GPU's: the frames on the thread's own stream, the sound on one beside it."""

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        """``cuda``: the module, or what a test has in its place."""
        self.device = device
        self._cuda = cuda
        self._sound = cuda.Stream(device)

    @contextmanager
    def on(self, lane: Lane) -> Iterator[None]:
        """See Lanes."""
        if lane == "frames":
            yield
            return
        with self._cuda.stream(self._sound):
            yield

    def mark(self) -> Mark:
        """See Lanes."""
        event: Mark = self._cuda.Event()
        event.record()  # type: ignore[attr-defined]
        return event

    def follow(self, mark: Mark) -> None:
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
        return _Coming(host, self.mark())

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


class _Coming:
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


def lanes_of(device: torch.device) -> Lanes:
    """The device's."""
    return CudaLanes(device) if device.type == "cuda" else HostLanes(device)
