"""Engine ``embedded``: eSpeak NG, without a GPU or a checkpoint."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.embedded.library import VoiceEntry
from qwen3tts_engine.embedded.utterance import EspeakAudio
from qwen3tts_engine.embedded.voices import EspeakCatalogue
from qwen3tts_engine.request_text import TextPiece
from qwen3tts_engine.workers.pool import WorkerPool
from qwen3tts_engine.workers.pool_engine import PoolEngine
from qwen3tts_engine.workers.process import SpeechJob
from qwen3tts_wire.child.process import StartFailed, command
from qwen3tts_wire.errors import EngineFailed, EngineUnavailable

log = logging.getLogger(__name__)

INSTALL = "Install it: pip install 'mr_qwen3tts[embedded]'"
_RATES = (
    (0.5, 94),
    (0.65, 119),
    (0.8, 143),
    (1.0, 175),
    (1.17, 200),
    (1.43, 240),
    (1.73, 280),
    (2.0, 318),
    (2.25, 347),
    (2.5, 385),
)
"""(speed, words a minute). The library's rate is not in proportion to the length of its sound; this
is the inverse of what tests/engine/embedded/test_embedded_voices.py measures."""


def default_workers() -> int:
    """Return one a core, from 2 to 4: workers far exceed real time."""
    return max(2, min(4, os.cpu_count() or 2))


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    voice: str = "en-us+f3"
    """Voice where a request names neither voice nor language."""
    workers: int = 0
    """Number of processes; 0 for ``default_workers()``."""
    max_chars: int = 5000
    """Most code points in one request."""
    attempts: int = 3
    """Attempts at a piece of text before the loss of its workers is an error."""
    stall_s: float = 5.0
    """A worker silent for longer within a job is replaced."""
    start_s: float = 20.0
    """Time limit of a worker's start."""
    library: Path | None = None
    """The eSpeak NG library; None: the one of ``espeakng-loader``."""
    data: Path | None = None
    """Its data; None: that of ``espeakng-loader``."""

    def __post_init__(self) -> None:
        for name in ("max_chars", "attempts", "stall_s", "start_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")
        if self.workers < 0:
            raise ValueError(f"workers={self.workers} must be 0 or above")


class EmbeddedEngine(PoolEngine[EspeakCatalogue]):
    name = "embedded"
    options = frozenset({"speed", "lead"})

    def __init__(self, settings: EmbeddedSettings | None = None) -> None:
        self.settings = settings or EmbeddedSettings()
        super().__init__(
            "eSpeak NG", max_chars=self.settings.max_chars, attempts=self.settings.attempts
        )
        self._rate = 0

    def variants(self) -> Sequence[str]:
        return self._started()[1].variants

    async def _new_pool(self) -> WorkerPool:
        library, data = self._find_library()
        settings = self.settings
        return WorkerPool(
            worker_command(library, data),
            size=settings.workers or default_workers(),
            stall_s=settings.stall_s,
            start_s=settings.start_s,
        )

    def _read_facts(self, facts: Mapping[str, Any]) -> EspeakCatalogue:
        self._rate = facts["sample_rate"]
        version = facts["version"]
        self.model = f"eSpeak NG {version.split()[0]}" if version else "eSpeak NG"
        log.debug("speaking with %s on the CPU", self.model)
        return EspeakCatalogue(
            entries(facts["voices"]), entries(facts["variants"]), self.settings.voice
        )

    def _unavailable(self, error: StartFailed) -> EngineUnavailable:
        return EngineUnavailable(
            f"The embedded engine cannot start: {error}.",
            remedy=f"{INSTALL}, or reinstall it; `mr-qwen3tts doctor` shows more.",
        )

    def _begin(
        self, catalogue: EspeakCatalogue, request: SynthesisRequest
    ) -> tuple[EspeakAudio, Callable[[TextPiece], Mapping[str, Any]]]:
        voice = catalogue.choose(request.voice, request.language).library_name
        rate = rate_of(request.speed)

        def options(piece: TextPiece) -> Mapping[str, Any]:
            return {"voice": voice, "rate": rate, "pause": piece.pause}

        return EspeakAudio(request, self._rate), options

    def _refused(self, job: SpeechJob) -> EngineFailed:
        return EngineFailed(
            f"eSpeak NG did not speak: {job.reason}.",
            remedy="Choose another voice; `mr-qwen3tts doctor` checks the installation.",
        )

    def _find_library(self) -> tuple[Path, Path]:
        library, data = self.settings.library, self.settings.data
        if library is None or data is None:
            if importlib.util.find_spec("espeakng_loader") is None:
                raise EngineUnavailable(
                    "The embedded engine needs eSpeak NG (the package espeakng-loader).",
                    remedy=f"{INSTALL}.",
                )
            import espeakng_loader  # an extra: everything but this engine works without it

            try:
                library = library or Path(espeakng_loader.get_library_path())
                data = data or Path(espeakng_loader.get_data_path())
            except RuntimeError as error:
                raise EngineUnavailable(
                    f"The package espeakng-loader is damaged: {error}.",
                    remedy="Reinstall it: pip install --force-reinstall espeakng-loader.",
                ) from error
        for path in (library, data):
            if not path.exists():
                raise EngineUnavailable(f"{path} is missing.", remedy=f"{INSTALL}.")
        return library, data


def rate_of(speed: float) -> int:
    """Return words a minute for a speed of base.SPEED_MIN to SPEED_MAX."""
    for (low, low_rate), (high, high_rate) in itertools.pairwise(_RATES):
        if speed <= high:
            return round(low_rate + (speed - low) / (high - low) * (high_rate - low_rate))
    return _RATES[-1][1]


def worker_command(library: Path, data: Path) -> list[str]:
    return command("qwen3tts_engine.embedded.worker", str(library), str(data))


def entries(listed: Sequence[dict[str, Any]]) -> list[VoiceEntry]:
    return [
        VoiceEntry(
            name=entry["name"],
            identifier=entry["identifier"],
            languages=tuple((int(priority), str(tag)) for priority, tag in entry["languages"]),
            gender=entry["gender"],
        )
        for entry in listed
    ]
