"""Voices of eSpeak NG, and their choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qwen3tts_engine.base import Voice
from qwen3tts_engine.embedded.library import VoiceEntry
from qwen3tts_wire.errors import UnknownVoice
from qwen3tts_wire.names import near_hint, near_voices, nearest, tag_of

_CORRECTED: Mapping[str, str] = {
    # VA is the Vatican and BA Bosnia; valencia is the registered variant (RFC 5646 section 2.2.5).
    "ca-va": "ca-valencia",
    "ca-ba": "ca-x-balear",
    "ca-nw": "ca-x-nw",
    # CL is Chile.
    "ru-cl": "ru-x-classic",
    # A script stands before the region.
    "chr-us-qaaa-x-west": "chr-Qaaa-US-x-west",
    # A variant has five letters or more, a region two.
    "en-us-nyc": "en-US-x-nyc",
    # Piqd is a script, and py is assigned to nothing.
    "piqd": "tlh",
    "py": "art-x-pyash",
}


def bcp47(voice_id: str) -> str:
    """Return a voice id's BCP 47 tag: ``en-us`` is en-US."""
    if corrected := _CORRECTED.get(voice_id):
        return corrected
    parts = voice_id.split("-")
    private = parts.index("x") if "x" in parts else len(parts)
    for index in range(1, private):
        if len(parts[index]) == 2:
            parts[index] = parts[index].upper()
        elif len(parts[index]) == 4 and parts[index].isalpha():
            parts[index] = parts[index].title()
    return "-".join(parts)


def wanted_tag(language: str | None) -> str | None:
    tag = (language or "").strip().lower().replace("_", "-")
    if tag in ("", "auto"):
        return None
    return tag_of(language or "") or tag


_ALIASES = {
    "zh-cn": "cmn",
    "zh-tw": "cmn",
    "zh-hans": "cmn",
    "zh-hant": "cmn",
    "zh-hk": "yue",
    "iw": "he",
    "in": "id",
    "fil": "tl",
    "nn": "nb",
}
"""Language tags under other names, in lower case."""
_FIRST = {
    "chr": "chr-us-qaaa-x-west",
    "en": "en-us",
    "zh": "cmn",
    "es": "es",
    "pt": "pt-br",
    "fr": "fr-fr",
}
"""The voice for a bare language where several claim it."""


@dataclass(frozen=True, slots=True)
class VoiceChoice:
    """Voice of a request, and its name in the library."""

    id: str
    library_name: str


class EspeakCatalogue:
    """Voices and variants.

    A voice is named by id (``en-us``), name (``English (America)``) or file (``gmw/en-US``), in any
    case, with or without a variant (``en-us+f3``, ``de+Annie``).
    """

    def __init__(
        self, voices: Sequence[VoiceEntry], variants: Sequence[VoiceEntry], default: str
    ) -> None:
        self._entries: dict[str, VoiceEntry] = {}
        self._known: dict[str, str] = {}
        for entry in voices:
            voice_id = entry.languages[0][1]
            if voice_id in self._entries:
                voice_id = entry.identifier.rpartition("/")[2].lower()
            self._entries[voice_id] = entry
        for voice_id, entry in self._entries.items():
            for name in (voice_id, entry.name.lower(), entry.identifier.lower()):
                self._known.setdefault(name, voice_id)
        self._variants = {entry.identifier.lower(): entry for entry in variants}
        for entry in variants:
            self._variants.setdefault(entry.name.lower(), entry)
        self._plain = [_voice(voice_id, entry) for voice_id, entry in self._entries.items()]
        self._default = self.choose(default, None)
        self.voices: tuple[Voice, ...] = self._listed()
        """The default first, then by language; a variant is named by its voice's id, ``+`` and
        one of ``variants``."""
        self.variants = tuple(sorted({entry.identifier for entry in self._variants.values()}))

    def choose(self, voice: str | None, language: str | None) -> VoiceChoice:
        wanted = (voice or "").strip().lower()
        base, plus, variant = wanted.partition("+")
        tag = wanted_tag(language)
        if base:
            voice_id = self._known.get(base) or self._claimed(base)
            if voice_id is None:
                raise unknown("voice", voice or "", near_voices(base, self._plain, tag))
            if tag is not None and not self._speaks(voice_id, tag):
                raise UnknownVoice(
                    f"Voice {voice!r} speaks {bcp47(voice_id)}, not {language!r}.",
                    remedy="Leave out the voice or the language.",
                )
        elif tag is not None:
            found = self._by_language(tag)
            if found is None:
                tags = [t for e in self._entries.values() for _, t in e.languages]
                raise unknown("language", language or "", nearest(tag, tags))
            voice_id = found
            if not plus and self._default.id.partition("+")[0] == voice_id:
                return self._default
        elif plus:
            voice_id = self._default.id.partition("+")[0]
        else:
            return self._default
        return self._with_variant(voice_id, variant, plus)

    def _with_variant(self, voice_id: str, variant: str, plus: str) -> VoiceChoice:
        entry = self._entries[voice_id]
        if not plus:
            return VoiceChoice(voice_id, entry.identifier)
        laid_over = self._variants.get(variant)
        if laid_over is None:
            near = nearest(variant, [entry.identifier for entry in self._variants.values()])
            raise unknown("variant", f"{voice_id}+{variant}", near)
        return VoiceChoice(
            f"{voice_id}+{laid_over.identifier}", f"{entry.identifier}+{laid_over.identifier}"
        )

    def _by_language(self, tag: str) -> str | None:
        """Best voice by language, its tag shortened until one fits (RFC 4647 3.4)."""
        tag = _ALIASES.get(tag, tag)
        while tag:
            if found := self._claimed(tag):
                return found
            tag = tag.rpartition("-")[0]
        return None

    def _claimed(self, tag: str) -> str | None:
        if tag in _FIRST and _FIRST[tag] in self._entries:
            return _FIRST[tag]
        claims = [
            (priority, order, voice_id)
            for order, (voice_id, entry) in enumerate(self._entries.items())
            for priority, claimed in (*entry.languages, (0, bcp47(voice_id).lower()))
            if claimed == tag
        ]
        return min(claims)[2] if claims else None

    def _speaks(self, voice_id: str, tag: str) -> bool:
        primary = _ALIASES.get(tag, tag).partition("-")[0]
        tags = [claimed for _, claimed in self._entries[voice_id].languages]
        tags.append(bcp47(voice_id).lower())
        return any(claimed.partition("-")[0] == primary for claimed in tags)

    def _listed(self) -> tuple[Voice, ...]:
        default_id, plus, variant = self._default.id.partition("+")
        listed = self._plain.copy()
        listed.sort(key=lambda voice: (voice.id != default_id, voice.id))
        if plus:
            entry, laid_over = self._entries[default_id], self._variants[variant.lower()]
            listed.insert(
                0,
                Voice(
                    id=self._default.id,
                    name=f"{entry.name}, {laid_over.name}",
                    language=bcp47(default_id),
                    gender=laid_over.gender,
                    description="eSpeak NG, the default",
                ),
            )
        return tuple(listed)


def _voice(voice_id: str, entry: VoiceEntry) -> Voice:
    return Voice(voice_id, entry.name, bcp47(voice_id), entry.gender, "eSpeak NG")


def unknown(kind: str, given: str, near: Sequence[str]) -> UnknownVoice:
    remedy = near_hint(near) or f"Leave the {kind} out, or choose one that is listed."
    return UnknownVoice(f"There is no {kind} {given[:80]!r}.", remedy=remedy)
