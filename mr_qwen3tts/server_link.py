"""The connection to the speech server as replies use it: there at once, or a bounded wait."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.client import Resume, SpeechClient
from qwen3tts_wire.errors import ConnectionLost, SpeechError

from .upkeep import START, Connect, Upkeep

log = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 2.0
"""A server that has not greeted by then is not there: the next attempt may find one that is."""
SEARCH_WAIT_S = 0.25
"""Longest pause between attempts while a reply in mid-speech looks for a server."""
PROBATION_S = 30.0
"""So long a server that has stalled is passed over, where there is a fallback."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """How the connection is, for people."""

    url: str
    """The main server's address."""
    up: bool
    """Whether the main server can be spoken with."""
    since: float
    """Wall clock (Unix seconds) since when that is so."""
    last_error: SpeechError | None
    """Why it is away; None while it is there."""
    engine: str
    model: str
    """What speaks, and from which model: of the server that the next reply goes to."""
    voices: tuple[str, ...]
    """Its voices on offer, by their ids, the default first."""
    using_fallback: bool
    """Whether the next reply goes to the fallback."""
    attempts: int
    """Attempts in vain since the main server was there."""


class ServerLink(SpeechLink):
    """Keeps the connection up, so that a reply never waits for it while the server is there.

    While it is away a reply waits ``wait_s`` for it and no longer, counted from when the server
    went; then it goes to the fallback, where there is one and it is there. The connection to the
    fallback is kept up as well. As soon as the main server is back, replies go there again; what
    is under way stays where it is. A reply in mid-speech whose server is lost goes on at the same
    address or at the other one, whichever answers first, the same address preferred.
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
        """Nothing is connected before `keep`, or the first reply.

        Args:
            url: the main server, such as ``ws://127.0.0.1:8765/v1/speech``.
            api_key: what both servers ask for; None is the environment's ``QWEN3TTS_API_KEY``.
            fallback_url: another server, for while the main one is away.
            wait_s: longest wait of a reply for a server.
            resume_s: how long a reply in mid-speech looks for a server, at both addresses.
            connect: makes a client for an address.
            on_state: is told of every change.
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
        """Have the connection kept up from now on; returns at once. Needs a running loop."""
        if self._closed:
            return
        self._main.start()
        if self._fallback is not None:
            self._fallback.start()

    async def client(self) -> SpeechClient:
        """The connection; at once while it is up, and within ``wait_s`` in any case.

        Raises:
            ConnectionLost: neither server is there; or the link is closed.
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
        """Return why neither server can be reached; None while one can, or it is not known yet."""
        client, _ = self._choice(self._clock.now())
        if self._closed or client is not None or any(each.error is None for each in self._servers):
            return None
        return self._away()

    def stalled(self, client: SpeechClient) -> None:
        """It was given text and brought no sound: what is said next goes another way."""
        if client is self._main.client:
            self._passed_over_until = self._clock.now() + PROBATION_S
        for each in self._servers:
            each.drop(client)

    @property
    def state(self) -> LinkState:
        """How it is now."""
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
        """Close all connections; no further utterance can start."""
        self._closed = True
        self._changed()
        await asyncio.gather(*(each.close() for each in self._servers), self.close_further())

    # --- inside

    @property
    def _servers(self) -> list[Upkeep]:
        return [self._main, *([] if self._fallback is None else [self._fallback])]

    def _upkeep(self, url: str, connect: Connect) -> Upkeep:
        return Upkeep(url, connect, clock=self._clock, on_change=self._changed)

    def _choice(self, now: float) -> tuple[SpeechClient | None, float | None]:
        """Who is spoken with now, if anybody; and from when on it may be somebody else."""
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
        """Wait for a change, until that time."""
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
