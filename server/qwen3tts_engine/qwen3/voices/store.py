"""Cloned voices: computed once, named, cached and persistent.

A voice's id is the hash of recording, words, their use and the model's encoders.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from qwen3tts_engine.base import CLONE, WordsMissing
from qwen3tts_engine.qwen3.faults import non_finite_error, public_error, safe_traceback
from qwen3tts_engine.qwen3.model.prompt import Reference
from qwen3tts_engine.qwen3.voices.catalogue import is_voice_id
from qwen3tts_engine.qwen3.voices.content import (
    ClonedVoice,
    VoiceContent,
    VoiceEncoders,
    check_length,
    check_name,
    content_of_prompt,
    embedding_id,
    voice_id,
)
from qwen3tts_engine.qwen3.voices.recording import (
    DEFAULT_LIMITS,
    SAMPLE_RATE,
    Recording,
    ReferenceLimits,
    Source,
    read_recording,
)
from qwen3tts_engine.qwen3.voices.storage import VoiceCache, VoiceFiles
from qwen3tts_engine.qwen3.voices.transcribe import REMEDY, Transcriber
from qwen3tts_wire.errors import (
    BadRequest,
    EngineFailed,
    ServerBusy,
    SpeechError,
    UnknownVoice,
)
from qwen3tts_wire.names import nearest

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PreparedVoice:
    voice: ClonedVoice
    cached: bool
    """Nothing was computed."""


class VoiceStore:
    """Cloned voices in memory, their names, and their creation. Thread-safe."""

    def __init__(
        self,
        bound_bytes: int,
        encoders: VoiceEncoders,
        *,
        transcriber: Transcriber | None = None,
        folder: Path | None = None,
        limits: ReferenceLimits = DEFAULT_LIMITS,
        workers: int = 2,
        max_waiting: int = 32,
    ) -> None:
        """Start with the names in the folder.

        Args:
            bound_bytes: Memory of all voices with their snapshots, on any device.
            encoders: Of recordings.
            transcriber: For recordings without words; None: such are refused.
            folder: Persistent storage.
            limits: Of recordings.
            workers: Threads that compute.
            max_waiting: Requests that compute or wait.
        """
        self.limits = limits
        self.cache = VoiceCache(bound_bytes)
        """Voices in memory; ``pin`` one while it speaks."""
        self._encoders = encoders
        self._transcriber = transcriber
        self._files = None if folder is None else VoiceFiles(folder)
        self._lock = threading.Lock()
        self._names = {} if self._files is None else self._files.names()
        self._making: dict[str, Future[ClonedVoice]] = {}
        self._max_waiting = max_waiting
        self._waiting = 0
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="voices")

    @property
    def names(self) -> dict[str, str]:
        with self._lock:
            names = dict(self._names)
        if self._files is not None:
            return names
        return {name: key for name, key in names.items() if key in self.cache}

    # --- making voices ---

    async def create(
        self,
        source: Source,
        *,
        ref_text: str | None = None,
        x_vector_only: bool = False,
        name: str | None = None,
    ) -> ClonedVoice:
        """Make a voice from a recording in a worker thread, at most once.

        ``ref_text`` None or blank: transcribed. ``name`` is an alias behind CLONE; moves here if
        in use.

        Raises:
            BadRequest, LimitExceeded: recording, words or name.
            ServerBusy: too many waiting, or all voices in memory are in use.
            EngineFailed: the model failed, or its device is out of memory.
        """
        return (await self.prepare(source, ref_text, x_vector_only, name)).voice

    async def prepare(
        self,
        source: Source,
        ref_text: str | None = None,
        x_vector_only: bool = False,
        name: str | None = None,
    ) -> PreparedVoice:
        return await _result(self.submit(source, ref_text, x_vector_only, name))

    def submit(
        self,
        source: Source,
        ref_text: str | None = None,
        x_vector_only: bool = False,
        name: str | None = None,
    ) -> Future[PreparedVoice]:
        words = None if x_vector_only else (ref_text or "").strip() or None
        if words is None and not x_vector_only and self._transcriber is None:
            raise WordsMissing(
                "The reference recording comes without its words.",
                remedy=f"{REMEDY}; a Whisper model in the server's settings would transcribe it.",
            )
        if words is not None:
            check_length(words)
        if name is not None:
            check_name(name)
        with self._lock:
            if self._waiting >= self._max_waiting:
                raise ServerBusy(
                    f"{self._waiting} voices are being prepared.", remedy="Ask again later."
                )
            self._waiting += 1
        try:
            future = self._begin(self._prepare, source, words, x_vector_only, name)
        except EngineFailed:
            self._done_waiting()
            raise
        future.add_done_callback(self._done_waiting)
        return future

    def _begin(self, work: Callable[..., T], *given: Any) -> Future[T]:
        try:
            return self._pool.submit(work, *given)
        except RuntimeError:
            raise _closed() from None

    def _done_waiting(self, _: object = None) -> None:
        with self._lock:
            self._waiting -= 1

    def _prepare(
        self, source: Source, words: str | None, x_vector_only: bool, name: str | None
    ) -> PreparedVoice:
        recording = read_recording(source, self.limits)
        listener = None if words is not None or x_vector_only else self._transcriber
        if listener is not None:
            origin = f"heard by {listener.name}"
        else:
            origin = "x-vector only" if words is None else f"given: {words}"
        key = voice_id(recording, origin, self._encoders.identity)
        mine: Future[ClonedVoice] = Future()
        with self._lock:
            voice = self.cache.get(key)
            # The first of concurrent callers computes it.
            making = mine if voice is not None else self._making.setdefault(key, mine)
        if making is not mine:
            voice = making.result()
        if voice is not None:
            prepared = PreparedVoice(voice, cached=True)
        else:
            prepared = self._make(key, mine, recording, words, listener)
        if name is not None:
            self._set_name(name, prepared.voice)
        return prepared

    def _make(
        self,
        key: str,
        making: Future[ClonedVoice],
        recording: Recording,
        words: str | None,
        listener: Transcriber | None,
    ) -> PreparedVoice:
        try:
            content = None if self._files is None else self._files.load(key)
            cached = content is not None
            if content is None:
                content = self._compute(recording, words, listener)
                if self._files is not None:
                    self._files.save(key, content)
            voice = self.cache.admit(ClonedVoice(key, content))
            making.set_result(voice)
            return PreparedVoice(voice, cached)
        except BaseException as error:
            making.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._making[key]

    def _compute(
        self, recording: Recording, words: str | None, listener: Transcriber | None
    ) -> VoiceContent:
        try:
            if listener is not None:
                words = listener.transcribe(recording)
            samples = recording.at(SAMPLE_RATE)
            x_vector = self._encoders.x_vector(samples).to("cpu", torch.float32, copy=True)
            if not x_vector.isfinite().all():
                raise non_finite_error()
            if words is None:
                return VoiceContent(x_vector)
            text_ids = tuple(self._encoders.text_ids(words))
            codes = tuple(tuple(frame) for frame in self._encoders.codes(samples).tolist())
            return VoiceContent(x_vector, Reference(text_ids, codes), words)
        except SpeechError:
            raise
        except Exception as error:
            log.error("a voice could not be computed\n%s", safe_traceback(error))
            raise public_error(error) from error

    def from_vector(self, numbers: Sequence[float]) -> PreparedVoice:
        vector = torch.tensor(numbers, dtype=torch.float32)
        if not vector.isfinite().all():
            raise BadRequest(
                "The speaker embedding has a number that is not finite.", remedy="Send float32."
            )
        key = embedding_id(vector)
        voice = self.cache.get(key)
        if voice is not None:
            return PreparedVoice(voice, cached=True)
        return PreparedVoice(self.cache.admit(ClonedVoice(key, VoiceContent(vector))), cached=False)

    def from_prompt(
        self,
        vector: Tensor,
        codes: tuple[tuple[int, ...], ...],
        words: str | None,
        name: str | None = None,
    ) -> PreparedVoice:
        if name is not None:
            check_name(name)
        key, content = content_of_prompt(vector, codes, words, self._encoders, self.limits.max_s)
        voice = self.cache.get(key)
        cached = voice is not None
        if voice is None:
            if self._files is not None:
                self._files.save(key, content)
            voice = self.cache.admit(ClonedVoice(key, content))
        if name is not None:
            self._set_name(name, voice)
        return PreparedVoice(voice, cached)

    # --- finding and using voices ---

    def find(self, name: str) -> ClonedVoice:
        voice = self.cache.get(self._key(name))
        if voice is None:
            raise self._unknown(name)
        return voice

    async def load(self, name: str) -> ClonedVoice:
        voice = self.cache.get(self._key(name))
        if voice is not None:
            return voice
        if self._files is None:
            raise self._unknown(name)
        return await _result(self._begin(self._load, name, self._files))

    def has_reference(self, name: str) -> bool:
        key = self._key(name)
        voice = self.cache.get(key)
        if voice is not None:
            return voice.reference is not None
        found = None
        if self._files is not None and is_voice_id(key):
            found = self._files.has_reference(key)
        if found is None:
            raise self._unknown(name)
        return found

    def _load(self, name: str, files: VoiceFiles) -> ClonedVoice:
        # Others may have named voices in the folder meanwhile.
        names = files.names()
        with self._lock:
            self._names |= names
        key = self._key(name)
        content = files.load(key) if is_voice_id(key) else None
        if content is None:
            raise self._unknown(name)
        voice = self.cache.admit(ClonedVoice(key, content))
        if name.startswith(CLONE):
            voice.name = name.removeprefix(CLONE)
        return voice

    @contextmanager
    def using(self, voice: ClonedVoice) -> Iterator[ClonedVoice]:
        """Pin a voice within a block; use the returned one."""
        pinned = self.cache.pin(voice)
        try:
            yield pinned
        finally:
            self.cache.unpin(pinned)

    def forget(self, name: str) -> None:
        """Delete a voice, its names and its file; UnknownVoice if absent."""
        key = self._key(name)
        known = self.cache.forget(key)
        if self._files is not None and is_voice_id(key):
            known |= self._files.forget(key)
        if not known:
            raise self._unknown(name)
        with self._lock:
            self._names = {one: named for one, named in self._names.items() if named != key}

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _key(self, name: str) -> str:
        if not name.startswith(CLONE):
            return name
        with self._lock:
            return self._names.get(name.removeprefix(CLONE), "")

    def _set_name(self, name: str, voice: ClonedVoice) -> None:
        voice.name = name
        with self._lock:
            self._names[name] = voice.id
        if self._files is not None:
            self._files.set_name(name, voice.id)

    def _unknown(self, name: str) -> UnknownVoice:
        near = nearest(name, [CLONE + one for one in self.names])
        remedy = f"Near ones: {', '.join(near)}." if near else "Register its recording first."
        return UnknownVoice(f"There is no cloned voice {name[:80]!r}.", remedy=remedy)


async def _result(future: Future[T]) -> T:
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The work was cancelled, not this caller.
        raise _closed() from None


def _closed() -> EngineFailed:
    return EngineFailed("The engine is closed.", remedy="Start it again, or ask another server.")
