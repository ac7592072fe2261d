"""Work that outlives one call: transfers under way, and calls that take the place of another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.log_text import log_text

if TYPE_CHECKING:
    from qwen3tts_phone.phone_call import PhoneCall
    from qwen3tts_phone.sip.sip_call import SipCall

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 10
"""A caller for whom there is nothing free at the moment may come again after this time."""


async def refuse_for_now(sip: SipCall) -> None:
    """Answer 503 with Retry-After; a call that is over already is left alone."""
    with contextlib.suppress(CallError):
        await sip.reject(503, headers={"Retry-After": str(RETRY_AFTER_S)})


class HandedCalls:
    """One phone's.

    Args:
        call_of: the phone's call with that signalling.
        receive: opens media for a call that came in.
    """

    def __init__(
        self,
        call_of: Callable[[SipCall | None], PhoneCall | None],
        receive: Callable[[SipCall], Awaitable[PhoneCall]],
    ) -> None:
        self._call_of = call_of
        self._receive = receive
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run something that is cancelled when the phone is closed."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def takes_place(self, sip: SipCall) -> bool:
        """Answer a call with Replaces for the program that goes on with it; False where none does.

        Then the call is one of those that come in.
        """
        old = self._call_of(sip.replaces)
        if old is None or not old.succession_awaited:
            return False
        self.start(self._take_place(sip), f"answer to {sip.call_id}")
        return True

    async def _take_place(self, sip: SipCall) -> None:
        try:
            call = await self._receive(sip)
            await call.take()
        except (CallError, OSError) as error:
            logger.warning(
                "call %s: it could not replace another one: %s",
                log_text(sip.call_id),
                log_text(error),
            )
            await refuse_for_now(sip)
        else:
            call.life.await_claim()

    async def close(self) -> None:
        """Cancel what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
