from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.latency.columns import columns_of
from qwen3tts_cli.latency.order import backwards_ms, disorder, steps_back
from qwen3tts_speech.latency import MARKS, UtteranceRecord
from tests.cli.latency.synthetic import Made, made_records


def sent(back_ms: float, error_ms: float) -> UtteranceRecord:
    """A request that the server had before it was sent."""
    return UtteranceRecord(
        marks={"request_sent": 10.0, "request_received": 10.0 - back_ms / 1000},
        clock_error_ms=error_ms,
    )


@pytest.mark.parametrize(
    ("back_ms", "error_ms", "beyond"),
    [(0.0, 0.0, 0.0), (5.0, 6.0, 0.0), (5.0, 4.5, 0.0), (5.0, 1.0, 3.0), (5000.0, 1.0, 4998.0)],
)
def test_the_other_machines_clock_may_be_off_by_what_the_ping_allows(
    back_ms: float, error_ms: float, beyond: float
) -> None:
    columns = columns_of([sent(back_ms, error_ms)])
    assert backwards_ms(columns)[0] == pytest.approx(beyond, abs=0.01)
    assert bool(disorder(columns.record_at(0))) is (beyond > 0)


def test_between_marks_of_one_clock_nothing_is_allowed() -> None:
    record = UtteranceRecord(marks={"slot": 5.0, "first_pcm": 4.98}, clock_error_ms=1000.0)
    assert backwards_ms(columns_of([record]))[0] == pytest.approx(19.0, abs=0.01)
    assert disorder(record) == ["first_pcm is 20.0 ms before slot"]


def test_utterances_in_order_are_in_order() -> None:
    columns = columns_of(made_records(Made(utterances=200)))
    assert not backwards_ms(columns).any()
    assert not len(steps_back(columns))


@given(st.dictionaries(st.sampled_from(sorted(MARKS)), st.floats(-1e6, 1e6)), st.floats(0, 1e6))
def test_it_is_never_nan_and_never_negative(marks: dict[str, float], error_ms: float) -> None:
    found = backwards_ms(columns_of([UtteranceRecord(marks=marks, clock_error_ms=error_ms)]))
    assert np.isfinite(found).all()
    assert (found >= 0).all()


def at(call: str, monotonic: float, wall: float) -> UtteranceRecord:
    return UtteranceRecord(call, marks={"text_in": monotonic}, started_unix_s=wall)


@pytest.mark.parametrize(
    ("records", "steps"),
    [
        ([at("a", 10, 1000), at("a", 20, 1010)], []),
        ([at("a", 10, 1000), at("a", 20, 900), at("a", 30, 910)], [1]),
        ([at("a", 10, 1000), at("b", 20, 900)], []),  # another machine's call, perhaps
        ([at("a", 20, 1010), at("a", 10, 1000)], []),  # written in another order
        ([at("", 10, 1000), at("", 20, 900)], []),
        ([at("a", 10, 1000.5), at("a", 20, 1000.0)], []),  # slewed
        ([UtteranceRecord("a", started_unix_s=9.0), at("a", 20, 1.0)], []),
    ],
)
def test_a_wall_clock_set_back_in_mid_call_is_seen_by_the_other_clock(
    records: list[UtteranceRecord], steps: list[int]
) -> None:
    assert list(steps_back(columns_of(records))) == steps
