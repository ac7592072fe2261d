from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from qwen3tts_phone.sip.scheduling import MOST_WAITING, IncomingCallQueue


def waiting(count: int, most: int = 1000) -> IncomingCallQueue:
    queue = IncomingCallQueue(most)
    for number in range(count):
        queue.put(cast(Any, SimpleNamespace(ended=None, number=number)))
    return queue


def test_it_is_full_at_its_bound_or_at_as_many_calls_as_there_may_be() -> None:
    assert [waiting(count).is_full for count in (MOST_WAITING - 1, MOST_WAITING)] == [False, True]
    assert [waiting(count, most=3).is_full for count in (2, 3)] == [False, True]


async def test_once_full_it_stays_so_until_half_of_them_are_taken() -> None:
    queue = waiting(MOST_WAITING)
    assert queue.is_full
    calls = queue.calls()
    for _ in range(MOST_WAITING // 2 - 1):
        await anext(calls)
        assert queue.is_full
    await anext(calls)
    assert not queue.is_full


async def test_callers_who_gave_up_take_no_place_and_the_others_keep_their_order() -> None:
    queue = waiting(4, most=4)
    queue._queue._queue[1].ended = "by the caller"  # type: ignore[attr-defined]
    assert not queue.is_full
    queue.close()
    assert [cast(Any, call).number async for call in queue.calls()] == [0, 2, 3]
