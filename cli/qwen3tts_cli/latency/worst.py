"""Which utterances are looked at more closely (pure)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwen3tts_cli.latency.choices import WorstOf
from qwen3tts_cli.latency.columns import Columns, Floats
from qwen3tts_cli.latency.tables import percentile
from qwen3tts_speech.latency import Mark


def values_of(of: WorstOf, columns: Columns) -> Floats:
    """What utterances are compared by (ms), shape [n]; NaN where one has no such value."""
    match of:
        case WorstOf.FIRST_SOUND:
            return columns.first_sound_ms
        case WorstOf.WAIT:
            return columns.wait_ms
        case WorstOf.ASKED:
            return columns.between_ms(Mark.TEXT_IN, Mark.FIRST_AUDIBLE_WIRE)
        case WorstOf.GAP:
            gaps = columns.longest_gap_ms
            return np.where(columns.starvations > 0, gaps, np.float32(np.nan))
        case WorstOf.SILENCE:
            return columns.silence_ms


def worst(columns: Columns, count: int, of: WorstOf = WorstOf.FIRST_SOUND) -> NDArray[np.intp]:
    """The rows of at most ``count`` utterances that have the largest values, largest first."""
    values = values_of(of, columns)
    rows = np.flatnonzero(~np.isnan(values))
    if count < len(rows):  # sorting all of them would take longer
        rows = rows[np.argpartition(-values[rows], count)[:count]]
    return rows[np.lexsort((rows, -values[rows]))]


def typical(columns: Columns) -> int | None:
    """The row whose `Columns.lead_ms` is next to the median; None where none was heard."""
    values = columns.lead_ms
    rows = np.flatnonzero(~np.isnan(values))
    if not len(rows):
        return None
    middle = percentile(values[rows], 50)
    return int(rows[np.argmin(np.abs(values[rows] - middle))])
