"""Seeds, edge cases, damaged seeds and arbitrary bytes keep the invariants of all fuzz targets.

This is the hypothesis test of every parser in the table; the parsers' own tests do not repeat it.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.table import MODULES, TARGETS
from tests.fuzz.target import MAX_STEPS, SEPARATOR, chunks, mutate_steps, sequence, steps

CASES = [(name, data) for name, target in TARGETS.items() for data in (*target.seeds, *target.hard)]


@pytest.mark.parametrize(("name", "data"), CASES)
def test_seeds_and_edge_cases_keep_the_invariant(name: str, data: bytes) -> None:
    TARGETS[name].run(data)


@pytest.mark.parametrize("name", list(TARGETS))
def test_damaged_seeds_keep_the_invariant(name: str) -> None:
    target = TARGETS[name]
    for data in (b"", b"\0", b"\n", b"\xff" * 40, bytes(range(256)), b"\x80" * 200):
        target.run(data)
    for seed in target.seeds:
        for length in range(0, len(seed), 1 + len(seed) // 8):
            target.run(seed[:length])
            target.run(seed[:length] + seed[length + 1 :])


@pytest.mark.parametrize("name", list(TARGETS))
@settings(max_examples=50, derandomize=True)
@given(data=st.data())
def test_arbitrary_bytes_keep_the_invariant(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    known = sorted({piece for seed in target.seeds for piece in seed.split(SEPARATOR)})
    pieces = st.lists(st.sampled_from(known) | st.binary(max_size=40), max_size=12)
    drawn = data.draw(
        st.binary(max_size=300)
        | st.builds(replace_stretch, st.sampled_from(target.seeds), STRETCHES)
        | pieces.map(lambda found: (SEPARATOR if target.stepwise else b"").join(found))
    )
    target.run(drawn[: target.max_bytes])


STRETCHES = st.tuples(st.integers(0, 4096), st.integers(0, 20), st.binary(max_size=20))


def replace_stretch(seed: bytes, stretch: tuple[int, int, bytes]) -> bytes:
    place, length, put = stretch
    place %= len(seed) + 1
    return seed[:place] + put + seed[place + length :]


@pytest.mark.parametrize("name", list(TARGETS))
def test_a_row_has_seeds_within_its_bound_edge_cases_and_an_invariant(name: str) -> None:
    target = TARGETS[name]
    assert target.seeds
    assert all(len(seed) <= target.max_bytes for seed in target.seeds)
    assert target.invariant.endswith(".")
    assert target.hard
    assert all(0 < len(word) <= 64 for word in target.words)


def test_names_are_unique() -> None:
    assert sum(len(module.TARGETS) for module in MODULES) == len(TARGETS)


def test_a_sequence_is_cut_into_its_steps() -> None:
    assert steps(sequence("a", b"ub\x00c", "")) == [("a", b""), ("u", b"b\x00c")]
    assert len(steps(SEPARATOR.join([b"x"] * 500))) == MAX_STEPS
    assert chunks(b"abcde", 2) == [b"ab", b"cd", b"e"]


def test_a_mutated_sequence_consists_of_known_steps() -> None:
    known = [b"a", b"b", b"c"]
    for seed in range(200):
        pieces = mutate_steps(sequence("d", "e"), known, random.Random(seed)).split(SEPARATOR)
        assert {*pieces} <= {*known, b"d", b"e"}
        assert 1 <= len(pieces) <= 5
