"""Assembly and writing of the page."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.resources import files
from typing import Final

import numpy as np

from qwen3tts_cli.latency.columns import Columns, Floats
from qwen3tts_cli.latency.comparison import Comparison, compare
from qwen3tts_cli.latency.findings import Findings
from qwen3tts_cli.latency.hops import BEGINNINGS, Hops, hops_of, mean_paths, starting_mark
from qwen3tts_cli.latency.html import breakdown, figures, sections
from qwen3tts_cli.latency.html import comparison as before_after
from qwen3tts_cli.latency.html.breakdown import MOST_POINTS, Timeline, timeline
from qwen3tts_cli.latency.html.chosen import ChosenUtterances, choose
from qwen3tts_cli.latency.tables import headline_values
from qwen3tts_cli.output.markup import content_policy, count, plural, script_json, text
from qwen3tts_cli.output.writable import whole_file
from qwen3tts_speech.latency import Mark

DEFAULT_TITLE: Final = "Latency"


class PlotlyMissing(ImportError):
    remedy = "Install it: pip install 'mr_qwen3tts[plots]'"

    def __init__(self) -> None:
        super().__init__("The page needs the Python package plotly.")


def write_page(
    columns: Columns,
    path: str | os.PathLike[str],
    *,
    before: Columns | None = None,
    comparison: Comparison | None = None,
    title: str = DEFAULT_TITLE,
    with_text: bool = False,
    seed: int = 0,
) -> int:
    """Write the page, mode 0600; return its bytes. Raises PlotlyMissing, OSError."""
    made = page(
        columns,
        before=before,
        comparison=comparison,
        title=title,
        with_text=with_text,
        seed=seed,
    )
    content = made.encode("utf-8", "replace")
    # As private as the log: it has names of calls, and words where they are asked for.
    with whole_file(path) as file:
        file.write(content)
    return len(content)


def page(
    columns: Columns,
    *,
    before: Columns | None = None,
    comparison: Comparison | None = None,
    title: str = DEFAULT_TITLE,
    with_text: bool = False,
    seed: int = 0,
) -> str:
    plotly = _plotly()
    hops = hops_of(columns)
    if before is not None and comparison is None:
        comparison = compare(before, columns, seed=seed)
    chosen = choose(columns, with_text=with_text, seed=seed)
    course = timeline(columns, seed=seed)
    data = _data(columns, hops, before, comparison, chosen, course)
    script = _asset("page.js")
    body = "".join(
        (
            _header(columns, title, before, hops, comparison),
            _compared(comparison),
            _section(
                "distribution",
                "Distribution of the times",
                (
                    "Box: middle half of the utterances; whiskers: 5 and 95 %, of fewer than"
                    " 20 the extremes; diamond: 99 %, from 100 utterances on."
                ),
                '<div class="plot" id="spread"></div><div class="pick"><label for="quantity">'
                'Share of utterances within a time:</label> <select id="quantity"></select></div>'
                '<div class="plot" id="within"></div>',
            ),
            _section(
                "time", "Over time", _course_note(course), '<div class="plot" id="course"></div>'
            ),
            _section("parts", "By engine, voice and call", "", breakdown.breakdown(columns)),
            _one_by_one(chosen),
            _trust(columns, before, chosen, course),
        )
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{content_policy(plotly, script)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{text(title)}</title>\n<style>{_asset('page.css')}</style>\n</head>\n<body>\n"
        f"<main>{body}</main>\n"
        f'<script type="application/json" id="data">{script_json(data)}</script>\n'
        f"<script>{plotly}</script>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise PlotlyMissing from None
    # The parser reads line ends as \n, and a closing tag ends the script wherever it stands.
    library = str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")
    return library.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text("utf-8")


def _data(
    columns: Columns,
    hops: Hops,
    before: Columns | None,
    comparison: Comparison | None,
    chosen: ChosenUtterances,
    course: Timeline,
) -> dict[str, object]:
    quantities = _quantities(columns, hops)
    old = None if before is None else _quantities(before, hops_of(before))
    plots = {
        "course": figures.over_time(course, "caller's wait" if columns.has_waits else "first sound")
    }
    if hops:
        plots["spread"] = figures.hop_boxes(hops)
    if comparison is not None and any(row.difference.has_interval for row in comparison.rows):
        plots["forest"] = figures.forest(comparison.rows)
    return {
        "plots": plots,
        "grid": figures.GRID,
        "quantities": figures.distributions(quantities, old),
        "utterances": chosen.utterances,
    }


def _quantities(columns: Columns, hops: Hops) -> dict[str, Floats]:
    found = headline_values(columns)
    gaps = columns.longest_gap_ms[columns.starvations > 0]
    if len(gaps):
        found["longest gap of an utterance that has one"] = gaps
    for hop, (_, values) in hops.items():
        found[f"{hop.name} ({hop.marks})"] = values
    return found


def _header(
    columns: Columns,
    title: str,
    before: Columns | None,
    hops: Hops,
    comparison: Comparison | None,
) -> str:
    begin = starting_mark(columns)
    shown = ways = mean_paths(columns, hops, begin)
    if before is not None:
        old = mean_paths(before, hops_of(before), begin)
        shown = [
            replace(way, name=way.name + when)
            for pair in zip(old, ways, strict=False)
            for when, way in zip((sections.BEFORE, ", after"), pair, strict=True)
        ] or ways
    findings = sections.verdict(columns, ways, before, begin)
    changed = "" if comparison is None else before_after.finding(comparison)
    return (
        '<header><div><p class="eyebrow">mr-qwen3tts latency</p>'
        f'<h1>{text(title)}</h1><p class="muted">{sections.meta(columns)}</p></div>'
        '<button type="button" id="theme" hidden>Theme</button></header>'
        f'<section class="hero" aria-label="Findings">{findings}{changed}'
        f"{sections.cards(columns)}</section>"
        + _section(
            "hops",
            "Where the time goes",
            _ways_note(begin) if ways else "Hop by hop, as far as the utterances came.",
            sections.ways(shown) + sections.hop_table(columns, hops),
        )
    )


def _ways_note(begin: Mark) -> str:
    return (
        f"The mean of the middle fifth and of the slowest, from {BEGINNINGS[begin]} to the first"
        " sound on the wire; the hops add up."
    )


def _section(name: str, title: str, note: str, content: str) -> str:
    remarks = f'<p class="muted">{text(note)}</p>' if note else ""
    return (
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{text(title)}'
        f"</h2>{remarks}{content}</section>"
    )


def _compared(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    return _section(
        "compared",
        "Before and after",
        "",
        '<div class="plot" id="forest"></div>' + before_after.table(comparison),
    )


def _course_note(course: Timeline) -> str:
    remarks = f"Bins of {_span(course.bin_s)}."
    if not course.all_points:
        remarks += f" Points: the slowest utterances and a sample, {count(MOST_POINTS)} in all."
    if course.undated:
        remarks += f" {plural(course.undated, 'utterance')} without a time left out."
    return remarks


def _span(seconds: float) -> str:
    for size, noun in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size and seconds % size == 0:
            return plural(int(seconds // size), noun)
    return plural(int(seconds), "second")


def _one_by_one(chosen: ChosenUtterances) -> str:
    if not chosen.utterances:
        return ""
    return _section(
        "utterances",
        "One by one",
        "Choose with a click or with the arrow keys. A hatched rim is where the clocks of client"
        " and server leave a hop's end open.",
        '<div class="falls"><div id="chooser" role="listbox" tabindex="0"'
        ' aria-label="Utterances"></div><div id="fall" aria-live="polite"></div></div>',
    )


def _trust(
    columns: Columns, before: Columns | None, chosen: ChosenUtterances, course: Timeline
) -> str:
    remarks = []
    for name, each in (("", columns), ("Before: ", before)):
        if each is not None:
            remarks += [name + line for line in each.findings.sentences()]
    below = sum(
        int((values < -np.float32(0.0005)).sum()) for _, values in hops_of(columns).values()
    )
    if below:
        remarks.append(
            f"{plural(below, 'hop')} have a negative duration by the clocks: counted as such in"
            " tables, and as zero in bars."
        )
    if chosen.unreadable:
        remarks.append(
            f"{plural(chosen.unreadable, 'utterance')} could not be read again: the log changed."
        )
    damage = "".join(f"<li>{text(line)}</li>" for line in remarks)
    found = f"<ul>{damage}</ul>" if remarks else "<p>Nothing was wrong with the logs.</p>"
    return _section(
        "trust",
        "What to know about these figures",
        "",
        f"{sections.ends(columns)}{found}{_examples(columns.findings)}"
        f'<p class="muted">Percentiles count every utterance. Distributions are drawn through'
        f" {len(figures.GRID)} percentiles. A sound counts when its frame is on the wire."
        " Hops between client and server are known to the uncertainty of the clocks (±).</p>",
    )


def _examples(findings: Findings) -> str:
    if not findings.examples:
        return ""
    lines = "".join(
        f"<li>{text(each.source)}, line {each.line}: {text(each.why)}</li>"
        for each in findings.examples
    )
    return f"<details><summary>Damaged lines</summary><ul>{lines}</ul></details>"
