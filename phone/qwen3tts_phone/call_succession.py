"""Succession of calls: which call goes on where the far end handed one on or replaced it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qwen3tts_phone.call import Call


class Succession:
    """One call's. A REFER (RFC 3515) and an INVITE with Replaces (RFC 3891) both end in it."""

    def __init__(self) -> None:
        self._next: asyncio.Future[Call | None] = asyncio.get_running_loop().create_future()
        self._under_way = 0
        """Transfers whose new call is not answered yet."""
        self._over = False
        self._waiting = 0

    @property
    def awaited(self) -> bool:
        """Whether a program goes on with the next call."""
        return self._waiting > 0

    def begin(self) -> None:
        """A transfer is under way; `goes_on` or `failed` follows."""
        self._under_way += 1

    def failed(self) -> None:
        """It came to nothing."""
        self._under_way -= 1
        self._settle()

    def goes_on(self, call: Call) -> None:
        """It is up; where another one was up before, that one stays the successor."""
        self._under_way -= 1
        if not self._next.done():
            self._next.set_result(call)

    def call_over(self) -> None:
        """The call itself has ended."""
        self._over = True
        self._settle()

    async def wait(self) -> Call | None:
        """Wait for the next call, which is taken over by that; None where none follows."""
        self._waiting += 1
        try:
            following = await asyncio.shield(self._next)
        finally:
            self._waiting -= 1
        if following is not None:
            following.claim()
        return following

    def _settle(self) -> None:
        if self._over and not self._under_way and not self._next.done():
            self._next.set_result(None)
