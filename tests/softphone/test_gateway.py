"""The list of the calls that run, as a page is shown it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from qwen3tts_phone.call.call import Call
from qwen3tts_phone.softphone.entries import CallEntry
from qwen3tts_phone.softphone.gateway import POLL_INTERVAL_S, CallList, Gateway, NoSuchCall
from tests.fakes import FakeClock, settle
from tests.softphone.plain_call import PlainCall


class Line:
    """A line with calls."""

    def __init__(self, *calls: Call) -> None:
        self.calls: set[Call] = set(calls)


async def test_calls_of_all_lines_are_listed_the_oldest_first() -> None:
    clock = FakeClock()
    first = PlainCall(clock, direction="out")
    await clock.advance(5.0)
    second = PlainCall(clock)
    await second.answer()
    second.hold_comes(True)
    calls = CallList([Line(second), Line(first)], clock)
    assert calls.shown() == [
        CallEntry(first.id, "plain", "out", "", "ringing", 5000, False),
        CallEntry(second.id, "plain", "in", "", "held", 0, False),
    ]
    assert calls.find(first.id) is first
    await first.hangup()
    assert [each.id for each in calls.shown()] == [second.id]
    assert calls.find(first.id) is None
    await second.hangup()


async def test_the_list_is_told_when_it_changes_and_not_more_often_than_twice_a_second() -> None:
    clock = FakeClock()
    line = Line()
    calls = CallList([line], clock)
    told: list[tuple[float, Sequence[CallEntry]]] = []

    async def follow() -> None:
        async for shown in calls.follow():
            told.append((clock.now(), shown))

    following = asyncio.create_task(follow())
    await clock.advance(3.0)
    assert [len(shown) for _, shown in told] == [0], "time alone is no change"
    made = [PlainCall(clock) for _ in range(20)]
    for call in made:
        line.calls.add(call)
        await clock.advance(0.03)
    await clock.advance(1.0)
    times = [at for at, _ in told]
    assert len(told[-1][1]) == 20
    assert min(later - at for at, later in pairwise(times)) >= POLL_INTERVAL_S - 1e-6
    assert len(told) <= 5
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    for call in made:
        await call.hangup()


async def test_a_gateway_without_a_phone_says_so() -> None:
    clock = FakeClock()
    page = PlainCall(clock)
    gateway = Gateway(clock=clock)
    assert (gateway.can_dial, gateway.can_listen, gateway.accounts) == (False, False, ())
    failures = await asyncio.gather(
        gateway.dial(page, "sip:bob@127.0.0.1"),
        gateway.listen(page, "nobody"),
        return_exceptions=True,
    )
    assert [getattr(each, "code", "") for each in failures] == ["not_possible", "no_such_call"]
    assert all(getattr(each, "remedy", "") for each in failures)
    await page.hangup()


async def test_a_call_that_is_over_cannot_be_listened_to() -> None:
    clock = FakeClock()
    page, call = PlainCall(clock), PlainCall(clock)
    await call.answer()
    gateway = Gateway(further=[Line(call)], clock=clock)
    assert gateway.can_listen
    await call.hangup()
    await settle()
    with pytest.raises(NoSuchCall) as told:
        await gateway.listen(page, call.id)
    assert told.value.remedy
    await page.hangup()
