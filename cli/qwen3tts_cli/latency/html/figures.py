"""Plotly figures as plain data; ``@name`` is a theme colour.

Figures contain no name from a log: plotly interprets tags in labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from qwen3tts_cli.latency.bootstrap import Verdict
from qwen3tts_cli.latency.columns import Floats
from qwen3tts_cli.latency.comparison import ComparedQuantity, RowKind
from qwen3tts_cli.latency.hops import Hops, names_of
from qwen3tts_cli.latency.html.breakdown import Timeline
from qwen3tts_cli.latency.stages import FIRST_SOUND, WAIT
from qwen3tts_cli.latency.tables import stated

Figure = dict[str, Any]
GRID: Final = np.concatenate(
    [np.arange(0, 90, 1.0), np.arange(90, 99, 0.25), np.arange(99, 100.01, 0.05)]
)
"""Percents of the distribution plot, denser in the slow tail."""
_COLOURS: Final = {
    Verdict.BETTER: "@better",
    Verdict.WORSE: "@worse",
    Verdict.SAME: "@faint",
    Verdict.CANNOT_TELL: "@faint",
}


def quantiles(values: Floats) -> list[float]:
    """Return the values at `GRID`; empty without values."""
    if not len(values):
        return []
    found: list[float] = np.percentile(values, GRID, method="inverted_cdf").tolist()
    return found


def hop_boxes(hops: Hops) -> Figure:
    """Return box plots of hops: 5, 25, 50, 75, 95 %, and a point at 99 %."""
    boxes: dict[str, list[tuple[str, Floats]]] = {}
    called = names_of(hops)
    for hop, (_, values) in hops.items():
        boxes.setdefault(hop.side, []).append((called[hop], np.maximum(values, 0)))
    order = list(called.values())
    data: list[Figure] = []
    for side, members in boxes.items():
        marks = np.array(
            [np.percentile(ms, (5, 25, 50, 75, 95), method="inverted_cdf") for _, ms in members]
        )
        names = [name for name, _ in members]
        stated_ms = np.array(
            [[stated(ms, percent) for percent in (50, 95, 99)] for _, ms in members]
        )
        data.append(
            {
                "type": "box",
                "orientation": "h",
                "y": names,
                "lowerfence": marks[:, 0].tolist(),
                "q1": marks[:, 1].tolist(),
                "median": marks[:, 2].tolist(),
                "q3": marks[:, 3].tolist(),
                "upperfence": marks[:, 4].tolist(),
                "line": {"color": f"@{side}", "width": 1.5},
                "fillcolor": f"@{side}-soft",
                "width": 0.55,
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": stated_ms[:, 2].tolist(),
                "y": names,
                "marker": {"color": f"@{side}", "size": 6, "symbol": "diamond"},
                "customdata": stated_ms[:, :2].tolist(),
                "hovertemplate": "p50 %{customdata[0]:.3~g}, p95 %{customdata[1]:.3~g},"
                " p99 %{x:.3~g} ms<extra></extra>",
                "showlegend": False,
            }
        )
    layout: Figure = {
        "height": 70 + 34 * max(1, len(order)),
        "xaxis": {"title": {"text": "ms"}, "rangemode": "tozero", "gridcolor": "@grid"},
        "yaxis": {
            "categoryorder": "array",
            "categoryarray": order[::-1],
            "automargin": True,
            "gridcolor": "@none",
        },
        "hovermode": "closest",
        "margin": {"l": 10, "r": 16, "t": 8, "b": 44},
    }
    return {"data": data, "layout": layout}


def distributions(
    after: Mapping[str, Floats], before: Mapping[str, Floats] | None
) -> dict[str, list[list[float]]]:
    shown = {}
    for name, values in after.items():
        lines = [quantiles(values)]
        if before is not None:
            lines.append(quantiles(before.get(name, np.empty(0, np.float32))))
        shown[name] = lines
    return shown


def over_time(timeline: Timeline, lead: str = "first sound") -> Figure:
    times = timeline.bin_times
    band: Figure = {"type": "scatter", "mode": "lines", "x": times, "connectgaps": False}
    data: list[Figure] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "utterance" if timeline.all_points else "utterance (sample)",
            "x": timeline.point_times,
            "y": timeline.point_ms,
            "marker": {"color": "@line", "size": 4, "opacity": 0.35},
            "hovertemplate": "%{y:.4~g} ms<extra></extra>",
        },
        {
            **band,
            "name": "p95",
            "y": timeline.p95,
            "line": {"color": "@server", "width": 1.5, "shape": "hvh"},
            "hovertemplate": "p95 %{y:.4~g} ms<extra></extra>",
        },
        {
            **band,
            "name": "p50",
            "y": timeline.p50,
            "line": {"color": "@accent", "width": 2.5, "shape": "hvh"},
            "hovertemplate": "p50 %{y:.4~g} ms<extra></extra>",
        },
        {
            "type": "bar",
            "name": "longest gap",
            "x": times,
            "y": timeline.longest_gap_ms,
            "width": [timeline.bin_s * 900] * len(times),
            "yaxis": "y2",
            "marker": {"color": "@worse", "line": {"width": 0}},
            "customdata": timeline.gaps,
            "hovertemplate": "%{customdata} gaps, longest %{y:.4~g} ms<extra></extra>",
        },
    ]
    quiet = not any(timeline.gaps)
    layout: Figure = {
        "height": 420,
        "xaxis": {"type": "date", "anchor": "y2", "gridcolor": "@grid", "title": {"text": "UTC"}},
        "yaxis": {
            "domain": [0.36, 1],
            "rangemode": "tozero",
            "gridcolor": "@grid",
            "title": {"text": f"{lead}, ms"},
        },
        "yaxis2": {
            "domain": [0, 0.26],
            "rangemode": "tozero",
            "gridcolor": "@grid",
            "title": {"text": "gap, ms"},
            **({"range": [0, 1], "showticklabels": False} if quiet else {}),
        },
        "legend": {"orientation": "h", "y": 1.1, "x": 0},
        "hovermode": "closest",
        "bargap": 0,
        "margin": {"l": 62, "r": 16, "t": 30, "b": 48},
    }
    if quiet:
        layout["annotations"] = [
            {
                "text": "no gap",
                "xref": "paper",
                "yref": "y2 domain",
                "x": 0.5,
                "y": 0.5,
                "showarrow": False,
                "font": {"color": "@muted"},
            }
        ]
    return {"data": data, "layout": layout}


def forest(rows: Sequence[ComparedQuantity]) -> Figure:
    """Return the forest plot of changes with intervals, without unchanged quantities."""
    shown = [
        row
        for row in rows
        if row.difference.has_interval
        and row.unit == "ms"
        and (row.name in (WAIT, FIRST_SOUND) or row.difference.verdict is not Verdict.SAME)
    ]
    names = [f"{row.name}, {row.what}" for row in shown]
    of_whole = sum(row.kind is RowKind.HEADLINE for row in shown)
    groups = {
        "faster": (Verdict.BETTER,),
        "slower": (Verdict.WORSE,),
        "no difference, or cannot tell": (Verdict.SAME, Verdict.CANNOT_TELL),
    }
    data = [
        _points(label, [row for row in shown if row.difference.verdict in verdicts])
        for label, verdicts in groups.items()
    ]
    layout: Figure = {
        "height": 96 + 30 * max(1, len(shown)),
        "xaxis": {
            "title": {"text": "change, ms: left is faster"},
            "gridcolor": "@grid",
            "zeroline": True,
            "zerolinecolor": "@ink",
            "zerolinewidth": 1,
        },
        "yaxis": {
            "categoryorder": "array",
            "categoryarray": names[::-1],
            "automargin": True,
            "gridcolor": "@none",
            "range": [-0.6, len(names) - 0.4],
        },
        "shapes": [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": len(names) - of_whole - 0.5,
                "y1": len(names) - of_whole - 0.5,
                "line": {"color": "@grid", "width": 1, "dash": "dot"},
            }
        ],
        "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0},
        "hovermode": "closest",
        "margin": {"l": 10, "r": 16, "t": 34, "b": 48},
    }
    return {"data": [each for each in data if each["y"]], "layout": layout}


def _points(label: str, rows: Iterable[ComparedQuantity]) -> Figure:
    rows = list(rows)
    found = [row.difference for row in rows]
    colour = _COLOURS[found[0].verdict] if found else "@faint"
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label,
        "x": [each.change for each in found],
        "y": [f"{row.name}, {row.what}" for row in rows],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [each.high - each.change for each in found],
            "arrayminus": [each.change - each.low for each in found],
            "thickness": 3,
            "width": 0,
            "color": colour,
        },
        "marker": {"size": 10, "color": colour, "line": {"color": "@surface", "width": 2}},
        "customdata": [[each.low, each.high] for each in found],
        "hovertemplate": "%{x:+.3~g} ms, from %{customdata[0]:+.3~g}"
        " to %{customdata[1]:+.3~g}<extra></extra>",
    }
