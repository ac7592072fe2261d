"""Catalogue of a checkpoint's voices. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from qwen3tts_engine.base import CLONE, Voice
from qwen3tts_engine.model_names import SPEAKERS
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.prompt import NO_SPEAKER, find_language, find_speaker, language_tag
from qwen3tts_wire.errors import UnknownVoice
from qwen3tts_wire.names import MANY, near_hint, nearest

DESIGN = "design"
"""Voice of a VoiceDesign checkpoint, described by the request's instructions."""
_VOICE_ID = re.compile("[0-9a-f]{64}")


def is_voice_id(text: str) -> bool:
    return _VOICE_ID.fullmatch(text) is not None


class ClonedNames(Protocol):
    @property
    def names(self) -> Mapping[str, str]: ...


class VoiceCatalogue:
    """Voices of a checkpoint; UnknownVoice if ``default`` does not exist."""

    def __init__(
        self, config: ModelConfig, cloned: ClonedNames | None, default: str | None = None
    ) -> None:
        self._config = config
        self._cloned = cloned
        self._default: str | None = None
        if default is not None:
            self._default = self.voice(default, None)

    def listed(self) -> list[Voice]:
        return sorted(self._listed(), key=lambda voice: voice.id != self._default)

    def voice(self, voice: str | None, language: str | None) -> str:
        """Return the id of the requested voice; UnknownVoice suggests similar names."""
        find_language(self._config, language)
        wanted = (voice or "").strip()
        if not wanted:
            return self._first(language)
        if self._config.task == "custom_voice":
            if wanted.lower() == NO_SPEAKER:
                return NO_SPEAKER
            return find_speaker(self._config, wanted)
        if self._config.task == "voice_design":
            if wanted.lower() == DESIGN:
                return DESIGN
            raise UnknownVoice(
                f"There is no voice {wanted[:80]!r}; this checkpoint generates voices.",
                remedy=f"Leave the voice out or name {DESIGN!r}, and describe it in instructions.",
            )
        names = self._names()
        if wanted.removeprefix(CLONE) in names:
            return CLONE + wanted.removeprefix(CLONE)
        if is_voice_id(wanted):
            return wanted
        hint = near_hint([CLONE + each for each in nearest(wanted.removeprefix(CLONE), names)])
        raise UnknownVoice(
            f"There is no cloned voice {wanted[:80]!r}.",
            remedy=f"{hint} Make it from a recording first (voice.load, or create_voice).".lstrip(),
        )

    def language(self, language: str | None) -> str | None:
        """Return the checkpoint's name of a language; None: automatic. UnknownVoice."""
        return find_language(self._config, language)

    def _first(self, language: str | None) -> str:
        listed = self.listed()
        name = find_language(self._config, language)
        if name is not None:
            tag = language_tag(name)
            listed.sort(key=lambda voice: voice.language != tag)
            if listed and listed[0].language == tag:
                return listed[0].id
        if self._default is not None:
            return self._default
        if listed:
            return listed[0].id
        raise UnknownVoice(
            "This checkpoint speaks with cloned voices only, and has none yet.",
            remedy="Make one from a recording (voice.load, or create_voice), or serve a"
            " CustomVoice checkpoint.",
        )

    def _names(self) -> list[str]:
        return [] if self._cloned is None else sorted(self._cloned.names)

    def _listed(self) -> list[Voice]:
        config = self._config
        if config.task == "custom_voice":
            return [self._speaker(name) for name in config.talker.speakers]
        if config.task == "voice_design":
            description = "generated for each request from its instructions"
            return [Voice(DESIGN, "Design", MANY, None, description)]
        description = "cloned from a recording"
        return [Voice(CLONE + name, name, MANY, None, description) for name in self._names()]

    def _speaker(self, name: str) -> Voice:
        language, gender = SPEAKERS.get(name, (MANY, None))
        dialect = self._config.talker.dialects.get(name, "").replace("_", " ")
        return Voice(name, name.replace("_", " ").title(), language, gender, dialect)
