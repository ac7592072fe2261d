"""The connections to speech servers: one for each way of reaching one that the settings name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from qwen3tts_pacer.clock import Clock
from qwen3tts_speech.link import Connect

from .server_link import LinkState, ServerLink
from .settings import Settings

IDLE_S = 600.0
"""A connection that nobody has asked for in so long is closed; its settings were changed."""

Key = tuple[object, ...]


class Links:
    """Most hosts have one; agents with settings of their own may have another.

    Args:
        clock: whose time the connections wait in.
        changed: told of each change of a connection, with the settings that it was made for.
        connect: makes a client for an address.
    """

    def __init__(
        self,
        clock: Clock,
        changed: Callable[[Settings, LinkState], None],
        connect: Connect | None = None,
    ) -> None:
        self._clock = clock
        self._changed = changed
        self._connect: dict[str, Any] = {} if connect is None else {"connect": connect}
        self._links: dict[Key, ServerLink] = {}
        self._asked_at: dict[Key, float] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, settings: Settings) -> ServerLink:
        """The connection for these settings, kept up from now on. Needs a running loop."""
        key: Key = (
            settings.url,
            settings.api_key,
            settings.fallback_url,
            settings.wait_ms,
            settings.resume_ms,
        )
        self._asked_at[key] = self._clock.now()
        link = self._links.get(key)
        if link is None:
            self._close_idle()
            link = self._links[key] = ServerLink(
                settings.url,
                api_key=settings.api_key,
                fallback_url=settings.fallback_url,
                wait_s=settings.wait_ms / 1000,
                resume_s=settings.resume_ms / 1000,
                clock=self._clock,
                on_state=lambda state: self._changed(settings, state),
                **self._connect,
            )
        elif len(self._links) > 1:
            self._close_idle()
        link.keep()
        return link

    async def close(self) -> None:
        """Leave all servers."""
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(each.close() for each in links), *self._closing)

    def _close_idle(self) -> None:
        before = self._clock.now() - IDLE_S
        for key in [each for each in self._links if self._asked_at[each] < before]:
            del self._asked_at[key]
            task = asyncio.create_task(
                self._links.pop(key).close(), name="qwen3tts: leave a server"
            )
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
