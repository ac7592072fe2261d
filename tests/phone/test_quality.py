from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_codecs.table import CODECS
from qwen3tts_phone.diagnosis.quality import (
    RO_IS,
    burst_ratio,
    call_quality,
    delay_impairment,
    effective_impairment,
    mos,
    rate_direction,
)
from tests.phone.facts import leg_stats


def test_a_call_without_any_trouble_has_the_default_rating_of_g107() -> None:
    # G.107 section 7.7: all defaults give R = 93.2.
    assert rate_direction("PCMU").r == pytest.approx(93.2, abs=0.05)
    assert rate_direction("PCMU").mos == pytest.approx(4.41, abs=0.005)


def test_the_rating_without_delay_and_loss_follows_from_the_defaults_of_g107() -> None:
    """Sections 7.2 and 7.3 with the values of table 2, written out."""
    slr, rlr, olr, ds, ps, lstr = 8.0, 2.0, 10.0, 3.0, 35.0, 18.0
    nos = ps - slr - ds - 100 + 0.004 * (ps - olr - ds - 14) ** 2
    pre = 35 + 10 * math.log10(1 + 10 ** ((10 - lstr) / 10))
    nor = rlr - 121 + pre + 0.008 * (pre - 35) ** 2
    no = 10 * math.log10(sum(10 ** (each / 10) for each in (-70, nos, nor, -64 + rlr)))
    ro = 15 - 1.5 * (slr + no)
    xolr = olr + 0.2 * (64 + no - rlr)
    loud = 20 * ((1 + (xolr / 8) ** 8) ** (1 / 8) - xolr / 8)
    stmr = -10 * math.log10(10 ** (-15 / 10) + 10 ** (-65 / 10))
    side = (
        12 * (1 + ((stmr - 13) / 6) ** 8) ** (1 / 8)
        - 28 * (1 + ((stmr + 1) / 19.4) ** 35) ** (1 / 35)
        - 13 * (1 + ((stmr - 3) / 33) ** 13) ** (1 / 13)
        + 29
    )
    g = 1.07 + 0.258 * 37 + 0.0602 * 37**2
    y, z = (ro - 100) / 15 + 46 / 8.4 - g / 9, 46 / 30 - g / 40
    quantizing = 15 * math.log10(1 + 10**y + 10**z)
    assert ro - loud - side - quantizing == pytest.approx(RO_IS, abs=0.001)


@pytest.mark.parametrize(
    ("r", "opinion"), [(90, 4.34), (80, 4.03), (70, 3.60), (60, 3.10), (50, 2.58)]
)
def test_opinions_follow_the_ratings_as_in_table_b1_of_g107(r: float, opinion: float) -> None:
    assert mos(r) == pytest.approx(opinion, abs=0.01)


def test_opinions_end_at_1_and_at_4_and_a_half() -> None:
    assert (mos(-5), mos(0), mos(100), mos(120)) == (1.0, 1.0, 4.5, 4.5)


def test_loss_costs_what_the_robustness_of_the_codec_says() -> None:
    # G.107 (7-29) with Bpl 25.1 (concealed) and 4.3 (not), G.113 appendix I.
    assert effective_impairment(0, 25.1, 0.01) == pytest.approx(95 / 26.1)
    assert effective_impairment(0, 4.3, 0.01) == pytest.approx(95 / 5.3)
    assert effective_impairment(11, 19.0, 0.05) == pytest.approx(11 + 84 * 5 / 24)
    assert (
        rate_direction("PCMU", loss=0.05).r - rate_direction("PCMU", loss=0.05, concealed=False).r
        > 20
    )


def test_loss_in_bursts_costs_more_than_loss_at_random() -> None:
    random, bursts = (
        rate_direction("PCMA", loss=0.05),
        rate_direction("PCMA", loss=0.05, burst_ratio=3.0),
    )
    assert bursts.r < random.r
    assert burst_ratio(missing=100, bursts=25, expected=1000) == pytest.approx(4 * 0.9)
    assert burst_ratio(missing=10, bursts=10, expected=1000) == 1.0
    assert burst_ratio(missing=0, bursts=0, expected=0) == 1.0


def test_delay_hardly_matters_below_150_ms_and_much_beyond() -> None:
    # G.114: the knee lies between 150 and 200 ms.
    assert delay_impairment(150) < 4.5
    assert delay_impairment(400) > 25
    assert rate_direction("PCMU", one_way_ms=400).mos == pytest.approx(3.2, abs=0.1)


@given(st.floats(0, 5000), st.floats(0, 1), st.floats(1, 20), st.sampled_from([*CODECS, "G729"]))
def test_a_score_is_in_its_range_and_falls_with_delay_and_loss(
    delay: float, loss: float, burst: float, codec: str
) -> None:
    score = rate_direction(codec, one_way_ms=delay, loss=loss, burst_ratio=burst)
    assert 0 <= score.r <= 100
    assert 1 <= score.mos <= 4.5
    worse = rate_direction(
        codec, one_way_ms=delay + 50, loss=min(1.0, loss + 0.05), burst_ratio=burst
    )
    assert worse.r <= score.r + 1e-9


def test_a_clean_call_is_good_in_both_directions() -> None:
    quality = call_quality(leg_stats(), "PCMU")
    assert quality.heard is not None
    assert quality.sent is not None
    assert quality.heard.mos > 4.3
    assert quality.sent.mos > 4.3


def test_each_direction_has_the_loss_of_its_own() -> None:
    bad_in = call_quality(
        leg_stats(lost=150, received=2850, loss_bursts=150, burst_lost=150), "PCMU"
    )
    bad_out = call_quality(leg_stats(remote_lost=150), "PCMU")
    assert bad_in.heard is not None
    assert bad_in.sent is not None
    assert bad_out.heard is not None
    assert bad_out.sent is not None
    assert bad_in.heard.mos < bad_in.sent.mos - 0.3
    assert bad_out.sent.mos < bad_out.heard.mos - 0.3


def test_packets_that_came_late_and_twice_are_not_counted_as_heard() -> None:
    stats = leg_stats(received=2000, late=500, duplicates=500, lost=1000)
    quality = call_quality(stats, "PCMU")
    assert quality.heard == rate_direction("PCMU", one_way_ms=15 + 20 + 20, loss=0.5)


def test_nothing_is_said_of_a_direction_that_is_not_known() -> None:
    assert call_quality(leg_stats(received=0), "PCMU").heard is None
    assert call_quality(leg_stats(rtcp_in=0), "PCMU").sent is None
