"""A CUDA graph without CUDA: what a capture dispatched runs again in the same memory.

A dispatch mode records the operations of a capture once. A replay runs just these, on the tensors
of the recording; no Python of the model runs again, so a number, a shape or a tensor that the
capture read from Python stays as it was, as in a CUDA graph. All memory that the capture took is
poisoned before the first work of a replay and after its last, for a graph's memory pool belongs to
other graphs meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from qwen3tts_engine.qwen3.kernels.cuda import WARM_RUNS, StreamName, Work

EMPTY = ("empty", "new_empty", "empty_like", "empty_strided")
"""Operations that take memory and compute nothing."""
HOST = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "unique",
    "_unique2",
    "repeat_interleave",
)
"""Operations that wait for a value of the device; a capture of CUDA refuses them."""
POISON_INT = 1 << 40
"""No index and no counter of a test reaches it."""


class NotCapturable(RuntimeError):
    """What CUDA would not capture."""


@dataclass(frozen=True)
class Operation:
    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[Tensor, ...]
    """Memory of the results."""
    writes: bool
    """True if results are in arguments."""

    def run(self) -> None:
        made = self.function(*self.args, **self.kwargs)
        if self.writes:
            return
        for to, result in zip(self.outputs, _tensors(made), strict=True):
            to.copy_(result)


@dataclass
class Recording(TorchDispatchMode):
    """The operations of one work, and the memory they took."""

    operations: list[Operation] = field(default_factory=list)
    scratch: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one operation and keep it, unless it only makes a view or memory."""
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in HOST or (name == "index" and _by_truth(args)):
            raise NotCapturable(f"{name} waits for the device")
        result = func(*args, **kwargs)
        schema = func._schema
        writes = any(one.alias_info is not None and one.alias_info.is_write for one in
                     schema.arguments)  # fmt: skip
        if not writes and any(one.alias_info is not None for one in schema.returns):
            return result
        outputs = tuple(_tensors(result))
        if not writes:
            self.scratch += outputs
        if name not in EMPTY:
            self.operations.append(Operation(func, args, kwargs, outputs, writes))
        return result

    def poison(self) -> None:
        for tensor in self.scratch:
            if tensor.is_floating_point():
                tensor.fill_(torch.nan)
            else:
                tensor.fill_(True if tensor.dtype == torch.bool else POISON_INT)


class StrictReplay:
    """A graph backend; see the module."""

    captures = True

    def __init__(self) -> None:
        self.captured: list[StreamName] = []
        self.replays = 0

    def capture(self, works: Sequence[Work], stream: StreamName) -> tuple[Work, ...]:
        """See GraphBackend."""
        for _ in range(WARM_RUNS):
            for work in works:
                work()
        recordings = [Recording() for _ in works]
        for work, recording in zip(works, recordings, strict=True):
            with recording:
                work()
        self.captured.append(stream)
        return tuple(self._replay(recordings, at) for at in range(len(works)))

    def _replay(self, recordings: Sequence[Recording], at: int) -> Work:
        def poison() -> None:
            for each in recordings:
                each.poison()

        @torch.no_grad()
        def replay() -> None:
            self.replays += 1
            if at == 0:
                poison()
            for operation in recordings[at].operations:
                operation.run()
            if at == len(recordings) - 1:
                poison()

        return replay


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (each for each in pytree.tree_leaves(tree) if isinstance(each, Tensor))


def _by_truth(args: tuple[Any, ...]) -> bool:
    """True if an index is a mask, whose result has a size that only the device knows."""
    return any(each.dtype in (torch.bool, torch.uint8) for each in _tensors(args[1]))
