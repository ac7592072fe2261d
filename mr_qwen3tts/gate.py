"""Whether words may be said now: not while the caller speaks, nor once they have cut in."""

from __future__ import annotations

import asyncio


class SpeechGate:
    """One conversation's. It is open until a caller is heard to speak."""

    def __init__(self) -> None:
        self.held = False
        """Whether the caller has cut in: even what was begun waits."""
        self._hushed = False
        self._open = asyncio.Event()
        self._open.set()

    def hush(self) -> None:
        """The caller speaks: nothing is begun."""
        self._hushed = True
        self._open.clear()

    def hold(self) -> None:
        """The caller cuts in: what was begun waits as well."""
        self.held = True
        self._open.clear()

    def open(self) -> bool:
        """All may be said again; returns whether something was held."""
        held, self.held, self._hushed = self.held, False, False
        self._open.set()
        return held

    def blocks(self, *, begun: bool) -> bool:
        """Whether words wait; ``begun``: they go on with what is being said."""
        return self.held or (self._hushed and not begun)

    async def wait(self) -> None:
        """Return when it is open."""
        await self._open.wait()
