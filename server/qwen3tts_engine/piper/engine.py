"""Engine ``piper``: VITS networks on the CPU, in worker processes.

A worker interleaves many clauses by chunks. A lost worker's clause is spoken again with the same
random numbers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qwen3tts_engine.base import SAMPLE_RATE, PcmChunk, SynthesisRequest
from qwen3tts_engine.guards import LeadingTrim
from qwen3tts_engine.piper.catalogue import SPEAKER, LoadedVoice, PiperCatalogue
from qwen3tts_engine.piper.voice_files import (
    INSTALL,
    VoiceFiles,
    find_voice,
    installed_voices,
    voice_key,
)
from qwen3tts_engine.request_text import SENTENCE_ENDS, TextPiece
from qwen3tts_engine.workers.messages import WordNumbers
from qwen3tts_engine.workers.pool import WorkerPool
from qwen3tts_engine.workers.pool_engine import PoolEngine, ResampledOutput
from qwen3tts_engine.workers.process import SpeechJob
from qwen3tts_wire.child.process import StartFailed, command
from qwen3tts_wire.errors import BadRequest, EngineUnavailable, SpeechError, error_from_wire

log = logging.getLogger(__name__)

SEEDS = 1 << 32
SCALES = {"length_scale": (0.1, 10.0), "noise_scale": (0.0, 10.0), "noise_w": (0.0, 10.0)}
"""Bounds of the scales."""


def default_workers() -> int:
    return max(1, min(4, os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class PiperSettings:
    """Settings; each voice is in every worker's memory."""

    voices: tuple[str, ...] = ()
    """Voices on offer: folders, ``.onnx`` files, packages, or names such as
    ``de_DE-thorsten-medium``; empty: those of installed packages."""
    voice: str = ""
    """Voice where a request names neither voice nor language, with ``#SPEAKER`` where it has
    several; empty: the first of ``voices``."""
    length_scale: float | None = None
    """Factor on the duration of phonemes; None: the voice's own, as for the next two."""
    noise_scale: float | None = None
    """Variation of the sound."""
    noise_w: float | None = None
    """Variation of the durations."""
    workers: int = 0
    """Number of processes, of one thread each; 0 for ``default_workers()``."""
    lead_ms: float = 3000.0
    """Sound made ahead of a listener where the context names no ``lead_ms``; then others come
    first, and what is cancelled was not made for nothing."""
    max_chars: int = 5000
    """Most code points in one request."""
    attempts: int = 3
    """Attempts at a piece of text before the loss of its workers is an error."""
    stall_s: float = 10.0
    """A worker silent for longer within a turn is replaced."""
    start_s: float = 60.0
    """Time limit of a worker's loading of the voices."""

    def __post_init__(self) -> None:
        for name in ("lead_ms", "max_chars", "attempts", "stall_s", "start_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")
        if self.workers < 0:
            raise ValueError(f"workers={self.workers} must be 0 or above")
        for name, (low, high) in SCALES.items():
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and low <= value <= high):
                raise ValueError(f"{name}={value} must be from {low:g} to {high:g}")


QUIET = 100
"""Samples up to this (-50 dB of full scale) are no speech."""
PRE_ROLL_S = 0.01
"""Silence that is kept before the first sound of a context."""
PAUSE_S, SENTENCE_PAUSE_S = 0.15, 0.3
"""Silence after a clause and after a sentence, at the voice's usual speed."""


