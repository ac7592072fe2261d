"""The suite's measures of order, distance and level."""

from __future__ import annotations

import numpy as np
import pytest

from tests.regression.measures import BEST_DB, BLOCK, difference, level, order
from tests.regression.test_clicks import speech


def test_equal_signals_differ_by_nothing() -> None:
    found = difference(speech(), speech())
    assert (found.mae, found.worst, found.snr_db, found.samples) == (0.0, 0.0, BEST_DB, 0)
    assert order(speech(), speech()) == order(speech()[:0], speech())


def test_noise_is_measured() -> None:
    noise = np.random.default_rng(0).standard_normal(len(speech())).astype(np.float32) * 1e-4
    found = difference(speech() + noise, speech())
    assert found.mae == pytest.approx(1e-4 * np.sqrt(2 / np.pi), rel=0.01)
    wanted = 20 * np.log10(np.sqrt(np.mean(speech().astype(np.float64) ** 2)) / 1e-4)
    assert found.snr_db == pytest.approx(wanted, abs=0.1)


@pytest.mark.parametrize("at", [19_200, 50_000])
@pytest.mark.parametrize("length", [240, 1920, 7000])
def test_a_repeated_segment_is_found(at: int, length: int) -> None:
    samples = speech()
    heard = np.concatenate([samples[:at], samples[at - length : at], samples[at:]])
    found = order(heard, samples)
    assert found.repeated == pytest.approx(length, abs=8)
    assert found.skipped <= 8
    assert difference(heard, samples).samples == length


@pytest.mark.parametrize("length", [240, 1920, 7000])
def test_a_missing_segment_is_found(length: int) -> None:
    samples = speech()
    heard = np.concatenate([samples[:60_000], samples[60_000 + length :]])
    found = order(heard, samples)
    assert found.skipped == pytest.approx(length, abs=8)
    assert found.repeated <= 8


def test_foreign_sound_is_found() -> None:
    samples = speech()
    samples[48_000:52_800] = np.random.default_rng(1).standard_normal(4800) * 0.1
    assert order(samples, speech()).foreign_blocks >= 4800 // BLOCK - 1


def test_levels_are_judged() -> None:
    good = speech()
    assert level(good).sane
    assert not level(good * 0).sane
    assert not level(good * 1e-3).sane
    assert not level(good + 0.2).sane
    assert not level(np.sign(good)).sane
    assert not level(np.where(np.arange(len(good)) == 7, np.nan, good)).sane
    assert not level(np.concatenate([good, np.zeros(99 * len(good), np.float32)])).sane
    assert not level(good[:0]).sane
