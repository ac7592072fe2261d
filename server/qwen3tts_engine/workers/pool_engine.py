"""Engine whose voices run in a pool of worker processes.

A request is cut into pieces of bounded sound. Workers are faster than real time, so many requests
share few, and none waits for another's listener. A lost worker's piece is spoken again without what
was given out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_engine.base import (
    SAMPLE_RATE,
    Alignment,
    EngineLoad,
    Mode,
    PcmChunk,
    SynthesisRequest,
    Voice,
)
from qwen3tts_engine.model_names import STAND_IN_IDS, names_of
from qwen3tts_engine.request_text import TextPiece, check_text, pieces, plain
from qwen3tts_engine.workers.messages import Say
from qwen3tts_engine.workers.pool import JobAudio, WorkerPool, speak_job
from qwen3tts_engine.workers.process import SpeechJob
from qwen3tts_wire.child.process import StartFailed
from qwen3tts_wire.errors import EngineUnavailable, SpeechError
from qwen3tts_wire.heard import Word


class PieceAudio(JobAudio, Protocol):
    def begin(self, piece: TextPiece) -> None: ...

    def end(self) -> PcmChunk | None: ...

    def finish(self) -> PcmChunk | None: ...


class VoiceCatalogue(Protocol):
    """Voices of an engine, and which of them a request means."""

    @property
    def voices(self) -> Sequence[Voice]: ...

    def choose(self, voice: str | None, language: str | None) -> object: ...


C = TypeVar("C", bound=VoiceCatalogue)


class PoolEngine(ABC, Generic[C]):
    name: str
    sample_rate = SAMPLE_RATE
    options: frozenset[str]
    alignment: Alignment = "exact"
    model_ids = names_of(STAND_IN_IDS)

    def __init__(self, model: str, *, max_chars: int, attempts: int) -> None:
        self.model = model
        self._max_chars = max_chars
        self._attempts = attempts
        self._pool: WorkerPool | None = None
        self._catalogue: C | None = None

    @abstractmethod
    async def _new_pool(self) -> WorkerPool: ...

    @abstractmethod
    def _read_facts(self, facts: Mapping[str, Any]) -> C:
        """Take what the workers say of themselves; return the catalogue."""

    @abstractmethod
    def _unavailable(self, error: StartFailed) -> EngineUnavailable: ...

    @abstractmethod
    def _begin(
        self, catalogue: C, request: SynthesisRequest
    ) -> tuple[PieceAudio, Callable[[TextPiece], Mapping[str, Any]]]: ...

    @abstractmethod
    def _refused(self, job: SpeechJob) -> SpeechError: ...

    @property
    def pids(self) -> list[int]:
        return self._pool.pids if self._pool else []

    @property
    def idle_workers(self) -> int:
        return self._pool.idle if self._pool else 0

    @property
    def waiting(self) -> int:
        return self._pool.waiting if self._pool else 0

    @property
    def replaced_workers(self) -> int:
        return self._pool.replaced if self._pool else 0

    def load(self) -> EngineLoad:
        workers = len(self.pids)
        return EngineLoad(workers, workers - self.idle_workers, self.waiting)

    async def start(self) -> None:
        if self._pool is not None:
            return
        self._pool = pool = await self._new_pool()
        try:
            self._catalogue = self._read_facts((await pool.start()).facts)
        except BaseException as error:
            self._pool = None
            await pool.close()
            if isinstance(error, StartFailed):
                raise self._unavailable(error) from error
            raise

    async def close(self) -> None:
        pool, self._pool, self._catalogue = self._pool, None, None
        if pool is not None:
            await pool.close()

    def voices(self) -> Sequence[Voice]:
        return self._started()[1].voices

    def modes(self, voice: str | None) -> Sequence[Mode]:
        return ("clause",)

    def check(self, voice: str | None, language: str | None) -> None:
        self._started()[1].choose(voice, language)

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        pool, catalogue = self._started()
        audio, options = self._begin(catalogue, request)
        check_text(request.text, self._max_chars)
        lead = request.lead

        def counted(chunk: PcmChunk) -> PcmChunk:
            if lead is not None:
                lead.made(chunk.samples)
            return chunk

        for piece in pieces(plain(request.text), final=request.final):
            if piece.text.isspace():
                continue
            audio.begin(piece)
            spoken = speak_job(
                pool,
                Say(0, piece.text, options(piece)),
                audio,
                lead=lead,
                attempts=self._attempts,
                refused=self._refused,
            )
            async with aclosing(spoken) as chunks:
                async for chunk in chunks:
                    yield counted(chunk)
            if (last := audio.end()) is not None:
                yield counted(last)
        if (last := audio.finish()) is not None:
            yield counted(last)

    def _started(self) -> tuple[WorkerPool, C]:
        if self._pool is None or self._catalogue is None:
            raise EngineUnavailable(
                f"The engine {self.name} has not been started.", remedy="Await its start() first."
            )
        return self._pool, self._catalogue


Pcm = NDArray[np.int16]


class ResampledOutput:
    def __init__(self, request: SynthesisRequest, rate: int) -> None:
        self._request = request
        self._rate = rate
        self._resampler = Resampler(rate, SAMPLE_RATE, aligned=True)
        self.taken = 0
        """Samples at the voice's rate that were taken."""
        self._given = 0
        """Samples given out."""
        self._words: deque[Word] = deque()
        """Complete, but their sound is not all given out."""

    def take(self, samples: Pcm) -> PcmChunk | None:
        """Take samples at the voice's rate; None: no chunk yet."""
        self.taken += len(samples)
        return self._chunk(self._resampler.push(samples))

    def words(self) -> PcmChunk | None:
        return self._chunk(np.zeros(0, np.int16))

    def finish(self) -> PcmChunk | None:
        return self._chunk(self._resampler.flush())

    def add(self, chars: tuple[int, int], samples: tuple[int, int], precision: str) -> None:
        char_start, char_end = self._request.original(*chars)
        text = self._request.text[chars[0] : chars[1]]
        self._words.append(Word(text, *samples, char_start, char_end, precision))

    def scaled(self, sample: int) -> int:
        return (2 * sample * SAMPLE_RATE + self._rate) // (2 * self._rate)

    def _chunk(self, pcm: Pcm) -> PcmChunk | None:
        self._given += len(pcm)
        due = []
        while self._words and self._words[0].end <= self._given:
            due.append(self._words.popleft())
        return PcmChunk(pcm.astype("<i2").tobytes(), tuple(due)) if len(pcm) or due else None
