"""A transfer of ours as a program sees it: notices to iterate over, an outcome to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.transfer_events import TransferProgress

MAX_UNREAD_NOTICES = 64


class Transfer:
    """Made by :meth:`SipCall.refer`."""

    def __init__(self) -> None:
        self.quiet = False
        """Whether the far end said that it will not tell how it goes (RFC 4488)."""
        loop = asyncio.get_running_loop()
        self._taken: asyncio.Future[int] = loop.create_future()
        self._outcome: asyncio.Future[int] = loop.create_future()
        self._notices: asyncio.Queue[TransferProgress | None] = asyncio.Queue()

    @property
    def events(self) -> AsyncIterator[TransferProgress]:
        """The notices in order, for one reader; ends with the last one."""
        return self._events()

    async def _events(self) -> AsyncIterator[TransferProgress]:
        while (notice := await self._notices.get()) is not None:
            yield notice
        self._notices.put_nowait(None)

    async def done(self) -> int:
        """Wait for the target's final status, whatever it is; raises TransferFailed.

        Where the far end tells nothing (``quiet``) it is the 2xx to the REFER itself.
        """
        return await asyncio.shield(self._outcome)

    async def accepted(self) -> None:
        """Wait until the far end has said that it will do it; raises CallRefused."""
        await asyncio.shield(self._taken)

    # What the core tells

    def taken(self, status: int, *, quiet: bool) -> None:
        """It was accepted."""
        self.quiet = quiet
        if not self._taken.done():
            self._taken.set_result(status)

    def progress(self, progress: TransferProgress) -> None:
        """A notice came."""
        if self._notices.qsize() < MAX_UNREAD_NOTICES or progress.final:
            self._notices.put_nowait(progress)

    def over(self, outcome: int | CallError) -> None:
        """Nothing more will come."""
        for future in (self._taken, self._outcome):
            if future.done():
                continue
            if isinstance(outcome, CallError):
                future.set_exception(outcome)
                # Nobody needs to ask.
                future.exception()
            else:
                future.set_result(outcome)
        self._notices.put_nowait(None)
