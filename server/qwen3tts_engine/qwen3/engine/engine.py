"""Qwen3-TTS behind the Engine protocol.

Only one thread touches the rows on the device. Event loops submit generations and read audio.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qwen3tts_engine.base import (
    SAMPLE_RATE,
    Alignment,
    EngineLoad,
    LoadedVoice,
    Mode,
    PcmChunk,
    SynthesisRequest,
    Voice,
)
from qwen3tts_engine.model_names import given_name, names_of, published_id
from qwen3tts_engine.qwen3.engine.continuation import Regeneration, voice_of
from qwen3tts_engine.qwen3.engine.jobs import OutputQueue
from qwen3tts_engine.qwen3.engine.loaded import LoadedModel
from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
from qwen3tts_engine.qwen3.engine.worker import Worker, WorkerSettings
from qwen3tts_engine.qwen3.kernels.cuda import free_device_memory
from qwen3tts_engine.qwen3.kernels.memory import MemoryPlan
from qwen3tts_engine.qwen3.kernels.runner import Progress
from qwen3tts_engine.qwen3.kernels.step_runner import PrefixCache, Snapshot
from qwen3tts_engine.qwen3.model.config import ModelConfig, Samples
from qwen3tts_engine.qwen3.voices.content import (
    ClonedVoice,
    ClonePrompt,
    Codes,
    checked_codes,
    checked_embedding,
)
from qwen3tts_engine.qwen3.voices.recording import CODEC_LIMITS, Source, read_recording
from qwen3tts_engine.qwen3.voices.store import VoiceStore
from qwen3tts_engine.recogniser import Recogniser
from qwen3tts_engine.request_text import check_text
from qwen3tts_engine.scheduler import Scheduler, SchedulerSettings
from qwen3tts_wire.errors import BadRequest, EngineUnavailable, UnknownVoice

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    loaded: LoadedModel
    worker: Worker
    thread: threading.Thread


class Qwen3Engine:
    name = "qwen3"
    sample_rate = SAMPLE_RATE
    alignment: Alignment = "estimated"

    def __init__(self, settings: Qwen3Settings, progress: Progress | None = None) -> None:
        """Configure; ``progress`` is called from another thread during ``start``."""
        self.settings = settings
        self.model = f"Qwen3-TTS ({settings.model})"
        self.options = frozenset(
            {
                *("instructions", "sampling", "seed", "initial_codec_chunk_frames"),
                *("lead", "speed", "layout"),
            }
        )
        self._progress: Progress = progress or (lambda _what, _done, _of: None)
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self._leaving: threading.Thread | None = None
        """Thread of a cancelled start: it finishes loading, then ends."""

    @property
    def memory(self) -> MemoryPlan:
        return self._started().loaded.runner.memory

    @property
    def notes(self) -> list[str]:
        return self._started().loaded.runner.notes

    @property
    def device(self) -> str:
        return str(self._started().loaded.model.device)

    @property
    def under_way(self) -> int:
        return self._started().worker.under_way

    @property
    def task(self) -> str | None:
        return None if self._running is None else self._running.loaded.config.task

    @property
    def model_ids(self) -> tuple[str, ...]:
        """Hub id, its last part, and the folder's name; complete once loaded."""
        model = self.settings.model
        given = given_name(model, is_folder=Path(model).expanduser().is_dir())
        if self._running is None:
            return names_of([given])
        config = self._running.loaded.config
        return names_of([published_id(config.size, config.task), given])

    def load(self) -> EngineLoad:
        if self._running is None:
            return EngineLoad(0, 0, 0)
        slots, all_ = self._running.loaded.runner.slots, self.under_way
        return EngineLoad(slots, min(slots, all_), max(0, all_ - slots))

    async def start(self) -> None:
        async with self._starting:
            if self._running is not None:
                return
            await self._until_left()
            ready: Future[tuple[LoadedModel, Worker]] = Future()
            thread = threading.Thread(
                target=self._run, args=(ready,), name="qwen3 engine", daemon=True
            )
            thread.start()
            # Loading cannot be interrupted; after a cancellation its result is released.
            started = asyncio.wrap_future(ready)
            try:
                loaded, worker = await asyncio.shield(started)
            except asyncio.CancelledError:
                self._leaving = thread
                ready.add_done_callback(_give_up)
                started.add_done_callback(lambda each: each.cancelled() or each.exception())
                raise
            self._running = _Running(loaded, worker, thread)
            self.model = loaded.name
            if not loaded.config.takes_instructions:
                self.options -= {"instructions"}
            for line in (f"speaking with {self.model}", *self.memory.lines()):
                log.info("%s", line)
            if loaded.threads is not None:
                log.info("threads    %s", loaded.threads)

    def _run(self, ready: Future[tuple[LoadedModel, Worker]]) -> None:
        settings = self.settings
        try:
            loaded = LoadedModel(settings, self._progress)
            if settings.warmup:
                loaded.runner.warmup(self._progress)
            worker = Worker(
                loaded.runner,
                Scheduler(
                    SchedulerSettings(
                        slots=loaded.runner.slots,
                        max_waiting=settings.max_waiting,
                        lead_ms=settings.lead_ms,
                        initial_codec_chunk_frames=settings.initial_codec_chunk_frames,
                    )
                ),
                WorkerSettings(
                    code_eos=loaded.config.talker.ids.eos,
                    dry_timeout_s=settings.dry_timeout_s,
                    unread_samples=round(settings.unread_s * SAMPLE_RATE),
                ),
                embed=lambda prompt, x_vector: loaded.model.embed(prompt, x_vector=x_vector),
                prefixes=PrefixCache(settings.prefix_bytes),
                clock=time.monotonic,
            )
        except BaseException as error:
            ready.set_exception(error)
            return
        ready.set_result((loaded, worker))
        try:
            worker.run()
        finally:
            loaded.close()

    async def warmup(self) -> None:
        running = self._started()
        warm = running.worker.when_idle(lambda: running.loaded.runner.warmup(self._progress))
        await asyncio.wrap_future(warm)

    async def close(self) -> None:
        async with self._starting:
            running, self._running = self._running, None
            if running is not None:
                running.worker.close()
                await asyncio.to_thread(running.thread.join)
                del running
            await self._until_left()
            free_device_memory()

    async def _until_left(self) -> None:
        if self._leaving is not None:
            await asyncio.to_thread(self._leaving.join)
            self._leaving = None

    def voices(self) -> Sequence[Voice]:
        return self._started().loaded.catalogue.listed()

    def check(self, voice: str | None, language: str | None) -> None:
        loaded = self._started().loaded
        voice_id = loaded.catalogue.voice(voice, language)
        if loaded.store is not None:
            loaded.store.has_reference(voice_id)

    def modes(self, voice: str | None) -> Sequence[Mode]:
        loaded = self._started().loaded
        if loaded.store is not None:
            try:
                goes_on = loaded.store.has_reference(loaded.catalogue.voice(voice, None))
            except UnknownVoice:
                return ("clause",)
            if goes_on:
                return ("clause",)
        return ("clause", "live")

    async def load_voice(
        self,
        *,
        voice_id: str | None = None,
        ref_audio: Source | None = None,
        ref_text: str | None = None,
        x_vector_only: bool = False,
        name: str | None = None,
    ) -> LoadedVoice:
        """Make or find a voice; see base.ClonesVoices.

        ``name``: alias behind ``clone:``.
        """
        loaded = self._started().loaded
        store = _store(loaded)
        if ref_audio is None:
            if voice_id is None:
                raise BadRequest("Neither voice_id nor ref_audio is given.", remedy="Give one.")
            voice, cached = await store.load(voice_id), True
        else:
            prepared = await store.prepare(ref_audio, ref_text, x_vector_only, name)
            voice, cached = prepared.voice, prepared.cached
        await self._reference_state(loaded, voice)
        return LoadedVoice(voice.id, cached, voice.transcript)

    def recogniser(self) -> Recogniser | None:
        return self._started().loaded.whisper

    @property
    def config(self) -> ModelConfig:
        return self._started().loaded.config

    def embedding_size(self) -> int | None:
        loaded = self._started().loaded
        return None if loaded.store is None else loaded.config.talker.layers.hidden

    async def load_embedding(self, embedding: Sequence[float]) -> LoadedVoice:
        store, size = _store(self._started().loaded), self.embedding_size()
        if len(embedding) != size:
            raise BadRequest(
                f"The speaker embedding has {len(embedding)} numbers; this checkpoint's have "
                f"{size}.",
                remedy="Send one that a checkpoint of this size has made.",
            )
        prepared = store.from_vector(embedding)
        return LoadedVoice(prepared.voice.id, prepared.cached, None)

    async def load_prompt(self, prompt: ClonePrompt, name: str | None = None) -> LoadedVoice:
        """Make a voice of codes, transcript and speaker embedding; BadRequest, LimitExceeded."""
        loaded = self._started().loaded
        store, config = _store(loaded), loaded.config
        vector = checked_embedding(prompt.embedding, config.talker.layers.hidden)
        codes: tuple[tuple[int, ...], ...] = ()
        if prompt.codes is not None:
            codes = tuple(map(tuple, checked_codes(prompt.codes, config).tolist()))
        elif prompt.text is not None:
            raise BadRequest(
                "The clone prompt has a text and no codes.",
                remedy="Give the codes of that text as well, or leave the text out.",
            )
        prepared = await asyncio.to_thread(store.from_prompt, vector, codes, prompt.text, name)
        await self._reference_state(loaded, prepared.voice)
        return LoadedVoice(prepared.voice.id, prepared.cached, prepared.voice.transcript)

    async def clone_prompt(self, voice_id: str) -> ClonePrompt:
        """Return embedding, codes and transcript of a cloned voice; BadRequest, UnknownVoice."""
        content = (await _store(self._started().loaded).load(voice_id)).content
        reference = content.reference
        return ClonePrompt(
            content.x_vector.numpy().copy(),
            None if reference is None else np.array(reference.codes, np.int64),
            content.transcript,
        )

    async def encode(self, source: Source) -> Codes:
        """Return the codes of a recording of 0.001 to 600 s."""
        loaded = self._started().loaded
        recording = await asyncio.to_thread(read_recording, source, CODEC_LIMITS)
        return await asyncio.to_thread(lambda: loaded.encode(recording.at(SAMPLE_RATE)))

    async def decode(self, codes: object) -> Samples:
        loaded = self._started().loaded
        return await asyncio.to_thread(loaded.decode, checked_codes(codes, loaded.config))

    async def forget_voice(self, voice_id: str) -> None:
        store = self._started().loaded.store
        if store is not None:
            with suppress(UnknownVoice):
                await asyncio.to_thread(store.forget, voice_id)

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        running = self._started()
        loaded, worker = running.loaded, running.worker
        voice_id = loaded.catalogue.voice(request.voice, request.language)
        # Growing text that is too long continues in another generation.
        growing = request.more is not None
        check_text(request.text, sys.maxsize if growing else loaded.settings.max_chars)
        with ExitStack() as stack:
            voice: ClonedVoice | None = None
            codec: Snapshot | None = None
            if loaded.store is not None:
                voice = stack.enter_context(loaded.store.using(await loaded.store.load(voice_id)))
                codec = await self._reference_state(loaded, voice)
            design = voice_of(request) if loaded.config.task == "voice_design" else None
            if design is not None:
                request = replace(request, seed=design.seed)
            regeneration = Regeneration(request)
            following: SynthesisRequest | None = request
            while following is not None:
                used = None
                if design is not None:
                    design = await asyncio.to_thread(loaded.with_codec_state, design)
                    used = loaded.fit_reference(design, following)
                output = OutputQueue(worker.settings.unread_samples, worker.wake)
                job = loaded.job(following, voice_id, voice, output, codec, used)
                job.repeat = following is not request
                following = None
                worker.submit(job)
                try:
                    while (chunk := await output.next()) is not None:
                        chunk = regeneration.chunk(chunk)
                        if chunk.end is not None:
                            if design is not None:
                                design = design.after(job, loaded.reference_frames)
                                if request.context is not None:
                                    request.context.kept = design
                            following = regeneration.next_request(job)
                        if following is None:
                            yield chunk
                        elif chunk.words or chunk.pcm:
                            yield replace(chunk, end=None)
                finally:
                    worker.cancel(job)

    async def _reference_state(self, loaded: LoadedModel, voice: ClonedVoice) -> Snapshot | None:
        if voice.reference is None or voice.codec is not None:
            return voice.codec
        return await asyncio.to_thread(loaded.reference_state, voice)

    def _started(self) -> _Running:
        if self._running is None:
            raise EngineUnavailable(
                "The Qwen3-TTS engine has not been started.", remedy="Await its start() first."
            )
        return self._running


def _give_up(ready: Future[tuple[LoadedModel, Worker]]) -> None:
    if ready.exception() is None:
        ready.result()[1].close()


def _store(loaded: LoadedModel) -> VoiceStore:
    if loaded.store is None:
        raise BadRequest(
            f"This checkpoint ({loaded.config.task}) cannot clone a voice.",
            remedy="Serve a Base checkpoint for cloned voices.",
        )
    return loaded.store
