"""The engine for voices in Piper's format: VITS networks on the CPU, in worker processes.

A request is cut into pieces (embedded/text.py), of one clause as a rule. A worker speaks many at
once, a chunk of one at a time; the pool gives the turn to the clause whose listener has the least
sound ahead (workers/pool.py). A clause whose worker is lost is said again with the same random
numbers, and what was given out already is left out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from qwen3tts_engine.base import (
    SAMPLE_RATE,
    Alignment,
    EngineLoad,
    Mode,
    PcmChunk,
    SynthesisRequest,
    Voice,
)
from qwen3tts_engine.embedded.text import check_text, pieces, plain
from qwen3tts_engine.model_names import STAND_IN_IDS, names_of
from qwen3tts_engine.piper.catalogue import SPEAKER, Catalogue, LoadedVoice
from qwen3tts_engine.piper.files import (
    INSTALL,
    VoiceFiles,
    find_voice,
    installed_voices,
    voice_key,
)
from qwen3tts_engine.piper.settings import PiperSettings, default_workers
from qwen3tts_engine.piper.utterance import Utterance
from qwen3tts_engine.workers.messages import Say
from qwen3tts_engine.workers.pool import Pool
from qwen3tts_engine.workers.process import Saying, StartFailed, command
from qwen3tts_engine.workers.voicing import voiced
from qwen3tts_wire.errors import BadRequest, EngineUnavailable, SpeechError, error_from_wire

log = logging.getLogger(__name__)

SEEDS = 1 << 32


class PiperEngine:
    """Voices in Piper's format behind the Engine protocol (base.py)."""

    name = "piper"
    sample_rate = SAMPLE_RATE
    options = frozenset({"speed", "lead", "seed"})
    alignment: Alignment = "exact"
    model_ids = names_of(STAND_IN_IDS)

    def __init__(self, settings: PiperSettings | None = None) -> None:
        self.settings = settings or PiperSettings()
        self.model = "Piper"
        self._pool: Pool | None = None
        self._catalogue: Catalogue | None = None
        self._unknown: set[tuple[str, str]] = set()
        """Voices and phonemes that they leave out, as told."""
        self._notes: list[str] = []

    @property
    def notes(self) -> Sequence[str]:
        """What people should know of the voices, once started."""
        return tuple(self._notes)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return self._pool.pids if self._pool else []

    @property
    def idle_workers(self) -> int:
        """Workers that make no sound."""
        return self._pool.idle if self._pool else 0

    @property
    def waiting(self) -> int:
        """Clauses that have not begun."""
        return self._pool.waiting if self._pool else 0

    @property
    def replaced_workers(self) -> int:
        """Workers lost and replaced since the start."""
        return self._pool.replaced if self._pool else 0

    def load(self) -> EngineLoad:
        """How busy the workers are."""
        workers = len(self.pids)
        return EngineLoad(workers, workers - self.idle_workers, self.waiting)

    async def start(self) -> None:
        """Start the workers; see base.Engine.

        Raises:
            EngineUnavailable: a voice or a library is missing, or cannot be used.
            UnknownVoice: the default voice does not exist.
        """
        if self._pool is not None:
            return
        settings = self.settings
        files, default = await asyncio.to_thread(found_voices, settings)
        pool = Pool(
            worker_command(files),
            size=settings.workers or default_workers(),
            stall_s=settings.stall_s,
            start_s=settings.start_s,
            lead_s=settings.lead_ms / 1000,
            on_note=self._noted,
        )
        self._pool = pool
        try:
            facts = (await pool.start()).facts
            loaded = [LoadedVoice.of(each) for each in facts["voices"]]
            self._catalogue = Catalogue(loaded, default)
        except BaseException as error:
            self._pool = None
            await pool.close()
            if isinstance(error, StartFailed):
                if error.remedy:
                    raise EngineUnavailable(str(error), remedy=error.remedy) from error
                raise EngineUnavailable(
                    f"The natural voice cannot start: {error}.",
                    remedy="To let eSpeak NG speak, set QWEN3TTS__ENGINE__NAME=embedded.",
                ) from error
            raise
        self._unknown.clear()
        self._notes = [told for each in facts["voices"] if (told := self._left_out(each))]
        self.model = f"Piper {self._catalogue.voices[0].id}"
        log.debug("speaking with %s on the CPU, %d workers", self.model, len(pool.pids))

    async def close(self) -> None:
        """End the workers; see base.Engine."""
        pool, self._pool, self._catalogue = self._pool, None, None
        if pool is not None:
            await pool.close()

    def voices(self) -> Sequence[Voice]:
        """The voices, the default first.

        Raises:
            EngineUnavailable: not started.
        """
        return self._started()[1].voices

    def modes(self, voice: str | None) -> Sequence[Mode]:
        """Clauses only; see base.Engine."""
        return ("clause",)

    def check(self, voice: str | None, language: str | None) -> None:
        """Refuse an unknown voice or language; see base.Engine."""
        self._started()[1].choose(voice, language)

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        """Speak; see base.Engine."""
        pool, catalogue = self._started()
        choice = catalogue.choose(request.voice, request.language)
        settings = self.settings
        check_text(request.text, settings.max_chars)
        utterance = Utterance(request, choice.voice.rate)
        lead = request.lead
        seeds = random.Random(request.seed)

        def counted(chunk: PcmChunk) -> PcmChunk:
            if lead is not None:
                lead.made(chunk.samples)
            return chunk

        for piece in pieces(plain(request.text), final=request.final):
            if piece.text.isspace():
                continue
            utterance.begin(piece)
            how = {
                "voice": choice.voice.id,
                "speaker": choice.speaker,
                "speed": request.speed,
                "length_scale": settings.length_scale,
                "noise_scale": settings.noise_scale,
                "noise_w": settings.noise_w,
                "seed": seeds.randrange(SEEDS),
            }
            said = voiced(
                pool,
                Say(0, piece.text, how),
                utterance,
                lead=lead,
                attempts=settings.attempts,
                refused=_refused,
            )
            async with aclosing(said) as chunks:
                async for chunk in chunks:
                    yield counted(chunk)
            if (last := utterance.end()) is not None:
                yield counted(last)
        if (last := utterance.finish()) is not None:
            yield counted(last)

    def _noted(self, facts: Mapping[str, Any]) -> None:
        """Log what a worker found while it spoke."""
        if told := self._left_out({**facts, "id": facts["voice"]}):
            log.warning("%s", told)

    def _left_out(self, facts: Mapping[str, Any]) -> str:
        """Return a sentence on phonemes that a voice leaves out; empty where they were told."""
        name = facts["id"]
        fresh = [each for each in facts["unknown"] if (name, each) not in self._unknown]
        if not fresh:
            return ""
        self._unknown.update((name, each) for each in fresh)
        phonemes, them = ("phoneme", "it") if len(fresh) == 1 else ("phonemes", "them")
        return (
            f"Voice {name} has no id for {len(fresh)} {phonemes} of its language and leaves {them}"
            f" out: {' '.join(fresh)}."
        )

    def _started(self) -> tuple[Pool, Catalogue]:
        if self._pool is None or self._catalogue is None:
            raise EngineUnavailable(
                "The engine piper has not been started.", remedy="Await its start() first."
            )
        return self._pool, self._catalogue


