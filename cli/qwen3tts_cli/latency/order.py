"""Detection of backward clocks in records (pure)."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_cli.latency.columns import Columns, Floats
from qwen3tts_cli.latency.stages import CHAIN, OF_SERVER
from qwen3tts_speech.latency import Mark, UtteranceRecord

TOLERANCE_MS: Final = 1.0
"""Rounding of marks and drift of the clock offset."""


SET_BACK_S: Final = 1.0
"""Wall clock slew below this is no step."""


def backwards_ms(columns: Columns) -> Floats:
    """Return negative stage time [n] beyond tolerance and ``clock_error_ms``; 0 = none."""
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
    """Describe swapped marks of one utterance."""
    swaps = []
    present = [mark for mark in CHAIN if mark in record.marks]
    for first, last in pairwise(present):
        early_ms = (record.marks[first] - record.marks[last]) * 1000
        crosses = (first in OF_SERVER) != (last in OF_SERVER)
        if early_ms > TOLERANCE_MS + (record.clock_error_ms if crosses else 0.0):
            swaps.append(f"{last} is {early_ms:.1f} ms before {first}")
    return swaps


def steps_back(columns: Columns) -> NDArray[np.intp]:
    """Return rows before which the wall clock stepped back, by the monotonic clock."""
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
