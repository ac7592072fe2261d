from __future__ import annotations

import asyncio
import time

import pytest

from qwen3tts_pacer.clock import LoopClock
from qwen3tts_phone.sip import scheduling as timekeeper
from qwen3tts_phone.sip.scheduling import LATE_MOST_S, LOOK_SHARE, TimerScheduler


async def test_looks_that_take_long_are_made_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    now = [1000.0]

    def slow() -> float | None:
        looks.append(now[0])
        now[0] += 0.004  # it looks at very many calls
        return None

    monkeypatch.setattr(f"{timekeeper.__name__}.time.perf_counter", lambda: now[0])
    loop = asyncio.get_running_loop()
    waits: list[float] = []
    monkeypatch.setattr(loop, "call_later", lambda wait_s, _: waits.append(wait_s))
    keeper = TimerScheduler(LoopClock(), slow, lambda: None)
    keeper.look()
    await asyncio.sleep(0)
    assert len(looks) == 1
    keeper.look()
    assert waits == [pytest.approx(0.004 / LOOK_SHARE)]
    assert waits[0] <= LATE_MOST_S
    keeper.stop()


async def test_looks_that_take_no_time_are_made_as_they_are_asked_for() -> None:
    looks: list[float] = []

    def quick() -> float | None:
        looks.append(time.perf_counter())
        return None

    keeper = TimerScheduler(LoopClock(), quick, lambda: None)
    for _ in range(5):
        keeper.look()
        await asyncio.sleep(0)
    assert len(looks) >= 1
    keeper.stop()
