"""The wait or the first sound by engine, voice, call, … (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from qwen3tts_cli.latency.columns import Columns, Named
from qwen3tts_cli.latency.html.markup import count, number, text
from qwen3tts_cli.latency.tables import FEWEST

MOST_ROWS: Final = 15


@dataclass(frozen=True, slots=True)
class Part:
    """Utterances that have a name in common."""

    name: str
    utterances: int
    heard: int
    """Of which `Columns.lead_ms` is known."""
    p50: float
    p95: float
    """Milliseconds; NaN where none is known, or too few for it."""
    gaps: int

    @property
    def reach(self) -> float:
        """p95 where there are enough utterances for it, else p50."""
        return self.p50 if np.isnan(self.p95) else self.p95


def parts(columns: Columns, by: Named) -> list[Part]:
    """By name, slowest first, those without a sound last; as many as there are names."""
    names = len(by.names)
    utterances = np.bincount(by.codes, minlength=names)
    gaps = np.bincount(by.codes, weights=columns.starvations, minlength=names).astype(np.int64)
    first = columns.lead_ms
    heard = np.flatnonzero(np.isfinite(first))
    order = heard[np.lexsort((first[heard], by.codes[heard]))]
    values = first[order]
    known = np.bincount(by.codes[order], minlength=names)
    begin = np.concatenate([[0], np.cumsum(known)[:-1]])
    p50, p95 = (_ranked(values, begin, known, percent) for percent in (50, 95))
    p95[known < FEWEST[95]] = np.nan
    made = [
        Part(
            by.names[at],
            int(utterances[at]),
            int(known[at]),
            float(p50[at]),
            float(p95[at]),
            int(gaps[at]),
        )
        for at in range(names)
        if utterances[at]
    ]
    return sorted(made, key=lambda part: (-part.reach if part.heard else np.inf, part.name))


def _ranked(
    values: np.ndarray[tuple[int], np.dtype[np.float32]],
    begin: np.ndarray[tuple[int], np.dtype[np.int64]],
    known: np.ndarray[tuple[int], np.dtype[np.int64]],
    percent: float,
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    rank = np.maximum(np.ceil(known * percent / 100).astype(np.int64), 1) - 1
    found = np.full(len(known), np.nan)
    there = known > 0
    found[there] = values[(begin + rank)[there]]
    return found


def breakdown(columns: Columns) -> str:
    """A folder of tables, of what there is more than one of."""
    kinds = {
        "Engine": columns.engine,
        "Voice": columns.voice,
        "Line": columns.line,
        "Codec": columns.codec,
        "Call": columns.call,
        "End": columns.end_reason,
        "Log": columns.source,
    }
    made = {label: parts(columns, by) for label, by in kinds.items()}
    shown = {label: found for label, found in made.items() if len(found) > 1}
    if not shown:
        return '<p class="muted">All are of one engine, voice, line and call.</p>'
    tabs, panels = [], []
    lead = "caller's wait" if columns.has_waits else "first sound"
    for place, (label, found) in enumerate(shown.items()):
        selected = "true" if place == 0 else "false"
        tabs.append(
            f'<button type="button" role="tab" id="tab-{place}" aria-controls="part-{place}"'
            f' aria-selected="{selected}" tabindex="{0 if place == 0 else -1}">{text(label)}'
            f"<span>{count(len(found))}</span></button>"
        )
        hidden = "" if place == 0 else " hidden"
        panels.append(
            f'<div role="tabpanel" id="part-{place}" aria-labelledby="tab-{place}"{hidden}>'
            f"{_table(label, found, lead)}</div>"
        )
    return (
        f'<div class="tabs" role="tablist" aria-label="By">{"".join(tabs)}</div>{"".join(panels)}'
    )


def _table(label: str, found: list[Part], lead: str) -> str:
    scale = max((part.reach for part in found if part.heard), default=0.0) or 1.0
    lines = []
    for part in found[:MOST_ROWS]:
        p50, p95 = (
            100 * max(0.0, value) / scale if part.heard else 0.0 for value in (part.p50, part.reach)
        )
        lines.append(
            f'<tr><th scope="row">{text(part.name or "(no name)")}</th>'
            '<td class="reach-cell"><div class="reach accent">'
            f'<i style="width:{p95:.2f}%"></i><b style="width:{p50:.2f}%"></b></div></td>'
            f"<td>{number(part.p50)}</td><td>{number(part.p95)}</td>"
            f'<td class="{"warn" if part.gaps else ""}">{count(part.gaps)}</td>'
            f"<td>{count(part.utterances)}</td></tr>"
        )
    rest = len(found) - MOST_ROWS
    more = f'<p class="muted">… and {count(rest)} faster ones.</p>' if rest > 0 else ""
    return (
        f'<div class="scroll"><table class="parts"><thead><tr><th scope="col">{text(label.lower())}'
        f'</th><th scope="col" class="reach-head">{lead}, p50 and p95</th>'
        '<th scope="col">p50</th><th scope="col">p95</th><th scope="col">gaps</th>'
        f'<th scope="col">n</th></tr></thead><tbody>{"".join(lines)}</tbody></table></div>{more}'
    )
