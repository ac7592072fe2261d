from __future__ import annotations

import time

from qwen3tts_pacer.clock import LoopClock


async def test_the_loop_clock_never_returns_before_the_deadline() -> None:
    clock = LoopClock()
    for wait in (0.0, -1.0, 0.001, 0.0005):
        deadline = clock.now() + wait
        await clock.sleep_until(deadline)
        assert clock.now() >= deadline


def test_the_loop_clock_is_the_monotonic_clock() -> None:
    before = time.monotonic()
    now = LoopClock().now()
    assert before <= now <= time.monotonic()
