"""Redialling: the policy, and one attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.audio.answering import Answerer, MachineReady, who_answered
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.diagnosis.outcome import Outcome
from qwen3tts_phone.dialling.retries import (
    CallHistory,
    RedialResult,
    RetryPolicy,
    attempt_call,
    place_with_retries,
)
from qwen3tts_phone.errors import (
    CalleeUnreachable,
    CallError,
    CallNotAllowed,
    CallRefused,
    WrongState,
)
from qwen3tts_phone.facts import CallFacts, EndFacts
from tests.fakes import FakeClock
from tests.phone.sounds import Pcm, quiet, speech, tone


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


class FakeCall:
    """Is answered, or is not."""

    def __init__(self, error: CallError | None = None, status: int | None = None) -> None:
        self.facts = CallFacts()
        self.error = error
        self.status = status
        self.hung_up = 0

    async def answered(self) -> None:
        if self.error is not None:
            raise self.error
        self.facts.answered_at = 1.0

    async def hangup(self) -> None:
        self.hung_up += 1
        if self.error is not None and self.status is not None:
            self.facts.end = EndFacts(by="remote", status=self.status, error=self.error)


async def nothing(_: FakeCall) -> None:
    """Nothing to say."""


async def outcome(call: FakeCall) -> Outcome:
    async def dial() -> FakeCall:
        return call

    return await attempt_call(dial, nothing)


async def test_a_call_that_is_answered_is_talked_on_and_hung_up() -> None:
    call, said = FakeCall(), []

    async def dial() -> FakeCall:
        return call

    async def talk(talked: FakeCall) -> None:
        said.append(talked)
        talked.facts.answered_by = "machine"

    assert await attempt_call(dial, talk) is Outcome.MACHINE
    assert said == [call]
    assert call.hung_up


async def test_a_refusal_is_an_outcome() -> None:
    call = FakeCall(CallRefused(486, "Busy Here"), 486)
    assert await outcome(call) is Outcome.BUSY
    assert call.hung_up
    assert await outcome(FakeCall(CalleeUnreachable("It rang.", why="no_answer"))) is (
        Outcome.NO_ANSWER
    )


async def test_a_call_that_cannot_even_be_dialled_is_an_outcome() -> None:
    async def forbidden() -> FakeCall:
        raise CallNotAllowed("It is an emergency number.", rule="emergency")

    assert await attempt_call(forbidden, nothing) is Outcome.NOT_ALLOWED


async def test_the_end_of_the_call_in_the_middle_of_talking_is_no_failure() -> None:
    async def dial() -> FakeCall:
        return FakeCall()

    async def cut(_: FakeCall) -> None:
        raise WrongState("The call is over: the other side hung up.")

    assert await attempt_call(dial, cut) is Outcome.ANSWERED


async def test_what_talking_raises_is_raised_after_hanging_up() -> None:
    call = FakeCall()

    async def dial() -> FakeCall:
        return call

    async def broken(_: FakeCall) -> None:
        raise RuntimeError("no words")

    with pytest.raises(RuntimeError, match="words"):
        await attempt_call(dial, broken)
    assert call.hung_up


async def frames(*parts: tuple[Pcm, int]) -> AsyncIterator[HeardFrame]:
    for sound, rate_hz in parts:
        step = rate_hz // 50
        for at in range(0, len(sound), step):
            yield HeardFrame(sound[at : at + step], at / rate_hz, False, rate_hz)


async def test_a_machine_is_told_and_then_that_it_records() -> None:
    sound = np.concatenate([quiet(0.5), speech(5.0), quiet(0.4), tone(1000.0, 0.3), quiet(1.0)])
    heard = [each async for each in who_answered(frames((sound, 8000)))]
    assert [type(each) for each in heard] == [Answerer, MachineReady]
    last = heard[-1]
    assert isinstance(last, MachineReady)
    assert last.beeped
    assert last.at_s == pytest.approx(6.45, abs=0.06)


async def test_a_person_is_told_once() -> None:
    sound = np.concatenate([quiet(0.5), speech(0.7), quiet(8.0)])
    heard = [each async for each in who_answered(frames((sound, 8000)))]
    assert [isinstance(each, Answerer) and each.kind for each in heard] == ["human"]


async def test_a_change_to_another_codec_forgets_nothing_that_was_known() -> None:
    wide = np.concatenate([quiet(1.0, 16_000), tone(1000.0, 0.3, 16_000), quiet(1.0, 16_000)])
    sound = np.concatenate([quiet(0.5), speech(5.0)])
    heard = [each async for each in who_answered(frames((sound, 8000), (wide, 16_000)))]
    assert [type(each) for each in heard] == [Answerer, MachineReady]
    assert heard[1].at_s == pytest.approx(5.5 + 1.3 + 0.25, abs=0.06)
