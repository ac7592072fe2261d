"""Utterances shown one by one: slowest, with underruns, typical, random."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from qwen3tts_cli.latency.columns import Columns
from qwen3tts_cli.latency.hops import Hop
from qwen3tts_cli.latency.html.breakdown import LATEST_S, plotly_time
from qwen3tts_cli.latency.order import disorder
from qwen3tts_cli.latency.stages import CHAIN, OF_SERVER
from qwen3tts_cli.latency.tables import RowNumbers
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_wire.errors import SpeechError

SLOWEST: Final = 8
GAPS: Final = 5
WITHOUT_SOUND: Final = 3
TYPICAL: Final = 3
BY_CHANCE: Final = 9
MAX_TEXT_CHARS: Final = 2000
"""Text shown of an utterance."""
_LATER: Final = {
    Mark.FIRST_AUDIBLE_PCM: "first samples above silence left the engine",
    Mark.INTERRUPTED: "interrupted",
    Mark.SILENT: "silent after the interruption",
    Mark.LAST_FRAME: "last frame of speech",
}
"""Marks after the first sound."""


@dataclass(frozen=True, slots=True)
class ChosenUtterances:
    utterances: list[dict[str, object]]
    unreadable: int
    """Utterances of changed logs."""


def choose(columns: Columns, *, with_text: bool, seed: int = 0) -> ChosenUtterances:
    """Reread the chosen utterances; ``seed`` is the sample's."""
    made: list[dict[str, object]] = []
    taken: set[int] = set()
    unreadable = 0
    for group, rows in _groups(columns, seed):
        for row in map(int, rows):
            if row in taken:
                continue
            taken.add(row)
            try:
                record = columns.record_at(row)
            except (OSError, ValueError, SpeechError):
                unreadable += 1
            else:
                made.append({"group": group, **_shown(record, with_text=with_text)})
    return ChosenUtterances(made, unreadable)


def _groups(columns: Columns, seed: int) -> list[tuple[str, RowNumbers]]:
    ms = columns.lead_ms
    heard = np.flatnonzero(np.isfinite(ms))
    order = heard[np.argsort(ms[heard], kind="stable")]
    middle = len(order) // 2
    gaps = np.flatnonzero(columns.starvations > 0)
    gaps = gaps[np.argsort(-columns.longest_gap_ms[gaps], kind="stable")]
    silent = np.flatnonzero(~columns.played & ~columns.end_reason.where("no_text"))
    rng = np.random.default_rng(seed)
    chance = rng.permutation(heard)[:BY_CHANCE]
    first_typical = max(0, middle - TYPICAL // 2)
    return [
        ("Slowest to sound", order[::-1][:SLOWEST]),
        ("Longest gaps", gaps[:GAPS]),
        ("Without a sound", silent[:WITHOUT_SOUND]),
        ("Typical", order[first_typical : first_typical + TYPICAL]),
        ("By chance", chance),
    ]


def _shown(record: UtteranceRecord, *, with_text: bool) -> dict[str, object]:
    marks = record.marks
    wait = record.between_ms(Mark.SPEECH_END, Mark.FIRST_AUDIBLE_WIRE)
    origin = min(marks.values(), default=0.0)
    at_ms = {Mark(name): (at - origin) * 1000 for name, at in marks.items()}
    present = [mark for mark in CHAIN if mark in at_ms]
    dated = 0 < record.started_unix_s < LATEST_S
    shown: dict[str, object] = {
        "id": f"{record.call_id}/{record.context}" if record.call_id else record.context,
        "about": [
            (name, value)
            for name, value in (
                ("engine", record.engine),
                ("voice", record.voice),
                ("line", record.line),
                ("codec", record.codec),
                ("end of turn", record.rule),
                ("began", plotly_time(record.started_unix_s)[:19] + " UTC" if dated else ""),
                ("ended by", record.end_reason or "still open"),
            )
            if value
        ],
        "total": record.first_sound_ms if wait is None else wait,
        "gaps": record.starvations,
        "longest_gap": record.longest_gap_ms,
        "clock": record.clock_error_ms if OF_SERVER.intersection(at_ms) else 0.0,
        "start": at_ms[present[0]] if present else 0.0,
        "hops": [
            {
                "name": Hop(first, last).name,
                "marks": Hop(first, last).marks,
                "side": str(Hop(first, last).side),
                "from": at_ms[first],
                "to": at_ms[last],
                "server": (first in OF_SERVER, last in OF_SERVER),
            }
            for first, last in pairwise(present)
        ],
        "later": [
            {"name": what, "mark": str(mark), "at": at_ms[mark]}
            for mark, what in sorted(
                (each for each in _LATER.items() if each[0] in at_ms),
                key=lambda each: at_ms[each[0]],
            )
        ],
        "wrong": disorder(record),
    }
    if with_text and record.text:
        shown["text"] = record.text[:MAX_TEXT_CHARS]
    return shown
