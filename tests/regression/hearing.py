"""What the engine's runner did for each generation: codes, and the sound as it came out in pieces.

The engine gives out sound and no codes. Its runner is the one place through which both pass, so the
suite puts a listener there: what is measured is the engine's own streaming, chunked and batched by
its own scheduler, on whatever device, captured or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.qwen3.engine import loaded
from qwen3tts_engine.qwen3.kernels.runner import Runner
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, StepRow, Ticket

Samples = NDArray[np.float32]


@dataclass
class Generation:
    """One row from its join on."""

    seed: int
    cloned: bool
    """Whether its sound goes on from a reference."""
    eos: int
    steps: list[NDArray[np.int64]] = field(default_factory=list)
    """Codes [16] of each step, those behind the end too."""
    pieces: dict[int, Samples] = field(default_factory=dict)
    """By first frame: [frames * 1920]."""

    @property
    def codes(self) -> NDArray[np.int64]:
        """[n, 16]: the frames that count."""
        ends = [at for at, frame in enumerate(self.steps) if frame[0] == self.eos]
        frames = self.steps[: ends[0]] if ends else self.steps
        return np.array(frames, dtype=np.int64).reshape(-1, 16)

    @property
    def sound(self) -> Samples:
        """All pieces one after the other, up to the last frame that counts."""
        pieces = [self.pieces[first] for first in sorted(self.pieces)]
        whole = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
        return whole[: len(self.codes) * self._frame_samples]

    @property
    def joints(self) -> NDArray[np.int64]:
        """First samples of all pieces but the first, within ``sound``."""
        found = [first * self._frame_samples for first in sorted(self.pieces) if first > 0]
        return np.array([at for at in found if at < len(self.sound)], dtype=np.int64)

    @property
    def _frame_samples(self) -> int:
        return 1920


class HeardTicket:
    """A ticket whose result is shown to somebody."""

    def __init__(self, ticket: Ticket, show: Callable[[NDArray[Any]], None]) -> None:
        self._ticket = ticket
        self._show: Callable[[NDArray[Any]], None] | None = show

    @property
    def ready(self) -> bool:
        """See Ticket."""
        return self._ticket.ready

    def wait(self) -> NDArray[Any]:
        """See Ticket."""
        result = self._ticket.wait()
        if self._show is not None:
            self._show(result)
            self._show = None
        return result


class HeardRunner(Runner):
    """The engine's runner, with a record of its generations."""

    heard: list[Generation]

    def __init__(self, *args: Any, **more: Any) -> None:
        """See Runner."""
        super().__init__(*args, **more)
        self.heard = []
        self._generations: dict[int, Generation] = {}

    def prefill(self, rows: Sequence[PrefillRow]) -> None:
        """See Runner."""
        super().prefill(rows)
        eos = self.model.config.talker.ids.eos
        for each in rows:
            row = Generation(each.seed, each.codec is not None, eos)
            self._generations[each.slot] = row
            self.heard.append(row)

    def step(self, rows: Sequence[StepRow]) -> Ticket:
        """See Runner."""
        generations = [self._generations[row.slot] for row in rows]

        def show(codes: NDArray[Any]) -> None:
            for generation, frame in zip(generations, codes, strict=True):
                generation.steps.append(np.array(frame, dtype=np.int64))

        return HeardTicket(super().step(rows), show)

    def decode(self, rows: Sequence[DecodeRow]) -> Ticket:
        """See Runner."""
        wanted = [(self._generations[row.slot], row.first_frame) for row in rows]

        def show(sound: NDArray[Any]) -> None:
            for (generation, first), piece in zip(wanted, sound, strict=True):
                generation.pieces[first] = np.array(piece, dtype=np.float32)

        return HeardTicket(super().decode(rows), show)


@contextmanager
def listening() -> Iterator[list[HeardRunner]]:
    """Engines that are loaded within have a HeardRunner, which is put into the list."""
    made: list[HeardRunner] = []

    def make(*args: Any, **more: Any) -> HeardRunner:
        made.append(HeardRunner(*args, **more))
        return made[-1]

    with mock.patch.object(loaded, "Runner", make):
        yield made
