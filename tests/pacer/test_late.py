from __future__ import annotations

from itertools import pairwise

import pytest

from qwen3tts_pacer.core import PacerCore
from tests.pacer.playing import PTIME, SILENCE, At, frames


def core(late_s: float) -> PacerCore:
    made = PacerCore(PTIME, At(), silence=SILENCE, late_s=late_s)
    made.start(0.0)
    made.begin(1, 0.0)
    made.push(frames(1, 0, 50), 0.0)
    return made


def test_a_slot_within_the_bound_is_sent_late_and_caught_up_with() -> None:
    pacer = core(0.1)
    now, sent = 0.09, list[float]()
    while len(sent) < 12:
        slot = pacer.due(now)
        assert slot is not None
        assert slot.deadline == pytest.approx(len(sent) * PTIME)
        sent.append(now)
        due = pacer.next_deadline()
        assert due is not None
        now = max(now, due)
    assert pacer.skipped_slots == 0
    # Two in the time of one until it is on its grid again.
    gaps = [round((b - a) * 1000) for a, b in pairwise(sent)]
    assert min(gaps) == 10
    assert gaps[-1] == 20
    assert sent[-1] == pytest.approx(11 * PTIME)


def test_beyond_the_bound_the_places_are_skipped() -> None:
    pacer = core(0.1)
    pacer.due(0.0)
    slot = pacer.due(0.15)
    assert slot is not None
    assert (slot.ticks, pacer.skipped_slots) == (7, 6)


def test_without_a_bound_a_whole_slot_late_is_skipped_as_ever() -> None:
    pacer = core(0.0)
    pacer.due(0.0)
    slot = pacer.due(0.045)
    assert slot is not None
    assert (slot.ticks, pacer.skipped_slots) == (2, 1)


def test_a_bound_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="late_s=2"):
        core(2.0)
