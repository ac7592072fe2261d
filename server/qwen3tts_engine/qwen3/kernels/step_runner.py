"""Interface of worker and runner; cache of prompt prefixes. No torch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.qwen3.model.config import Samples

if TYPE_CHECKING:
    from torch import Tensor

    from qwen3tts_engine.qwen3.model.codec_state import CodecSnapshot
    from qwen3tts_engine.qwen3.model.kv_cache import KvSnapshot
    from qwen3tts_engine.qwen3.model.sampling import Sampling

Results = NDArray[Any]
"""Codes [B, 16] int64, or samples [B, frames * 1920] float32."""


@dataclass(frozen=True, slots=True)
class PrefillRow:
    slot: int
    embeds: Any
    """Prompt embeddings [T, hidden] behind ``prefix``."""
    sampling: Sampling
    seed: int
    """0 to 2**63 - 1."""
    codec: CodecSnapshot | None = None
    """State to continue from; None: silence."""
    prefix: KvSnapshot | None = None
    """The prompt's first positions."""
    position: tuple[int, int] | None = None
    """Text id and code 0 of the only position behind ``prefix``, in place of ``embeds``."""


@dataclass(frozen=True, slots=True)
class StepRow:
    slot: int
    text_id: int
    """Text id added behind this frame."""
    eos_allowed: bool


@dataclass(frozen=True, slots=True)
class DecodeRow:
    slot: int
    first_frame: int
    """Counted from the prefill."""
    frames: int
    """The same for all rows of one call."""


class DecodeFault(Exception):
    """A launched decode failed; ``StepRunner.replay`` makes its rows' sound again."""


class Ticket(Protocol):
    @property
    def ready(self) -> bool: ...

    def wait(self) -> Results:
        """Raises DecodeFault."""
        ...


class ReadyTicket:
    ready = True

    def __init__(self, result: Results) -> None:
        self._result = result

    def wait(self) -> Results:
        return self._result


class StepRunner(Protocol):
    @property
    def slots(self) -> int: ...

    @property
    def positions(self) -> int: ...

    @property
    def steps_prompts(self) -> bool:
        """True if ``PrefillRow.position`` is taken."""
        ...

    def running(self) -> AbstractContextManager[object]:
        """Device and stream of the calling thread's work."""
        ...

    def prefill(self, rows: Sequence[PrefillRow]) -> None: ...

    def step(self, rows: Sequence[StepRow]) -> Ticket: ...

    def decode(self, rows: Sequence[DecodeRow]) -> Ticket: ...

    def replay(self, slot: int, codec: CodecSnapshot | None, codes: NDArray[np.int64]) -> Samples:
        """Restart audio behind ``codec`` and decode ``codes`` [n, 16]: [n * 1920]."""
        ...

    def prefill_prefix(self, slot: int, embeds: Tensor) -> Snapshot:
        """Prefill first positions [T, hidden] in a free slot."""
        ...

    def snapshot_prefix(self, slot: int, length: int) -> Snapshot: ...

    def free(self, slot: int) -> None: ...

    def reset(self) -> None: ...


class Snapshot(Protocol):
    @property
    def bytes(self) -> int: ...


class PrefixStore(Protocol):
    def get(self, key: Hashable) -> Snapshot | None: ...

    def put(self, key: Hashable, snapshot: Snapshot) -> None: ...


class PrefixCache:
    def __init__(self, bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        self.bytes = 0
        self._kept: OrderedDict[Hashable, Snapshot] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> Snapshot | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Hashable, snapshot: Snapshot) -> None:
        if key in self._kept or snapshot.bytes > self.bound_bytes:
            return
        self._kept[key] = snapshot
        self.bytes += snapshot.bytes
        while self.bytes > self.bound_bytes:
            _, gone = self._kept.popitem(last=False)
            self.bytes -= gone.bytes

    def clear(self) -> None:
        self._kept.clear()
        self.bytes = 0
