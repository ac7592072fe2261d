"""An engine that clones as strictly as a real one, and what tests ask of catalogues."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import wave
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

from qwen3tts_engine.base import LoadedVoice, PcmChunk, SynthesisRequest, Voice
from qwen3tts_server.settings import VoiceSettings
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_wire.errors import BadRequest, SpeechError, UnknownVoice
from tests.engine.fake_engine import VOICES, FakeEngine

RATE = 8000


def told(error: SpeechError) -> None:
    """An error that helps: it says what to do, too."""
    assert error.message
    assert error.remedy


def wav(seconds: float = 1.0, fill: bytes = b"\x10\x20") -> bytes:
    """A sound file; different fills are different recordings."""
    file = io.BytesIO()
    with wave.open(file, "wb") as opened:
        opened.setnchannels(1)
        opened.setsampwidth(2)
        opened.setframerate(RATE)
        opened.writeframes((fill * RATE)[:2] * round(seconds * RATE))
    return file.getvalue()


class Cloner(FakeEngine):
    """Speaks with the voices that it has made, and with no others; an id is a content's hash."""

    def __init__(self, *, built_in: tuple[Voice, ...] = VOICES) -> None:
        super().__init__()
        self.built_in = built_in
        self.made: dict[str, str | None] = {}
        """What each voice's recording says."""
        self.computed = 0
        self.forgotten: list[str] = []
        self.gate = asyncio.Event()
        """Cleared, making a voice waits for it."""
        self.gate.set()
        self.spoken_with: list[str | None] = []

    def voices(self) -> tuple[Voice, ...]:
        return self.built_in

    def check(self, voice: str | None, language: str | None) -> None:
        if language is not None and language.split("-")[0] not in ("en", "de"):
            raise UnknownVoice(f"No voice speaks {language!r}.", remedy="Try 'en'.")
        known = voice is None or any(voice == each.id for each in self.built_in)
        if not known and voice not in self.made:
            raise UnknownVoice(f"No voice {voice!r}.", remedy="Make it first.")

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        self.check(request.voice, request.language)
        self.spoken_with.append(request.voice)
        if request.voice in self.made:
            request = replace(request, voice="step" if self.stepping else None)
        async with contextlib.aclosing(super().synthesize(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    stepping = False
    """Made voices give one chunk for every call of ``step``."""

    async def load_voice(
        self,
        *,
        voice_id: str | None = None,
        ref_audio: bytes | None = None,
        ref_text: str | None = None,
        x_vector_only: bool = False,
    ) -> LoadedVoice:
        if voice_id is not None:
            if voice_id not in self.made:
                raise UnknownVoice("No such voice.", remedy="Make it.")
            return LoadedVoice(voice_id, True, self.made[voice_id])
        assert ref_audio is not None
        if not ref_audio.startswith(b"RIFF"):
            raise BadRequest("That is no audio.", remedy="Send audio.")
        await self.gate.wait()
        self.computed += 1
        words = None if x_vector_only else ref_text or "heard"
        made = hashlib.sha256(b"%a %b" % (words, ref_audio)).hexdigest()
        self.made[made] = words
        return LoadedVoice(made, False, words)

    async def forget_voice(self, voice_id: str) -> None:
        self.forgotten.append(voice_id)
        self.made.pop(voice_id, None)


def catalogue(
    store: Path | str | None = None, engine: FakeEngine | None = None, **settings: Any
) -> VoiceCatalogue:
    place = None if store is None else str(store)
    return VoiceCatalogue(engine or Cloner(), VoiceSettings(store=place, **settings))


async def said(voices: VoiceCatalogue, voice: str | None, text: str = "Hi you") -> bytes:
    request = SynthesisRequest(text, voice=voice)
    return b"".join([chunk.pcm async for chunk in voices.synthesize(request)])
