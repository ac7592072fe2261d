"""The call that a command sees through, and those that take its place."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from qwen3tts_cli.output import note
from qwen3tts_cli.watch import tell_findings, watch

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call


class CallChain:
    """One call after the other: transfers by the far end, and calls that replace it.

    Args:
        call: the first, which is up.
        watching: what follows its events already; None = nothing does.
    """

    def __init__(self, call: Call, watching: asyncio.Task[None] | None = None) -> None:
        self.call = call
        """The call that goes on now."""
        self._calls = [call]
        self._watching = [watching or asyncio.create_task(watch(call))]
        self._closing = False

    async def follow(self) -> None:
        """Take over each next call, to the end of the last; tells why that one ended."""
        while (following := await self.call.successor()) is not None:
            self.call = following
            self._calls.append(following)
            self._watching.append(asyncio.create_task(watch(following)))
            note(f"The call goes on with {following.remote_uri}.")
            if self._closing:
                await following.hangup()
        causes = [await call.ended() for call in self._calls]
        note(f"The call has ended: {causes[-1]}.")

    async def hang_up(self) -> None:
        """End all of them; harmless where they are over."""
        self._closing = True
        await asyncio.gather(*(call.hangup() for call in self._calls))

    async def close(self) -> None:
        """Wait until all their events were told."""
        await asyncio.gather(*self._watching)

    def tell_findings(self) -> None:
        """Say of each call why one side may have heard nothing."""
        for call in self._calls:
            tell_findings(call)
