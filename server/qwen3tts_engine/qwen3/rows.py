"""What the worker asks of the model's runner: rows to join, to step, to decode. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from qwen3tts_engine.qwen3.arena import Sampling

Samples = NDArray[np.float32]
"""Mono, SAMPLE_RATE, within -1 to 1."""


@dataclass(frozen=True, slots=True)
class Join:
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


class Ready:
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

    def join(self, joins: Sequence[Join]) -> None:
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
