"""The voices that a checkpoint offers, and which of them a request means. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from qwen3tts_engine.base import Voice
from qwen3tts_engine.model_names import SPEAKERS
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.prompt import NO_SPEAKER, find_language, find_speaker, language_tag
from qwen3tts_wire.errors import UnknownVoice
from qwen3tts_wire.names import near_hint, nearest

DESIGN = "design"
"""The voice of a VoiceDesign checkpoint: what it is, the request's instructions say."""
MANY = "mul"
"""ISO 639-2: several languages."""
CLONE = "clone:"
"""Before a cloned voice's name."""
_ID = re.compile("[0-9a-f]{64}")


class ClonedNames(Protocol):
    """voices.VoiceStore."""

    @property
    def names(self) -> Mapping[str, str]:
        """The id that each name stands for, without CLONE."""
        ...


class VoiceCatalogue:
    """What a checkpoint can speak with.

    Args:
        config: the checkpoint's.
        cloned: names of the voices made from recordings; for a Base checkpoint.
        default: what speaks where a request names neither voice nor language; None: the first.

    Raises:
        UnknownVoice: ``default`` is none of them.
    """

    def __init__(
        self, config: ModelConfig, cloned: ClonedNames | None, default: str | None = None
    ) -> None:
        self._config = config
        self._cloned = cloned
        self._default: str | None = None
        if default is not None:
            self._default = self.voice(default, None)

    def listed(self) -> list[Voice]:
        """All voices, the default first."""
        return sorted(self._listed(), key=lambda voice: voice.id != self._default)

    def voice(self, voice: str | None, language: str | None) -> str:
        """The id of the voice that a request means.

        Raises:
            UnknownVoice: there is none; names near ones, and what can be done.
        """
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
                f"There is no voice {wanted[:80]!r}; this checkpoint makes voices up.",
                remedy=f"Leave the voice out or name {DESIGN!r}, and describe it in instructions.",
            )
        names = self._names()
        if wanted.removeprefix(CLONE) in names:
            return CLONE + wanted.removeprefix(CLONE)
        if _ID.fullmatch(wanted):
            return wanted
        hint = near_hint([CLONE + each for each in nearest(wanted.removeprefix(CLONE), names)])
        raise UnknownVoice(
            f"There is no cloned voice {wanted[:80]!r}.",
            remedy=f"{hint} Make it from a recording first (voice.load, or create_voice).".lstrip(),
        )

    def language(self, language: str | None) -> str | None:
        """The checkpoint's name for a language; None: the model finds it out.

        Raises:
            UnknownVoice: it does not speak it; says what it speaks.
        """
        return find_language(self._config, language)

    def _first(self, language: str | None) -> str:
        """The default, or with a language the first whose own it is."""
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
            "This checkpoint speaks with cloned voices only, and there is none yet.",
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
            told = "made up for each request as its instructions say"
            return [Voice(DESIGN, "Design", MANY, None, told)]
        told = "cloned from a recording"
        return [Voice(CLONE + name, name, MANY, None, told) for name in self._names()]

    def _speaker(self, name: str) -> Voice:
        language, gender = SPEAKERS.get(name, (MANY, None))
        dialect = self._config.talker.dialects.get(name, "").replace("_", " ")
        return Voice(name, name.replace("_", " ").title(), language, gender, dialect)
