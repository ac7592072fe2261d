"""What a call tells, and those who do not listen."""

from __future__ import annotations

from qwen3tts_phone.call_events import CallEnded, CallEvent, InfoHeard
from qwen3tts_phone.call_news import MAX_UNREAD, CallNews


async def test_a_far_end_cannot_fill_the_memory_of_a_program_that_does_not_listen() -> None:
    news = CallNews()
    for number in range(3 * MAX_UNREAD):
        news.tell(InfoHeard(float(number), "text/plain", "x"))
    news.tell(CallEnded(9.0, "they hung up"))
    news.close()
    heard: list[CallEvent] = [event async for event in news.all()]
    assert len(heard) == MAX_UNREAD + 1
    assert [event.at for event in heard[:3]] == [0.0, 1.0, 2.0]
    assert isinstance(heard[-1], CallEnded)
