"""Call quality by the E-model, ITU-T G.107 (06/2015), pure.

The rating R falls from 93.2 with delay, loss and codec; the mean opinion score follows from it
(Annex B). One narrow-band scale: a wide-band codec does not rate above G.711.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from qwen3tts_codecs.table import rating_of
from qwen3tts_phone.media.stats import LegStats

RO_IS: Final = 93.3553
"""Ro - Is of G.107 sections 7.2 and 7.3 with all defaults of table 2 and one quantization unit."""
RO: Final = 94.7688
"""Ro alone, the same way."""
TELR_DB: Final = 65.0
"""Talker echo loudness rating, default."""
WEPL_DB: Final = 110.0
"""Weighted echo path loss, default."""
NO_RLR: Final = -63.179
"""No - RLR: circuit noise, default, as section 7.4 uses it."""
FAR_BUFFER_MS: Final = 40.0
"""Assumed jitter buffer of the far end, which does not report it."""


UNCONCEALED_BPL: Final = 4.3
"""G.711 whose lost packets are silence (G.113 appendix I)."""


@dataclass(frozen=True, slots=True)
class Score:
    r: float
    """Transmission rating, 0 to 93.2."""
    mos: float
    """Mean opinion score of conversation (MOS-CQE, narrow band), 1 to 4.5."""


@dataclass(frozen=True, slots=True)
class CallQuality:
    """Ratings of both directions; None = not known."""

    heard: Score | None
    """Inbound direction."""
    sent: Score | None
    """Outbound direction, as the far end's RTCP reports say."""


def rate_direction(
    codec: str,
    *,
    one_way_ms: float = 0.0,
    loss: float = 0.0,
    burst_ratio: float = 1.0,
    concealed: bool = True,
) -> Score:
    """Rate one direction.

    Args:
        codec: encoding name, any case.
        one_way_ms: delay from speaker to listener.
        loss: share of packets late or lost, 0 to 1.
        burst_ratio: mean burst length over that of random loss (G.107 section 7.5).
        concealed: whether the receiver has packet loss concealment.
    """
    rating = rating_of(codec)
    bpl = rating.bpl if concealed else min(rating.bpl, UNCONCEALED_BPL)
    ie_eff = effective_impairment(rating.ie, bpl, loss, burst_ratio)
    r = min(max(RO_IS - delay_impairment(one_way_ms) - ie_eff, 0.0), 100.0)
    return Score(r, mos(r))


def effective_impairment(ie: float, bpl: float, loss: float, burst_ratio: float = 1.0) -> float:
    """Compute Ie-eff of equation (7-29) with ``loss`` of 0 to 1."""
    percent = 100.0 * min(max(loss, 0.0), 1.0)
    if percent == 0.0:
        return ie
    return float(ie + (95.0 - ie) * percent / (percent / max(burst_ratio, 1.0) + bpl))


def delay_impairment(one_way_ms: float) -> float:
    """Compute Id of section 7.4, default echo: T = Ta = one way, Tr = twice that."""
    t = max(one_way_ms, 0.0)
    # Idte, talker echo: equations (7-19) to (7-22).
    terv = TELR_DB - 40 * math.log10((1 + t / 10) / (1 + t / 150)) + 6 * math.exp(-0.3 * t * t)
    re = 80 + 2.5 * (terv - 14)
    half = (-1.5 * NO_RLR - re) / 2
    talker = (half + math.sqrt(half * half + 100) - 1) * (1 - math.exp(-t))
    # Idle, listener echo: (7-24), (7-25).
    half = (RO - 10.5 * (WEPL_DB + 7) * (2 * t + 1) ** -0.25) / 2
    listener = half + math.sqrt(half * half + 169)
    # Idd, delay alone: (7-26), (7-27).
    absolute = 0.0
    if t > 100:
        x = math.log2(t / 100)
        absolute = 25 * ((1 + x**6) ** (1 / 6) - 3 * (1 + (x / 3) ** 6) ** (1 / 6) + 2)
    return float(talker + listener + absolute)


def mos(r: float) -> float:
    """Convert a rating to a mean opinion score, equation (B-4)."""
    if r <= 0:
        return 1.0
    if r >= 100:
        return 4.5
    return max(1.0, 1 + 0.035 * r + r * (r - 60) * (100 - r) * 7e-6)


def burst_ratio(missing: int, bursts: int, expected: int) -> float:
    """Compute BurstR: burst length relative to random loss, at least 1."""
    if missing <= 0 or bursts <= 0 or expected <= missing:
        return 1.0
    return max(1.0, missing / bursts * (1 - missing / expected))


def call_quality(stats: LegStats, codec: str, ptime_ms: int = 20) -> CallQuality:
    """Rate both directions from a call's counters.

    Without RTCP the outbound direction is not rated, and network delay counts as 0.
    """
    rating = rating_of(codec)
    network_ms = (stats.round_trip_ms or 0.0) / 2
    fixed_ms = network_ms + ptime_ms + rating.delay_ms
    heard = sent = None
    expected = stats.received - stats.duplicates - stats.late + stats.lost
    if stats.received and expected > 0:
        heard = rate_direction(
            codec,
            one_way_ms=fixed_ms + stats.jitter_wait_ms,
            loss=max(stats.lost, 0) / expected,
            burst_ratio=burst_ratio(stats.burst_lost, stats.loss_bursts, expected),
        )
    if stats.rtcp_in and stats.sent:
        sent = rate_direction(
            codec,
            one_way_ms=fixed_ms + FAR_BUFFER_MS,
            loss=max(0.0, stats.remote_lost / stats.sent),
        )
    return CallQuality(heard, sent)
