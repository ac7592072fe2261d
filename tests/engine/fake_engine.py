"""An engine of tones: every number about it is known, and it fails when told to."""

from __future__ import annotations

import asyncio
import math
import re
from array import array
from collections.abc import AsyncGenerator, Sequence

from qwen3tts_engine.base import SAMPLE_RATE, PcmChunk, SynthesisRequest, Voice
from qwen3tts_wire.alignment import Word
from qwen3tts_wire.errors import EngineFailed, EngineUnavailable, UnknownVoice

CHAR_SAMPLES = 1200
"""Every code point lasts 50 ms."""
CHUNK_CHARS = 2
"""A chunk is 100 ms, the last of a text may be 50 ms."""
AMPLITUDE = 8000

VOICES = (
    Voice("tone", "Tones", "en-US", None, "a tone for each code point, silence for white space"),
    Voice("tone-de", "Töne", "de-DE", None, "the same"),
    Voice("fail", "Fails", "en-US", None, "EngineFailed before any sound"),
    Voice("fail-late", "Fails late", "en-US", None, "EngineFailed after the first chunk"),
    Voice("crash", "Crashes", "en-US", None, "RuntimeError after the first chunk: a bug"),
    Voice("stall", "Stalls", "en-US", None, "first chunk, then nothing until release()"),
    Voice("step", "Steps", "en-US", None, "one chunk for every call of step()"),
)


def tone(char: str) -> bytes:
    """The sound of one code point: CHAR_SAMPLES samples; white space is silent."""
    if char.isspace():
        return bytes(2 * CHAR_SAMPLES)
    # Whole periods in 50 ms, so that tones join without a step.
    step = 2 * math.pi * 20 * (10 + ord(char) % 40) / SAMPLE_RATE
    samples = array("h", (round(AMPLITUDE * math.sin(step * i)) for i in range(CHAR_SAMPLES)))
    return samples.tobytes()


class FakeEngine:
    """Deterministic. A text without a letter or digit is not speakable."""

    name = "fake"
    model = "tones"
    sample_rate = SAMPLE_RATE

    def __init__(self, *, available: bool = True, capacity: int | None = None) -> None:
        self.available = available
        self.capacity = asyncio.Semaphore(capacity) if capacity else None
        self.started = False
        self.requests: list[SynthesisRequest] = []
        """Every request that was begun, in order."""
        self.active = 0
        """Requests being spoken now."""
        self.most_active = 0
        self.finished = 0
        self.cancelled = 0
        """Requests that were closed before their end."""
        self._released = asyncio.Event()
        self._steps = asyncio.Semaphore(0)

    def release(self) -> None:
        """Let the stalled go on."""
        self._released.set()

    def step(self, chunks: int = 1) -> None:
        """Let the voice ``step`` give out so many chunks."""
        for _ in range(chunks):
            self._steps.release()

    async def start(self) -> None:
        if not self.available:
            raise EngineUnavailable("No tones here.", remedy="Make it available.")
        self.started = True
        self._released.clear()

    async def close(self) -> None:
        self.started = False
        self.release()

    def voices(self) -> Sequence[Voice]:
        return VOICES

    def check(self, voice: str | None, language: str | None) -> None:
        if voice is not None and all(voice != known.id for known in VOICES):
            raise UnknownVoice(f"No voice {voice!r}.", remedy="Near it: 'tone'.")
        if language is not None and all(
            language.lower().split("-")[0] != known.language.split("-")[0] for known in VOICES
        ):
            raise UnknownVoice(f"No voice speaks {language!r}.", remedy="Try 'en'.")

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        if not self.started:
            raise EngineUnavailable("The engine has not been started.", remedy="Start it.")
        self.check(request.voice, request.language)
        self.requests.append(request)
        if not any(char.isalnum() for char in request.text):
            self.finished += 1
            return
        if self.capacity is not None:
            await self.capacity.acquire()
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        done = False
        try:
            if request.voice == "fail":
                raise EngineFailed("It was told to fail.", remedy="Choose another voice.")
            for index, chunk in enumerate(chunks(request)):
                if request.voice == "step":
                    await self._steps.acquire()
                yield chunk
                if index == 0:
                    await self._misbehave(request.voice)
                if not self.started:
                    raise EngineFailed("The engine was closed while it spoke.")
            done = True
        finally:
            self.active -= 1
            if self.capacity is not None:
                self.capacity.release()
            if done:
                self.finished += 1
            else:
                self.cancelled += 1

    async def _misbehave(self, voice: str | None) -> None:
        if voice == "fail-late":
            raise EngineFailed("It was told to fail late.", remedy="Choose another voice.")
        if voice == "crash":
            raise RuntimeError("it was told to crash")
        if voice == "stall":
            await self._released.wait()


def chunks(request: SynthesisRequest) -> list[PcmChunk]:
    """All that the fake says for a request. ``speed`` changes nothing."""
    text = request.text
    words = [
        Word(
            text=match[0],
            start=match.start() * CHAR_SAMPLES,
            end=match.end() * CHAR_SAMPLES,
            char_start=request.original(*match.span())[0],
            char_end=request.original(*match.span())[1],
        )
        for match in re.finditer(r"\S+", text)
    ]
    made = []
    for first in range(0, len(text), CHUNK_CHARS):
        last = min(first + CHUNK_CHARS, len(text))
        complete = tuple(w for w in words if first * CHAR_SAMPLES < w.end <= last * CHAR_SAMPLES)
        made.append(PcmChunk(b"".join(map(tone, text[first:last])), complete))
    return made
