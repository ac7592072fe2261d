"""HTML of the comparison: a sentence and a table of intervals (pure)."""

from __future__ import annotations

import math
from typing import Final

from qwen3tts_cli.latency.bootstrap import Verdict
from qwen3tts_cli.latency.comparison import ComparedQuantity, Comparison, RowKind, notes_of, word
from qwen3tts_cli.latency.stages import FIRST_SOUND, WAIT
from qwen3tts_cli.output.markup import NOTHING, ms, number, plural, signed, text

_CLASSES: Final = {
    Verdict.BETTER: "better",
    Verdict.WORSE: "worse",
    Verdict.SAME: "same",
    Verdict.CANNOT_TELL: "open",
}


def finding(comparison: Comparison) -> str:
    rows = [row for row in comparison.of(RowKind.HEADLINE) if row.what == "p50"]
    waits = [row for row in rows if row.name == WAIT and all(row.difference.utterances)]
    of_first = waits or [row for row in rows if row.name == FIRST_SOUND]
    if not of_first:
        return '<p class="why">No first sound to compare.</p>'
    found = of_first[0].difference
    lead = "the answer's first sound after the caller's last" if waits else "the first sound"
    lead_begins = lead[0].upper() + lead[1:]
    interval = (
        f" (median; {found.level:.0%} interval {signed(found.low)} to {signed(found.high)} ms)"
        if found.has_interval
        else ""
    )
    if found.verdict in (Verdict.BETTER, Verdict.WORSE):
        how = f'<b class="{_CLASSES[found.verdict]}">{word(of_first[0])}</b>'
        said = f"{lead_begins} comes {how} by {ms(abs(found.change))}{interval}."
    elif found.verdict is Verdict.SAME:
        said = f"{lead_begins} did <b>not change</b> by anything that matters{interval}."
    elif found.has_interval:
        said = f"Whether {lead} changed is <b>inconclusive</b>{interval}."
    else:
        said = f"Whether {lead} changed is <b>inconclusive</b>. {text(found.reason)}"
    moved = [
        row
        for row in comparison.of(RowKind.HOP)
        if row.what == "p50" and row.difference.verdict in (Verdict.BETTER, Verdict.WORSE)
    ]
    if moved:
        largest = max(moved, key=lambda row: abs(row.difference.change))
        said += (
            f" The hop that moved most is <b>{text(largest.name)}</b>:"
            f" {signed(largest.difference.change)} ms."
        )
    return f'<p class="why">{said}</p>'


def table(comparison: Comparison) -> str:
    before, after = comparison.before, comparison.after
    facts = (
        f'<p class="muted">Before: {plural(before.utterances, "utterance")} of'
        f" {plural(before.calls, 'call')}. After: {plural(after.utterances, 'utterance')} of"
        f" {plural(after.calls, 'call')}. Whole calls are drawn for the intervals, because"
        " utterances of one call resemble each other.</p>"
    )
    bodies = "".join(
        f'<tbody><tr class="part"><th colspan="6" scope="rowgroup">{title}</th></tr>'
        f"{''.join(_line(row) for row in rows)}</tbody>"
        for title, rows in (
            ("What is heard, 95 % intervals", comparison.of(RowKind.HEADLINE, RowKind.SHARE)),
            ("Hops, 99 % intervals", comparison.of(RowKind.HOP)),
        )
        if rows
    )
    notes = "".join(f"<li>{text(line)}</li>" for line in notes_of(comparison))
    return (
        f"{facts}<details><summary>All figures</summary>"
        '<div class="scroll"><table class="compared"><thead><tr><th scope="col">quantity</th>'
        '<th scope="col">before</th><th scope="col">after</th><th scope="col">change</th>'
        '<th scope="col">interval</th><th scope="col">verdict</th></tr></thead>'
        f"{bodies}</table></div></details>" + (f'<ul class="notes">{notes}</ul>' if notes else "")
    )


def _line(row: ComparedQuantity) -> str:
    found = row.difference
    unit = "\u202f%" if row.unit == "%" else ""

    def shown(value: float) -> str:
        return f"{number(row.in_unit(value))}{unit}" if math.isfinite(value) else NOTHING

    interval = (
        f"{signed(row.in_unit(found.low))} to {signed(row.in_unit(found.high))}"
        if found.has_interval
        else NOTHING
    )
    clock = f' <span class="clock">±{number(row.clock_ms)}</span>' if row.clock_ms else ""
    what = "" if row.what == "share" else f' <span class="muted">{row.what}</span>'
    change = signed(row.in_unit(found.change))
    return (
        f'<tr><th scope="row">{text(row.name)}{what}{clock}</th><td>{shown(found.before)}</td>'
        f"<td>{shown(found.after)}</td><td>{change}</td><td>{interval}</td>"
        f'<td><span class="verdict {_CLASSES[found.verdict]}">{word(row)}</span></td></tr>'
    )
