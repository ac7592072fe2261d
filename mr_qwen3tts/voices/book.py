"""Voices prepared at the server, or the next best.

A request is a chain: call's voice, persona's voice and recordings, settings' recording and
voice, server's own. The first available speaks: a misspelt name costs a log line, never the
sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_speech.link import VoiceOptions
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.errors import BadRequest, ConnectionLost, ServerBusy, SpeechError

from ..settings import Settings
from ..threads import in_thread
from .finder import VoiceFinder, ask, keep
from .recordings import RecordingError, Stamp, stamp
from .request import VoiceRequest, requested_voice

__all__ = ["PluginVoices", "VoiceRequest", "requested_voice"]

log = logging.getLogger(__name__)

RETRY_S = 30.0
"""Interval of retries."""
BUSY_RETRY_S = 2.0
"""After a busy or lost server."""
KEPT = 256
"""Voices and problems a connection; a model may invent names."""
Value = TypeVar("Value")
Problem = Callable[[str, BaseException | str], None]


@dataclass(slots=True)
class _Search:
    """Preparation of a voice."""

    task: asyncio.Task[str | None] = field(init=False)
    """Returns the server's id."""
    stamp: Stamp | None = None
    """File state."""
    failed_at: float = 0.0
    retry_s: float = 0.0


@dataclass(slots=True)
class _Shelf:
    """Voices of one connection."""

    listed: dict[str, str]
    """Ids by case-folded id and name."""
    used: OrderedDict[VoiceRequest, str] = field(default_factory=OrderedDict)
    """Requested ones."""
    searches: OrderedDict[VoiceRequest, _Search] = field(default_factory=OrderedDict)
    pairs: OrderedDict[tuple[str | None, str], asyncio.Task[VoiceOptions | None]] = field(
        default_factory=OrderedDict
    )
    """Accepted voice and language."""

    def request_of(self, voice: str | None) -> VoiceRequest:
        found = self.used | {request: _result(each.task) for request, each in self.searches.items()}
        return next(
            (request for request, each in found.items() if each == voice), VoiceRequest(voice)
        )


