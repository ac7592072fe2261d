"""Connections to speech servers, kept up in the background: one for each address."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_speech.link import Connect, SpeechLink
from qwen3tts_wire.client import Resume, SpeechClient
from qwen3tts_wire.errors import ConnectionLost, SpeechError, log_text

from .settings import Settings

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 15.0
"""Longest backoff; each doubles at most, and a reply cuts it short."""
CONNECT_S = 4.0
"""Timeout of one attempt."""
STEADY_S = 1.0
"""Lifetime after which the next attempt is immediate."""
IDLE_CHECK_S = 1.0
"""Interval at which an abandoned connection is checked for open contexts."""
LEFT_MOST_S = 600.0
"""Longest life of an abandoned connection."""
START = "Start it with 'mr-qwen3tts serve', or correct MR_QWEN3TTS_URL."


class ConnectionSupervisor:
    """Keeps one connection up.

    Contexts resume at the next server as the client's ``Resume`` allows; a draining or stalled
    connection is closed once its contexts end.
    """

    def __init__(
        self, url: str, connect: Connect, *, clock: Clock, on_change: Callable[[], None]
    ) -> None:
        """``on_change`` is called at each connect, loss and failed attempt."""
        self.url = url
        self.client: SpeechClient | None = None
        """The newest connection; see `up`."""
        self.error: SpeechError | None = None
        """Cause of the last loss or failure."""
        self.attempts = 0
        """Failed attempts since the last connection."""
        self.since_unix_s = time.time()
        """Wall clock of the last change."""
        self.down_since = clock.now()
        """Clock seconds of the last loss."""
        self._connect = connect
        self._clock = clock
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None
        self._waits = _waits()
        self._pause: asyncio.Future[None] | None = None
        """Set during backoff."""
        self._left: dict[SpeechClient, asyncio.Task[None]] = {}
        """Abandoned connections and the tasks that close them."""

    @property
    def up(self) -> bool:
        return self.client is not None and self.client.connected

    def start(self) -> None:
        """Start or go on; needs a running loop."""
        if self._task is None or self._task.done():
            self.down_since = self._clock.now()
            # It outlives the call that began it, and must not keep that one's context variables.
            self._task = asyncio.create_task(
                self._run(), name=f"upkeep of {self.url}", context=Context()
            )

    def nudge(self) -> None:
        """Attempt now, and back off briefly afterwards."""
        self._waits = _waits()
        if self._pause is not None:
            self._pause.cancel()

    def drop(self, client: SpeechClient) -> None:
        """Abandon a stalled connection and open another."""
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
        """Stop and close all connections."""
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
    return Resume(first_wait_s=FIRST_WAIT_S, max_wait_s=LONGEST_WAIT_S).waits(random.random)


def _gone(url: str) -> ConnectionLost:
    return ConnectionLost(f"The speech server at {url} has gone, or is about to.", remedy=START)


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
            on_state: called at every change.
        """
        self._clock: Clock = clock or LoopClock()
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
        super().__init__(url, connect=connect)
        self._wait_s = wait_s
        self._on_state = on_state
        self._waiters: set[asyncio.Future[None]] = set()
        self._main = self._upkeep(url, connect)
        self._fallback = None if fallback_url is None else self._upkeep(fallback_url, connect)
        self._passed_over_until = self._clock.now()

    def keep(self) -> None:
        """Keep the connection up from now on; needs a running loop."""
        if self._closed:
            return
        self._main.start()
        if self._fallback is not None:
            self._fallback.start()

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
                for each in self._servers:
                    each.nudge()
            if now >= until:
                raise self._away()
            await self._change(until if better_at is None else min(until, better_at))

    async def outage(self) -> SpeechError | None:
        """Return the cause while no server is up; None while one is or none was tried."""
        client, _ = self._choice(self._clock.now())
        if self._closed or client is not None or any(each.error is None for each in self._servers):
            return None
        return self._away()

    def stalled(self, client: SpeechClient) -> None:
        """Pass over a server that had text and sent no audio."""
        if client is self._main.client:
            self._passed_over_until = self._clock.now() + PROBATION_S
        for each in self._servers:
            each.drop(client)

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
        await asyncio.gather(*(each.close() for each in self._servers), self.close_further())

    # --- inside

    @property
    def _servers(self) -> list[ConnectionSupervisor]:
        return [self._main, *([] if self._fallback is None else [self._fallback])]

    def _upkeep(self, url: str, connect: Connect) -> ConnectionSupervisor:
        return ConnectionSupervisor(url, connect, clock=self._clock, on_change=self._changed)

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
                log.exception("who is told of the link's state broke")

    def _away(self) -> ConnectionLost:
        causes = [each.error for each in self._servers if each.error is not None]
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
