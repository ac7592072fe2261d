"""Voices between store and engine; all waiting is here.

Store access is threaded. Its snapshot (``index``) is renewed every few seconds and for unknown
voices.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from qwen3tts_engine.base import ClonesVoices, LoadedVoice, TakesEmbeddings, WordsMissing
from qwen3tts_server.keys import EVERYTHING, Grant
from qwen3tts_server.settings import VoiceSettings
from qwen3tts_server.voices.fetch import Fetcher
from qwen3tts_server.voices.files import open_files
from qwen3tts_server.voices.reference import (
    KeyedLocks,
    LoadLimiter,
    decode_inline,
    parse_reference,
    read_file,
    seconds_of,
    too_large,
)
from qwen3tts_server.voices.store import Index, VoiceStore
from qwen3tts_server.voices.stored import REF_TEXT_MAX, StoredVoice, VoiceContent
from qwen3tts_wire.errors import BadRequest, LimitExceeded, ServerBusy, SpeechError, UnknownVoice

log = logging.getLogger(__name__)

T = TypeVar("T")
LOADED_MOST = 16_384
"""Ids remembered."""
NOTE_MAX = 1024
"""Code points of description and consent."""
FORGET_AFTER_S = 60.0
"""Idle time before a deleted voice leaves the engine."""


class VoiceLibrary:
    """Voices loaded, stored and deleted on one event loop."""

    def __init__(
        self,
        settings: VoiceSettings,
        cloner: Callable[[], ClonesVoices | None],
        embedder: Callable[[], TakesEmbeddings | None],
        fetcher: Fetcher | None = None,
    ) -> None:
        """``cloner`` takes recordings, ``embedder`` speaker embeddings; or None."""
        self.settings = settings
        self._cloner = cloner
        self._embedder = embedder
        self._fetcher = fetcher or Fetcher(settings)
        self._store: VoiceStore | None = None
        if settings.store is None:
            self._store = VoiceStore(open_files(None), settings)
        self._pool: ThreadPoolExecutor | None = None
        self._opening = asyncio.Lock()
        self._loads = LoadLimiter(settings.max_loads, settings.max_waiting)
        self._fetches = LoadLimiter(settings.max_loads, settings.max_waiting)
        self._turns = KeyedLocks()
        self._looks = 0
        self._looking = asyncio.Lock()
        self._here: OrderedDict[str, str] = OrderedDict()
        """Engine id by content, last used last."""
        self._contents: dict[str, str] = {}
        """Content by id."""
        self._used: dict[str, float] = {}
        """Last use by id."""
        self._named: set[str] = set()
        """Contents with a name when last seen."""
        self._leaving: set[str] = set()
        """Deleted ids still with the engine."""
        self._watching: asyncio.Task[None] | None = None
        self._failing = False

    # --- life ---

    async def start(self) -> None:
        store = await self._opened()
        if self._watching is None:
            if store.shared:
                await self.refresh()
            self._watching = asyncio.create_task(self._watch(), name="watch the voice store")

    async def close(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait({watching})
        for voice_id in list(self._leaving):
            await self._forget(voice_id)
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.settings.refresh_s)
            try:
                if self.shared:
                    await self.refresh()
                self._failing = False
            except ServerBusy as error:
                if not self._failing:
                    log.warning("%s", error)
                self._failing = True
            now = asyncio.get_running_loop().time()
            for voice_id in list(self._leaving):
                if now - self._used.get(voice_id, 0.0) > FORGET_AFTER_S:
                    await self._forget(voice_id)

    async def _opened(self) -> VoiceStore:
        if self._store is None:
            async with self._opening:
                self._store = self._store or VoiceStore(
                    await self._in_thread(lambda: open_files(self.settings.store)), self.settings
                )
        return self._store

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._pool is None:
            # Not the loop's own: a store that hangs must not keep others from their work.
            self._pool = ThreadPoolExecutor(4, thread_name_prefix="voice store")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # --- what is known ---

    @property
    def index(self) -> Index:
        return Index() if self._store is None else self._store.index

    @property
    def shared(self) -> bool:
        return self.settings.store is not None

    def content_of(self, voice_id: str) -> str | None:
        """Return an id's content hash; None: no recording."""
        return self._contents.get(voice_id) or self.index.content_of(voice_id)

    def here(self, content: str) -> str | None:
        return self._here.get(content)

    def touch(self, voice_id: str) -> None:
        if voice_id in self._leaving:
            self._used[voice_id] = asyncio.get_running_loop().time()

    async def refresh(self) -> None:
        store = await self._opened()
        asked = self._looks
        async with self._looking:
            if self._looks > asked:
                return  # One began after this was asked for, and is done.
            self._looks += 1
            await self._in_thread(store.refresh)
            self._looked()

    def _looked(self) -> None:
        index = self.index
        self._named.update(each.content for each in index.names.values())
        for content in [each for each in self._named if each not in index.contents]:
            self._named.discard(content)
            voice_id = self._here.pop(content, None)
            if voice_id is not None:
                self._contents.pop(voice_id, None)
                self._leaving.add(voice_id)

    async def _forget(self, voice_id: str) -> None:
        self._leaving.discard(voice_id)
        self._used.pop(voice_id, None)
        forget = getattr(self._cloner(), "forget_voice", None)
        if forget is not None:
            try:
                await forget(voice_id)
            except (SpeechError, OSError) as error:
                log.warning("a deleted voice is still with the engine: %s", error)

    # --- making voices ready ---

    def cloner(self) -> ClonesVoices:
        cloner = self._cloner()
        if cloner is None:
            raise BadRequest(
                "This engine cannot clone: it makes no voices of recordings.",
                remedy="Name a voice that it lists, or serve a Qwen3-TTS Base checkpoint.",
            )
        return cloner

    def embedder(self) -> TakesEmbeddings:
        embedder = self._embedder()
        if embedder is None:
            raise BadRequest(
                "The model that is served takes no speaker embedding.",
                remedy="Name another voice, or serve a Qwen3-TTS Base checkpoint.",
            )
        return embedder

    async def ready(self, content: str) -> LoadedVoice:
        found = await self._at_hand(content)
        if found is not None:
            return found
        async with self._turns.of(content):
            found = await self._at_hand(content)
            if found is not None:
                return found
            async with self._loads.entered():
                store = await self._opened()
                kept = await self._in_thread(lambda: store.fetch(content))
                if kept is None:
                    raise UnknownVoice(
                        "The voice is not stored any more.", remedy="Upload its recording again."
                    )
                return await self._make(content, kept)

    async def _at_hand(self, content: str) -> LoadedVoice | None:
        voice_id = self._here.get(content)
        if voice_id is None:
            return None
        try:
            loaded = await self.cloner().load_voice(voice_id=voice_id)
        except UnknownVoice:
            return None
        self._remember(content, loaded.voice_id)
        return loaded

    async def _make(self, content: str, recording: VoiceContent) -> LoadedVoice:
        if (numbers := recording.embedding) is not None:
            loaded = await self.embedder().load_embedding(numbers)
        else:
            loaded = await self.cloner().load_voice(
                ref_audio=recording.audio,
                ref_text=recording.ref_text,
                x_vector_only=recording.x_vector_only,
            )
        self._remember(content, loaded.voice_id)
        return loaded

    def _remember(self, content: str, voice_id: str) -> None:
        self._here[content] = voice_id
        self._here.move_to_end(content)
        self._contents[voice_id] = content
        self._leaving.discard(voice_id)
        self._used[voice_id] = asyncio.get_running_loop().time()
        while len(self._here) > LOADED_MOST:
            old = self._here.popitem(last=False)[1]
            self._contents.pop(old, None)
            self._used.pop(old, None)

    async def load(self, recording: VoiceContent) -> LoadedVoice:
        """Load a recording and store it for replicas.

        Raises:
            BadRequest, LimitExceeded, ServerBusy: not loaded.
        """
        self.cloner()
        self._check(recording)
        content = await self._in_thread(lambda: recording.hash)
        async with self._turns.of(content):
            loaded = await self._at_hand(content)
            if loaded is None:
                async with self._loads.entered():
                    loaded = await self._make(content, recording)
        if self.shared and self.settings.keep_references:
            store = await self._opened()
            voice_id = loaded.voice_id
            try:
                kept = await self._in_thread(lambda: store.keep(recording, voice_id))
            except ServerBusy as error:
                log.warning("a recording is not kept for other replicas: %s", error)
            else:
                if not kept:
                    log.warning("the voice store is full; a recording is not kept")
        return loaded

    def _check(self, recording: VoiceContent) -> None:
        if len(recording.audio) > self.settings.max_bytes:
            raise too_large(self.settings.max_bytes)
        if not recording.audio:
            raise BadRequest("The recording is empty.", remedy="Send a sound file.")
        _check_length("ref_text", recording.ref_text or "", REF_TEXT_MAX)

    async def recording(self, ref: str) -> bytes:
        """Return a reference's bytes; raises BadRequest, LimitExceeded or ServerBusy."""
        most = self.settings.max_bytes
        # Not only decoding: looking for blanks in megabytes takes its time too.
        reference = await self._in_thread(lambda: parse_reference(ref, most))
        if reference.kind == "inline":
            return await self._in_thread(lambda: decode_inline(reference, most))
        if reference.kind == "file":
            folders = self.settings.file_folders
            return await self._in_thread(lambda: read_file(reference.text, folders, most))
        async with self._fetches.entered():
            return await self._fetcher.fetch(reference.text)

    # --- names ---

    async def add(
        self,
        name: str,
        recording: VoiceContent,
        *,
        consent: str,
        description: str,
        replace_old: bool,
        may_lack_words: bool = False,
        grant: Grant = EVERYTHING,
    ) -> StoredVoice:
        """Store a named voice; see VoiceCatalogue.add.

        ``may_lack_words``: embedding alone without a transcript.
        """
        self.cloner()
        self._check(recording)
        _check_length("consent", consent, NOTE_MAX)
        _check_length("description", description, NOTE_MAX)
        store = await self._opened()
        await self._in_thread(
            lambda: store.may_add(name, grant.may_manage, replace_old=replace_old)
        )
        most = self.settings.max_seconds
        seconds = None
        if recording.kind == "audio_sample":
            async with self._loads.entered():
                seconds = await self._in_thread(lambda: seconds_of(recording.audio, most))
        try:
            loaded = await self._made(recording)
        except WordsMissing as error:
            if not may_lack_words:
                raise
            log.info("a voice is made of its speaker embedding alone: %s", error.message)
            recording = replace(recording, x_vector_only=True)
            loaded = await self._made(recording)
        voice = StoredVoice(
            name=name,
            voice_id=loaded.voice_id,
            created=0.0,
            bytes=len(recording.audio),
            seconds=seconds,
            ref_text=None if recording.x_vector_only else loaded.ref_text or recording.ref_text,
            description=description,
            consent=consent,
            x_vector_only=recording.x_vector_only,
            owner=grant.owner,
            kind=recording.kind,
        )
        voice = await self._in_thread(
            lambda: store.add(voice, recording, grant.may_manage, replace_old=replace_old)
        )
        self._looked()
        return voice

    async def _made(self, recording: VoiceContent) -> LoadedVoice:
        content = await self._in_thread(lambda: recording.hash)
        async with self._turns.of(content), self._loads.entered():
            return await self._make(content, recording)

    async def remove(self, name: str, grant: Grant = EVERYTHING) -> StoredVoice:
        store = await self._opened()
        await self.refresh()
        voice = await self._in_thread(lambda: store.remove(name, grant.may_manage))
        self._looked()
        return voice


def _check_length(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise LimitExceeded(
            f"{name} has {len(text)} characters; at most {most} are taken.",
            remedy="Shorten it.",
        )
    with contextlib.suppress(UnicodeEncodeError):
        text.encode("utf-8")
        return
    raise BadRequest(f"{name} holds half characters.", remedy="Send it as UTF-8.")
