"""Our speech beside the official package's: prompts, codes, scores, sound."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.parity.cases import SPEECH, Speech
from tests.parity.conftest import Arrays, Oracle
from tests.parity.ours import Ours, Row, Spoken

CASES = [pytest.param(case, id=case.name) for case in SPEECH]
ClosenessCheck = Callable[[np.ndarray, np.ndarray], None]


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> Speech:
    found: Speech = request.param
    return found


@pytest.fixture(scope="module")
def official(case: Speech, oracle: Oracle) -> Arrays:
    return oracle.arrays(case.name)


@pytest.fixture(scope="module")
def rows(case: Speech, oracle: Oracle, ours: Callable[[str], Ours]) -> list[Row]:
    return [ours(case.model).row(case, n, oracle.inputs) for n in range(len(case.texts))]


@pytest.fixture(scope="module")
def spoken(case: Speech, rows: list[Row], ours: Callable[[str], Ours]) -> list[Spoken]:
    return ours(case.model).speak(rows, case.frames, case.penalty)


def test_the_prompt_is_the_official_one(rows: list[Row], official: Arrays) -> None:
    for number, row in enumerate(rows):
        np.testing.assert_allclose(row.embeds, official[f"prompt_{number}"], atol=1e-5, rtol=0)


def test_the_codes_are_the_official_ones(spoken: list[Spoken], official: Arrays) -> None:
    for number, row in enumerate(spoken):
        wanted = official[f"codes_{number}"]
        assert len(row.codes) == len(wanted)
        wrong = np.argwhere(row.codes != wanted)
        if len(wrong):
            frame, group = wrong[0]
            margin = official["margins"][frame, number]
            pytest.fail(f"row {number}, frame {frame}, code {group}; official margin {margin:.1e}")


def test_the_scores_are_the_official_ones(spoken: list[Spoken], official: Arrays) -> None:
    for number, row in enumerate(spoken):
        wanted = official["logits"][: len(row.logits), number]
        assert len(wanted) == len(row.logits)
        np.testing.assert_allclose(row.logits, wanted, atol=1e-4, rtol=0)


def test_the_sound_is_the_official_one_whole_and_streamed(
    case: Speech, rows: list[Row], official: Arrays, ours: Callable[[str], Ours]
) -> None:
    for number, row in enumerate(rows):
        codes, wanted = torch.from_numpy(official[f"codes_{number}"]), official[f"sound_{number}"]
        parts = [part for part in (row.reference, codes) if part is not None]
        whole = ours(case.model).decode(torch.cat(parts))
        np.testing.assert_allclose(whole, wanted, atol=1e-4, rtol=0)
        streamed = ours(case.model).stream(codes, after=row.reference)
        np.testing.assert_allclose(
            streamed, wanted[len(wanted) - len(streamed) :], atol=1e-4, rtol=0
        )


def test_the_codes_say_something(spoken: list[Spoken]) -> None:
    """A stuck model would be equal to another stuck one."""
    for row in spoken:
        assert len(np.unique(row.codes)) > 2 * min(len(row.codes), 8)
