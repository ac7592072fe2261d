"""Whether the far end is still there: it sends nothing, and does not answer when it is asked."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.log_text import log_text

logger = logging.getLogger(__name__)


class Presence:
    """Asks a far end that has fallen silent, again and again, until it speaks or is gone.

    Args:
        ask: whether it answers (an OPTIONS in the dialog).
        received: how many packets of it have come.
        vanished_s: it is asked after so long without a packet, and each such time again; 0: never.
    """

    def __init__(
        self,
        clock: Clock,
        ask: Callable[[], Awaitable[bool]],
        received: Callable[[], int],
        vanished_s: float,
    ) -> None:
        self._clock = clock
        self._ask = ask
        self._received = received
        self._vanished_s = vanished_s

    async def lost(self, silent_s: float) -> bool:
        """It has sent nothing for ``silent_s`` seconds; True: it is gone. False: it is back."""
        if not self._vanished_s:
            return False
        received, due = self._received(), self._clock.now() - silent_s
        while True:
            due += self._vanished_s
            await self._clock.sleep_until(due)
            if self._received() != received:
                return False
            try:
                there = await self._ask()
            except CallError as error:
                logger.debug(
                    "a far end could not be asked whether it is there: %s", log_text(error)
                )
                return False
            if self._received() != received:
                return False
            if not there:
                return True
            due = self._clock.now()
