"""Steady sound is no speech."""

from __future__ import annotations

import numpy as np

from qwen3tts_phone.detection.vad import SteadySoundDetector


def test_a_hum_is_steady_after_two_seconds_and_what_is_louder_than_it_is_not() -> None:
    steady = SteadySoundDetector(0.01)
    assert not any(steady.push(-30.0) for _ in range(150))
    for _ in range(100):
        steady.push(-30.0)
    assert steady.push(-30.0)
    assert not steady.push(-24.0)


def test_speech_that_goes_up_and_down_never_is() -> None:
    steady = SteadySoundDetector(0.01)
    levels = -30 + 12 * np.sin(np.arange(2000) / 8)
    assert not any(steady.push(float(level)) for level in levels)
