"""What the suite calls a regression, and how it follows the sound that was given out."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.regression.__main__ import TINY_BASELINE
from tests.regression.compare import comparable, faults, regressions
from tests.regression.hearing import Generation
from tests.regression.suite import follow
from tests.regression.test_clicks import speech

Result = dict[str, Any]


@pytest.fixture
def good() -> Result:
    """The kept run of the tiny CustomVoice checkpoint."""
    found: Result = json.loads(TINY_BASELINE.read_text())["models"]["tiny custom_voice"]
    return found


def text_of(result: Result) -> Result:
    found: Result = result["texts"]["short"]
    return found


SPOILS: list[tuple[str, Callable[[Result], None]]] = [
    ("differ", lambda r: text_of(r)["difference"].update(snr_db=40.0)),
    ("too long", lambda r: text_of(r)["difference"].update(samples=1920)),
    ("repeated", lambda r: text_of(r)["order"].update(repeated=240)),
    ("skipped", lambda r: text_of(r)["order"].update(skipped=240)),
    ("foreign", lambda r: text_of(r)["order"].update(foreign_blocks=1)),
    ("level", lambda r: text_of(r)["level"].update(sane=False)),
    ("clicks", lambda r: text_of(r)["clicks"].update(more_than_offline_sigma=9.0)),
    ("error at joints", lambda r: text_of(r)["clicks"].update(joint_error=50.0)),
    ("nowhere", lambda r: text_of(r)["delivered"].update(unexplained_samples=7)),
    ("same seed", lambda r: text_of(r).update(same_again=False)),
    ("another seed", lambda r: r.update(another_seed_differs=False)),
]


def test_the_kept_run_has_no_fault_and_is_no_regression(good: Result) -> None:
    assert not list(faults(good))
    assert not list(regressions(good, good, speed=True))


@pytest.mark.parametrize(("said", "spoil"), SPOILS, ids=[said for said, _ in SPOILS])
def test_each_fault_is_named(good: Result, said: str, spoil: Callable[[Result], None]) -> None:
    spoil(good)
    (found,) = faults(good)
    assert said in found


def test_other_codes_count_on_the_same_machine_only(good: Result) -> None:
    now = copy.deepcopy(good)
    text_of(now)["codes"] = "0" * 64
    assert "other codes" in "".join(regressions(now, good, speed=False))
    now["machine"]["torch"] = "2.6.0"
    assert not comparable(now, good)
    assert not list(regressions(now, good, speed=False))


def test_steps_back_are_named(good: Result) -> None:
    now = copy.deepcopy(good)
    text_of(now)["difference"]["snr_db"] -= 10
    now["same_in_a_batch"] = 0.1
    text_of(now)["delivered"]["trimmed_start_ms"] += 80
    now["speed"]["first_audio_ms_p50"] *= 3
    assert len(list(regressions(now, good, speed=False))) == 3
    assert len(list(regressions(now, good, speed=True))) == 4
    del now["texts"]["short"]
    assert "not said" in "".join(regressions(now, good, speed=False))
    now["digest"] = "another"
    assert "another checkpoint" in "".join(regressions(now, good, speed=False))


def test_another_checkpoint_on_another_machine_is_judged_by_its_sound_alone(good: Result) -> None:
    now = copy.deepcopy(good)
    now["machine"]["model"] = "Another 6 1"
    now["digest"] = "another"
    text_of(now)["codes"] = "0" * 64
    assert not list(regressions(now, good, speed=False))
    text_of(now)["difference"]["snr_db"] -= 10
    assert "worse than the baseline" in "".join(regressions(now, good, speed=False))


def test_trimmed_ends_are_followed_and_changed_sound_is_not() -> None:
    made = speech()
    first, second = made[:60_000], made[60_000:]
    first[:2400] = second[:1200] = second[-4800:] = 0.0
    out = np.concatenate([first[2400:], second[1200:-4800]])
    found = follow(out, [first, second])
    assert found == {
        "trimmed_start_ms": 150.0,
        "cut_end_ms": 200.0,
        "loud_left_out_ms": 0.0,
        "unexplained_samples": 0,
    }
    out[-20_000] += 0.1
    assert follow(out, [first, second])["unexplained_samples"] == 20_000


def test_sound_that_was_left_out_is_a_fault_on_any_machine(good: Result) -> None:
    made = (0.3 * np.random.default_rng(5).standard_normal(60_000)).astype(np.float32)
    quiet = np.zeros(2400, np.float32)
    whole = np.concatenate([quiet, made, quiet])
    assert follow(made, [whole])["loud_left_out_ms"] == 0
    assert follow(made[:-9600], [whole])["loud_left_out_ms"] >= 390
    assert follow(whole, [made[:24_000][::-1], whole])["loud_left_out_ms"] == 1000
    now = copy.deepcopy(good)
    text_of(now)["delivered"]["loud_left_out_ms"] = 400.0
    assert "400 ms of sound" in "".join(faults(now))


def test_a_generation_counts_frames_up_to_its_end() -> None:
    eos = 2150
    frames = [np.full(16, 5), np.full(16, 6), np.full(16, 7), np.full(16, eos), np.full(16, 9)]
    row = Generation(0, False, eos, frames)
    row.pieces = {1: np.ones(3 * 1920, np.float32), 0: np.zeros(1920, np.float32)}
    assert row.codes.shape == (3, 16)
    assert len(row.sound) == 3 * 1920
    assert row.joints.tolist() == [1920]
    assert Generation(0, False, eos).codes.shape == (0, 16)
