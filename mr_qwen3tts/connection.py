"""Links to the main speech server and its fallback, kept up in the background."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qwen3tts_pacer.clock import Clock
from qwen3tts_speech.link import Connect, SpeechConnection, SpeechLink
from qwen3tts_wire.client import Resume, SpeechClient
from qwen3tts_wire.errors import ConnectionLost, SpeechError

from .settings import Settings

log = logging.getLogger(__name__)

START = "Start it with 'mr-qwen3tts serve', or correct MR_QWEN3TTS_URL."
OPEN_TIMEOUT_S = 2.0
"""Timeout of the server's greeting."""
SEARCH_WAIT_S = 0.25
"""Longest backoff while a reply resumes."""
PROBATION_S = 30.0
"""Time for which a stalled server is passed over in favour of the fallback."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """State of the connection, for the admin page."""

    url: str
    up: bool
    """Whether the main server is up."""
    since: float
    """Unix seconds of the last change."""
    last_error: SpeechError | None
    engine: str
    model: str
    """Engine and model of the next reply's server."""
    voices: tuple[str, ...]
    """Voice ids, the default first."""
    using_fallback: bool
    """Whether the next reply goes to the fallback."""
    attempts: int
    """Failed attempts at the main server."""


class ServerLink(SpeechLink):
    """Connection of replies to main and fallback server.

    While the main server is down a reply waits ``wait_s``, counted from the loss, then uses the
    fallback. An utterance under way stays at its server, and resumes at whichever answers first
    after a loss.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        fallback_url: str | None = None,
        wait_s: float = 1.2,
        resume_s: float = 3.0,
        connect: Connect | None = None,
        clock: Clock | None = None,
        on_state: Callable[[LinkState], None] | None = None,
    ) -> None:
        """Connect at `keep` or the first reply.

        Args:
            url: main server, such as ``ws://127.0.0.1:8765/v1/speech``.
            api_key: of both servers; None: ``QWEN3TTS_API_KEY``.
            fallback_url: used while the main server is down.
            wait_s: longest wait of a reply for a server.
            resume_s: time for which a reply under way looks for a server.
            connect: makes a client for an address.
            clock: of the timeouts.
            on_state: called at every change.
        """
        resume_s = max(resume_s, 0.001)  # none is one attempt
        connect = connect or functools.partial(
            SpeechClient.connect,
            open_timeout=OPEN_TIMEOUT_S,
            resume=Resume(
                within_s=resume_s,
                max_wait_s=min(SEARCH_WAIT_S, resume_s),
                elsewhere=() if fallback_url is None else (url, fallback_url),
            ),
            api_key=api_key,
        )
        super().__init__(url, connect=connect, clock=clock)
        self._wait_s = wait_s
        self._on_state = on_state
        self._waiters: set[asyncio.Future[None]] = set()
        urls = [url] if fallback_url is None else [url, fallback_url]
        self.connections = [
            SpeechConnection(
                each, connect, clock=self._clock, on_change=self._changed, remedy=START
            )
            for each in urls
        ]
        self._passed_over_until = self._clock.now()

    def keep(self) -> None:
        """Keep the connection up from now on; needs a running loop."""
        for each in self.connections:
            each.keep()

    async def client(self) -> SpeechClient:
        """Return the connection within ``wait_s``.

        Raises:
            ConnectionLost: no server is up, or the link is closed.
        """
        until: float | None = None
        while True:
            if self._closed:
                raise ConnectionLost("The link to the speech server is closed.")
            now = self._clock.now()
            client, better_at = self._choice(now)
            if client is not None:
                return client
            if until is None:
                until = now + self._wait_s
                self.keep()
                for each in self.connections:
                    each.nudge()
            if now >= until:
                raise self._away()
            await self._change(until if better_at is None else min(until, better_at))

    async def outage(self) -> SpeechError | None:
        """Return the cause while no server is up, or none that is up sends audio after a stall.

        None while one does or none was tried.
        """
        if self._closed or any(each.up and not each.mute for each in self.connections):
            return None
        for each in self.connections:
            if await each.outage() is None:
                return None
        return self._away()

    def stalled(self, client: SpeechClient) -> None:
        """Pass over a server that had text and sent no audio."""
        if client is self._main.client:
            self._passed_over_until = self._clock.now() + PROBATION_S
        super().stalled(client)

    @property
    def state(self) -> LinkState:
        main = self._main
        client, _ = self._choice(self._clock.now())
        session = None if client is None else client.session
        return LinkState(
            url=main.url,
            up=main.up,
            since=main.since_unix_s,
            last_error=None if main.up else main.error,
            engine="" if session is None else session.engine,
            model="" if session is None else session.model,
            voices=() if session is None else tuple(each.id for each in session.voices),
            using_fallback=client is not None and client is not main.client,
            attempts=main.attempts,
        )

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self._changed()
        await super().close()

    # --- inside

    @property
    def _main(self) -> SpeechConnection:
        return self.connections[0]

    @property
    def _fallback(self) -> SpeechConnection | None:
        return self.connections[1] if len(self.connections) > 1 else None

    def _choice(self, now: float) -> tuple[SpeechClient | None, float | None]:
        main, fallback = self._main, self._fallback
        there = fallback.client if fallback is not None and fallback.up else None
        if main.up and (there is None or now >= self._passed_over_until):
            return main.client, None
        if there is None or main.up:
            return there, None
        wait_until = main.down_since + self._wait_s
        passed_over = now < self._passed_over_until
        return (there, None) if passed_over or now >= wait_until else (None, wait_until)

    async def _change(self, until: float) -> None:
        change = asyncio.get_running_loop().create_future()
        self._waiters.add(change)
        sleep = asyncio.ensure_future(self._clock.sleep_until(until))
        try:
            await asyncio.wait([change, sleep], return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            self._waiters.discard(change)

    def _changed(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self._on_state is not None:
            try:
                self._on_state(self.state)
            except Exception:
                # A listener's fault must not end the upkeep.
                log.exception("a listener of the link's state broke")

    def _away(self) -> ConnectionLost:
        causes = [each.error for each in self.connections if each.error is not None]
        said = " ".join(each.message for each in causes) or f"{self.url} has not answered yet."
        remedy = next((each.remedy for each in causes if each.remedy), START)
        error = ConnectionLost(f"No speech server is there. {said}", remedy=remedy)
        error.__cause__ = causes[0] if causes else None
        return error


IDLE_S = 600.0
"""Lifetime of an unused connection whose settings changed."""

Key = tuple[object, ...]


class Connections:
    """Connections by settings; most hosts have one.

    Args:
        clock: of the timeouts.
        changed: called at each change, with the connection's settings.
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
        """Return the connection for these settings, kept up from now on."""
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
