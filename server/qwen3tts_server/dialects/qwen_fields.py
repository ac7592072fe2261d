"""Fields of Qwen3-TTS: languages, tasks, reference voices."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence

from qwen3tts_engine.base import WordsMissing
from qwen3tts_engine.wrapped import cloning, embedder_of, task_of
from qwen3tts_server.dialects.http_errors import about
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_wire.errors import BadRequest

TASKS: Mapping[str, str] = {
    "CustomVoice": "custom_voice",
    "VoiceDesign": "voice_design",
    "Base": "base",
}
"""``task_type`` and engines' names."""
LANGUAGES: Mapping[str, str] = {
    "chinese": "zh",
    "english": "en",
    "french": "fr",
    "german": "de",
    "italian": "it",
    "japanese": "ja",
    "korean": "ko",
    "portuguese": "pt",
    "russian": "ru",
    "spanish": "es",
}
"""Qwen3-TTS's languages with BCP 47 tags."""
MAX_SEED = 2**63
MAX_EMBEDDING = 8192
"""Numbers of a speaker embedding; vLLM-Omni's bound."""
EMBEDDING_PEAK = 1000.0
"""Bound of an embedding's numbers, by far."""


def language_tag(language: str | None) -> str | None:
    """Return a language's BCP 47 tag; None for ``Auto``."""
    name = (language or "").strip().lower()
    if name in ("", "auto"):
        return None
    return LANGUAGES.get(name, language)


def seed_of(seed: int | None) -> int | None:
    return None if seed is None else seed % MAX_SEED


def first_chunk_of(frames: int | None) -> int | None:
    """Return ``initial_codec_chunk_frames``; 0: the engine's."""
    return frames or None


def mode_of(non_streaming_mode: bool | None, usual: str) -> str:
    if non_streaming_mode is None:
        return usual
    return "whole" if non_streaming_mode else "whole_streaming"


def check_task(voices: VoiceCatalogue, task_type: str | None, *, reference: bool) -> None:
    """Raise FieldRefused for an unsupported task or misplaced reference."""
    task = None if task_type is None else TASKS.get(task_type)
    if task_type is not None:
        with about("task_type"):
            _check_task(voices, task)
    if reference and task not in (None, "base"):
        with about("ref_audio"):
            raise BadRequest(
                "A reference recording belongs to the task Base.",
                remedy="Leave ref_audio, ref_text and x_vector_only_mode out, or send task_type"
                " Base.",
            )


def embedding_in(text: str) -> tuple[float, ...]:
    """Parse a ``speaker_embedding`` JSON list; raises FieldRefused."""
    with about("speaker_embedding"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list) or not all(type(each) in (int, float) for each in found):
            raise BadRequest(
                "The speaker embedding is not a JSON list of numbers.",
                remedy="Send the numbers as the speaker encoder gave them: [0.12, -0.03, ...].",
            )
        return tuple(found)


def check_embedding(
    voices: VoiceCatalogue, embedding: Sequence[float] | None, *, recording: bool
) -> None:
    """Raise FieldRefused for an unusable ``speaker_embedding``."""
    if embedding is None:
        return
    with about("speaker_embedding"):
        embedder = embedder_of(voices)
        size = None if embedder is None else embedder.embedding_size()
        if size is None:
            raise BadRequest(
                "The model that is served takes no speaker embedding.",
                remedy="Name a voice, or serve a Qwen3-TTS Base checkpoint.",
            )
        if recording:
            raise BadRequest(
                "Both a speaker embedding and a recording are given.",
                remedy="Send either the embedding or the recording and its words.",
            )
        if len(embedding) != size:
            raise BadRequest(
                f"The speaker embedding has {len(embedding)} numbers; the model's have {size}.",
                remedy="Send one that was made by a checkpoint of the same size.",
            )
        # A comparison with NaN is false.
        if not all(-EMBEDDING_PEAK <= each <= EMBEDDING_PEAK for each in embedding):
            raise BadRequest(
                f"A number of the speaker embedding is not within ±{EMBEDDING_PEAK:g}.",
                remedy="Send the numbers as the speaker encoder gave them.",
            )


async def embedded_voice(voices: VoiceCatalogue, embedding: Sequence[float]) -> str:
    with about("speaker_embedding"):
        embedder = embedder_of(voices)
        if embedder is None:
            raise BadRequest(
                "The model that is served takes no speaker embedding.",
                remedy="Name a voice, or serve a Qwen3-TTS Base checkpoint.",
            )
        return (await embedder.load_embedding(embedding)).voice_id


def _check_task(voices: VoiceCatalogue, task: str | None) -> None:
    served = task_of(voices)
    if task is None:
        raise BadRequest("There is no such task.", remedy=f"Choose one of {', '.join(TASKS)}.")
    if served is not None:
        good, can = task == served, [name for name, kind in TASKS.items() if kind == served]
    else:
        # An engine that is no checkpoint of Qwen3-TTS: voices of its own, maybe recordings.
        can = ["CustomVoice"] if cloning(voices) is None else ["CustomVoice", "Base"]
        good = task in [TASKS[name] for name in can]
    if not good:
        raise BadRequest(
            "The model that is served does not do this task.",
            remedy=f"It does {' and '.join(can)}; leave task_type out.",
        )


@contextlib.contextmanager
def words_asked_for() -> Iterator[None]:
    try:
        yield
    except WordsMissing as error:
        remedy = error.remedy.replace("x_vector_only=true", "x_vector_only_mode=true")
        with about("ref_text"):
            raise BadRequest(error.message, remedy=remedy) from error


async def reference_voice(
    voices: VoiceCatalogue, ref_audio: str | None, ref_text: str | None, *, x_vector_only: bool
) -> str | None:
    """Load a recording's voice, return its id or None; raises FieldRefused."""
    if ref_audio is None:
        if ref_text is not None:
            with about("ref_text"):
                raise BadRequest(
                    "There is a text of a recording, and no recording.",
                    remedy="Send ref_audio with it, or leave it out.",
                )
        return None
    with about("ref_audio"), words_asked_for():
        return await voices.from_reference(
            ref_audio, ref_text=ref_text, x_vector_only=x_vector_only
        )
