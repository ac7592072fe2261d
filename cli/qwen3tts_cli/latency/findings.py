"""Findings about the logs that were read: damaged lines, clocks that ran backwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_cli.latency.columns import Columns, Floats
from qwen3tts_cli.latency.stages import CHAIN, OF_SERVER
from qwen3tts_speech.latency import Mark, UtteranceRecord

MAX_EXAMPLES: Final = 20
"""So many damaged lines are named; all of them are counted."""


@dataclass(frozen=True, slots=True)
class DamagedLine:
    """One line that is no utterance."""

    source: str
    line: int
    """Counted from 1."""
    why: str


@dataclass(slots=True)
class Findings:
    """Counts over all sources, and the first examples."""

    lines: int = 0
    """Lines read."""
    damaged: int = 0
    """Lines of these that are no utterances; they were left out."""
    examples: list[DamagedLine] = field(default_factory=list)
    """The first of them, at most `MAX_EXAMPLES`."""
    newer: int = 0
    """Utterances of a newer version of the format; read as far as it is known here."""
    repeated: int = 0
    """Lines that stand in another of the logs as well; counted once."""
    out_of_order: int = 0
    """Utterances with a stage that took less than no time, beyond the clocks' uncertainty."""
    clock_steps: int = 0
    """Times that the wall clock was set back in the middle of a call."""
    remarks: list[str] = field(default_factory=list)
    """About whole sources: given twice, cut short, without an utterance, …; whole sentences."""

    def sentences(self) -> list[str]:
        """All of it, in plain words; empty where nothing is wrong."""
        told = list(self.remarks)
        if self.damaged:
            told.append(f"{self.damaged} of {self.lines} lines are no utterances; left out.")
        if self.newer:
            told.append(
                f"{self.newer} utterances were written by a newer version;"
                " read as far as this version knows them."
            )
        if self.repeated:
            told.append(f"{self.repeated} lines stand in more than one log; counted once.")
        if self.out_of_order:
            told.append(
                f"{self.out_of_order} utterances have marks out of order by more than the clocks'"
                " uncertainty."
            )
        if self.clock_steps:
            told.append(
                f"The wall clock was set back {self.clock_steps} times in the middle of a call:"
                " times of day are not to be trusted around it."
            )
        return told


TOLERANCE_MS: Final = 1.0
"""Marks are taken one after the other and rounded; the offset of the clocks drifts a little."""
SET_BACK_S: Final = 1.0
"""The wall clock is slewed by less than this between two utterances; a step is more."""


def backwards_ms(columns: Columns) -> Floats:
    """By how much a stage took less than no time, beyond what the clocks allow; 0 = none did.

    Shape [n]. Between a mark of the server and one of ours ``clock_error_ms`` is allowed.
    """
    worst = np.zeros(len(columns), np.float32)
    latest = np.full(len(columns), np.nan, np.float32)
    by_server = np.zeros(len(columns), bool)
    errors = columns.clock_error_ms
    for mark in CHAIN:
        at, present = columns.mark_ms[mark], columns.has(mark)
        crosses = by_server != (mark in OF_SERVER)
        _keep_larger(worst, latest - at - np.float32(TOLERANCE_MS) - crosses * errors)
        latest = np.where(present, at, latest)
        by_server = np.where(present, mark in OF_SERVER, by_server)
    spoken = columns.between_ms(Mark.FIRST_FRAME_WIRE, Mark.LAST_FRAME)
    _keep_larger(worst, -spoken - np.float32(TOLERANCE_MS))
    return worst


def _keep_larger(worst: Floats, values: Floats) -> None:
    np.fmax(worst, values, out=worst)  # fmax passes over NaN


def disorder(record: UtteranceRecord) -> list[str]:
    """The same of one utterance, in words: which mark came before which."""
    told = []
    present = [mark for mark in CHAIN if mark in record.marks]
    for first, last in pairwise(present):
        early_ms = (record.marks[first] - record.marks[last]) * 1000
        crosses = (first in OF_SERVER) != (last in OF_SERVER)
        if early_ms > TOLERANCE_MS + (record.clock_error_ms if crosses else 0.0):
            told.append(f"{last} is {early_ms:.1f} ms before {first}")
    return told


def steps_back(columns: Columns) -> NDArray[np.intp]:
    """Utterances at which the wall clock had been set back since the same call's one before.

    By their row numbers; seen by the monotonic clock, which ran on meanwhile.
    """
    if len(columns) < 2:
        return np.empty(0, np.intp)
    # A call that two programs have logged has two monotonic clocks, and two files.
    order = np.lexsort((columns.origin_s, columns.source.codes, columns.call.codes))
    one_call = np.diff(columns.call.codes[order]) == 0
    one_file = np.diff(columns.source.codes[order]) == 0
    named = np.array([bool(name) for name in columns.call.names])[columns.call.codes[order][1:]]
    back = np.diff(columns.started_unix_s[order]) < -SET_BACK_S
    known = columns.origin_s[order][:-1] > 0
    return np.sort(order[1:][one_call & one_file & named & back & known])
