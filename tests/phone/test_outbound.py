from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.diagnosis.outcome import Outcome
from qwen3tts_phone.dialling.retries import (
    CallHistory,
    RedialResult,
    RetryPolicy,
    place_with_retries,
)
from tests.fakes import FakeClock


class Line:
    """Answers each call with the next outcome; time passes only while it is waited for."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[tuple[int, float]] = []
        self.now = 1000.0

    async def attempt(self, number: int) -> Outcome:
        self.calls.append((number, self.now))
        return self.outcomes.pop(0)

    async def sleep_until(self, at: float) -> None:
        self.now = max(self.now, at)

    async def place(self, policy: RetryPolicy, **others: Any) -> RedialResult:
        return await place_with_retries(
            self.attempt, policy, now=lambda: self.now, sleep_until=self.sleep_until, **others
        )


async def test_a_busy_line_is_called_again_after_each_wait() -> None:
    line = Line(Outcome.BUSY, Outcome.NO_ANSWER, Outcome.ANSWERED)
    placed = await line.place(RetryPolicy(attempts=5, waits_s=(60.0, 300.0)))
    assert placed.outcome is Outcome.ANSWERED
    assert placed.outcomes == [Outcome.BUSY, Outcome.NO_ANSWER, Outcome.ANSWERED]
    assert line.calls == [(1, 1000.0), (2, 1060.0), (3, 1360.0)]


async def test_the_last_wait_holds_for_all_that_follow_and_attempts_are_bounded() -> None:
    line = Line(*[Outcome.BUSY] * 9)
    placed = await line.place(RetryPolicy(attempts=4, waits_s=(10.0,)))
    assert (placed.outcome, placed.attempts) == (Outcome.BUSY, 4)
    assert [at for _, at in line.calls] == [1000.0, 1010.0, 1020.0, 1030.0]


@pytest.mark.parametrize(
    "outcome",
    [Outcome.DECLINED, Outcome.WRONG_NUMBER, Outcome.NOT_ALLOWED, Outcome.CANCELLED, Outcome.MOVED],
)
async def test_what_calling_again_does_not_mend_is_not_called_again(outcome: Outcome) -> None:
    placed = await Line(outcome).place(RetryPolicy(attempts=9))
    assert placed.outcomes == [outcome]


async def test_a_cause_can_have_a_first_wait_of_its_own() -> None:
    policy = RetryPolicy(waits_s=(600.0,), waits_by_cause=((Outcome.BUSY, 30.0),))
    line = Line(Outcome.BUSY, Outcome.BUSY, Outcome.ANSWERED)
    await line.place(policy)
    assert [at for _, at in line.calls] == [1000.0, 1030.0, 1630.0]


async def test_whoever_waits_is_told() -> None:
    told: list[tuple[Outcome, float]] = []
    line = Line(Outcome.BUSY, Outcome.ANSWERED)
    await line.place(RetryPolicy(), waiting=lambda outcome, wait: told.append((outcome, wait)))
    assert told == [(Outcome.BUSY, 60.0)]


async def test_the_bound_for_a_number_holds_whoever_asks() -> None:
    policy = RetryPolicy(attempts=3, waits_s=(10.0,), per_number=4, per_number_s=3600.0)
    log = CallHistory(policy)
    line = Line(*[Outcome.BUSY] * 20)
    first = await line.place(policy, number="+15550100", log=log)
    second = await line.place(policy, number="+15550100", log=log)
    third = await line.place(policy, number="+15550100", log=log)
    other = await line.place(policy, number="+15550101", log=log)
    assert [first.attempts, second.attempts, third.attempts, other.attempts] == [3, 1, 0, 3]
    assert [first.limited, second.limited, third.limited, other.limited] == [
        False,
        True,
        True,
        False,
    ]
    assert third.outcome is Outcome.NOT_ALLOWED
    line.now += 3600.0
    assert (await line.place(policy, number="+15550100", log=log)).attempts == 3


async def test_what_an_attempt_raises_ends_it() -> None:
    async def broken(_: int) -> Outcome:
        raise RuntimeError("no media process")

    clock = FakeClock()
    with pytest.raises(RuntimeError, match="media"):
        await place_with_retries(
            broken, RetryPolicy(), now=clock.now, sleep_until=clock.sleep_until
        )


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"attempts": 0}, "attempts"),
        ({"attempts": 2, "waits_s": ()}, "waits_s"),
        ({"waits_s": (0.0,)}, "waits_s"),
        ({"waits_s": (float("nan"),)}, "waits_s"),
        ({"causes": frozenset({Outcome.DECLINED})}, "declined"),
        ({"per_number": -1}, "per_number"),
        ({"per_number_s": 0.0}, "per_number"),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused_by_name(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        RetryPolicy(**wrong)


def test_the_log_of_numbers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qwen3tts_phone.dialling.retries.MAX_NUMBERS", 3)
    log = CallHistory(RetryPolicy(per_number=1))
    for number in range(5):
        log.called(str(number), 0.0)
    assert [log.may_call(str(number), 0.0) for number in range(5)] == [
        True,
        True,
        False,
        False,
        False,
    ]


@given(
    st.sampled_from(Outcome),
    st.integers(1, 200),
    st.builds(RetryPolicy, attempts=st.integers(1, 100), waits_s=st.just((5.0, 50.0))),
)
def test_a_wait_is_one_of_those_given_or_none(
    outcome: Outcome, attempt: int, policy: RetryPolicy
) -> None:
    wait = policy.wait_after(outcome, attempt)
    assert wait in (None, 5.0, 50.0)
    if attempt >= policy.attempts or outcome not in policy.causes:
        assert wait is None


def test_a_number_may_be_called_without_any_bound() -> None:
    log = CallHistory(RetryPolicy(per_number=0))
    asks: Callable[[], bool] = lambda: log.may_call("1", 0.0)  # noqa: E731
    for _ in range(100):
        log.called("1", 0.0)
    assert asks()
