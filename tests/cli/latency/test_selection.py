"""Selection of utterances, and times as people write them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.latency.selection import FILTERS, Selection, moment
from qwen3tts_speech.latency import UtteranceRecord

RECORD = UtteranceRecord(
    call_id="a1@pbx",
    engine="qwen3",
    voice="en",
    started_unix_s=100.0,
    line="sip",
    codec="PCMU",
    end_reason="text_end",
)


@pytest.mark.parametrize(
    ("patterns", "taken"),
    [
        ({}, True),
        ({"call": ("a1@pbx",)}, True),
        ({"call": ("b*", "a*")}, True),
        ({"call": ("A1*",)}, False),
        ({"engine": ("qwen?",), "voice": ("en",)}, True),
        ({"engine": ("qwen3",), "voice": ("de",)}, False),
        ({"ended": ("failed", "interrupted")}, False),
        ({"line": ("sip",), "codec": ("PCM[UA]",)}, True),
        ({"codec": ("",)}, False),
        ({"engine": ()}, True),
    ],
)
def test_all_filters_must_fit_and_one_pattern_of_each(
    patterns: dict[str, tuple[str, ...]], taken: bool
) -> None:
    assert Selection(patterns).takes(RECORD) is taken


@pytest.mark.parametrize(
    ("since", "until", "taken"),
    [(99.0, 101.0, True), (100.0, 101.0, True), (99.0, 100.0, False), (100.5, 200.0, False)],
)
def test_the_first_moment_is_taken_and_the_last_is_not(
    since: float, until: float, taken: bool
) -> None:
    assert Selection(since=since, until=until).takes(RECORD) is taken


def test_an_empty_selection_says_that_it_takes_all() -> None:
    assert Selection().all
    assert Selection(dict.fromkeys(FILTERS, ())).all
    assert not Selection({"call": ("a",)}).all
    assert not Selection(since=1.0).all


def test_an_unknown_filter_is_refused() -> None:
    with pytest.raises(ValueError, match="'colour'"):
        Selection({"colour": ("red",)})


def test_any_number_of_names_is_judged_in_bounded_memory() -> None:
    selection = Selection({"call": ("*7",)})
    for number in range(5000):
        assert selection.takes(UtteranceRecord(str(number))) is (number % 10 == 7)
    assert len(selection._known) <= 4096


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
