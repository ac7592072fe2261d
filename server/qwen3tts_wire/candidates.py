"""Which of several servers a client that has lost its own goes on with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from qwen3tts_wire.errors import SpeechError

HEAD_START_S = 0.25
"""Seconds that an address has before the next one is asked as well: a machine that has vanished
does not even refuse."""

T = TypeVar("T")


async def first_there(
    addresses: Sequence[str],
    dial: Callable[[str], Awaitable[T]],
    leave: Callable[[T], Awaitable[None]],
    *,
    head_start_s: float = HEAD_START_S,
) -> T:
    """Dial one address after the other, best first, until one answers.

    The next one is dialled when those before it have failed, or after ``head_start_s``.

    Args:
        leave: closes a connection that came too late to be used.

    Raises:
        SpeechError: none answers; the reason of the first.
    """
    dials: dict[asyncio.Task[T], str] = {}
    left = list(addresses)
    failures: dict[str, SpeechError] = {}
    found: asyncio.Task[T] | None = None

    async def dialled(url: str) -> T:
        return await dial(url)

    try:
        while True:
            if left:
                url = left.pop(0)
                dials[asyncio.create_task(dialled(url), name=f"dial {url}")] = url
            if not dials:
                raise failures[addresses[0]]
            done, _ = await asyncio.wait(
                dials,
                timeout=head_start_s if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for each in sorted(done, key=lambda task: addresses.index(dials[task])):
                url, failure = dials[each], each.exception()
                if failure is None:
                    found = each
                    return each.result()
                del dials[each]
                if not isinstance(failure, SpeechError):
                    raise failure
                failures[url] = failure
    finally:
        late = [each for each in dials if each is not found]
        for each in late:
            each.cancel()
        for answer in await asyncio.gather(*late, return_exceptions=True):
            if not isinstance(answer, BaseException):
                await leave(answer)
