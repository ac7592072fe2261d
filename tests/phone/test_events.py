"""What a call tells, and those who do not listen."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator

from qwen3tts_phone.call.events import (
    MAX_UNREAD_EVENTS,
    CallEnded,
    EventStream,
    InfoHeard,
    TimedEvent,
)


async def test_a_far_end_cannot_fill_the_memory_of_a_program_that_does_not_listen() -> None:
    news = EventStream()
    for number in range(3 * MAX_UNREAD_EVENTS):
        news.publish(InfoHeard(float(number), "text/plain", "x"))
    news.publish(CallEnded(9.0, "they hung up"))
    news.close()
    heard: list[TimedEvent] = [event async for event in news.all()]
    assert len(heard) == MAX_UNREAD_EVENTS + 1
    assert [event.at for event in heard[:3]] == [0.0, 1.0, 2.0]
    assert isinstance(heard[-1], CallEnded)


async def test_who_follows_a_call_misses_nothing_from_when_he_asks() -> None:
    news = EventStream()
    news.publish(InfoHeard(1.0, "text/plain", "before"))
    first = news.following()
    news.publish(InfoHeard(2.0, "text/plain", "not read yet"))
    second = news.following()
    news.publish(CallEnded(3.0, "they hung up"))
    news.close()
    assert [event.at async for event in first] == [2.0, 3.0]
    assert [event.at async for event in second] == [3.0]
    assert [event.at async for event in news.all()] == [1.0, 2.0, 3.0]
    assert [event async for event in first] == []
    assert [event async for event in news.following()] == []


async def test_who_follows_no_more_is_forgotten() -> None:
    news = EventStream()
    async for _ in _one(news):
        break
    gc.collect()
    assert len(news._followers) == 0


def _one(news: EventStream) -> AsyncIterator[TimedEvent]:
    following = news.following()
    news.publish(InfoHeard(1.0, "text/plain", "x"))
    return following
