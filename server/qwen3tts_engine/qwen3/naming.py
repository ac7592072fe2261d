"""What a request calls a language or a speaker, and what the checkpoint calls it. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterable

from qwen3tts_engine.qwen3.model_config import ModelConfig
from qwen3tts_wire.errors import UnknownVoice
from qwen3tts_wire.naming.nearest import nearest

AUTO = "auto"
"""The model finds the language by itself."""
CHINESE = "chinese"
NO_SPEAKER = "no_speaker"
"""In place of a CustomVoice speaker's name: the prompt has no speaker position, as in the official
package with an empty name; the model takes a voice of its own."""

_NAMES = {
    "zh": CHINESE,
    "zho": CHINESE,
    "chi": CHINESE,
    "cmn": CHINESE,
    "en": "english",
    "eng": "english",
    "de": "german",
    "deu": "german",
    "ger": "german",
    "it": "italian",
    "ita": "italian",
    "pt": "portuguese",
    "por": "portuguese",
    "es": "spanish",
    "spa": "spanish",
    "ja": "japanese",
    "jpn": "japanese",
    "ko": "korean",
    "kor": "korean",
    "fr": "french",
    "fra": "french",
    "fre": "french",
    "ru": "russian",
    "rus": "russian",
}
"""ISO 639 codes (parts 1, 2 and 3), the primary subtags of BCP 47, and the checkpoints' names."""
_TAGS = {
    CHINESE: "zh",
    "english": "en",
    "german": "de",
    "italian": "it",
    "portuguese": "pt",
    "spanish": "es",
    "japanese": "ja",
    "korean": "ko",
    "french": "fr",
    "russian": "ru",
}
# RFC 5646 section 2.1, loosely: a primary language subtag, then any others.
_TAG = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*")


def find_language(config: ModelConfig, language: str | None) -> str | None:
    """The checkpoint's name for a language; None where the model is to find it.

    Args:
        config: The checkpoint.
        language: Its own name (``german``), an ISO 639 code or a BCP 47 tag (``de``, ``de-AT``),
            in any case; ``auto`` or None.

    Raises:
        UnknownVoice: the checkpoint does not speak it; names near ones.
    """
    if language is None:
        return None
    known, wanted = config.talker.languages, language.strip().lower()
    if wanted in ("", AUTO, "und", "mul"):
        return None
    tag = _TAG.fullmatch(wanted)
    for name in (wanted, wanted.replace(" ", "_"), _NAMES.get(tag[1], "") if tag else ""):
        if name in known:
            return name
    raise UnknownVoice(
        f"This checkpoint does not speak {language!r}.",
        remedy=_offer(wanted, [*known, *(_TAGS[name] for name in known if name in _TAGS)], known),
    )


def find_speaker(config: ModelConfig, speaker: str | None) -> str:
    """The checkpoint's name for a speaker, whatever its case.

    Raises:
        UnknownVoice: it has none of that name; names near ones.
    """
    known = config.talker.speakers
    wanted = "" if speaker is None else speaker.strip().lower()
    for name in (wanted, wanted.replace(" ", "_").replace("-", "_")):
        if name in known:
            return name
    said = "No speaker is named" if not wanted else f"There is no speaker {speaker!r}"
    raise UnknownVoice(f"{said}.", remedy=_offer(wanted, known, known))


def language_tag(name: str) -> str:
    """The BCP 47 tag of a checkpoint's language; ``zh`` for its dialects."""
    return _TAGS.get(name, "zh" if name.endswith("_dialect") else "und")


def _offer(wanted: str, names: Iterable[str], all_of_them: Iterable[str]) -> str:
    near = nearest(wanted, names)
    every = ", ".join(sorted(all_of_them))
    return f"Near ones: {', '.join(near)}. All: {every}." if near else f"Choose one of: {every}."
