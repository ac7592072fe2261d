"""Redial policy: which outcomes are retried, how often and after how long."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from qwen3tts_phone.diagnosis.outcome import Outcome, outcome_of, outcome_of_error
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.facts import CallFacts

RETRYABLE = frozenset(
    {
        Outcome.BUSY,
        Outcome.NO_ANSWER,
        Outcome.MACHINE,
        Outcome.UNAVAILABLE,
        Outcome.UNREACHABLE,
        Outcome.FAILED,
    }
)
"""Causes that another time may mend; the others are final."""
MAX_NUMBERS = 10_000
"""Numbers that are remembered; the one that was called longest ago is forgotten first."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Read once, checked once; raises ValueError with the name of what is wrong."""

    attempts: int = 3
    """Calls in all, the first included."""
    waits_s: tuple[float, ...] = (60.0, 300.0, 900.0)
    """Before the second call, the third, ...; the last holds for all that follow."""
    causes: frozenset[Outcome] = frozenset({Outcome.BUSY, Outcome.NO_ANSWER, Outcome.UNAVAILABLE})
    """What is tried again."""
    waits_by_cause: tuple[tuple[Outcome, float], ...] = ()
    """Another first wait for a cause, such as a busy line."""
    per_number: int = 5
    """Most calls to one number within ``per_number_s``, whoever asks for them; 0 = no bound."""
    per_number_s: float = 86_400.0
    """The time that ``per_number`` counts."""

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= 100:
            raise ValueError(f"attempts={self.attempts} is not between 1 and 100")
        if self.attempts > 1 and not self.waits_s:
            raise ValueError("waits_s is empty, and attempts is above 1")
        for wait in (*self.waits_s, *(wait for _, wait in self.waits_by_cause)):
            if not (math.isfinite(wait) and 1.0 <= wait <= 7 * 86_400.0):
                raise ValueError(f"waits_s: {wait} is not between 1 second and 7 days")
        final = set(self.causes) - RETRYABLE
        if final:
            named = ", ".join(sorted(final))
            raise ValueError(f"causes: {named}: calling again does not mend that")
        if self.per_number < 0 or not self.per_number_s > 0:
            raise ValueError("per_number must be 0 or above, per_number_s above 0")

    def wait_after(self, outcome: Outcome, attempt: int) -> float | None:
        """Seconds until the next call after attempt number ``attempt`` (from 1); None = give up."""
        if outcome not in self.causes or attempt >= self.attempts:
            return None
        special = dict(self.waits_by_cause)
        if attempt == 1 and outcome in special:
            return special[outcome]
        return self.waits_s[min(attempt, len(self.waits_s)) - 1]


class CallHistory:
    """When which number was called lately; bounded (pure)."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._calls: OrderedDict[str, deque[float]] = OrderedDict()

    def may_call(self, number: str, now: float) -> bool:
        """Whether one more call to this number is within the bound."""
        if not self._policy.per_number:
            return True
        calls = self._calls.get(number)
        if calls is None:
            return True
        while calls and calls[0] <= now - self._policy.per_number_s:
            calls.popleft()
        return len(calls) < self._policy.per_number

    def called(self, number: str, now: float) -> None:
        """A call to this number goes out."""
        if not self._policy.per_number:
            return
        self._calls.setdefault(number, deque(maxlen=self._policy.per_number)).append(now)
        self._calls.move_to_end(number)
        while len(self._calls) > MAX_NUMBERS:
            self._calls.popitem(last=False)


@dataclass(slots=True)
class RedialResult:
    """What came of calling, once or several times."""

    outcome: Outcome
    """Of the last call."""
    outcomes: list[Outcome] = field(default_factory=list)
    """Of each, in order."""
    limited: bool = False
    """Whether the bound for this number ended it."""

    @property
    def attempts(self) -> int:
        """Calls that were made."""
        return len(self.outcomes)


async def place_with_retries(
    attempt: Callable[[int], Awaitable[Outcome]],
    policy: RetryPolicy,
    *,
    now: Callable[[], float],
    sleep_until: Callable[[float], Awaitable[None]],
    number: str = "",
    log: CallHistory | None = None,
    waiting: Callable[[Outcome, float], None] | None = None,
) -> RedialResult:
    """Call until it comes about or the policy gives up.

    Args:
        attempt: makes one call (its number counts from 1) and says how it came out; a call that
            was answered returns when it is over. What it raises ends this.
        policy: when to call again.
        now: the clock, seconds.
        sleep_until: waits for a time of that clock.
        number: whom; with ``log`` it bounds the calls of all who ask.
        log: calls to all numbers.
        waiting: told each time it is going to call again: the outcome, and after how many seconds.
    """
    placed = RedialResult(Outcome.NOT_ALLOWED)
    while True:
        if log is not None:
            if not log.may_call(number, now()):
                placed.limited = True
                return placed
            log.called(number, now())
        placed.outcome = await attempt(placed.attempts + 1)
        placed.outcomes.append(placed.outcome)
        wait_s = policy.wait_after(placed.outcome, placed.attempts)
        if wait_s is None:
            return placed
        if waiting is not None:
            waiting(placed.outcome, wait_s)
        await sleep_until(now() + wait_s)


class DialledCall(Protocol):
    """What is needed of a `Call`."""

    @property
    def facts(self) -> CallFacts:
        """What is known of it."""

    async def answered(self) -> None:
        """Wait for the answer; raises CallError when there is none."""

    async def hangup(self) -> None:
        """End it, whatever its state."""


CallT = TypeVar("CallT", bound=DialledCall)


async def attempt_call(
    dial: Callable[[], Awaitable[CallT]], talk: Callable[[CallT], Awaitable[object]]
) -> Outcome:
    """Make a call, talk when it is answered, hang up; how it came out.

    A refusal, silence and a rule of ours are outcomes; what ``talk`` raises is raised, after the
    call was hung up, but for the call's own end.
    """
    try:
        call = await dial()
    except CallError as error:
        return outcome_of_error(error)
    try:
        await call.answered()
        await talk(call)
    except CallError as error:
        if not call.facts.was_answered:
            await call.hangup()
            return outcome_of(call.facts) if call.facts.end is not None else outcome_of_error(error)
    finally:
        await call.hangup()
    return outcome_of(call.facts)