class PluginVoices:
    """Voices of all calls; ``problem`` reports an unavailable one once."""

    def __init__(
        self, problem: Problem = lambda what, error: None, *, clock: Clock | None = None
    ) -> None:
        self.problems: OrderedDict[VoiceRequest, str] = OrderedDict()
        self._problem = problem
        self._clock: Clock = clock or LoopClock()
        self._shelves: WeakKeyDictionary[ClientProtocol, _Shelf] = WeakKeyDictionary()
        self._finder = VoiceFinder()
        self._looking: set[str] = set()
        """File checks."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._late: WeakSet[asyncio.Task[Any]] = WeakSet()
        """Voices too late for a sentence."""

    @property
    def known(self) -> tuple[VoiceRequest, ...]:
        ready = {
            request: None
            for shelf in self._shelves.values()
            for request in (*shelf.used, *shelf.searches)
            if request in shelf.used or _result(shelf.searches[request].task) is not None
        }
        return tuple(ready)

    async def options(
        self, client: SpeechClient, request: VoiceRequest, settings: Settings
    ) -> VoiceOptions:
        """Return an utterance's options within ``settings.voice_wait_ms``.

        A late voice is prepared for the next one. Raises only CancelledError.
        """
        deadline = self._clock.now() + settings.voice_wait_ms / 1000
        if not client.connected:
            # It looks for a server, and another one may not know a voice that this one knew.
            await self._wait(self._begun(_ready(client)), deadline)
        shelf = self._shelf(client)
        voice = await self._first(shelf, client, request, deadline)
        language = settings.language
        if language is not None:
            task = self._pair(shelf, client, voice, language)
            await self._wait(task, deadline)
            pair = _result(task)
            # Where the server has not said yet, the voice counts: it may have no such language.
            voice, language = (pair.voice, pair.language) if pair else (voice, None)
        extra = {
            "mode": settings.mode,
            "speed": settings.speed,
            "instructions": settings.instructions,
            "seed": settings.seed,
            "initial_codec_chunk_frames": settings.initial_codec_chunk_frames,
        }
        return VoiceOptions(voice, language, {k: v for k, v in extra.items() if v is not None})

    async def warm(
        self, client: SpeechClient, requests: Iterable[VoiceRequest], settings: Settings
    ) -> None:
        """Prepare voices; raises only CancelledError."""
        shelf = self._shelf(client)
        for request in requests:
            voice = await self._first(shelf, client, request, None)
            if settings.language is not None:
                await self._wait(self._pair(shelf, client, voice, settings.language), None)

    def refused(self, client: SpeechClient, voice: str | None) -> None:
        shelf = self._shelf(client)
        for request, search in list(shelf.searches.items()):
            if voice is not None and _result(search.task) == voice:
                del shelf.searches[request]
        for pair in [each for each in shelf.pairs if each[0] == voice]:
            del shelf.pairs[pair]

    # --- the first of a request that can be had

    async def _first(
        self, shelf: _Shelf, client: SpeechClient, request: VoiceRequest, deadline: float | None
    ) -> str | None:
        for single in request.singly():
            if (listed := shelf.listed.get(_folded(single.name or ""))) is not None:
                keep(shelf.used, single, listed, KEPT)
                return listed
            search = self._search(shelf, client, single)
            await self._wait(search.task, deadline)
            if not search.task.done():
                self._tell(single, "it is still being made ready; the next best voice speaks")
            elif (voice := _result(search.task)) is not None:
                self._look(shelf, client, single, search)
                return voice
        return None

    def _search(self, shelf: _Shelf, client: SpeechClient, request: VoiceRequest) -> _Search:
        search = shelf.searches.get(request)
        if search is not None and (
            not search.retry_s or self._clock.now() < search.failed_at + search.retry_s
        ):
            shelf.searches.move_to_end(request)
            return search
        search = _Search()
        search.task = self._begun(self._made(client, request, search))
        keep(shelf.searches, request, search, KEPT)
        return search

    async def _made(
        self, client: SpeechClient, request: VoiceRequest, search: _Search
    ) -> str | None:
        # Nothing is raised: the frames of an exception would hold the connection for as long as
        # the shelf is kept, which is as long as the connection.
        try:
            voice = await self._finder.find(client, request)
        except Exception as error:
            passing = isinstance(error, ServerBusy | ConnectionLost)
            search.retry_s = BUSY_RETRY_S if passing else RETRY_S
            search.failed_at = self._clock.now()
            if not isinstance(error, SpeechError | RecordingError):
                log.exception("a voice could not be made ready")
            if not isinstance(error, ConnectionLost):  # reported by the utterance
                self._tell(request, f"it cannot be used: {str(error) or type(error).__name__}")
            return None
        search.stamp = self._finder.stamp_of(request)
        self.problems.pop(request, None)
        return voice

    def _tell(self, request: VoiceRequest, said: str) -> None:
        if self.problems.get(request) == said:
            return
        self.problems[request] = said
        while len(self.problems) > KEPT:
            self.problems.popitem(last=False)
        self._problem("voice", f"Voice {request}: {said}")

    # --- recordings that change

    def _look(
        self, shelf: _Shelf, client: SpeechClient, request: VoiceRequest, search: _Search
    ) -> None:
        where = request.name or ""
        if search.stamp is not None and where not in self._looking:
            self._looking.add(where)
            self._begun(self._replace(shelf, client, request, search))

    async def _replace(
        self, shelf: _Shelf, client: SpeechClient, request: VoiceRequest, search: _Search
    ) -> None:
        where = request.name or ""
        try:
            state = await in_thread(lambda: stamp(where, request.access))
            if state is None or state == search.stamp:
                return
            search.stamp = state  # tried once, whatever comes of it
            again = _Search()
            again.task = self._begun(self._made(client, request, again))
            await asyncio.wait([again.task])
            if _result(again.task) is not None and shelf.searches.get(request) is search:
                shelf.searches[request] = again
        finally:
            self._looking.discard(where)

    # --- a voice with a language

    def _pair(
        self, shelf: _Shelf, client: SpeechClient, voice: str | None, language: str
    ) -> asyncio.Task[VoiceOptions | None]:
        task = shelf.pairs.get((voice, language))
        if task is None or (task.done() and _result(task) is None):
            task = self._begun(self._agreed(shelf, client, voice, language))
            keep(shelf.pairs, (voice, language), task, KEPT)
        return task

    async def _agreed(
        self, shelf: _Shelf, client: SpeechClient, voice: str | None, language: str
    ) -> VoiceOptions | None:
        request = shelf.request_of(voice)
        try:
            await ask(client, voice, language)
        except BadRequest as error:
            self._tell(request, f"it speaks without the language {language!r}: {error}")
            return VoiceOptions(voice, None)
        except SpeechError:
            return None  # reported by the utterance
        self.problems.pop(request, None)
        return VoiceOptions(voice, language)

    # --- tasks

    def _shelf(self, client: SpeechClient) -> _Shelf:
        # The protocol and not the client: a client that connects again has another server.
        shelf = self._shelves.get(client.protocol)
        if shelf is None:
            names = [(each.name, each.id) for each in client.session.voices]
            ids = [(each.id, each.id) for each in client.session.voices]
            shelf = _Shelf({_folded(name): voice for name, voice in names + ids})
            self._shelves[client.protocol] = shelf
        return shelf

    def _begun(self, work: Coroutine[Any, Any, Value]) -> asyncio.Task[Value]:
        task = asyncio.create_task(work, name="qwen3tts: voice")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _wait(self, task: asyncio.Task[Any], deadline: float | None) -> None:
        if task.done() or (task in self._late and deadline is not None):
            return
        if deadline is None:
            await asyncio.wait([task])
            return
        limit = asyncio.create_task(self._clock.sleep_until(deadline))
        try:
            await asyncio.wait([task, limit], return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()
        if not task.done():
            self._late.add(task)


def _folded(name: str) -> str:
    return name.strip().lower().replace(" ", "-").replace("_", "-")


def _result(task: asyncio.Task[Value | None]) -> Value | None:
    return task.result() if task.done() and not task.cancelled() else None


async def _ready(client: SpeechClient) -> None:
    with contextlib.suppress(SpeechError):  # reported by the utterance
        await client.ready()
