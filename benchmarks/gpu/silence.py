"""Silence at the start of each row, as published CustomVoice weights make it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.qwen3.kernels.runner import Runner
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, Ticket
from qwen3tts_engine.qwen3.model.config import FRAME_SAMPLES

LOUD = 0.1


class SilentStart:
    """A runner whose rows begin with silent frames; random weights' sound is loud behind them."""

    def __init__(self, runner: Runner, frames: int = 1) -> None:
        self._runner, self._frames = runner, frames

    def __getattr__(self, name: str) -> Any:
        """All else is the runner's."""
        return getattr(self._runner, name)

    def decode(self, rows: Sequence[DecodeRow]) -> Ticket:
        """See StepRunner."""
        silent = [max(0, self._frames - row.first_frame) * FRAME_SAMPLES for row in rows]
        return _Muted(self._runner.decode(rows), silent)


class _Muted:
    def __init__(self, ticket: Ticket, silent: Sequence[int]) -> None:
        self._ticket, self._silent = ticket, silent

    @property
    def ready(self) -> bool:
        return self._ticket.ready

    def wait(self) -> NDArray[Any]:
        sound = np.array(self._ticket.wait())
        for row, silent in zip(sound, self._silent, strict=True):
            row[:silent] = 0.0
            # Random weights may begin softly; a voice does not.
            if silent < len(row):
                row[silent] = LOUD
        return sound
