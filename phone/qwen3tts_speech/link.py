"""Persistent connection to the speech server, made on demand and remade after a loss."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from qwen3tts_wire.client import Resume, SpeechClient, Started
from qwen3tts_wire.errors import BadRequest, ConnectionLost, SpeechError
from qwen3tts_wire.events import Audio

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


class SpeechLink:
    """Shares one connection, or as few as the server allows, between the utterances of all calls.

    The first utterance opens it, or :meth:`warm`. When the server is lost, another one at the same
    address continues the utterances in progress; if none is found in time they end with
    :class:`~qwen3tts_wire.errors.ConnectionLost`. The next utterance reconnects, also when the
    server drains.
    """

    def __init__(self, url: str, *, connect: Connect = RESUMING) -> None:
        self.url = url
        """Of the server; settable until the first connection."""
        self._connect = connect
        self._client: SpeechClient | None = None
        self._leaving: list[SpeechClient] = []
        self._leases: dict[SpeechClient, int] = {}
        self._further: list[SpeechClient] = []
        """Further connections, while the first is full."""
        self._widening = asyncio.Lock()
        self._connecting = asyncio.Lock()
        self._closed = False
        self._failure: tuple[SpeechError, float] | None = None
        """Error and time of the last attempt; None = it succeeded."""
        self._mute = False
        """Whether a server took text and sent no audio since."""
        self._options = VoiceOptions()
        """Options that the server was asked about."""
        self._checking: asyncio.Task[SpeechError | None] | None = None

    async def client(self) -> SpeechClient:
        """Return the open connection, or a new one. Raises ConnectionLost."""
        async with self._connecting:
            if self._closed:
                raise ConnectionLost("the link to the speech server is closed.")
            self._leaving = [client for client in self._leaving if not client.closed]
            if self._client is not None and self._client.draining.is_set():
                self._leaving.append(self._client)
                self._client = None
            if self._client is None or self._client.closed:
                try:
                    self._client = await self._connect(self.url)
                except SpeechError as error:
                    self._failed(error)
                    raise
                self._failure = None
            return self._client

    async def outage(self) -> SpeechError | None:
        """Return why no server can be reached; None = one can, or none was needed yet.

        Returns immediately while connected, or within 2 s of a failure; else makes one attempt for
        all callers, 3 s, or 1 s after a failed one. After a stall (`stalled`) it requests a word of
        audio.
        """
        client, failure = self._client, self._failure
        if self._closed or (client is not None and client.connected and not self._mute):
            return None
        if client is None and failure is None and not self._mute:
            return None
        if failure is not None and asyncio.get_running_loop().time() < failure[1] + FRESH_S:
            return failure[0]
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._look(), name="look for the speech server")
        return await asyncio.shield(self._checking)

    async def _look(self) -> SpeechError | None:
        first = self._failure is None or self._mute
        try:
            async with asyncio.timeout(FIRST_WITHIN_S if first else AGAIN_WITHIN_S):
                client = await self.client()
                await client.ready()
                if self._mute:
                    await self._hear(client)
        except TimeoutError:
            said = f"The speech server at {self.url} sends no sound."
            if not self._mute:
                said = f"No speech server answers at {self.url}."
            return self._failed(ConnectionLost(said))
        except SpeechError as error:
            return self._failed(error)
        self._failure, self._mute = None, False
        return None

    async def _hear(self, client: SpeechClient) -> None:
        options = self._options
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

    def _failed(self, error: SpeechError) -> SpeechError:
        self._failure = error, asyncio.get_running_loop().time()
        return error

    async def lease(self) -> SpeechClient:
        """Return a connection with room for one more utterance; :meth:`release` it. Raises as
        :meth:`client`.
        """
        client = await self.client()
        if self._is_full(client):
            async with self._widening:
                client = await self._beside(client)
        self._leases[client] = self._leases.get(client, 0) + 1
        return client

    def release(self, client: SpeechClient) -> None:
        left = self._leases.get(client, 0) - 1
        if left > 0:
            self._leases[client] = left
        else:
            self._leases.pop(client, None)

    async def _beside(self, first: SpeechClient) -> SpeechClient:
        self._further = [
            each for each in self._further if not (each.closed or each.draining.is_set())
        ]
        alike = (each for each in self._further if each.url == first.url)
        free = next((each for each in alike if not self._is_full(each)), None)
        if free is None:
            free = await self._connect(first.url)
            self._further.append(free)
        return free

    def _is_full(self, client: SpeechClient) -> bool:
        most = max(1, client.session.limits.max_contexts - SPARE)
        return self._leases.get(client, 0) >= most

    async def warm(self) -> None:
        await self.client()

    def stalled(self, client: SpeechClient) -> None:
        """Note that it took text and sent no audio: new utterances use another connection."""
        self._mute = self._mute or client is self._client or client in self._further
        if client is self._client:
            self._leaving.append(client)
            self._client = None
        if client in self._further:
            self._leaving.append(client)
            self._further.remove(client)

    async def check(self, options: VoiceOptions) -> Started:
        """Ask the server whether it accepts these options. Raises UnknownVoice, BadRequest."""
        self._options = options
        client = await self.client()
        context = await client.open(voice=options.voice, language=options.language, **options.extra)
        started = await anext(context)
        context.cancel(0)
        assert isinstance(started, Started), "a context begins with context.started"
        return started

    async def close(self) -> None:
        self._closed = True
        if self._checking is not None:
            self._checking.cancel()
        async with self._connecting:
            clients = [*self._leaving, *([self._client] if self._client is not None else [])]
            self._leaving, self._client = [], None
            for client in clients:
                await client.close()
        await self.close_further()

    async def close_further(self) -> None:
        further, self._further = self._further, []
        for client in further:
            await client.close()
