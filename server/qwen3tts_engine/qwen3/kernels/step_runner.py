"""What the worker asks of the model's runner: rows to join, to step, to decode. No torch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from qwen3tts_engine.qwen3.model.sampling import Sampling


Samples = NDArray[np.float32]
"""Mono, SAMPLE_RATE, within -1 to 1."""


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """A row that begins."""

    slot: int
    embeds: Any
    """Embeddings of the prompt [T, hidden], without what ``prefix`` covers."""
    sampling: Sampling
    seed: int
    """Start of the row's random numbers, 0 to 2**63 - 1."""
    codec: Any | None = None
    """CodecSnapshot to begin from; None: silence."""
    prefix: Any | None = None
    """KvSnapshot of the prompt's first positions; None: ``embeds`` is all of it."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A row that makes its next frame."""

    slot: int
    text_id: int
    """Token of the text track that is added behind this frame."""
    eos_allowed: bool
    """Whether this frame may be the end."""


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """Frames of a row that become sound; they are read from the arena's ring of codes."""

    slot: int
    first_frame: int
    """Counted from the row's join."""
    frames: int
    """The same for all rows of one call."""


class Ticket(Protocol):
    """Work that was launched."""

    @property
    def ready(self) -> bool:
        """Whether ``wait`` would not wait."""
        ...

    def wait(self) -> NDArray[Any]:
        """Codes [B, 16] int64 of a step, samples [B, frames * 1920] float32 of a decode."""
        ...


class ReadyTicket:
    """A ticket whose work is done."""

    ready = True

    def __init__(self, result: NDArray[Any]) -> None:
        self._result = result

    def wait(self) -> NDArray[Any]:
        """The result."""
        return self._result


class StepRunner(Protocol):
    """The model behind its slots; runner.Runner. Used by one thread."""

    @property
    def slots(self) -> int:
        """Rows at once."""
        ...

    @property
    def positions(self) -> int:
        """Most positions of one row, prompt and frames."""
        ...

    def join(self, joins: Sequence[PrefillRow]) -> None:
        """Begin rows in free slots."""
        ...

    def step(self, rows: Sequence[StepRow]) -> Ticket:
        """Launch one frame of each row."""
        ...

    def decode(self, rows: Sequence[DecodeRow]) -> Ticket:
        """Launch the sound of some frames."""
        ...

    def replay(self, slot: int, codec: Any | None, codes: NDArray[np.int64]) -> Samples:
        """Begin the row's sound anew behind ``codec`` and make that of ``codes`` [n, 16].

        Its state is then that of a row that has decoded so many frames. Samples [n * 1920].
        """
        ...

    def prefix(self, slot: int, embeds: Any) -> Any:
        """KvSnapshot of a prompt's first positions [T, hidden], made in a free slot."""
        ...

    def free(self, slot: int) -> None:
        """The slot is free; what was launched for it does no harm."""
        ...

    def reset(self) -> None:
        """Begin anew after a fault: all slots free, nothing pending."""
        ...


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


class PrefixCache:
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
