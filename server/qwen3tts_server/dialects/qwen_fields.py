"""The fields of Qwen3-TTS that servers for it share: languages by name, and whose voice speaks."""

from __future__ import annotations

from collections.abc import Mapping

from qwen3tts_engine.wrapped import cloning, task_of
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_wire.errors import BadRequest

from .http_errors import about

TASKS: Mapping[str, str] = {
    "CustomVoice": "custom_voice",
    "VoiceDesign": "voice_design",
    "Base": "base",
}
"""``task_type``, and what engines call it."""
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
"""Qwen3-TTS's names of its languages, and their BCP 47 tags."""
MAX_SEED = 2**63


def language_tag(language: str | None) -> str | None:
    """The BCP 47 tag of a language by Qwen3-TTS's name; None for ``Auto``; a tag as it is."""
    name = (language or "").strip().lower()
    if name in ("", "auto"):
        return None
    return LANGUAGES.get(name, language)


def seed_of(seed: int | None) -> int | None:
    """A seed of 64 bits with its sign, as one that engines take."""
    return None if seed is None else seed % MAX_SEED


def first_chunk_of(frames: int | None) -> int | None:
    """``initial_codec_chunk_frames``, where 0 leaves it to the engine."""
    return frames or None


def check_task(
    voices: VoiceCatalogue, task_type: str | None, instructions: str | None, *, reference: bool
) -> None:
    """Refuse a task that the engine does not do, and a reference where none belongs.

    Raises:
        FieldRefused: with the field that is wrong.
    """
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
    if (task or task_of(voices)) == "voice_design" and not (instructions or "").strip():
        with about("instructions"):
            raise BadRequest(
                "A voice is designed by its description.", remedy="Describe it in instructions."
            )


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


async def reference_voice(
    voices: VoiceCatalogue, ref_audio: str | None, ref_text: str | None, *, x_vector_only: bool
) -> str | None:
    """The id of the voice of a recording; None where none was sent.

    Raises:
        FieldRefused: the recording cannot be had or used.
    """
    if ref_audio is None:
        if ref_text is not None:
            with about("ref_text"):
                raise BadRequest(
                    "There is a text of a recording, and no recording.",
                    remedy="Send ref_audio with it, or leave it out.",
                )
        return None
    with about("ref_audio"):
        return await voices.from_reference(
            ref_audio, ref_text=ref_text, x_vector_only=x_vector_only
        )
