"""Levels, voiced ranges and noise of simulated callers."""

from __future__ import annotations

import numpy as np
import pytest

from qwen3tts_rehearsal.scenario import NoiseKind
from qwen3tts_rehearsal.sounds import (
    NOISE_S,
    at_level,
    joined,
    level_dbfs,
    noise,
    trimmed,
    utterance,
    voiced_range,
)
from tests.rehearsal.callers import tone

RATE_HZ = 8000
SPEECH = np.concatenate((np.zeros(1600), tone(1.0) / 32768, np.zeros(4000)))


def test_pauses_do_not_count_for_the_level() -> None:
    long = np.concatenate((SPEECH, np.zeros(80_000)))
    assert level_dbfs(long, RATE_HZ) == pytest.approx(level_dbfs(SPEECH, RATE_HZ), abs=0.1)
    assert level_dbfs(at_level(SPEECH, RATE_HZ, -30.0), RATE_HZ) == pytest.approx(-30.0, abs=0.1)
    assert level_dbfs(np.zeros(800), RATE_HZ) == -120.0
    assert level_dbfs(np.zeros(0), RATE_HZ) == -120.0


def test_the_voiced_range_is_that_of_the_sound() -> None:
    assert voiced_range(SPEECH, RATE_HZ) == (1600, 9600)
    assert len(trimmed(SPEECH, RATE_HZ)) == 8000 + 2 * 160
    made = utterance(SPEECH, RATE_HZ, -20.0, "x")
    assert made.voiced == (1600, 9600)


def test_sounds_and_pauses_are_joined() -> None:
    assert len(joined([SPEECH, 0.5, SPEECH], RATE_HZ)) == 2 * len(SPEECH) + 4000


@pytest.mark.parametrize("kind", ["white", "street", "hum", "babble"])
def test_noise_has_its_level_and_is_the_same_by_its_seed(kind: NoiseKind) -> None:
    made = noise(kind, RATE_HZ, -40.0, 3, [SPEECH])
    assert len(made) == round(NOISE_S * RATE_HZ)
    assert 20 * np.log10(np.sqrt(np.mean(made.astype(float) ** 2)) / 32768) == pytest.approx(
        -40.0, abs=0.2
    )
    assert np.array_equal(made, noise(kind, RATE_HZ, -40.0, 3, [SPEECH]))
    if kind != "hum":
        assert not np.array_equal(made, noise(kind, RATE_HZ, -40.0, 4, [SPEECH]))


def test_no_noise_is_nothing() -> None:
    assert len(noise("none", RATE_HZ, -40.0, 1)) == 0
    assert len(noise("babble", RATE_HZ, -40.0, 1)) > 0
