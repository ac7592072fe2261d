from __future__ import annotations

import asyncio

from qwen3tts_phone.call.media import LivenessProbe
from tests.fakes import FakeClock, settle


class FarEnd:
    """Answers, or does not; sends, or does not."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.packets = 0
        self.asked = 0

    async def ask(self) -> bool:
        self.asked += 1
        return self.answers

    def presence(self, clock: FakeClock, vanished_s: float = 60.0) -> LivenessProbe:
        return LivenessProbe(clock, self.ask, lambda: self.packets, vanished_s)


async def test_one_that_does_not_answer_is_lost() -> None:
    clock, far = FakeClock(), FarEnd(answers=False)
    lost = asyncio.create_task(far.presence(clock).lost(20.0))
    await clock.advance(39.0)
    assert (far.asked, lost.done()) == (0, False)
    await clock.advance(2.0)
    assert await lost
    assert far.asked == 1


async def test_one_that_answers_is_asked_again() -> None:
    clock, far = FakeClock(), FarEnd(answers=True)
    lost = asyncio.create_task(far.presence(clock).lost(20.0))
    await clock.advance(41.0)
    assert (far.asked, lost.done()) == (1, False)
    await clock.advance(60.0)
    assert (far.asked, lost.done()) == (2, False)
    far.answers = False
    await clock.advance(60.0)
    assert await lost


async def test_one_that_sends_again_is_back() -> None:
    clock, far = FakeClock(), FarEnd(answers=False)
    lost = asyncio.create_task(far.presence(clock).lost(20.0))
    await settle()
    far.packets = 1
    await clock.advance(41.0)
    assert not await lost
    assert far.asked == 0


async def test_nobody_is_asked_where_that_is_switched_off() -> None:
    far = FarEnd(answers=False)
    assert not await far.presence(FakeClock(), vanished_s=0.0).lost(20.0)
    assert far.asked == 0
