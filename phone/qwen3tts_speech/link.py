"""Connection to a speech server, and the link that shares it between utterances."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_wire.client import Resume, SpeechClient, Started
from qwen3tts_wire.errors import BadRequest, ConnectionLost, SpeechError, log_text
from qwen3tts_wire.events import Audio

log = logging.getLogger(__name__)

Connect = Callable[[str], Awaitable[SpeechClient]]
RESUME = Resume(within_s=3.0)
"""Bound of a resumption: callers take this silence for a pause."""
FIRST_WITHIN_S = 3.0
"""Longest search for a lost server."""
AGAIN_WITHIN_S = 1.0
"""The same after a failed attempt."""
FRESH_S = 2.0
"""Time for which a failed attempt counts as the present state."""
PROBE = "OK."
"""Text synthesised and dropped, to learn whether a stalled server sends audio again."""
SPARE = 2
"""Contexts left free on a connection, for questions about voices."""
FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 15.0
"""Longest backoff of a kept connection; each doubles at most, and a reply cuts it short."""
CONNECT_S = 4.0
"""Timeout of one attempt of a kept connection."""
STEADY_S = 1.0
"""Lifetime after which the next attempt is immediate."""
IDLE_CHECK_S = 1.0
"""Interval at which an abandoned connection is checked for open contexts."""
LEFT_MOST_S = 600.0
"""Longest life of an abandoned connection."""
START = "Start one with 'mr-qwen3tts serve', or correct the address."
RESUMING: Connect = functools.partial(SpeechClient.connect, resume=RESUME)


@dataclass(frozen=True, slots=True)
class VoiceOptions:
    """Options of an utterance; None = the server's default."""

    voice: str | None = None
    language: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields of ``context.open``, such as ``speed``."""


ChooseVoice = Callable[[SpeechClient], Awaitable[VoiceOptions]]
"""Chooses options once there is a connection."""


class SpeechConnection:
    """Connection to one speech server.

    `connect` opens it on demand; after `keep` a background task reconnects with backoff. Contexts
    resume at the next server as the client's ``Resume`` allows. A draining or stalled client is
    replaced, and closed once its contexts end. Further clients are opened while the first is full.
    """

    def __init__(
        self,
        url: str,
        connect: Connect,
        *,
        clock: Clock | None = None,
        on_change: Callable[[], None] = lambda: None,
        remedy: str = START,
    ) -> None:
        """Configure, unconnected.

        ``on_change`` is called at each connect, loss and failed attempt; ``remedy``: of the errors
        made here.
        """
        self.url = url
        self.client: SpeechClient | None = None
        """The newest client; see `up`."""
        self.error: SpeechError | None = None
        """Cause of the last loss or failure."""
        self.failed_at: float | None = None
        """Clock seconds of the last failed attempt; None after a successful one."""
        self.attempts = 0
        """Failed attempts since the last connection."""
        self.since_unix_s = time.time()
        """Wall clock of the last change."""
        self.mute = False
        """True if the server took text and sent no audio since."""
        self.probe_options = VoiceOptions()
        self._connect = connect
        self._clock: Clock = clock or LoopClock()
        self.down_since = self._clock.now()
        """Clock seconds of the last loss."""
        self._on_change = on_change
        self._remedy = remedy
        self._connecting = asyncio.Lock()
        self._widening = asyncio.Lock()
        self._further: list[SpeechClient] = []
        self._leases: dict[SpeechClient, int] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._waits = _waits()
        self._pause: asyncio.Future[None] | None = None
        """Set during backoff."""
        self._left: dict[SpeechClient, asyncio.Task[None]] = {}
        """Abandoned clients and the tasks that close them."""
        self._checking: asyncio.Task[SpeechError | None] | None = None
        self._closed = False

    @property
    def up(self) -> bool:
        return self.client is not None and self.client.connected

    async def connect(self) -> SpeechClient:
        """Return the open client, or a new one. Raises as ``SpeechClient.connect``."""
        async with self._connecting:
            if self._closed:
                raise ConnectionLost("The link to the speech server is closed.")
            client = self.client
            if client is not None and (client.closed or client.draining.is_set()):
                self._leave(client)
            if self.client is None:
                try:
                    self._came(await self._connect(self.url))
                except SpeechError as error:
                    self._failed(error)
                    raise
            assert self.client is not None, "a client has just come"
            return self.client

    # --- kept up in the background

    def keep(self) -> None:
        if not self._closed and (self._keeper is None or self._keeper.done()):
            self.down_since = self._clock.now()
            # It outlives the call that began it, and must not keep that one's context variables.
            self._keeper = asyncio.create_task(
                self._run(), name=f"upkeep of {self.url}", context=Context()
            )

    def nudge(self) -> None:
        self._waits = _waits()
        if self._pause is not None:
            self._pause.cancel()

    async def _run(self) -> None:
        while True:
            client = await self._attempt()
            if client is not None:
                came = self._clock.now()
                await self._while_it_lasts(client)
                self._leave(client)
                if self._clock.now() - came >= STEADY_S:
                    self._waits = _waits()
                    continue
            await self._wait(next(self._waits))

    async def _attempt(self) -> SpeechClient | None:
        try:
            async with asyncio.timeout(CONNECT_S):
                return await self.connect()
        except SpeechError:
            pass  # `connect` has recorded it
        except TimeoutError:
            said = f"{self.url} did not answer within {CONNECT_S:g} s."
            self._failed(ConnectionLost(said, remedy=self._remedy))
        except Exception as error:
            # Whatever it is, the next attempt may succeed; without this task none would be made.
            log.exception("connecting to %s broke", self.url)
            self._failed(ConnectionLost(f"Connecting to {self.url} broke: {error!r}."))
        return None

    async def _while_it_lasts(self, client: SpeechClient) -> None:
        while True:
            came = self._clock.now()
            await client.away()
            said = f"The speech server at {self.url} has gone, or is about to."
            self._went(ConnectionLost(said, remedy=self._remedy))
            if client.closed or client.draining.is_set():
                return
            if self._clock.now() - came < STEADY_S:
                return  # it comes and goes: back off
            try:
                await client.ready()
            except SpeechError as error:
                self._failed(error)
                return
            if client.elsewhere:
                return  # its contexts are continued there; new ones need a client of this address
            self._came(client)

    async def _wait(self, seconds: float) -> None:
        self._pause = asyncio.ensure_future(self._clock.sleep_until(self._clock.now() + seconds))
        try:
            await asyncio.wait([self._pause])
        finally:
            self._pause.cancel()
            self._pause = None

    # --- state

    def _came(self, client: SpeechClient) -> None:
        self.client, self.error, self.failed_at, self.attempts = client, None, None, 0
        self.since_unix_s = time.time()
        if self._keeper is not None:
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
        self.error, self.failed_at = error, self._clock.now()
        self.attempts += 1
        warn = self._keeper is not None and self.attempts == 1
        log.log(logging.WARNING if warn else logging.DEBUG, "%s", error)
        self._on_change()

    # --- utterances

    async def lease(self, client: SpeechClient) -> SpeechClient:
        """Return ``client``, or one beside it while it is full; :meth:`release` it."""
        if self._is_full(client):
            async with self._widening:
                client = await self._beside()
        self._leases[client] = self._leases.get(client, 0) + 1
        return client

    def release(self, client: SpeechClient) -> None:
        left = self._leases.get(client, 0) - 1
        if left > 0:
            self._leases[client] = left
        else:
            self._leases.pop(client, None)

    async def _beside(self) -> SpeechClient:
        for each in [each for each in self._further if each.closed or each.draining.is_set()]:
            self._leave(each)
        free = next((each for each in self._further if not self._is_full(each)), None)
        if free is None:
            free = await self._connect(self.url)
            self._further.append(free)
        return free

    def _is_full(self, client: SpeechClient) -> bool:
        most = max(1, client.session.limits.max_contexts - SPARE)
        return self._leases.get(client, 0) >= most

    # --- stalled servers

    def drop(self, client: SpeechClient) -> None:
        """Abandon a client whose server took text and sent no audio; a kept one is replaced."""
        first = client is self.client
        if not first and client not in self._further:
            return
        self.mute = True
        self._leave(client)
        if first and self._keeper is not None:
            said = f"The speech server at {self.url} has not answered."
            self._went(ConnectionLost(said, remedy="Look at its log."))
            self._keeper.cancel()
            self._keeper, self._waits = None, _waits()
            self.keep()

    async def outage(self) -> SpeechError | None:
        """Return why the server cannot be reached; None = it can, or was not needed yet.

        Returns immediately while connected, while a kept connection is down, or within 2 s of a
        failure; else makes one attempt for all callers, 3 s, or 1 s after a failed one. After a
        stall (`drop`) it requests a word of audio.
        """
        if self._closed or (self.up and not self.mute):
            return None
        if self._keeper is not None and not self.up:
            return self.error
        if self.client is None and self.failed_at is None and not self.mute:
            return None
        if self.failed_at is not None and self._clock.now() < self.failed_at + FRESH_S:
            return self.error
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._look(), name="look for the speech server")
        return await asyncio.shield(self._checking)

    async def _look(self) -> SpeechError | None:
        first = self.failed_at is None or self.mute
        try:
            async with asyncio.timeout(FIRST_WITHIN_S if first else AGAIN_WITHIN_S):
                client = await self.connect()
                await client.ready()
                if self.mute:
                    await self._probe(client)
        except TimeoutError:
            said = f"The speech server at {self.url} sends no sound."
            if not self.mute:
                said = f"No speech server answers at {self.url}."
            self._failed(ConnectionLost(said))
            return self.error
        except SpeechError as error:
            if error is not self.error:
                self._failed(error)
            return error
        self.error, self.failed_at, self.attempts, self.mute = None, None, 0, False
        return None

    async def _probe(self, client: SpeechClient) -> None:
        options = self.probe_options
        with contextlib.suppress(BadRequest):
            context = await client.open(
                voice=options.voice, language=options.language, **options.extra
            )
            try:
                await context.append(PROBE)
                await context.end()
                async for event in context:
                    if isinstance(event, Audio):
                        return
            finally:
                context.cancel(0)

    # --- the end

    def _leave(self, client: SpeechClient) -> None:
        if client is self.client:
            self.client = None
        if client in self._further:
            self._further.remove(client)
        if client not in self._left:
            self._left[client] = asyncio.create_task(
                self._close_when_idle(client), name=f"leave {self.url}"
            )

    async def _close_when_idle(self, client: SpeechClient) -> None:
        until = self._clock.now() + LEFT_MOST_S
        while not client.closed and self._clock.now() < until:
            if client.idle and client not in self._leases:
                break
            await self._clock.sleep_until(self._clock.now() + IDLE_CHECK_S)
        with contextlib.suppress(SpeechError):
            await client.close()
        self._left.pop(client, None)

    async def close(self) -> None:
        self._closed = True
        tasks = [each for each in (self._keeper, self._checking) if each is not None]
        tasks += self._left.values()
        left, self._left = list(self._left), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        async with self._connecting:
            first, self.client = self.client, None
            clients = [*left, *self._further, *([] if first is None else [first])]
            self._further = []
            await asyncio.gather(*(client.close() for client in clients))


def _waits() -> Iterator[float]:
    return Resume(first_wait_s=FIRST_WAIT_S, max_wait_s=LONGEST_WAIT_S).waits(random.random)


class SpeechLink:
    """Shares one connection, or as few as the server allows, between the utterances of all calls.

    The first utterance opens it, or :meth:`warm`. When the server is lost, another one at the same
    address continues the utterances in progress; if none is found in time they end with
    :class:`~qwen3tts_wire.errors.ConnectionLost`. The next utterance reconnects, also when the
    server drains.
    """

    def __init__(
        self, url: str, *, connect: Connect = RESUMING, clock: Clock | None = None
    ) -> None:
        self._clock: Clock = clock or LoopClock()
        self._closed = False
        self.connections = [SpeechConnection(url, connect, clock=self._clock)]
        """Connections, the preferred server's first."""

    @property
    def url(self) -> str:
        return self.connections[0].url

    @url.setter
    def url(self, url: str) -> None:
        self.connections[0].url = url

    async def client(self) -> SpeechClient:
        """Return the open connection, or a new one. Raises ConnectionLost."""
        return await self.connections[0].connect()

    async def outage(self) -> SpeechError | None:
        """Return why no server can be reached, as :meth:`SpeechConnection.outage`."""
        return await self.connections[0].outage()

    async def lease(self) -> SpeechClient:
        """Return a connection with room for one more utterance, until :meth:`release`.

        Raises as :meth:`client`.
        """
        client = await self.client()
        owner = next((each for each in self.connections if each.client is client), None)
        return await (owner or self.connections[0]).lease(client)

    def release(self, client: SpeechClient) -> None:
        for each in self.connections:
            each.release(client)

    async def warm(self) -> None:
        await self.client()

    def stalled(self, client: SpeechClient) -> None:
        """Note that it took text and sent no audio: new utterances use another connection."""
        for each in self.connections:
            each.drop(client)

    async def check(self, options: VoiceOptions) -> Started:
        """Ask the server whether it accepts these options. Raises UnknownVoice, BadRequest."""
        for each in self.connections:
            each.probe_options = options
        client = await self.client()
        context = await client.open(voice=options.voice, language=options.language, **options.extra)
        started = await anext(context)
        context.cancel(0)
        assert isinstance(started, Started), "a context begins with context.started"
        return started

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(each.close() for each in self.connections))
