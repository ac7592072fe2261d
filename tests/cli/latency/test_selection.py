from __future__ import annotations

import pytest

from qwen3tts_cli.latency.selection import FILTERS, Selection
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
