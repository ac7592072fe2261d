"""Hops to the first sound: name, side and duration of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from qwen3tts_cli.latency.columns import Columns, Floats
from qwen3tts_cli.latency.stages import CHAIN, crosses_clocks, stage_name
from qwen3tts_cli.latency.tables import RowNumbers, stage_rows
from qwen3tts_speech.latency import Mark


class Side(StrEnum):
    AGENT = "agent"
    CLIENT = "client"
    NETWORK = "network"
    SERVER = "server"
    LINE = "line"


SIDES: Final[Mapping[Side, str]] = {
    Side.AGENT: "Agent: recogniser, language model",
    Side.CLIENT: "Client: this machine's part of the voice",
    Side.NETWORK: "Network, both ways",
    Side.SERVER: "Speech server and engine",
    Side.LINE: "Telephone line: pacer, silence in the sound",
}


_MEANING: Final[Mapping[Mark, tuple[str, Side]]] = {
    Mark.TRANSCRIBED: ("caller's speech recognised", Side.AGENT),
    Mark.TURN_END: ("turn given to the agent", Side.AGENT),
    Mark.TEXT_IN: ("agent begins its answer", Side.AGENT),
    Mark.FIRST_DELTA: ("first text", Side.AGENT),
    Mark.REQUEST_SENT: ("text sent", Side.CLIENT),
    Mark.REQUEST_RECEIVED: ("network to the server", Side.NETWORK),
    Mark.SEGMENT_READY: ("text of the first clause", Side.AGENT),
    Mark.SLOT: ("waiting for the engine", Side.SERVER),
    Mark.PREFILL: ("engine: prefill of the prompt", Side.SERVER),
    Mark.FIRST_CODES: ("engine: first codes", Side.SERVER),
    Mark.FIRST_PCM: ("engine: first samples", Side.SERVER),
    Mark.RECEIVED: ("network back", Side.NETWORK),
    Mark.RESAMPLED: ("resampled", Side.CLIENT),
    Mark.QUEUED: ("encoded and queued", Side.CLIENT),
    Mark.FIRST_FRAME_WIRE: ("pacer: lead and next slot", Side.LINE),
    Mark.FIRST_AUDIBLE_WIRE: ("silence before speech", Side.LINE),
}
"""Hops by final mark.

The first is the agent's: the server waits for its text and finds its end in microseconds.
"""


BEGINNINGS: Final[Mapping[Mark, str]] = {
    Mark.SPEECH_END: "the caller's last sound",
    Mark.TRANSCRIBED: "the caller's speech being recognised",
    Mark.TURN_END: "the caller's turn being given to the agent",
    Mark.TEXT_IN: "the request for text",
    Mark.FIRST_DELTA: "the first text",
    Mark.REQUEST_SENT: "the text being sent",
    Mark.REQUEST_RECEIVED: "the text reaching the server",
    Mark.SEGMENT_READY: "the first clause being complete",
    Mark.SLOT: "the engine beginning",
    Mark.PREFILL: "the engine's prefill",
    Mark.FIRST_CODES: "the engine's first codes",
    Mark.FIRST_PCM: "the engine's first samples",
    Mark.RECEIVED: "the first samples coming back",
    Mark.RESAMPLED: "the first samples being resampled",
    Mark.QUEUED: "the first frame being queued",
    Mark.FIRST_FRAME_WIRE: "the first frame on the wire",
    Mark.FIRST_AUDIBLE_WIRE: "the first sound on the wire",
}
"""Names of the starting mark."""


@dataclass(frozen=True, slots=True)
class Hop:
    first: Mark
    last: Mark

    @property
    def name(self) -> str:
        return _MEANING[self.last][0]

    @property
    def side(self) -> Side:
        return _MEANING[self.last][1]

    @property
    def marks(self) -> str:
        return stage_name(self.first, self.last)

    @property
    def crosses_clocks(self) -> bool:
        return crosses_clocks(self.first, self.last)


def names_of(hops: Iterable[Hop]) -> dict[Hop, str]:
    """Return distinct names; hops with equal ends get their beginning too."""
    each = list(hops)
    times = Counter(hop.name for hop in each)
    return {
        hop: hop.name if times[hop.name] == 1 else f"{hop.name} (after {hop.first})" for hop in each
    }


Hops = Mapping[Hop, tuple[RowNumbers, Floats]]
"""For each hop: its utterances and milliseconds."""


def hops_of(columns: Columns) -> Hops:
    """Return hop durations; missing marks are skipped, so hops always add up."""
    return {Hop(*stage): found for stage, found in stage_rows(columns).items()}


@dataclass(frozen=True, slots=True)
class MeanPath:
    name: str
    rows: RowNumbers
    total_ms: float
    hop_ms: dict[Hop, float]


def starting_mark(columns: Columns) -> Mark:
    """Return the starting mark: caller's last sound if known, else the first common one."""
    if columns.has_waits:
        return Mark.SPEECH_END
    heard = columns.has(Mark.FIRST_AUDIBLE_WIRE) & columns.answers
    for mark in CHAIN:
        if int((columns.has(mark) & heard).sum()) * 2 > int(heard.sum()):
            return mark
    return Mark.FIRST_DELTA


def mean_paths(columns: Columns, hops: Hops, begin: Mark | None = None) -> list[MeanPath]:
    """Return typical (middle fifth) and slowest (5 %) answers."""
    begin = begin or starting_mark(columns)
    total = columns.between_ms(begin, Mark.FIRST_AUDIBLE_WIRE)
    rows = np.flatnonzero(np.isfinite(total) & columns.answers)
    if not len(rows):
        return []
    rows = rows[np.argsort(total[rows], kind="stable")]
    count = len(rows)
    middle = rows[int(count * 0.4) : max(int(count * 0.6), int(count * 0.4) + 1)]
    ways = [_way("Typical", middle, total, hops, begin)]
    if count > 1:
        slow = rows[-max(1, round(count * 0.05)) :]
        ways.append(
            _way("Slowest 5\u202f%" if count >= 20 else "Slowest", slow, total, hops, begin)
        )
    return ways


def _way(name: str, rows: RowNumbers, total: Floats, hops: Hops, begin: Mark) -> MeanPath:
    chosen = np.zeros(len(total), np.bool_)
    chosen[rows] = True
    took = {
        hop: float(values[chosen[where]].sum(dtype=np.float64)) / len(rows)
        for hop, (where, values) in hops.items()
        if CHAIN.index(hop.first) >= CHAIN.index(begin)
    }
    whole = float(total[rows].mean(dtype=np.float64))
    return MeanPath(name, rows, whole, {hop: ms for hop, ms in took.items() if ms})
