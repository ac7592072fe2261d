"""The ringing tone: as a telephone's, without clicks, however it is cut."""

from __future__ import annotations

import numpy as np

from qwen3tts_phone.softphone.mixer import HZ, ON_S, PERIOD_S, RingbackTone


def test_it_rings_a_second_and_is_silent_for_four() -> None:
    samples = RingbackTone(8000).next(round(2 * PERIOD_S * 8000))
    ring, pause = round(ON_S * 8000), round(PERIOD_S * 8000)
    for begin in (0, pause):
        one = samples[begin : begin + ring].astype(float)
        assert np.argmax(np.abs(np.fft.rfft(one))) / ON_S == HZ
        assert not samples[begin + ring : begin + pause].any()
    assert np.abs(np.diff(samples.astype(int))).max() < 800, "no click"


def test_the_pieces_are_the_whole() -> None:
    whole, cut = RingbackTone(48_000), RingbackTone(48_000)
    pieces = [cut.next(count) for count in (1, 959, 960, 5000, 0, 100_000)]
    assert (np.concatenate(pieces) == whole.next(106_920)).all()
