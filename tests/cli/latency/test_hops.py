from __future__ import annotations

import numpy as np
import pytest

from qwen3tts_cli.latency.columns import columns_of
from qwen3tts_cli.latency.hops import SIDES, Hop, Side, hops_of, mean_paths, names_of, starting_mark
from qwen3tts_cli.latency.stages import CHAIN
from qwen3tts_speech.latency import Mark, UtteranceRecord
from tests.cli.latency.pages import made


def test_the_hops_of_a_way_add_up_whatever_marks_are_missing() -> None:
    columns = made(utterances=300)
    for place, mark in enumerate((Mark.SLOT, Mark.RESAMPLED, Mark.SEGMENT_READY)):
        columns.mark_ms[mark][place::4] = np.nan
    ways = mean_paths(columns, hops_of(columns))
    assert [way.name for way in ways] == ["Typical", "Slowest 5\u202f%"]
    for way in ways:
        assert sum(way.hop_ms.values()) == pytest.approx(way.total_ms, rel=1e-4)


def test_the_slow_way_is_that_of_the_slowest() -> None:
    columns = made(utterances=200)
    total = columns.between_ms(Mark.TEXT_IN, Mark.FIRST_AUDIBLE_WIRE)
    typical, slow = mean_paths(columns, hops_of(columns))
    heard = np.sort(total[np.isfinite(total)])
    assert len(slow.rows) == round(len(heard) * 0.05)
    assert total[slow.rows].min() == heard[-len(slow.rows)]
    assert heard[0] < typical.total_ms < slow.total_ms


def test_the_way_begins_with_the_callers_last_sound_if_known_else_where_most_do() -> None:
    records = []
    for number in range(10):
        record = UtteranceRecord("call", str(number))
        if number < 4:
            record.mark(Mark.TURN_END, 0.0)
        record.mark(Mark.TEXT_IN, 0.5)
        record.mark(Mark.FIRST_AUDIBLE_WIRE, 1.0)
        records.append(record)
    columns = columns_of(records)
    assert starting_mark(columns) is Mark.TEXT_IN
    (typical, _) = mean_paths(columns, hops_of(columns))
    assert typical.total_ms == pytest.approx(500)
    records[3].mark(Mark.SPEECH_END, -0.2)
    assert starting_mark(columns_of(records)) is Mark.SPEECH_END


def test_a_log_without_a_sound_has_no_way() -> None:
    columns = made(failed_share=1.0)
    assert mean_paths(columns, hops_of(columns)) == []


@pytest.mark.parametrize("mark", CHAIN[1:])
def test_every_hop_has_a_name_and_somebody_who_can_make_it_faster(mark: Mark) -> None:
    hop = Hop(CHAIN[0], mark)
    assert hop.name
    assert hop.side in SIDES
    assert set(SIDES) == set(Side)


def test_hops_that_end_alike_have_names_of_their_own() -> None:
    of_model, of_other = Hop(Mark.FIRST_CODES, Mark.FIRST_PCM), Hop(Mark.SLOT, Mark.FIRST_PCM)
    called = names_of([of_other, Hop(Mark.SLOT, Mark.FIRST_CODES), of_model])
    assert called[of_model] == "engine: first samples (after first_codes)"
    assert called[of_other] == "engine: first samples (after slot)"
    assert len(set(called.values())) == 3
