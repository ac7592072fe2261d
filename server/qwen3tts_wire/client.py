"""Client of ``qwen3tts.speech.v1``."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import itertools
import logging
import random
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from qwen3tts_wire.addresses import check_address, first_connected, key_for
from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.connection import ClientBroke, ServerConnection
from qwen3tts_wire.context import Context
from qwen3tts_wire.errors import ConnectionLost, ProtocolError, ServerBusy, SpeechError
from qwen3tts_wire.events import Alignment, Audio, Cancelled, Done, Event, Resumed, Started
from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.messages import SessionCreated, VoiceReady
from qwen3tts_wire.resume import Resume

__all__ = [
    "Alignment",
    "Audio",
    "Cancelled",
    "Context",
    "Done",
    "Event",
    "Resume",
    "Resumed",
    "SpeechClient",
    "Started",
]

log = logging.getLogger(__name__)


class SpeechClient:
    """Client connection with any number of contexts.

    With ``resume`` it reconnects on a lost connection or a drain: to the same address, then to
    ``Resume.elsewhere``; contexts go on.

        >>> client = await SpeechClient.connect("ws://127.0.0.1:8765/v1/speech")
        >>> context = await client.open(voice="en")
        >>> await context.append("Good morning."); await context.end()
        >>> async for event in context: ...
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        ping_interval: float = 5.0,
        open_timeout: float = 5.0,
        resume: Resume | None = None,
        api_key: str | None = None,
    ) -> None:
        self.url = url
        self.resume = resume
        self.draining = asyncio.Event()
        """Set when the server drains: open new contexts elsewhere. Never set with ``resume``."""
        self.error: SpeechError | None = None
        """Error that ended the client, or None."""
        self._connection: ServerConnection
        self._clock = clock
        self._ping_interval = ping_interval
        self._open_timeout = open_timeout
        self._api_key = api_key
        self._leaving: set[ServerConnection] = set()
        """Left connections that still have contexts."""
        self._waiting: dict[Context, str] = {}
        """Contexts without a server, with their last address."""
        self._moving: dict[asyncio.Task[None], Context] = {}
        """Tasks moving a context after a wait."""
        self._last: str | None = None
        """Address of a stalled server, tried last."""
        self._search: asyncio.Task[SpeechError | None] | None = None
        """Search of a server; None or done while connected."""
        self._closing: set[asyncio.Task[None]] = set()
        self._load_numbers = itertools.count(1)

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        open_timeout: float = 5.0,
        ping_interval: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        resume: Resume | bool | None = None,
        api_key: str | None = None,
    ) -> SpeechClient:
        """Connect; wait for greeting and first clock answer. Ignores proxies.

        Args:
            url: ``ws://`` or ``wss://`` address.
            open_timeout: seconds.
            ping_interval: seconds.
            clock: monotonic seconds.
            resume: policy after a loss; True is ``Resume()``; else contexts end with
                ConnectionLost.
            api_key: None: of a server started here, else ``QWEN3TTS_API_KEY``.

        Raises:
            BadRequest: invalid ``url`` or key.
            ConnectionLost: nothing answers in time.
            ProtocolError: the answer is another protocol's.
            ServerBusy: no connection is free.
        """
        check_address(url)
        client = cls(
            url,
            clock=clock,
            ping_interval=ping_interval,
            open_timeout=open_timeout,
            resume=(Resume() if resume else None) if isinstance(resume, bool) else resume,
            api_key=key_for(url) if api_key is None else api_key,
        )
        client._connection = await client._dial(open_timeout)
        return client

    async def _dial(
        self, timeout_s: float, last_no: int = 0, url: str | None = None
    ) -> ServerConnection:
        return await ServerConnection.dial(
            url or self.url,
            self,
            open_timeout=timeout_s,
            ping_interval=self._ping_interval,
            clock=self._clock,
            last_no=last_no,
            api_key=self._api_key,
        )

    # --- what a caller uses ---

    @property
    def session(self) -> SessionCreated:
        if self.protocol.session is None:
            raise ProtocolError("The server has not greeted yet.")
        return self.protocol.session

    @property
    def protocol(self) -> ClientProtocol:
        return self._connection.protocol

    @property
    def closed(self) -> bool:
        return self.error is not None

    @property
    def connected(self) -> bool:
        """True if a context opens without a search."""
        return self.error is None and self._connection.usable

    @property
    def elsewhere(self) -> bool:
        """True if connected to an address of ``Resume.elsewhere``."""
        return self._connection.url != self.url

    @property
    def idle(self) -> bool:
        """True if no context brings audio and no voice loads."""
        connections = (self._connection, *self._leaving)
        return not (self._waiting or self._moving) and all(
            connection.idle for connection in connections
        )

    async def ready(self) -> None:
        """Wait until connected; raises as ``connect``."""
        await self._usable()

    async def away(self) -> None:
        """Wait until not connected to its own address."""
        while self.connected and not self.elsewhere:
            await self._connection.left.wait()

    @property
    def clock_offset_s(self) -> float:
        return self._connection.offset_s

    @property
    def rtt_s(self) -> float:
        """Round trip of the clock's ping, seconds."""
        return self._connection.rtt_s

    async def open(
        self,
        voice: str | None = None,
        language: str | None = None,
        mode: str = "auto",
        format: AudioFormat | None = None,  # noqa: A002 - the field's name on the wire
        **options: Any,
    ) -> Context:
        """Open a context, waiting only where a server must be found.

        ``options`` are fields of ``context.open``: ``speed``, ``instructions``, ``sampling``,
        ``seed``, ``initial_codec_chunk_frames``, ``lead_ms``, ``window_ms``, ``pause_flush_ms``,
        ``context_id``. A server's refusal (an unknown voice) comes out of the context.

        Raises:
            BadRequest: an option is unknown or out of bounds.
            ConnectionLost: the connection is over.
            ServerBusy: the server drains.
        """
        connection = await self._usable()
        context = connection.open(
            resumable=self.resume is not None,
            voice=voice,
            language=language,
            mode=mode,
            format=format,
            **options,
        )
        await connection.flush_out()
        return context

    async def load_voice(
        self,
        ref_audio: bytes | None = None,
        ref_text: str | None = None,
        *,
        voice_id: str | None = None,
        x_vector_only: bool = False,
    ) -> VoiceReady:
        """Load a voice from a sound file or a stored one; its ``voice_id`` is for ``open``.

        Args:
            ref_audio: sound file.
            ref_text: transcript; None: the server transcribes, if it can.
            voice_id: of a stored voice.
            x_vector_only: only the speaker embedding (x-vector).

        Raises:
            BadRequest: the engine cannot clone from this.
            UnknownVoice: no such id.
            LimitExceeded: the file is too large.
            ServerBusy: too many loads.
            ConnectionLost: the connection is over.
        """
        connection = self._connection if self.resume is None else await self._usable()
        if self.error is not None:
            raise self.error
        audio = None if ref_audio is None else base64.b64encode(ref_audio).decode()
        message = connection.protocol.send_voice_load(
            f"v{next(self._load_numbers)}",
            voice_id=voice_id,
            ref_audio=audio,
            ref_text=ref_text,
            x_vector_only=x_vector_only,
        )
        answer: asyncio.Future[VoiceReady] = asyncio.get_running_loop().create_future()
        connection.loads[message.request_id] = answer
        try:
            await connection.flush_out()
            return await answer
        finally:
            connection.loads.pop(message.request_id, None)

    async def close(self) -> None:
        """Close; open contexts end with ConnectionLost."""
        if self.error is None:
            self.error = ConnectionLost("This side closed the connection.")
        if self._search is not None:
            self._search.cancel()
            await asyncio.wait([self._search])
        moving, self._moving = self._moving, {}
        for task in moving:
            task.cancel()
        self._fail([*self._waiting, *moving.values()], self.error)
        self._waiting = {}
        await asyncio.gather(*moving, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in (self._connection, *self._leaving)))
        if self._closing:
            await asyncio.wait(self._closing)

    async def __aenter__(self) -> SpeechClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def reroute(self, context: Context) -> bool:
        """Move a context off a stalled server; False without another address."""
        connection = next(
            (each for each in (self._connection, *self._leaving) if each.has(context)), None
        )
        if (
            connection is None
            or self.resume is None
            or not set(self.resume.elsewhere) - {connection.url}
        ):
            return False
        context.give_up()
        if connection is self._connection:
            connection.left.set()
            self._leaving.add(connection)
            self._last = connection.url
        self.lost(
            connection, [context], ConnectionLost(f"The server at {connection.url} has stalled.")
        )
        return True

    # --- called by the connection ---

    def leaving(self, connection: ServerConnection) -> None:
        if self.resume is None:
            self.draining.set()
        elif connection is self._connection and self.error is None:
            self._leaving.add(connection)
            self._look()

    def lost(
        self, connection: ServerConnection, contexts: list[Context], error: SpeechError
    ) -> None:
        gone = connection.error is not None
        if self.resume is None:
            self.error = (self.error or error) if gone else self.error
            self._fail(contexts, error)
            return
        if gone:
            self._leaving.discard(connection)
            closing = asyncio.create_task(connection.close(), name="close a lost speech connection")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        elsewhere = isinstance(error, (ConnectionLost, ServerBusy)) and not isinstance(
            error, ClientBroke
        )
        for context in contexts:
            refused = isinstance(error, ServerBusy) and context.joining and connection.usable
            if elsewhere and self.error is None and context.detach(str(error), connection.offset_s):
                if refused:  # there is a server, and it has no room
                    pause_s = self.resume.within_s / (1 + self.resume.fruitless)
                    self._begin(context, self._move(context, connection.url, pause_s))
                else:
                    self._waiting[context] = connection.url
            else:
                self._fail([context], error)
        if self._waiting:
            self._look()

    @staticmethod
    def _fail(contexts: list[Context], error: SpeechError) -> None:
        # One exception each: each is raised, with its own traceback, by its own reader.
        for context in contexts:
            context.fail(
                type(error)(error.message, remedy=error.remedy, context_id=context.context_id)
            )

    # --- looking for another server ---

    async def _usable(self) -> ServerConnection:
        if self.draining.is_set() and self.error is None:
            raise ServerBusy("The server is about to stop.", remedy="Connect again.")
        while self.resume is not None and self.error is None and not self._connection.usable:
            search = self._look()
            await asyncio.wait([search])
            failure = None if search.cancelled() else search.result()
            if failure is not None:
                raise type(failure)(failure.message, remedy=failure.remedy)
        if self.error is not None:
            raise self.error
        return self._connection

    def _look(self) -> asyncio.Task[SpeechError | None]:
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._find(), name="look for a speech server")
        return self._search

    async def _find(self) -> SpeechError | None:
        assert self.resume is not None
        until = self._clock() + self.resume.within_s
        for wait_s in self.resume.waits(random.random):
            if self._connection.usable:
                break
            try:
                left = max(0.05, until - self._clock())
                dial = functools.partial(self._dial_usable, min(self._open_timeout, left))
                self._connection = await first_connected(
                    self._addresses(), dial, ServerConnection.close
                )
                self._last = None
                break
            except SpeechError as error:
                failure = error
            if self._clock() + wait_s > until:
                log.warning("no speech server found again: %s", failure)
                self._fail(list(self._waiting), failure)
                self._waiting = {}
                return failure
            await asyncio.sleep(wait_s)
        waiting, self._waiting = self._waiting, {}
        for context, url in waiting.items():
            if context.revoice is not None and self._connection.url != url:
                self._begin(context, self._move(context, url))
            else:
                self._attach(context)
        return None

    def _addresses(self) -> list[str]:
        assert self.resume is not None
        all_of_them = dict.fromkeys((self.url, *self.resume.elsewhere))
        return sorted(all_of_them, key=lambda url: url == self._last)

    async def _dial_usable(self, timeout_s: float, url: str) -> ServerConnection:
        connection = await self._dial(timeout_s, self.protocol.last_no, url)
        if connection.usable:
            return connection
        if connection.error is None:
            await connection.close()
        raise connection.error or ServerBusy("The server is about to stop.")

    def _begin(self, context: Context, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="move a context")
        self._moving[task] = context
        task.add_done_callback(lambda it: self._moving.pop(it, None))

    async def _move(self, context: Context, url: str, after_s: float = 0.0) -> None:
        await asyncio.sleep(after_s)
        if context.revoice is not None and self._connection.url != url:
            with contextlib.suppress(SpeechError):  # then it is asked for the same voice
                voice, language = await context.revoice()
                context.speak_with(voice, language, [each.id for each in self.session.voices])
        if self._connection.usable:
            self._attach(context)
        elif context.waits:
            self._waiting[context] = url
            self._look()

    def _attach(self, context: Context) -> None:
        assert self.resume is not None
        if context.waits:
            try:
                context.attach(self._connection, self.resume.fruitless)
            except SpeechError as error:
                self._fail([context], error)
