"""Our click measure sees what is wrong at joints; a score over the whole signal does not."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.regression.clicks import Samples, clicks_at, joint_error
from tests.regression.measures import difference, order

RATE = 24_000
CHUNK = 4 * 1920
LOST = 240
"""Samples that a crossfade eats at each joint: 10 ms."""
JOINTS = np.arange(CHUNK, 8 * RATE, CHUNK)


def speech() -> Samples:
    """A copy of ``made_speech``, to be spoilt."""
    return made_speech().copy()


@functools.cache
def made_speech() -> Samples:
    """Eight seconds of buzz with moving loudness, and now and then a hiss as loud as an s."""
    rng = np.random.default_rng(3)
    at = np.arange(8 * RATE) / RATE
    phase = 2 * np.pi * np.cumsum(120 + 25 * np.sin(2 * np.pi * 0.4 * at)) / RATE
    buzz = sum(np.sin(n * phase + n * n) / n for n in range(1, 30))
    hiss = rng.standard_normal(len(at)) * (np.sin(2 * np.pi * 1.3 * at) > 0.8)
    loudness = 0.6 + 0.4 * np.sin(2 * np.pi * 2.9 * at)
    return (0.06 * loudness * buzz + 0.12 * hiss).astype(np.float32)


def global_scores(samples: Samples) -> NDArray[np.float64]:
    """Largest step and high percentiles of the whole signal: how the score is usually made."""
    step = np.abs(np.diff(samples))
    return np.array([step.max(), np.percentile(step, 99.9), np.percentile(step, 99)])


def with_ticks(samples: Samples) -> Samples:
    """One sample too high at each joint."""
    found = samples.copy()
    found[JOINTS] += 0.06
    return found


def with_one_tick(samples: Samples) -> Samples:
    """The same at a single joint, in a quiet place."""
    found = samples.copy()
    loud = np.array([np.abs(samples[j - 240 : j + 240]).mean() for j in JOINTS])
    found[JOINTS[np.argmin(loud)]] += 0.12
    return found


def with_offsets(samples: Samples) -> Samples:
    """Every second piece lies a little higher."""
    found = samples.copy()
    for joint in JOINTS[::2]:
        found[joint : joint + CHUNK] += 0.05
    return found


def with_drops(samples: Samples) -> Samples:
    """The last 10 ms of each piece are missing."""
    pieces = np.split(samples, JOINTS)
    return np.concatenate([piece[: CHUNK - LOST] for piece in pieces])


def with_crossfades(samples: Samples) -> Samples:
    """Each piece's end is faded into the next piece's beginning, which belongs to a later time."""
    pieces = np.split(samples, JOINTS)
    rise = np.linspace(0, 1, LOST, dtype=np.float32)
    found = [pieces[0]]
    for piece in pieces[1:]:
        last = found[-1]
        found[-1] = last[:-LOST]
        mixed = last[-LOST:] * (1 - rise) + piece[:LOST] * rise
        found.append(np.concatenate([mixed, piece[LOST:]]))
    return np.concatenate(found)


def with_repairs(samples: Samples) -> Samples:
    """A crossfade in place: no time is lost, but two moments sound at once around each joint."""
    found = samples.copy()
    rise = np.linspace(0, 1, 2 * 32, dtype=np.float32)
    for joint in JOINTS:
        now, later = samples[joint - 32 : joint + 32], samples[joint + 100 : joint + 164]
        if len(later) == len(rise):
            found[joint - 32 : joint + 32] = now + (later - now) * np.minimum(rise, rise[::-1])
    return found


def joints_after(samples: Samples) -> NDArray[np.int64]:
    """Where the pieces meet once each has lost LOST samples."""
    return np.arange(CHUNK - LOST, len(samples), CHUNK - LOST)


FAULTS = [with_ticks, with_one_tick, with_offsets, with_drops, with_crossfades, with_repairs]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_score_over_the_whole_signal_does_not_see_it(
    fault: Callable[[Samples], Samples],
) -> None:
    clean = speech()
    changed = global_scores(fault(clean)) / global_scores(clean)
    assert np.abs(changed - 1).max() < 0.05


@pytest.mark.parametrize("fault", [with_ticks, with_one_tick, with_offsets])
def test_steps_at_joints_are_seen(fault: Callable[[Samples], Samples]) -> None:
    assert not clicks_at(speech(), JOINTS).heard
    assert clicks_at(fault(speech()), JOINTS).heard


def test_missing_ends_are_seen() -> None:
    heard = with_drops(speech())
    assert clicks_at(heard, joints_after(heard)).heard
    found = order(heard, speech())
    assert found.skipped == pytest.approx(len(speech()) - len(heard), abs=LOST)


def test_crossfades_of_different_times_are_seen() -> None:
    heard = with_crossfades(speech())
    found = order(heard, speech())
    assert found.skipped == pytest.approx(len(speech()) - len(heard), abs=LOST)
    assert difference(heard, speech()).snr_db < 10


def test_crossfades_without_a_step_are_seen_beside_the_wanted_signal() -> None:
    heard = with_repairs(speech())
    assert joint_error(speech(), speech(), JOINTS) == 1.0
    assert joint_error(heard, speech(), JOINTS) > 100


def test_rounding_is_no_click() -> None:
    rounded = (np.rint(speech() * 32767) / 32767).astype(np.float32)
    assert not clicks_at(rounded, JOINTS).heard
    assert joint_error(rounded, speech(), JOINTS) < 2


@pytest.mark.parametrize("shift", range(0, CHUNK, 997))
def test_places_that_are_no_joints_are_not_taken_for_clicks(shift: int) -> None:
    assert not clicks_at(speech(), JOINTS + shift).heard
    assert not clicks_at(with_ticks(speech()), JOINTS[:-1] + shift + 100).heard


def test_a_signal_without_joints_has_no_clicks() -> None:
    assert clicks_at(speech(), np.zeros(0, np.int64)).joints == 0
    assert joint_error(speech(), speech(), np.zeros(0, np.int64)) == 1.0
