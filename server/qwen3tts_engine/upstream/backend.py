"""Protocol of an upstream server: orders, deadlines, voices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from qwen3tts_engine.base import Voice
from qwen3tts_engine.upstream.http import Stalled
from qwen3tts_wire.errors import UnknownVoice
from qwen3tts_wire.names import near_hint, near_voices


@dataclass(frozen=True, slots=True)
class SynthesisOrder:
    text: str
    voice: str | None = None
    language: str | None = None
    speed: float = 1.0
    instructions: str | None = None
    seed: int | None = None
    initial_codec_chunk_frames: int | None = None

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "voice": self.voice,
            "language": self.language,
            "instructions": self.instructions,
            "seed": self.seed,
            "initial_codec_chunk_frames": self.initial_codec_chunk_frames,
        }
        return {name: value for name, value in found.items() if value is not None}


class Backend(Protocol):
    @property
    def options(self) -> frozenset[str]: ...

    async def probe(self) -> None: ...

    def speak(self, order: SynthesisOrder) -> AsyncGenerator[bytes, None]:
        """Yield audio bytes, in any cut; ``aclose`` cancels."""
        ...

    async def close(self) -> None: ...


def with_extra(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**fields, **extra}.items() if value is not None}


class ResponseDeadline:
    """Deadline of and between sounds; a slow reader stops it."""

    def __init__(self, first_s: float, stall_s: float) -> None:
        self._first_s = first_s
        self._stall_s = stall_s
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + first_s
        self._sounded = False

    def sounded(self) -> None:
        self._sounded = True
        self._until = self._loop.time() + self._stall_s

    def limit(self) -> asyncio.Timeout:
        return asyncio.timeout_at(self._until)

    def over(self) -> Stalled:
        if self._sounded:
            what = f"sent no sound for {self._stall_s:g} s in the middle of the speech"
        else:
            what = f"made no sound in {self._first_s:g} s"
        return Stalled(
            f"The upstream server {what}.",
            remedy="It may be overloaded: try again; see upstream.first_audio_s and stall_s.",
        )


MANY = "mul"
"""ISO 639-2: several languages; the tag of a voice whose server names none."""
DEFAULT = "default"
"""The server's own choice, for vLLM-Omni and for us."""
MOST_VOICES = 2000
_NO_LANGUAGE = ("auto", MANY, "und")


class VoiceOffer:
    """Voices and languages that may be requested.

    Args:
        voices: on offer, the default first; empty: any, the server decides.
        languages: ``tag`` or ``tag=name`` each; empty: any.
        any_voice: whether others may be named as well.
    """

    def __init__(
        self, voices: Sequence[Voice], languages: Iterable[str], *, any_voice: bool = False
    ) -> None:
        self.any_voice = any_voice or not voices
        """True if names are the server's to judge."""
        own = Voice(DEFAULT, "Default", MANY, None, "the upstream server's choice")
        self.voices = tuple(voices) or (own,)
        """The default first."""
        self._by_name = {each.id.casefold(): each.id for each in reversed(self.voices)}
        self._languages: dict[str, str] = {}
        for each in languages:
            tag, _, name = each.partition("=")
            self._languages[tag.strip().casefold()] = name.strip() or tag.strip()

    def voice(self, wanted: str | None) -> str | None:
        """Return the server's name for a voice; None: its own choice."""
        if wanted is None or wanted == DEFAULT:
            return None
        if (found := self._by_name.get(wanted.casefold())) is not None:
            return found
        if self.any_voice:
            return wanted
        near = near_hint(near_voices(wanted, self.voices))
        raise UnknownVoice(
            f"The upstream server has no voice {wanted[:80]!r}.",
            remedy=near or f"It has {_few(self.voices)}.",
        )

    def language(self, wanted: str | None) -> str | None:
        """Return the server's name for a language; None: it detects it."""
        if wanted is None or wanted.casefold() in _NO_LANGUAGE:
            return None
        if not self._languages:
            return wanted
        known = wanted.casefold().replace("_", "-")
        if known in (name.casefold() for name in self._languages.values()):
            return next(name for name in self._languages.values() if name.casefold() == known)
        # RFC 4647 section 3.4 (lookup): subtags are taken off from the end.
        while known:
            if known in self._languages:
                return self._languages[known]
            known = known.rpartition("-")[0]
        raise UnknownVoice(
            f"The upstream server does not speak {wanted[:80]!r}.",
            remedy=f"It speaks {', '.join(self._languages)}; see upstream.languages.",
        )


def _few(voices: Sequence[Voice]) -> str:
    shown = ", ".join(each.id for each in voices[:10])
    return f"{shown} and {len(voices) - 10} more" if len(voices) > 10 else shown


def with_default(voices: Sequence[Voice], default: str) -> list[Voice]:
    if not default or not voices:
        return list(voices)
    known = [each for each in voices if each.id == default]
    first = known or [Voice(default, default, MANY)]
    return [*first, *(each for each in voices if each.id != default)]


def read_voices(body: bytes) -> list[Voice]:
    """Parse ``GET /v1/audio/voices`` in any of the forms in use."""
    try:
        found = json.loads(body)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    lists: list[Any] = [found]
    if isinstance(found, dict):
        lists = [found.get(name) for name in ("voices", "uploaded_voices", "data")]
    if not any(isinstance(each, list) for each in lists):
        raise ValueError("no list of voices")
    voices: dict[str, Voice] = {}
    for item in (item for each in lists if isinstance(each, list) for item in each):
        voice = _voice(item)
        if voice is not None and len(voices) < MOST_VOICES:
            voices.setdefault(voice.id, voice)
    return list(voices.values())


def _voice(item: object) -> Voice | None:
    if isinstance(item, str):
        item = {"id": item}
    if not isinstance(item, dict):
        return None
    name = _name(item, "id", "voice_id", "name")
    if name is None:
        return None
    gender = _name(item, "gender")
    return Voice(
        name,
        _name(item, "name") or name,
        _name(item, "language", "lang") or MANY,
        gender if gender in ("male", "female") else None,
        _name(item, "description", "speaker_description") or "",
    )


def _name(item: dict[Any, Any], *names: str) -> str | None:
    for name in names:
        value = item.get(name)
        if isinstance(value, str) and 0 < len(value) <= 256 and value.isprintable():
            return value
    return None
