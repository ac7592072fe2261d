from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.media.admission import (
    BACK_TO,
    BAD_REPORTS,
    GOOD_REPORTS,
    LEAST_CALLS,
    LONG_REPORTS,
    Pacing,
    PacingAdmission,
    PacingShares,
)
from qwen3tts_phone.media.reports import MediaLoad

SECOND_NS = 1_000_000_000


class Machine:
    """Reports of a media loop, a second apart."""

    def __init__(self, admission: PacingAdmission) -> None:
        self._admission = admission
        self._load = MediaLoad()
        admission.report(self._load)

    def second(
        self, calls: int, busy: float = 0.3, late: float = 0.0, skipped: float = 0.0
    ) -> bool:
        before, slots = self._load, 50 * calls
        self._load = MediaLoad(
            before.at_ns + SECOND_NS,
            before.cpu_ns + int(busy * SECOND_NS),
            calls,
            before.slots + slots - int(skipped * slots),
            before.late + int(late * slots),
            before.skipped + int(skipped * slots),
        )
        return self._admission.report(self._load)


def full(calls: int = 600) -> tuple[PacingAdmission, Machine]:
    admission = PacingAdmission()
    machine = Machine(admission)
    changes = [machine.second(calls, busy=0.95) for _ in range(BAD_REPORTS)]
    assert changes == [False] * (BAD_REPORTS - 1) + [True]
    return admission, machine


def test_the_shares_are_those_of_the_interval_between_two_reports() -> None:
    before = MediaLoad(SECOND_NS, 0, 10, 1000, 10, 100)
    after = MediaLoad(2 * SECOND_NS, SECOND_NS // 2, 20, 1900, 20, 200)
    assert PacingShares.between(before, after) == PacingShares(20, 0.01, 0.1, 0.5)
    assert PacingShares.between(after, after) == PacingShares(20)


def test_a_loop_that_is_punctual_takes_any_number_of_calls() -> None:
    admission = PacingAdmission()
    machine = Machine(admission)
    assert not any(machine.second(calls) for calls in range(0, 2000, 20))
    assert admission.admits(2000)


def test_a_loop_that_is_busy_late_or_skips_closes_at_the_second_bad_report() -> None:
    for bad in ({"busy": 0.9}, {"late": 0.05}, {"skipped": 0.01}):
        admission = PacingAdmission()
        machine = Machine(admission)
        assert not machine.second(300, **bad)
        assert admission.admits(300)
        assert machine.second(300, **bad)
        assert admission.state is Pacing.FULL
        assert not admission.admits(300)
        assert "300 calls" in admission.figures


def test_one_bad_second_closes_nothing() -> None:
    admission = PacingAdmission()
    machine = Machine(admission)
    for _ in range(20):
        assert not machine.second(300, skipped=0.5)
        assert not machine.second(300)


def test_few_calls_are_taken_whatever_else_the_machine_does() -> None:
    admission = PacingAdmission()
    machine = Machine(admission)
    assert not any(machine.second(LEAST_CALLS - 1, skipped=0.5) for _ in range(100))
    assert admission.admits(LEAST_CALLS - 1)


def test_it_opens_after_calm_reports_with_fewer_calls_and_never_up_to_the_number_of_before() -> (
    None
):
    admission, machine = full(600)
    for _ in range(GOOD_REPORTS):
        assert not machine.second(590)  # calm, but as many calls as before
    below = int(600 * BACK_TO) - 1
    assert machine.second(below)
    assert admission.admits(below)
    assert not admission.admits(below + 1)


def test_few_calls_are_taken_also_after_it_was_full() -> None:
    admission, machine = full(600)
    machine.second(10, busy=0.8)
    assert admission.state is Pacing.FULL
    assert admission.admits(LEAST_CALLS - 1)
    assert not admission.admits(LEAST_CALLS)


def test_what_is_neither_good_nor_bad_changes_nothing() -> None:
    admission, machine = full(600)
    assert not any(machine.second(300, busy=0.8) for _ in range(100))
    assert admission.state is Pacing.FULL


def test_after_a_long_calm_the_number_is_forgotten() -> None:
    admission, machine = full(600)
    changed = [machine.second(595) for _ in range(LONG_REPORTS)]
    assert changed.count(True) == 1
    assert admission.admits(2000)


def test_reports_of_another_process_begin_again() -> None:
    admission, _ = full(600)
    assert not admission.report(MediaLoad())
    assert admission.state is Pacing.FULL
    machine = Machine(admission)
    assert [machine.second(0) for _ in range(GOOD_REPORTS)][-1]


@given(
    st.lists(
        st.tuples(st.integers(0, 2000), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)),
        max_size=80,
    )
)
def test_it_changes_at_most_once_in_so_many_reports(
    seconds: list[tuple[int, float, float, float]],
) -> None:
    admission = PacingAdmission()
    machine = Machine(admission)
    changes = [machine.second(*each) for each in seconds]
    at = [index for index, changed in enumerate(changes) if changed]
    for first, second, third in zip(at, at[1:], at[2:], strict=False):
        assert third - first >= BAD_REPORTS + GOOD_REPORTS - 1
        assert second > first
