"""Waiting for other processes, whose ends and starts no event of ours tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(true: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait until it is so; TimeoutError if it never is."""
    async with asyncio.timeout(timeout_s):
        while not true():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.002)
