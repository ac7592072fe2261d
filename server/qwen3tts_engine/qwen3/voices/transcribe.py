"""Transcription of recordings by Whisper."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from qwen3tts_engine.base import WordsMissing
from qwen3tts_engine.qwen3.model.config import Samples
from qwen3tts_engine.qwen3.voices.recording import Recording, ReferenceLimits, read_recording
from qwen3tts_engine.recogniser import LanguageUnknown, TranscribedStretch
from qwen3tts_wire.errors import BadRequest, EngineUnavailable, LimitExceeded
from qwen3tts_wire.whisper.guards import Decoding, UnknownLanguage, code_of, is_plausible
from qwen3tts_wire.whisper.model import RATE_HZ, WhisperModel
from qwen3tts_wire.whisper.models import ModelMissing, check_folder, is_name

REMEDY = "Give the recording's words as ref_text, or ask for x_vector_only=true"


def check_whisper(model: str) -> None:
    """Refuse an unusable model folder, size or hub id; contacts no hub."""
    if not is_name(model):
        raise EngineUnavailable(
            f"There is no folder {model} with a Whisper model.",
            remedy="Name a Whisper model's folder, or a size such as small.",
        )
    path = Path(model).expanduser()
    if path.is_dir():
        try:
            check_folder(path)
        except ModelMissing as error:
            raise EngineUnavailable(error.reason, remedy=error.remedy) from error


class Transcriber(Protocol):
    """Speech recogniser, called in several worker threads."""

    @property
    def name(self) -> str: ...

    def transcribe(self, recording: Recording) -> str: ...


class WhisperTranscriber:
    def __init__(self, model: str, *, language: str | None = None) -> None:
        self.model = model
        self.language = language
        self._lock = threading.Lock()
        self._loaded: WhisperModel | None = None

    @property
    def name(self) -> str:
        return f"whisper {self.model} {self.language or 'auto'}"

    def transcribe(self, recording: Recording) -> str:
        samples = recording.at(RATE_HZ)
        with self._lock:
            try:
                words = self._hear(self._ready(), samples, self.language)
            except ModelMissing as error:
                raise WordsMissing(error.reason, remedy=f"{REMEDY}. Or: {error.remedy}") from error
        text = " ".join(each.text for each in words)
        if not text:
            raise WordsMissing(
                "No words were recognised in the reference recording.", remedy=f"{REMEDY}."
            )
        return text

    def hear(
        self,
        audio: bytes,
        language: str | None,
        *,
        max_s: float,
        stopped: Callable[[], bool],
    ) -> tuple[float, Sequence[TranscribedStretch]]:
        """Return seconds and words of an audio file; see base.Recogniser."""
        recording = _sound_of(audio, max_s)
        samples = recording.at(RATE_HZ)
        with self._lock:
            try:
                found = self._hear(self._ready(), samples, language or self.language, stopped)
            except ModelMissing as error:
                raise EngineUnavailable(
                    f"The recogniser cannot be loaded. {error.reason}",
                    remedy=f"On the server, for its setting whisper: {error.remedy}",
                ) from error
        return recording.seconds, found

    def _ready(self) -> WhisperModel:
        if self._loaded is None:
            self._loaded = WhisperModel.load(self.model)
        return self._loaded

    def _hear(
        self,
        model: WhisperModel,
        samples: Samples,
        language: str | None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> list[TranscribedStretch]:
        found: list[TranscribedStretch] = []
        if stopped():
            return found
        try:
            segments = model.recording(samples, "" if language is None else code_of(language))
            for each in segments:
                answer = Decoding(each.text, "", each.logprob, each.no_speech)
                if is_plausible(answer, each.end_s - each.start_s):
                    found.append(TranscribedStretch(each.start_s, each.end_s, each.text))
                if stopped():
                    break
        except UnknownLanguage as error:
            raise LanguageUnknown(
                "The recogniser does not know this language.",
                remedy="Leave language out, or send a tag such as en.",
            ) from error
        return found


def _sound_of(audio: bytes, max_s: float) -> Recording:
    limits = ReferenceLimits(
        min_s=0.1, max_s=max_s, max_bytes=max(1, len(audio)), silence_dbfs=-math.inf
    )
    remedy = f"Send a sound file of 0.1 to {max_s:g} s, such as WAV or MP3."
    try:
        return read_recording(audio, limits)
    except (BadRequest, LimitExceeded) as error:
        kind = LimitExceeded if isinstance(error, LimitExceeded) else BadRequest
        message = error.message.replace("reference recording", "recording")
        raise kind(message.replace("reference samples", "samples"), remedy=remedy) from error
