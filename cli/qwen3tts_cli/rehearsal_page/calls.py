"""Content of the page: scenarios by verdict, and calls with their turns and waits (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from qwen3tts_rehearsal.junit import shown
from qwen3tts_rehearsal.results import CallResult, RehearsalResult, TurnSpan, Verdict

MAX_TEXT_CHARS: Final = 1000
"""Of one text in the page; what is longer is cut off."""
MAX_SPANS: Final = 400
"""Turns of one call that are drawn."""
WAIT_VERDICTS: Final = ("response_s", "first_response_s")


@dataclass(frozen=True, slots=True)
class Cell:
    """All verdicts of one name in one scenario."""

    passed: int
    total: int
    measured: str
    """Least and largest figure; empty where texts are judged."""
    limit: str

    @property
    def ok(self) -> bool:
        return self.passed == self.total


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    name: str
    calls: int
    passed: int
    errors: int
    cells: Sequence[Cell | None]
    """One for each of `verdict_names`; None where it is not judged."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Silence between the end of a caller's turn and the agent's answer, seconds."""

    start_s: float
    end_s: float
    bad: bool
    """True if it is above the limit."""


def verdict_names(result: RehearsalResult) -> list[str]:
    return list(dict.fromkeys(each.name for call in result.calls for each in call.verdicts))


def scenario_rows(result: RehearsalResult) -> list[ScenarioRow]:
    names = verdict_names(result)
    calls: dict[str, list[CallResult]] = defaultdict(list)
    for call in result.calls:
        calls[call.scenario].append(call)
    rows = []
    for scenario, found in calls.items():
        verdicts: dict[str, list[Verdict]] = defaultdict(list)
        for call in found:
            for verdict in call.verdicts:
                verdicts[verdict.name].append(verdict)
        rows.append(
            ScenarioRow(
                scenario,
                len(found),
                sum(each.passed for each in found),
                sum(bool(each.error) for each in found),
                [_cell(verdicts[name]) if name in verdicts else None for name in names],
            )
        )
    return rows


def _cell(verdicts: Sequence[Verdict]) -> Cell:
    figures = [each.measured for each in verdicts if isinstance(each.measured, int | float)]
    measured = ""
    if figures:
        least, most = shown(min(figures)), shown(max(figures))
        measured = least if least == most else f"{least}\N{EN DASH}{most}"
    limits = {shown(each.limit) for each in verdicts if each.limit is not None}
    return Cell(
        sum(each.passed for each in verdicts),
        len(verdicts),
        cut(measured, 60),
        cut(limits.pop(), 60) if len(limits) == 1 else "",
    )


def waits_of(call: CallResult) -> list[Wait]:
    """Return the waits for the agent: for its greeting, and after each turn of the caller."""
    limits = {
        each.name: each.limit
        for each in call.verdicts
        if each.name in WAIT_VERDICTS and isinstance(each.limit, int | float)
    }
    waits: list[Wait] = []
    waiting_since: float | None = 0.0
    name = "first_response_s"
    for span in sorted(call.spans, key=lambda each: each.start_s):
        if span.side == "caller":
            waiting_since, name = span.end_s, "response_s"
        elif waiting_since is not None:
            if span.start_s > waiting_since:
                limit = limits.get(name)
                late = limit is not None and span.start_s - waiting_since > float(limit)
                waits.append(Wait(waiting_since, span.start_s, late))
            waiting_since = None
    return waits


def overlaps_of(spans: Iterable[TurnSpan]) -> list[tuple[float, float]]:
    """Return the times in which both sides speak."""
    sides = {
        side: [each for each in spans if each.side == side and each.duration_s > 0]
        for side in ("caller", "agent")
    }
    found = [
        (max(one.start_s, other.start_s), min(one.end_s, other.end_s))
        for one in sides["caller"]
        for other in sides["agent"]
    ]
    return sorted((start, end) for start, end in found if end > start)


def call_data(call: CallResult) -> dict[str, object]:
    """Return a call for the page's script; its sound apart."""
    spans = call.spans[:MAX_SPANS]
    return {
        "name": cut(call.name),
        "scenario": cut(call.scenario),
        "seed": f"{call.seed}.{call.repeat}" if call.repeat else str(call.seed),
        "passed": call.passed,
        "error": cut(call.error),
        "seconds": max([call.duration_s, *(each.end_s for each in spans)]),
        "verdicts": [
            {
                "name": cut(each.name),
                "passed": each.passed,
                "measured": cut(shown(each.measured)),
                "limit": "" if each.limit is None else cut(shown(each.limit)),
                "detail": cut(each.detail),
            }
            for each in call.verdicts
        ],
        "spans": [
            [each.side, each.start_s, each.end_s, cut(each.text), cut(each.note)] for each in spans
        ],
        "left_out": len(call.spans) - len(spans),
        "waits": [[each.start_s, each.end_s, each.bad] for each in waits_of(call)],
        "overlaps": overlaps_of(spans),
        "figures": [[cut(name), shown(value)] for name, value in call.figures.items()],
    }


def cut(text: str, chars: int = MAX_TEXT_CHARS) -> str:
    return text if len(text) <= chars else f"{text[:chars]}…"
