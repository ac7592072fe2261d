from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.latency.selection import moment

ZONE = timezone(timedelta(hours=5, minutes=30))
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=ZONE)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-02-28", datetime(2026, 2, 28, tzinfo=ZONE)),
        ("2026-02-28 14:30", datetime(2026, 2, 28, 14, 30, tzinfo=ZONE)),
        ("2026-02-28T14:30:05.5", datetime(2026, 2, 28, 14, 30, 5, 500_000, tzinfo=ZONE)),
        ("2026-02-28T14:30:00Z", datetime(2026, 2, 28, 14, 30, tzinfo=UTC)),
        (" 9:05 ", datetime(2026, 3, 1, 9, 5, tzinfo=ZONE)),
        ("14:30:10", datetime(2026, 3, 1, 14, 30, 10, tzinfo=ZONE)),
        ("90m", NOW - timedelta(minutes=90)),
        ("1.5h", NOW - timedelta(minutes=90)),
        ("30 s", NOW - timedelta(seconds=30)),
        ("2d", NOW - timedelta(days=2)),
        ("1w", NOW - timedelta(weeks=1)),
    ],
)
def test_people_write_moments_in_many_ways(text: str, meant: datetime) -> None:
    assert moment(text, NOW) == meant.timestamp()


@pytest.mark.parametrize("text", ["", "soon", "25:00", "5", "5x", "-5m", "2026-13-01", "999999w"])
def test_what_is_no_moment_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no moment; write '2026-03-01 14:30'"):
        moment(text, NOW)


@given(st.text(max_size=20))
def test_any_text_is_a_finite_time_or_refused(text: str) -> None:
    try:
        found = moment(text, NOW)
    except ValueError:
        return
    assert math.isfinite(found)
