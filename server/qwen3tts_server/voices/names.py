"""Voice and language names, with suggestions."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Mapping, Sequence

from qwen3tts_engine.base import CLONE, Engine, Voice
from qwen3tts_engine.model_names import SPEAKERS
from qwen3tts_engine.starter.engine import FindVoice, starters_of
from qwen3tts_wire.errors import BadRequest, UnknownVoice

DEFAULT = "default"
"""Clients' name of the default voice."""
NAME_MAX = 64
"""Code points."""

OPENAI_NAMES: Mapping[str, str] = {
    "alloy": "female",
    "ash": "male",
    "ballad": "male",
    "coral": "female",
    "echo": "male",
    "fable": "male",
    "nova": "female",
    "onyx": "male",
    "sage": "female",
    "shimmer": "female",
    "verse": "male",
    "marin": "female",
    "cedar": "male",
}
"""OpenAI's voices with perceived gender."""

QWEN_NAMES: Mapping[str, str] = {name: gender for name, (_, gender) in SPEAKERS.items()}
"""CustomVoice speakers by ``key_of``, with published gender; any engine answers to them."""

KNOWN_NAMES: Mapping[str, str] = {**OPENAI_NAMES, **QWEN_NAMES}
"""Names sent without a look-up."""

_ID = re.compile(r"[0-9a-f]{64}")


def key_of(name: str) -> str:
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
    return re.sub(r"[\s_-]+", "_", folded.strip())


def bare(name: str) -> str:
    return name.removeprefix(CLONE)


def is_content_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None


def checked_name(name: str) -> str:
    name = unicodedata.normalize("NFC", name)
    good = 0 < len(name) <= NAME_MAX and name[0].isalnum() and name == name.strip()
    if not good or not all(char.isalnum() or char in " ._-" for char in name):
        raise BadRequest(
            "The voice's name cannot be used.",
            remedy=f"Choose 1 to {NAME_MAX} letters, digits, blanks or . _ - with a letter or"
            " digit first.",
        )
    if key_of(name) in OPENAI_NAMES or key_of(name) == DEFAULT or is_content_id(name):
        raise BadRequest(
            "The voice's name is reserved.",
            remedy="Choose one that is not OpenAI's, 'default' or a hash.",
        )
    return name


def spread(
    known_name: str, voices: Sequence[Voice], *, polyglot: bool, language: str | None = None
) -> str | None:
    """Return a known name's voice, stable for the same voices.

    Filters by language (default English) unless all are polyglot, then gender.

    Args:
        known_name: of KNOWN_NAMES.
        voices: the engine's, default first.
        polyglot: all speak every language.
        language: BCP 47 tag; None: English.

    Returns:
        Its id, or None.
    """
    names = OPENAI_NAMES if known_name in OPENAI_NAMES else QWEN_NAMES
    gender = names[known_name]
    chosen = list(voices)
    if not polyglot and chosen:
        tags = (language or "en", "en", chosen[0].language)
        fitting = ([each for each in voices if _speaks(each, tag)] for tag in tags)
        chosen = next(filter(None, fitting))
    same = [each for each in chosen if each.gender == gender]
    unknown = [each for each in chosen if each.gender is None]
    pool = same or unknown or chosen
    if not pool:
        return None
    if pool is same:
        alike = [name for name, other in names.items() if other == gender]
    else:
        alike = list(names)
    return pool[alike.index(known_name) % len(pool)].id


def _speaks(voice: Voice, language: str) -> bool:
    return _primary(voice.language) in (_primary(language), "mul")


def _primary(tag: str) -> str:
    return tag.lower().replace("_", "-").split("-")[0]


def check_language(engine: Engine, voice_id: str, language: str) -> None:
    """Raise UnknownVoice for a voice's missing language."""
    try:
        engine.check(voice_id, language)
        return
    except UnknownVoice as error:
        refused = error
    try:
        engine.check(voice_id, None)
    except UnknownVoice as missing:
        # The same without a language: it is the voice that the engine misses.
        if str(missing) == str(refused):
            return
    raise refused


class NamedOpenings:
    """Voices of ``starters.voices``."""

    def __init__(self, inner: Engine, find_voice: FindVoice) -> None:
        self._starters = starters_of(inner)
        self._preparing: set[asyncio.Task[None]] = set()
        if self._starters is not None:
            self._starters.find_voice = find_voice

    def uploaded(self, name: str) -> None:
        starters = self._starters
        for wanted in () if starters is None else starters.settings.voices:
            if starters is not None and key_of(bare(wanted)) == key_of(name):
                task = asyncio.create_task(starters.prepare_voice(wanted), name="prepare openings")
                self._preparing.add(task)
                task.add_done_callback(self._preparing.discard)

    def removed(self, voice_id: str) -> None:
        if self._starters is not None:
            self._starters.forget_openings(voice_id)

    async def close(self) -> None:
        preparing = set(self._preparing)
        for each in preparing:
            each.cancel()
        if preparing:
            await asyncio.wait(preparing)
