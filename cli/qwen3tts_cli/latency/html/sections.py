"""Escaped sections of the page (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

import numpy as np

from qwen3tts_cli.latency.columns import Columns
from qwen3tts_cli.latency.hops import BEGINNINGS, SIDES, Hop, Hops, MeanPath
from qwen3tts_cli.latency.html.breakdown import LATEST_S, plotly_time
from qwen3tts_cli.latency.stages import FIRST_SOUND, GREETING, OF_SERVER, WAIT
from qwen3tts_cli.latency.tables import (
    MIN_VALUES,
    Row,
    RowNumbers,
    headlines,
    percentile,
    row,
    summary,
)
from qwen3tts_cli.output.markup import NOTHING, count, ms, number, plural, text
from qwen3tts_speech.latency import Mark

BEFORE: Final = ", before"
WIDE_ENOUGH: Final = 0.11
"""Share of the longest bar from which a segment is labelled."""


def meta(columns: Columns) -> str:
    facts = summary(columns)
    logs = list(columns.source.counts())
    parts = [plural(facts.utterances, "utterance"), plural(facts.calls, "call")]
    if logs:
        parts.append(PurePath(logs[0]).name if len(logs) == 1 else plural(len(logs), "log"))
    began, ended = facts.began_unix_s, facts.ended_unix_s
    if 0 < began <= ended < LATEST_S:
        first, last = plotly_time(began), plotly_time(ended)
        same_day = first[:10] == last[:10]
        parts.append(f"{first[:16]} to {last[11:16] if same_day else last[:16]} UTC")
    return " · ".join(text(part) for part in parts)


def verdict(
    columns: Columns,
    ways: Sequence[MeanPath],
    before: Columns | None,
    begin: Mark = Mark.FIRST_DELTA,
) -> str:
    first = columns.lead_ms
    first = first[np.isfinite(first)]
    if not len(first) or not ways:
        if greeting := _greeting(columns):
            return greeting
        return (
            '<p class="lead">No utterance has a first sound.</p>'
            '<p class="why">See below how they ended.</p>'
        )
    wait = columns.has_waits
    old = "" if before is None or before.has_waits != wait else _was(before)
    lead_name = "The caller waited" if wait else "First sound after"
    lead = f'<p class="lead">{lead_name} <b>{ms(percentile(first, 50))}</b>{old}</p>'
    typical = ways[0]
    said = []
    if wait:
        said.append(
            "The median from the caller's last sound to the first sound of the answer, of"
            f" {plural(len(first), 'answer')}."
        )
    if typical.hop_ms:
        hop, took = max(typical.hop_ms.items(), key=lambda item: item[1])
        part = took / typical.total_ms if typical.total_ms > 0 else math.nan
        share = f" ({part:.0%})" if 0 < part <= 1 else ""
        # The line above counts from its own beginning; where this does not, it says so.
        usual = Mark.SPEECH_END if wait else Mark.FIRST_DELTA
        since = "" if begin is usual else f" from {text(BEGINNINGS[begin])}"
        said.append(
            f"The longest hop is <b>{_hop(hop)}</b>: {number(took)} of a typical"
            f" {ms(typical.total_ms)}{since}{share}."
        )
    if len(ways) > 1 and ways[1].total_ms > typical.total_ms:
        slow = ways[1]
        more = {
            hop: slow.hop_ms.get(hop, 0.0) - typical.hop_ms.get(hop, 0.0)
            for hop in {**typical.hop_ms, **slow.hop_ms}
        }
        hop, lost = max(more.items(), key=lambda item: item[1])
        said.append(
            f"The {text(slow.name.lower())} are {ms(slow.total_ms - typical.total_ms)} slower;"
            f" {number(lost)} of that in <b>{_hop(hop)}</b>."
        )
    return lead + f'<p class="why">{" ".join(said)}</p>'


def _greeting(columns: Columns) -> str:
    rows = [each for each in headlines(columns) if each.name == GREETING]
    if not rows:
        return ""
    return (
        f'<p class="lead">Greeting after <b>{ms(rows[0].p50)}</b></p>'
        '<p class="why">The log has no answers: nothing but greetings was said.</p>'
    )


def _was(before: Columns) -> str:
    first = before.lead_ms
    first = first[np.isfinite(first)]
    return f' <span class="was">was {ms(percentile(first, 50))}</span>' if len(first) else ""


def _hop(hop: Hop) -> str:
    return f'<span class="hop-name {hop.side}">{text(hop.name)}</span>'


def cards(columns: Columns) -> str:
    facts = summary(columns)
    rows = {each.name: each for each in headlines(columns)}
    made = []
    if (wait := rows.get(WAIT)) is not None:
        made += _percentile_cards("caller's wait", wait)
    if (first := rows.get(FIRST_SOUND)) is not None:
        made += _percentile_cards("first sound", first)
    if (greeting := rows.get(GREETING)) is not None:
        made.append(
            _card("greetings, p50", ms(greeting.p50), f"of {count(greeting.count)}, from asked on")
        )
    if facts.played:
        made.append(
            _card(
                "without a gap",
                f"{_percent(facts.gapless_pct)}",
                f"{plural(facts.starvations, 'gap')} in {count(facts.played)}",
                bad=facts.gapless < facts.played,
            )
        )
        made.append(
            _card(
                "longest gap",
                ms(facts.longest_gap_ms) if facts.starvations else "none",
                "silence in mid-speech",
                bad=bool(facts.starvations),
            )
        )
    silence = row("", columns.silence_ms[np.isfinite(columns.silence_ms)])
    if silence.count:
        made.append(
            _card(
                "barge-in to silence, p95",
                ms(silence.p95),
                f"p50 {ms(silence.p50)}, of {count(silence.count)}",
            )
        )
    failed = int(columns.end_reason.where("failed").sum())
    if failed:
        share = 100 * failed / len(columns)
        made.append(_card("failed", count(failed), f"{_percent(share)} of all", bad=True))
    made.append(_clock_card(columns))
    return f'<div class="cards">{"".join(made)}</div>'


def _percentile_cards(name: str, shown: Row) -> list[str]:
    few = f" (p95 from {MIN_VALUES[95]})" if math.isnan(shown.p95) else ""
    made = [_card(f"{name}, p95", ms(shown.p95), f"of {count(shown.count)}{few}")]
    few = f" (p99 from {MIN_VALUES[99]})" if math.isnan(shown.p99) else ""
    made.append(_card(f"{name}, p99", ms(shown.p99), f"longest {ms(shown.largest)}{few}"))
    return made


def _clock_card(columns: Columns) -> str:
    across = np.zeros(len(columns), np.bool_)
    for mark in OF_SERVER:
        across |= columns.has(mark)
    errors = columns.clock_error_ms[across]
    if not len(errors):
        return ""
    return _card(
        "uncertain between clocks",
        f"±{ms(percentile(errors, 50))}",
        f"at most ±{ms(float(errors.max()))}",
    )


def _card(label: str, value: str, more: str, *, bad: bool = False) -> str:
    return (
        f'<div class="card{" bad" if bad else ""}"><div class="value">{text(value)}</div>'
        f'<div class="label">{text(label)}</div><div class="more">{text(more)}</div></div>'
    )


def _percent(value: float) -> str:
    shown = math.floor(value * 100) / 100
    return f"{shown:.2f}\u202f%" if shown < 100 else "100\u202f%"


def ways(shown: Sequence[MeanPath]) -> str:
    longest = max((way.total_ms for way in shown), default=0.0)
    if longest <= 0:
        return ""
    bars = "".join(_bar(way, longest, old=way.name.endswith(BEFORE)) for way in shown)
    sides = dict.fromkeys(hop.side for way in shown for hop in way.hop_ms)
    legend = "".join(
        f'<li><i class="dot {side}"></i>{text(SIDES[side])}</li>' for side in SIDES if side in sides
    )
    return f'<div class="ways">{bars}</div><ul class="legend">{legend}</ul>'


def _bar(way: MeanPath, longest: float, *, old: bool) -> str:
    parts = []
    labels = []
    for hop, took in way.hop_ms.items():
        labels.append(f"{hop.name} {number(took)}")
        if took <= 0:
            continue
        wide = took / longest >= WIDE_ENOUGH
        label = f"<b>{number(took)}</b><span>{text(hop.name)}</span>" if wide else ""
        parts.append(
            f'<div class="seg {hop.side}" style="flex-grow:{max(took, longest / 1000):.4f}"'
            f' title="{text(f"{hop.name}: {ms(took)} ({hop.marks})")}">{label}</div>'
        )
    rest = longest - sum(max(took, 0.0) for took in way.hop_ms.values())
    empty = f'<div class="rest" style="flex-grow:{rest:.4f}"></div>' if rest > 0 else ""
    return (
        f'<div class="way{" old" if old else ""}"><div class="way-name">{text(way.name)}'
        f'<span class="muted"> {plural(len(way.rows), "utterance")}</span>'
        f'<b class="way-total">{ms(way.total_ms)}</b></div>'
        f'<div class="bar" role="img" aria-label="{text(", ".join(labels) + " ms")}">'
        f"{''.join(parts)}{empty}</div></div>"
    )


def hop_table(columns: Columns, hops: Hops) -> str:
    made = [(hop, row(hop.name, values)) for hop, (_, values) in hops.items()]
    if not made:
        return ""
    # One hop's rare minutes must not press all the others to nothing.
    scale = max(max((_reach(each) for _, each in made), default=0.0), 1e-6)
    lines = "".join(_hop_row(columns, hop, hops[hop][0], each, scale) for hop, each in made)
    whole = "".join(_whole_row(each) for each in headlines(columns))
    return (
        '<div class="scroll"><table class="hops"><caption class="hidden">Hops, in milliseconds'
        '</caption><thead><tr><th scope="col">hop</th><th scope="col" class="reach-head">'
        'p50 and p95</th><th scope="col">p50</th><th scope="col">p95</th>'
        '<th scope="col">p99</th><th scope="col" class="wide">max</th>'
        f'<th scope="col" class="wide">n</th></tr></thead><tbody>{lines}</tbody>'
        f'<tbody class="whole">{whole}</tbody></table></div>'
    )


def _hop_row(columns: Columns, hop: Hop, rows: RowNumbers, each: Row, scale: float) -> str:
    clock = ""
    if hop.crosses_clocks:
        error = percentile(columns.clock_error_ms[rows], 50)
        clock = f' <span class="clock" title="clock uncertainty">±{number(error)}</span>'
    p50, p95 = (100 * min(1.0, max(0.0, value) / scale) for value in (each.p50, _reach(each)))
    return (
        f'<tr><th scope="row"><i class="dot {hop.side}"></i><span>{text(hop.name)}{clock}'
        f"<small>{text(hop.marks)}</small></span></th>"
        f'<td class="reach-cell"><div class="reach {hop.side}">'
        f'<i style="width:{p95:.2f}%"></i><b style="width:{p50:.2f}%"></b></div></td>'
        f"{_numbers(each)}</tr>"
    )


def _reach(each: Row) -> float:
    return each.p50 if math.isnan(each.p95) else each.p95


def _whole_row(each: Row) -> str:
    return (
        f'<tr><th scope="row">{text(each.name)}</th><td class="reach-cell"></td>'
        f"{_numbers(each)}</tr>"
    )


def _numbers(each: Row) -> str:
    times = "".join(f"<td>{number(value)}</td>" for value in (each.p50, each.p95, each.p99))
    largest, how_many = number(each.largest), count(each.count)
    return f'{times}<td class="wide">{largest}</td><td class="wide">{how_many}</td>'


def ends(columns: Columns) -> str:
    counts = columns.end_reason.counts()
    labels = ", ".join(
        f"{count(times)} {text(name or 'still open')}" for name, times in list(counts.items())[:8]
    )
    more = f", {len(counts) - 8} other reasons" if len(counts) > 8 else ""
    return f"<p>Ended by: {labels or NOTHING}{more}.</p>"