def found_voices(settings: PiperSettings) -> tuple[list[VoiceFiles], str]:
    """Return the files of the voices on offer, and the default one's id with its speaker; may fetch
    those that are named from the hub.

    Raises:
        EngineUnavailable: there is none, or one that is named is not found.
    """
    name, hash_, speaker = settings.voice.partition(SPEAKER)
    damaged: list[BadRequest] = []
    try:
        found = [find_voice(each) for each in settings.voices] or [
            each.files for each in installed_voices(damaged)
        ]
        if not found and damaged and not name:
            raise damaged[0]
        default = next((each for each in found if voice_key(each.id) == voice_key(name)), None)
        if name and default is None:
            default = find_voice(name)
            found.insert(0, default)
    except BadRequest as error:
        raise EngineUnavailable(error.message, remedy=error.remedy) from error
    if not found:
        raise EngineUnavailable("No voice in Piper's format is installed.", remedy=f"{INSTALL}.")
    default = default or found[0]
    return list({each.id: each for each in found}.values()), default.id + hash_ + speaker


def worker_command(files: Sequence[VoiceFiles]) -> list[str]:
    """What starts a worker."""
    listed = [(str(each.onnx), str(each.config), each.id) for each in files]
    return command("qwen3tts_engine.piper.worker", json.dumps(listed))


def _refused(saying: Saying) -> SpeechError:
    return error_from_wire(saying.code, saying.reason, remedy=saying.remedy)
