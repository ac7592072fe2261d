"""Loaded voices in Piper's format, and their choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qwen3tts_engine.base import Voice
from qwen3tts_engine.embedded.voices import unknown, wanted_tag
from qwen3tts_engine.piper.voice_files import voice_key
from qwen3tts_wire.errors import UnknownVoice
from qwen3tts_wire.names import near_voices, nearest

SPEAKER = "#"
"""Stands between a voice and one of its speakers: ``en_GB-vctk-medium#p239``."""

SEX = {
    name: sex
    for sex, names in {
        "male": "alan bryce danny faber gilles hfc_male joe john karlsson norman riccardo ryan"
        " northern_english_male thorsten thorsten_emotional",
        "female": "alba amy cori eva_k gosia hfc_female irina jenny_dioco kathleen kerstin kristin"
        " lessac ljspeech paola ramona siwis southern_english_female",
    }.items()
    for name in names.split()
}
"""Facts missing in published voices' settings, by the name in their ids."""


@dataclass(frozen=True, slots=True)
class LoadedVoice:
    id: str
    rate: int
    """Hertz."""
    language: str
    """BCP 47 tag."""
    speakers: tuple[str, ...] = ()
    """Names, or numbers, in the order of their numbers; empty where there is one."""

    @classmethod
    def of(cls, facts: dict[str, Any]) -> LoadedVoice:
        return cls(facts["id"], facts["rate"], facts["language"], tuple(facts["speakers"]))


@dataclass(frozen=True, slots=True)
class SpeakerChoice:
    voice: LoadedVoice
    speaker: str | None = None

    @property
    def id(self) -> str:
        return self.voice.id + (f"{SPEAKER}{self.speaker}" if self.speaker is not None else "")


class PiperCatalogue:
    """Voices; names in any case, ``-`` and ``_`` alike.

    Raises:
        UnknownVoice: the default voice is missing.
    """

    def __init__(self, loaded: Sequence[LoadedVoice], default: str) -> None:
        self._loaded = {voice_key(voice.id): voice for voice in loaded}
        self._plain = [
            _told(SpeakerChoice(voice, speaker))
            for voice in loaded
            for speaker in (None, *voice.speakers)
        ]
        self._default = SpeakerChoice(loaded[0])
        self._default = self.choose(default, None)
        first = self._default.id
        self.voices = tuple(sorted(self._plain, key=lambda voice: voice.id != first))
        """The default first."""

    def choose(self, voice: str | None, language: str | None) -> SpeakerChoice:
        name, hash_, speaker = (voice or "").strip().partition(SPEAKER)
        tag = wanted_tag(language)
        if not name:
            return self._default if tag is None else self._of_language(language or "", tag)
        loaded = self._loaded.get(voice_key(name))
        if loaded is None:
            raise unknown("voice", voice or "", near_voices(name, self._plain, tag))
        if tag is not None and not _speaks(loaded, tag):
            raise UnknownVoice(
                f"Voice {voice!r} speaks {loaded.language}, not {language!r}.",
                remedy="Leave out the voice or the language.",
            )
        if not hash_:
            return SpeakerChoice(loaded)
        return SpeakerChoice(loaded, self._speaker(loaded, speaker))

    def _of_language(self, language: str, tag: str) -> SpeakerChoice:
        voices = [self._default.voice, *self._loaded.values()]
        for fits in (_is_tag, _speaks):
            for loaded in voices:
                if fits(loaded, tag):
                    return self._default if loaded is voices[0] else SpeakerChoice(loaded)
        spoken = sorted({voice.language for voice in voices})
        raise UnknownVoice(
            f"No voice here speaks {language[:80]!r}; there is {', '.join(spoken)[:200]}.",
            remedy="Add one that does (QWEN3TTS__ENGINE__PIPER__VOICES), or let eSpeak NG speak:"
            " set QWEN3TTS__ENGINE__NAME=embedded.",
        )

    def _speaker(self, loaded: LoadedVoice, speaker: str) -> str:
        for name in loaded.speakers:
            if name.lower() == speaker.lower():
                return name
        if speaker.isascii() and speaker.isdecimal() and int(speaker) < len(loaded.speakers):
            return loaded.speakers[int(speaker)]
        if not loaded.speakers:
            raise UnknownVoice(
                f"Voice {loaded.id} has one speaker, not {speaker[:80]!r}.",
                remedy=f"Name it {loaded.id}.",
            )
        names = nearest(speaker, loaded.speakers) or loaded.speakers[:3]
        near = [loaded.id + SPEAKER + name for name in names]
        raise unknown("speaker", f"{loaded.id}{SPEAKER}{speaker}", near)


def _told(choice: SpeakerChoice) -> Voice:
    voice = choice.voice
    parts = voice.id.split("-")
    # Such as en_US-joe-medium; a voice of one's own may have any name.
    name = parts[1] if len(parts) == 3 else voice.id
    name = name.replace("_", " ").title() if name.islower() else name
    if choice.speaker is not None:
        name = f"{name}, {choice.speaker}"
    sex = SEX.get(parts[1]) if len(parts) == 3 and choice.speaker is None else None
    return Voice(choice.id, name, voice.language, sex, "Piper")


def _is_tag(voice: LoadedVoice, tag: str) -> bool:
    return voice.language.lower() == tag


def _speaks(voice: LoadedVoice, tag: str) -> bool:
    return voice.language.lower().partition("-")[0] == tag.partition("-")[0]
