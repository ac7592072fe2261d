"""One connection to one speech server, kept up in the background."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context

from qwen3tts_pacer.clock import Clock
from qwen3tts_wire.client import Resume, SpeechClient
from qwen3tts_wire.errors import ConnectionLost, SpeechError, log_text

Connect = Callable[[str], Awaitable[SpeechClient]]

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 15.0
"""Between attempts; each wait is up to twice the one before, and a reply cuts it short."""
CONNECT_S = 4.0
"""Longest that one attempt may take, whatever the server does or does not."""
STEADY_S = 1.0
"""A connection that lasted so long was a good one; the next attempt is made at once."""
IDLE_CHECK_S = 1.0
"""How often a connection that has been left is looked at, until all on it is over."""
LEFT_MOST_S = 600.0
"""Nothing that is still under way on it then is being listened to."""
START = "Start it with 'mr-qwen3tts serve', or correct MR_QWEN3TTS_URL."


class Upkeep:
    """Connects, and again when the connection is lost, for as long as it runs.

    What is under way when a server is lost goes on at the next one there, where the client's
    ``Resume`` allows it. A connection that is left, because its server drains or has stalled,
    is closed when all on it is over.
    """

    def __init__(
        self, url: str, connect: Connect, *, clock: Clock, on_change: Callable[[], None]
    ) -> None:
        """``on_change`` is called when the connection has come or gone, or an attempt failed."""
        self.url = url
        self.client: SpeechClient | None = None
        """The newest connection; `up` tells whether it can be used."""
        self.error: SpeechError | None = None
        """Why there is none, or why the last one was lost."""
        self.attempts = 0
        """Attempts in vain since there was a connection."""
        self.since_unix_s = time.time()
        """Wall clock at which the connection came, or went."""
        self.down_since = clock.now()
        """When it went; seconds of the clock. It is kept while the connection is there."""
        self._connect = connect
        self._clock = clock
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None
        self._waits = _waits()
        self._pause: asyncio.Future[None] | None = None
        """Set while it waits for the next attempt."""
        self._left: dict[SpeechClient, asyncio.Task[None]] = {}
        """Connections that are left, and who closes them."""

    @property
    def up(self) -> bool:
        """Whether something can be said on the connection now."""
        return self.client is not None and self.client.connected

    def start(self) -> None:
        """Begin, or go on; needs a running loop."""
        if self._task is None or self._task.done():
            self.down_since = self._clock.now()
            # It outlives the call that began it, and must not keep that one's context variables.
            self._task = asyncio.create_task(
                self._run(), name=f"upkeep of {self.url}", context=Context()
            )

    def nudge(self) -> None:
        """Somebody waits for the connection: make the next attempt now, and others soon."""
        self._waits = _waits()
        if self._pause is not None:
            self._pause.cancel()

    def drop(self, client: SpeechClient) -> None:
        """Leave a connection on which no answer comes, and make another one."""
        if client is not self.client:
            return
        self._leave()
        self._went(
            ConnectionLost(
                f"The speech server at {self.url} has not answered.", remedy="Look at its log."
            )
        )
        if self._task is not None:
            self._task.cancel()
            self._task, self._waits = None, _waits()
            self.start()

    async def close(self) -> None:
        """Stop, and close all connections."""
        tasks = [*self._left.values(), *([] if self._task is None else [self._task])]
        clients = [*self._left, *([] if self.client is None else [self.client])]
        self._task, self.client = None, None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.gather(*(client.close() for client in clients))
        self._left.clear()

    # --- inside

    async def _run(self) -> None:
        while True:
            client = await self._attempt()
            if client is not None:
                came = self._clock.now()
                self._came(client)
                await self._while_it_lasts(client)
                self._leave()
                if self._clock.now() - came >= STEADY_S:
                    self._waits = _waits()
                    continue
            await self._wait(next(self._waits))

    async def _attempt(self) -> SpeechClient | None:
        try:
            async with asyncio.timeout(CONNECT_S):
                return await self._connect(self.url)
        except SpeechError as error:
            self._failed(error)
        except TimeoutError:
            self._failed(
                ConnectionLost(f"{self.url} did not answer within {CONNECT_S:g} s.", remedy=START)
            )
        except Exception as error:
            # Whatever it is, the next attempt may succeed; without upkeep none would be made.
            log.exception("connecting to %s broke", self.url)
            self._failed(ConnectionLost(f"Connecting to {self.url} broke: {error!r}."))
        return None

    async def _while_it_lasts(self, client: SpeechClient) -> None:
        """Return when it is lost for good; what is under way has gone on, or failed, by then."""
        while True:
            came = self._clock.now()
            await client.away()
            self._went(_gone(self.url))
            if client.closed or client.draining.is_set():
                return
            if self._clock.now() - came < STEADY_S:
                return  # it comes and goes: with pauses, please
            try:
                await client.ready()
            except SpeechError as error:
                self._failed(error)
                return
            if client.elsewhere:
                return  # what is under way is said there; what comes next is not for this one
            self._came(client)

    async def _wait(self, seconds: float) -> None:
        self._pause = asyncio.ensure_future(self._clock.sleep_until(self._clock.now() + seconds))
        try:
            await asyncio.wait([self._pause])
        finally:
            self._pause.cancel()
            self._pause = None

    def _came(self, client: SpeechClient) -> None:
        self.client, self.error, self.attempts = client, None, 0
        self.since_unix_s = time.time()
        model = log_text(client.session.model)
        log.info("connected to the speech server at %s; the voice: %s", self.url, model)
        self._on_change()

    def _went(self, error: SpeechError) -> None:
        self.error = error
        self.since_unix_s = time.time()
        self.down_since = self._clock.now()
        log.warning("%s", error)
        self._on_change()

    def _failed(self, error: SpeechError) -> None:
        self.error = error
        self.attempts += 1
        log.log(logging.WARNING if self.attempts == 1 else logging.DEBUG, "%s", error)
        self._on_change()

    def _leave(self) -> None:
        client, self.client = self.client, None
        if client is not None and client not in self._left:
            self._left[client] = asyncio.create_task(
                self._see_off(client), name=f"leave {self.url}"
            )

    async def _see_off(self, client: SpeechClient) -> None:
        until = self._clock.now() + LEFT_MOST_S
        while not client.closed and not client.idle and self._clock.now() < until:
            await self._clock.sleep_until(self._clock.now() + IDLE_CHECK_S)
        with contextlib.suppress(SpeechError):
            await client.close()
        self._left.pop(client, None)


def _waits() -> Iterator[float]:
    """Seconds between attempts, without end; uneven, so that hosts do not come all at once."""
    return Resume(first_wait_s=FIRST_WAIT_S, max_wait_s=LONGEST_WAIT_S).waits(random.random)


def _gone(url: str) -> ConnectionLost:
    return ConnectionLost(f"The speech server at {url} has gone, or is about to.", remedy=START)
