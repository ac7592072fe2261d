"""One call of several that may be needed: dial, wait, talk, hang up, and say how it came out.

    policy, log = RetryPolicy(), NumberLog(policy)
    placed = await place_with_retries(
        lambda number: one_call(lambda: phone.dial(uri), talk),
        policy, now=clock.now, sleep_until=clock.sleep_until, number=uri, log=log,
    )

and who answered, from what is heard:

    async for heard in who_answered(call.audio(steady=True)):
        match heard:
            case Answerer(kind="human"): ...
            case Ready(): ...          # a machine records: leave the message
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from qwen3tts_phone.answering import Answerer, AnsweringMachineDetector, AnsweringSettings
from qwen3tts_phone.call_events import HeardFrame
from qwen3tts_phone.call_facts import CallFacts
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.progress import Outcome, outcome_of, outcome_of_error


class Dialled(Protocol):
    """What is needed of a `Call`."""

    @property
    def facts(self) -> CallFacts:
        """What is known of it."""

    async def answered(self) -> None:
        """Wait for the answer; raises CallError when there is none."""

    async def hangup(self) -> None:
        """End it, whatever its state."""


CallT = TypeVar("CallT", bound=Dialled)


async def one_call(
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


@dataclass(frozen=True, slots=True)
class Ready:
    """A machine records now."""

    at_s: float
    """Seconds of sound after the answer."""
    beeped: bool
    """False: it has been quiet for so long that it is taken to listen."""


async def who_answered(
    frames: AsyncIterable[HeardFrame], settings: AnsweringSettings | None = None
) -> AsyncIterator[Answerer | Ready]:
    """Who answered, from the frames of the far end; ends with the frames.

    Time is counted by the sound that comes, so give it a stream that does not pause where the far
    end sends nothing: ``call.audio(steady=True)``. Where a change of the codec changes the sample
    rate, listening begins anew, and what was known stays known.
    """
    detector: AnsweringMachineDetector | None = None
    rate_hz, begun_s, ready = 0, 0.0, False
    async for frame in frames:
        if detector is None or frame.rate_hz != rate_hz:
            known = detector.answerer if detector is not None else None
            begun_s += detector.heard_s if detector is not None else 0.0
            rate_hz = frame.rate_hz
            detector = AnsweringMachineDetector(rate_hz, settings)
            detector.answerer = known
        answerer = detector.push(frame.samples)
        if answerer is not None:
            yield replace(answerer, at_s=begun_s + answerer.at_s)
        if detector.ready_s is not None and not ready:
            ready = True
            yield Ready(begun_s + detector.ready_s, detector.beep is not None)
