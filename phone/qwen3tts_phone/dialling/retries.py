"""Redial policy by outcome."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from qwen3tts_phone.diagnosis.outcome import Outcome, outcome_of, outcome_of_error
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.facts import CallFacts
from qwen3tts_settings.constraints import bounded, check_fields

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
MAX_WAIT_S = 7 * 86_400.0
MAX_NUMBERS = 10_000
"""Numbers remembered; the least recently called is dropped."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Redial policy; raises ValueError with the field's name."""

    attempts: int = bounded(1, 100, default=3)
    """Calls in all, the first included."""
    waits_s: tuple[float, ...] = bounded(
        1.0, MAX_WAIT_S, unit="seconds", default=(60.0, 300.0, 900.0)
    )
    """Before the second call, the third, ...; the last holds for all that follow."""
    causes: frozenset[Outcome] = frozenset({Outcome.BUSY, Outcome.NO_ANSWER, Outcome.UNAVAILABLE})
    """Outcomes that are retried."""
    waits_by_cause: tuple[tuple[Outcome, float], ...] = ()
    """Another first wait for a cause, such as a busy line."""
    per_number: int = bounded(0, default=5)
    """Most calls to one number within ``per_number_s``, in all; 0 = no bound."""
    per_number_s: float = bounded(above=0, default=86_400.0)
    """The time that ``per_number`` counts."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.attempts > 1 and not self.waits_s:
            raise ValueError("waits_s is empty, and attempts is above 1")
        for _, wait in self.waits_by_cause:
            if not 1.0 <= wait <= MAX_WAIT_S:
                raise ValueError(f"waits_by_cause: {wait} is not between 1 second and 7 days")
        final = set(self.causes) - RETRYABLE
        if final:
            named = ", ".join(sorted(final))
            raise ValueError(f"causes: {named}: calling again does not mend that")

    def wait_after(self, outcome: Outcome, attempt: int) -> float | None:
        """Return seconds until the attempt after number ``attempt`` (from 1); None = give up."""
        if outcome not in self.causes or attempt >= self.attempts:
            return None
        special = dict(self.waits_by_cause)
        if attempt == 1 and outcome in special:
            return special[outcome]
        return self.waits_s[min(attempt, len(self.waits_s)) - 1]


class CallHistory:
    """Recent calls by number; bounded (pure)."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._calls: OrderedDict[str, deque[float]] = OrderedDict()

    def may_call(self, number: str, now: float) -> bool:
        if not self._policy.per_number:
            return True
        calls = self._calls.get(number)
        if calls is None:
            return True
        while calls and calls[0] <= now - self._policy.per_number_s:
            calls.popleft()
        return len(calls) < self._policy.per_number

    def called(self, number: str, now: float) -> None:
        if not self._policy.per_number:
            return
        self._calls.setdefault(number, deque(maxlen=self._policy.per_number)).append(now)
        self._calls.move_to_end(number)
        while len(self._calls) > MAX_NUMBERS:
            self._calls.popitem(last=False)


@dataclass(slots=True)
class RedialResult:
    outcome: Outcome
    """Outcome of the last call."""
    outcomes: list[Outcome] = field(default_factory=list)
    """Outcome of each call, in order."""
    limited: bool = False
    """True if the bound for this number ended it."""

    @property
    def attempts(self) -> int:
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
    """Call until a final outcome, or until the policy gives up.

    Args:
        attempt: makes one call (numbered from 1) and returns its outcome when it is over.
        policy: the redial policy.
        now: the clock, seconds.
        sleep_until: waits for a time of that clock.
        number: the callee.
        log: recent calls to all numbers.
        waiting: called before each wait with the outcome and the seconds.
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
    @property
    def facts(self) -> CallFacts: ...

    async def answered(self) -> None: ...

    async def hangup(self) -> None: ...


CallT = TypeVar("CallT", bound=DialledCall)


async def attempt_call(
    dial: Callable[[], Awaitable[CallT]], talk: Callable[[CallT], Awaitable[object]]
) -> Outcome:
    """Make a call, run ``talk`` when answered, hang up, and return the outcome.

    Refusals, no answer and guard rules are outcomes; other errors are raised after the hang-up.
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
