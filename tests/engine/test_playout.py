from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_engine.playout import SAMPLE_RATE, UNPACED_LEAD_MS, PlayoutLead

SECOND = SAMPLE_RATE


def heard_by_reports(lead: PlayoutLead, now: float = 10.0) -> PlayoutLead:
    lead.made(2 * SECOND)
    lead.sent(2 * SECOND, now)
    lead.report(0, True, now)
    return lead


def test_before_any_sound_the_lead_is_nothing() -> None:
    lead = PlayoutLead()
    assert lead.seconds(5.0) == 0
    assert not lead.started
    assert lead.target_ms is None
    assert lead.falls_to(0.0, 5.0) == 5.0


def test_sound_made_and_not_sent_is_ahead_for_as_long_as_it_stays() -> None:
    lead = PlayoutLead(500)
    lead.made(SECOND)
    assert lead.started
    assert lead.made_samples == SECOND
    assert lead.target_ms == 500
    assert lead.seconds(0.0) == lead.seconds(100.0) == 1.0


def test_without_reports_what_was_sent_is_played_as_time_passes() -> None:
    lead = PlayoutLead()
    lead.made(SECOND)
    lead.sent(SECOND, 10.0)
    assert lead.seconds(10.25) == 0.75
    assert lead.played(10.25) == SECOND // 4
    assert lead.seconds(12.0) == 0.0, "never less than nothing"


def test_after_a_pause_the_lead_begins_anew() -> None:
    """A listener who had nothing for a minute does not have to catch up on it."""
    lead = PlayoutLead()
    lead.made(SECOND)
    lead.sent(SECOND, 10.0)
    lead.made(SECOND)
    lead.sent(SECOND, 70.0)
    assert lead.seconds(70.0) == 1.0
    assert lead.seconds(70.5) == 0.5


def test_a_report_counts_more_than_the_clock() -> None:
    lead = heard_by_reports(PlayoutLead())
    lead.report(SECOND // 2, True, 11.0)
    assert lead.seconds(11.0) == 1.5
    assert lead.seconds(11.5) == 1.0


def test_a_listener_who_holds_keeps_the_lead() -> None:
    lead = heard_by_reports(PlayoutLead())
    lead.report(SECOND, False, 11.0)
    assert not lead.moving
    assert lead.seconds(50.0) == 1.0
    assert lead.falls_to(0.5, 50.0) is None
    assert lead.falls_to(1.0, 50.0) == 50.0
    lead.report(SECOND, True, 60.0)
    assert lead.falls_to(0.5, 60.0) == 60.5


def test_a_report_of_more_than_was_sent_is_what_was_sent() -> None:
    lead = heard_by_reports(PlayoutLead())
    lead.report(100 * SECOND, True, 11.0)
    assert lead.seconds(11.0) == 0
    lead.report(-5, True, 11.0)
    assert lead.seconds(11.0) == 2.0


def test_the_clauses_of_a_context_share_the_lead() -> None:
    lead = heard_by_reports(PlayoutLead())
    lead.made(SECOND)  # the next clause
    assert lead.seconds(10.0) == 3.0


@pytest.mark.parametrize(
    ("played", "playing", "wakes"),
    [(SECOND, True, False), (SECOND, False, True), (SECOND // 2, True, True)],
)
def test_a_report_of_something_unexpected_wakes_the_engine(
    played: int, playing: bool, wakes: bool
) -> None:
    lead = heard_by_reports(PlayoutLead())
    woken: list[bool] = []
    lead.on_change = lambda: woken.append(True)
    lead.report(played, playing, 11.0)
    assert bool(woken) is wakes


def test_a_call_with_little_left_is_more_urgent_than_a_download_that_has_nothing() -> None:
    call, download = PlayoutLead(), PlayoutLead(UNPACED_LEAD_MS)
    call.made(SAMPLE_RATE // 2)
    assert not call.unpaced
    assert download.unpaced
    assert call.urgency(0.0) == 0.5 < download.urgency(0.0)
    call.made(SAMPLE_RATE)
    assert download.urgency(0.0) < call.urgency(0.0)


Event = tuple[str, float, int]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("made", "sent", "played", "held")),
            st.floats(0, 3),
            st.integers(0, 3 * SECOND),
        ),
        max_size=30,
    )
)
def test_the_lead_is_never_negative_and_never_more_than_was_made(events: list[Event]) -> None:
    lead = PlayoutLead()
    made = sent = 0
    now = 0.0
    for kind, passed, samples in events:
        now += passed
        if kind == "made":
            lead.made(samples)
            made += samples
        elif kind == "sent":
            count = min(samples, made - sent)
            lead.sent(count, now)
            sent += count
        else:
            lead.report(samples, kind == "played", now)
        assert 0 <= lead.seconds(now) <= made / SAMPLE_RATE
        assert 0 <= lead.played(now) <= sent
        # What is known of later is what will be seen then.
        at = lead.falls_to(0.1, now)
        if at is not None:
            assert lead.seconds(at) <= max(0.1, (made - sent) / SAMPLE_RATE) + 1e-6