class PiperAudio:
    """Audio and words of one request, piece by piece (PieceAudio).

    After ``again``, the same seed gives the same samples: those given out are skipped.
    """

    def __init__(self, request: SynthesisRequest, rate: int) -> None:
        self._request = request
        self._rate = rate
        self._output = ResampledOutput(request, rate)
        # The networks begin with some 50 ms of silence; where sound goes before, it is a pause.
        self._trim = LeadingTrim(PRE_ROLL_S * rate / SAMPLE_RATE, heard=request.continued)
        self._piece = TextPiece(0, "", False)
        self._base = 0
        """Beginning of the piece, before the trim."""
        self._heard = 0
        """Samples of this saying of the piece that came, and"""
        self._told = 0
        """words of it."""
        self._used = 0
        """Samples of the piece that were used, and"""
        self._known = 0
        """words of it."""
        self._waiting: list[WordNumbers] = []
        """Words that came before the first sound."""
        self._quiet = 0
        """Quiet samples at the end of what was taken."""

    def begin(self, piece: TextPiece) -> None:
        self._piece = piece
        self._base = self._output.taken + self._trim.dropped
        self._used = self._known = 0
        self.again()

    def again(self) -> None:
        self._heard = self._told = 0

    def sound(self, pcm: bytes, words: tuple[WordNumbers, ...] = ()) -> PcmChunk | None:
        """Take samples, and words as (first, end, first sample, end, exact)."""
        for word in words:
            self._told += 1
            if self._told > self._known:
                self._known += 1
                self._waiting.append(word)
        samples = np.frombuffer(pcm, "<i2").astype(np.int16)
        had = self._used - self._heard
        self._heard += len(samples)
        samples = samples[max(0, had) :]
        self._used += len(samples)
        samples = self._trim.push(samples)
        loud = np.flatnonzero((samples > QUIET) | (samples < -QUIET))
        self._quiet = len(samples) - 1 - int(loud[-1]) if len(loud) else self._quiet + len(samples)
        self._place()
        return self._output.take(samples)

    def end(self) -> PcmChunk | None:
        self._place()
        if not self._piece.pause or not self._used:
            return self._output.words()
        last = self._piece.text.rstrip("\"'”’»)]}」』）】 \t\n")[-1:]  # noqa: RUF001
        pause_s = SENTENCE_PAUSE_S if last in SENTENCE_ENDS else PAUSE_S
        missing = round(pause_s / self._request.speed * self._rate) - self._quiet
        return self._output.take(np.zeros(max(0, missing), np.int16))

    def finish(self) -> PcmChunk | None:
        return self._output.finish()

    def _place(self) -> None:
        if not self._trim.heard:
            return
        base = self._base - self._trim.dropped
        for first, last, start, end, exact in self._waiting:
            chars = (self._piece.start + first, self._piece.start + last)
            scaled = self._output.scaled
            samples = (scaled(max(0, base + start)), scaled(max(0, base + end)))
            self._output.add(chars, samples, "exact" if exact else "estimated")
        self._waiting.clear()


class PiperEngine(PoolEngine[PiperCatalogue]):
    name = "piper"
    options = frozenset({"speed", "lead", "seed"})

    def __init__(self, settings: PiperSettings | None = None) -> None:
        self.settings = settings or PiperSettings()
        super().__init__(
            "Piper", max_chars=self.settings.max_chars, attempts=self.settings.attempts
        )
        self._default = ""
        self._unknown: set[tuple[str, str]] = set()
        """Voices and phonemes that they leave out, as reported."""
        self._notes: list[str] = []

    @property
    def notes(self) -> Sequence[str]:
        return tuple(self._notes)

    async def _new_pool(self) -> WorkerPool:
        settings = self.settings
        files, self._default = await asyncio.to_thread(found_voices, settings)
        return WorkerPool(
            worker_command(files),
            size=settings.workers or default_workers(),
            stall_s=settings.stall_s,
            start_s=settings.start_s,
            lead_s=settings.lead_ms / 1000,
            on_note=self._noted,
        )

    def _read_facts(self, facts: Mapping[str, Any]) -> PiperCatalogue:
        loaded = [LoadedVoice.of(each) for each in facts["voices"]]
        catalogue = PiperCatalogue(loaded, self._default)
        self._unknown.clear()
        self._notes = [note for each in facts["voices"] if (note := self._left_out(each))]
        self.model = f"Piper {catalogue.voices[0].id}"
        log.debug("speaking with %s on the CPU", self.model)
        return catalogue

    def _unavailable(self, error: StartFailed) -> EngineUnavailable:
        if error.remedy:
            return EngineUnavailable(error.reason, remedy=error.remedy)
        return EngineUnavailable(
            f"The natural voice cannot start: {error}.",
            remedy="To let eSpeak NG speak, set QWEN3TTS__ENGINE__NAME=embedded.",
        )

    def _begin(
        self, catalogue: PiperCatalogue, request: SynthesisRequest
    ) -> tuple[PiperAudio, Callable[[TextPiece], Mapping[str, Any]]]:
        choice = catalogue.choose(request.voice, request.language)
        settings = self.settings
        seeds = random.Random(request.seed)

        def options(piece: TextPiece) -> Mapping[str, Any]:
            return {
                "voice": choice.voice.id,
                "speaker": choice.speaker,
                "speed": request.speed,
                "length_scale": settings.length_scale,
                "noise_scale": settings.noise_scale,
                "noise_w": settings.noise_w,
                "seed": seeds.randrange(SEEDS),
            }

        return PiperAudio(request, choice.voice.rate), options

    def _refused(self, job: SpeechJob) -> SpeechError:
        return error_from_wire(job.code, job.reason, remedy=job.remedy)

    def _noted(self, facts: Mapping[str, Any]) -> None:
        if told := self._left_out({**facts, "id": facts["voice"]}):
            log.warning("%s", told)

    def _left_out(self, facts: Mapping[str, Any]) -> str:
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


def found_voices(settings: PiperSettings) -> tuple[list[VoiceFiles], str]:
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
    listed = [(str(each.onnx), str(each.config), each.id) for each in files]
    return command("qwen3tts_engine.piper.worker", json.dumps(listed))
