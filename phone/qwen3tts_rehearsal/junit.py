"""JUnit XML of a rehearsal, as CI systems read it (pure).

Schema: ``junit-10.xsd`` of Jenkins' xUnit plugin. A suite is a scenario, a test case one call. A
missed limit is a failure, a call that could not be judged an error.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final
from xml.etree import ElementTree as ET

from qwen3tts_rehearsal.results import CallResult, Measured, RehearsalResult, Verdict

MAX_TEXT_CHARS: Final = 4000
"""Of one message; what is longer is cut off."""
NAME: Final = "rehearsal"
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has not (section 2.2)."""


def junit_xml(result: RehearsalResult) -> str:
    suites: dict[str, list[CallResult]] = defaultdict(list)
    for call in result.calls:
        suites[call.scenario].append(call)
    root = ET.Element("testsuites", _totals(NAME, result.calls, result.seconds))
    for scenario, calls in suites.items():
        root.append(_suite(scenario, calls))
    if not result.complete:
        _append_interrupted(root, result)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def shown(value: Measured) -> str:
    """Format a measured value or a limit: 3, 0.25, a text; an en dash for None."""
    if value is None:
        return "\N{EN DASH}"
    return value if isinstance(value, str) else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def sentence(verdict: Verdict) -> str:
    """Return a verdict in one line: its name, what was measured, the limit."""
    limit = "" if verdict.limit is None else f" (limit {shown(verdict.limit)})"
    detail = f": {verdict.detail}" if verdict.detail else ""
    return f"{verdict.name} {shown(verdict.measured)}{limit}{detail}"


def _suite(scenario: str, calls: list[CallResult]) -> ET.Element:
    begun = datetime.fromtimestamp(min(each.started for each in calls), UTC)
    suite = ET.Element(
        "testsuite",
        {
            **_totals(scenario, calls, sum(each.duration_s for each in calls)),
            "timestamp": begun.strftime("%Y-%m-%dT%H:%M:%S"),
        },
    )
    suite.extend(map(_case, calls))
    return suite


def _case(call: CallResult) -> ET.Element:
    case = ET.Element(
        "testcase",
        {
            "name": _clean(call.name),
            "classname": _clean(f"{NAME}.{call.scenario}"),
            "time": f"{call.duration_s:.3f}",
        },
    )
    failed = call.failed
    if call.error:
        _append_problem(case, "error", "CallFailed", call.error, [])
    elif failed:
        names = ", ".join(f"{each.name} {shown(each.measured)}" for each in failed)
        limits = [sentence(each) for each in failed]
        _append_problem(case, "failure", failed[0].name, names, limits)
    lines = [f"{'ok' if each.passed else 'FAILED'} {sentence(each)}" for each in call.verdicts]
    if call.recording is not None:
        # Read by Jenkins' attachments plugin and by GitLab.
        lines.append(f"[[ATTACHMENT|{call.recording}]]")
    if lines:
        ET.SubElement(case, "system-out").text = _clean("\n".join(lines))
    return case


def _append_problem(
    case: ET.Element, tag: str, kind: str, message: str, lines: Iterable[str]
) -> None:
    problem = ET.SubElement(case, tag, {"type": _clean(kind), "message": _clean(message)})
    problem.text = _clean("\n".join(lines) or message)


def _append_interrupted(root: ET.Element, result: RehearsalResult) -> None:
    text = f"{len(result.calls)} of {result.planned} planned calls were made"
    suite = ET.SubElement(
        root, "testsuite", {"name": NAME, "tests": "1", "failures": "0", "errors": "1"}
    )
    case = ET.SubElement(suite, "testcase", {"name": "all planned calls", "classname": NAME})
    _append_problem(case, "error", "Interrupted", text, [])
    for name in ("tests", "errors"):
        root.set(name, str(int(root.attrib[name]) + 1))


def _totals(name: str, calls: Iterable[CallResult], seconds: float) -> dict[str, str]:
    calls = list(calls)
    errors = sum(bool(each.error) for each in calls)
    failures = sum(not each.passed for each in calls) - errors
    return {
        "name": _clean(name),
        "tests": str(len(calls)),
        "failures": str(failures),
        "errors": str(errors),
        "time": f"{seconds:.3f}",
    }


def _clean(text: str) -> str:
    cut = text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…"
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", cut)
