"""Results of a rehearsal, and their JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qwen3tts_rehearsal.results import (
    CallResult,
    RehearsalResult,
    TurnSpan,
    Verdict,
    from_json,
)

GOOD = CallResult(
    "table",
    3,
    1.5,
    20.0,
    (Verdict("response_s", True, 1.0, 2.0, "after “hello”"), Verdict("keys", True, "12", "12")),
    (TurnSpan("caller", 0.5, 1.0, "hello"), TurnSpan("agent", 1.5, 2.0, "hi", "stopped")),
    Path("a/table-3.wav"),
    "",
    {"gaps": 0.0},
)
BAD = CallResult("table", 4, 2.5, 0.0, error="busy", repeat=2)


def test_a_result_survives_json() -> None:
    result = RehearsalResult((GOOD, BAD), 21.5, 3)
    assert from_json(result.to_json()) == result
    assert json.loads(result.to_json())["passed"] is False


def test_what_passes_and_what_fails() -> None:
    assert GOOD.passed
    assert not BAD.passed
    assert RehearsalResult((GOOD,), 1.0, 1).passed
    assert not RehearsalResult((GOOD,), 1.0, 2).passed, "it was interrupted"
    assert not RehearsalResult((), 1.0, 0).passed, "nothing was rehearsed"
    failed = CallResult("x", 1, 0.0, 1.0, (Verdict("a", True), Verdict("b", False)))
    assert [each.name for each in failed.failed] == ["b"]
    assert RehearsalResult((GOOD, failed), 1.0, 2).failed == (failed,)


def test_names_are_unique_by_scenario_seed_and_repetition() -> None:
    assert GOOD.name == "table#3"
    assert BAD.name == "table#4.2"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"calls": [{}], "seconds": 1, "planned": 1}', "7"]
)
def test_other_json_is_no_result(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_json(text)
