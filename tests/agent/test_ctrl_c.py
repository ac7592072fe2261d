"""Ctrl-C ends what a main task serves, and nothing that it does not know."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from qwen3tts_agent.agent import end_on_interrupt


@pytest.fixture(autouse=True)
def ctrl_c_interrupts() -> Iterator[None]:
    """Where the tests run in the background of a shell, SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


async def serve(served: list[str]) -> None:
    with end_on_interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
    served.append("ended")


def test_in_the_main_task_the_block_ends_and_the_program_goes_on() -> None:
    served: list[str] = []
    asyncio.run(serve(served))
    assert served == ["ended"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_in_another_task_the_whole_program_is_interrupted() -> None:
    served: list[str] = []

    async def main() -> None:
        await asyncio.gather(serve(served))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert not served


def test_the_second_ctrl_c_interrupts_the_program() -> None:
    async def main() -> None:
        await serve([])
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())


def test_a_cancellation_that_is_no_ctrl_c_is_passed_on() -> None:
    async def main() -> None:
        with end_on_interrupt():
            async with asyncio.timeout(0):
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        asyncio.run(main())
