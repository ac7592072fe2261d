"""Selection of utterances by time, share and rank (pure)."""

from __future__ import annotations

import fnmatch
import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
from numpy.typing import NDArray

from qwen3tts_cli.latency.choices import WorstOf
from qwen3tts_cli.latency.columns import Columns, Floats
from qwen3tts_cli.latency.tables import percentile
from qwen3tts_speech.latency import Mark, UtteranceRecord

FILTERS: Final = {
    "call": "call_id",
    "engine": "engine",
    "voice": "voice",
    "ended": "end_reason",
    "line": "line",
    "codec": "codec",
}
"""Record field of each filter."""


@dataclass(frozen=True)
class Selection:
    """Filter of utterances; empty takes all.

    ``patterns``: by name of `FILTERS`, with wildcards ``*``, ``?`` and ``[abc]``, case-
    sensitive; empty matches an empty field.
    """

    patterns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    since: float = -math.inf
    """Unix seconds, inclusive."""
    until: float = math.inf
    """Unix seconds, exclusive."""
    _known: dict[tuple[str, str], bool] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in self.patterns:
            if name not in FILTERS:
                raise ValueError(f"there is no filter {name!r}")

    @property
    def all(self) -> bool:
        return not any(self.patterns.values()) and math.isinf(self.since) and math.isinf(self.until)

    def takes(self, record: UtteranceRecord) -> bool:
        if not self.since <= record.started_unix_s < self.until:
            return False
        return all(
            self._fits(name, getattr(record, FILTERS[name]))
            for name, patterns in self.patterns.items()
            if patterns
        )

    def _fits(self, name: str, value: str) -> bool:
        # A log has few different names; a damaged one may have any number.
        known = self._known.get((name, value))
        if known is None:
            known = any(fnmatch.fnmatchcase(value, each) for each in self.patterns[name])
            if len(self._known) < 4096:
                self._known[name, value] = known
        return known


def values_of(of: WorstOf, columns: Columns) -> Floats:
    """Return the ranking values (ms) [n]; NaN = none."""
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
    """Return rows of the ``count`` largest values, descending."""
    values = values_of(of, columns)
    rows = np.flatnonzero(~np.isnan(values))
    if count < len(rows):  # sorting all of them would take longer
        rows = rows[np.argpartition(-values[rows], count)[:count]]
    return rows[np.lexsort((rows, -values[rows]))]


def typical(columns: Columns) -> int | None:
    """Return the row nearest the median of `Columns.lead_ms`; None without any."""
    values = columns.lead_ms
    rows = np.flatnonzero(~np.isnan(values))
    if not len(rows):
        return None
    middle = percentile(values[rows], 50)
    return int(rows[np.argmin(np.abs(values[rows] - middle))])


_AGO: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*([smhdw])", re.ASCII)
_TODAY: Final = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?", re.ASCII)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
EXAMPLES: Final = "'2026-03-01 14:30', '2026-03-01T14:30:00Z', '14:30' (today) or '90m' (ago)"


def moment(text: str, now: datetime) -> float:
    """Parse a date, date and time, time of today, or age (s, m, h, d, w) to Unix seconds.

    ``now`` has the default zone. Raises ``ValueError`` with examples.
    """
    said = text.strip()
    try:
        if ago := _AGO.fullmatch(said):
            before = timedelta(seconds=float(ago[1]) * _UNITS[ago[2]])
            return (now - before).timestamp()
        if _TODAY.fullmatch(said):
            said = f"{now:%Y-%m-%d} {said:0>5}" if said.count(":") == 1 else f"{now:%F} {said:0>8}"
        when = datetime.fromisoformat(said)
        if when.tzinfo is None:
            # The system's zone knows on which days its clocks are changed; an offset does not.
            when = when.astimezone() if _is_local(now) else when.replace(tzinfo=now.tzinfo)
        return when.timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no moment; write {EXAMPLES}.") from None


def _is_local(now: datetime) -> bool:
    return now.utcoffset() == datetime.fromtimestamp(now.timestamp(), UTC).astimezone().utcoffset()
