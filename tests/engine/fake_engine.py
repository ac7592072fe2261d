"""An engine of tones: every number about it is known, and it fails when told to."""

from __future__ import annotations

import asyncio
import math
import re
from array import array
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from qwen3tts_engine.base import (
    SAMPLE_RATE,
    Alignment,
    EndReason,
    LoadedVoice,
    Mode,
    PcmChunk,
    SynthesisRequest,
    Voice,
)
from qwen3tts_text.growing import LiveText
from qwen3tts_wire.errors import EngineFailed, EngineUnavailable, UnknownVoice
from qwen3tts_wire.heard import Word

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
    options: frozenset[str] = frozenset()
    alignment: Alignment = "exact"

    def __init__(
        self, *, available: bool = True, capacity: int | None = None, live: bool = False
    ) -> None:
        """``live``: every voice but ``tone-de`` takes live text, whole words of it."""
        self.available = available
        self.live = live
        self.cap_chars: int | None = None
        """So many code points of a request are said, the rest is not: ``frame_cap``."""
        self.end: EndReason = "text_end"
        """Why requests end that are said to their end."""
        self.marks: dict[str, float] = {}
        """Told with a request's first chunk."""
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
        self._waiting: dict[LiveText, asyncio.Event] = {}

    @property
    def starved(self) -> int:
        """Requests that wait for text."""
        return sum(not come.is_set() for come in self._waiting.values())

    def dry(self) -> None:
        """No text has come for too long, in all requests that wait for some."""
        for live, come in self._waiting.items():
            if not come.is_set():
                live.close()
                come.set()

    def modes(self, voice: str | None) -> Sequence[Mode]:
        return ("clause", "live") if self.live and voice != "tone-de" else ("clause",)

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
            index = 0
            async for chunk in self._chunks(request):
                if request.voice == "step":
                    await self._steps.acquire()
                yield replace(chunk, marks=self.marks) if index == 0 else chunk
                if index == 0:
                    await self._misbehave(request.voice)
                if not self.started:
                    raise EngineFailed("The engine was closed while it spoke.")
                index += 1
            done = True
        finally:
            self.active -= 1
            if self.capacity is not None:
                self.capacity.release()
            if done:
                self.finished += 1
            else:
                self.cancelled += 1

    async def _chunks(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        """What is said of a request, as far as its text has come."""
        saying = Saying(request)
        most = math.inf if self.cap_chars is None else self.cap_chars
        live = request.more
        end = self.end
        come = asyncio.Event()
        if live is not None:
            live.on_change = come.set
        while True:
            come.clear()
            ended = live is None or self._take(live, saying)
            while (last := saying.next_end(whole=ended)) is not None and last <= most:
                yield saying.say(last)
            if live is None or ended or last is not None:
                break
            self._waiting[live] = come
            try:
                await come.wait()
            finally:
                del self._waiting[live]
        if live is not None and live.closed:
            end = "dry"
        if saying.said < len(saying.text):
            end = "frame_cap"
            if live is not None:
                live.close()
        yield PcmChunk(b"", end=end)

    @staticmethod
    def _take(live: LiveText, saying: Saying) -> bool:
        """More text, where there is some; whether it is the last."""
        for text, offsets in live.take():
            saying.add(text, offsets)
        return live.ended

    async def _misbehave(self, voice: str | None) -> None:
        if voice == "fail-late":
            raise EngineFailed("It was told to fail late.", remedy="Choose another voice.")
        if voice == "crash":
            raise RuntimeError("it was told to crash")
        if voice == "stall":
            await self._released.wait()


class Saying:
    """The text of a request on its way to tones."""

    def __init__(self, request: SynthesisRequest) -> None:
        self.text = request.text
        self.said = 0
        self._offsets = list(request.offsets or range(len(request.text) + 1))

    def add(self, text: str, offsets: Sequence[int]) -> None:
        """More text."""
        self.text += text
        self._offsets[-1:] = offsets

    def next_end(self, *, whole: bool) -> int | None:
        """Where the next chunk ends; None where its text is not certain yet, or all is said."""
        # Until white space follows, a word may go on: no token is certain.
        certain = len(self.text) if whole else max(map(self.text.rfind, " \n"))
        last = min(self.said + CHUNK_CHARS, certain)
        good = last > self.said if whole else last == self.said + CHUNK_CHARS
        return last if good else None

    def say(self, last: int) -> PcmChunk:
        """The sound up to there, and the words that end in it."""
        first, self.said = self.said, last
        words = [
            Word(
                text=match[0],
                start=match.start() * CHAR_SAMPLES,
                end=match.end() * CHAR_SAMPLES,
                char_start=self._offsets[match.start()],
                char_end=min(self._offsets[match.end() - 1] + 1, self._offsets[-1]),
            )
            for match in re.finditer(r"\S+", self.text)
            if first < match.end() <= last
        ]
        return PcmChunk(b"".join(map(tone, self.text[first:last])), tuple(words))


class CloningEngine(FakeEngine):
    """One that makes a voice of any bytes; its id is their length."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[tuple[str | None, bytes | None, str | None, bool]] = []
        """Every request for a voice, in order."""
        self.error: Exception | None = None
        """Raised for the next one."""
        self.gate = asyncio.Event()
        """Cleared, loading a voice waits for it."""
        self.gate.set()
        self.given_up = 0
        """Requests cancelled."""

    async def load_voice(
        self,
        *,
        voice_id: str | None = None,
        ref_audio: bytes | None = None,
        ref_text: str | None = None,
        x_vector_only: bool = False,
    ) -> LoadedVoice:
        self.loads.append((voice_id, ref_audio, ref_text, x_vector_only))
        if self.error is not None:
            raise self.error
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        made = voice_id or f"voice-{len(ref_audio or b'')}"
        return LoadedVoice(made, cached=voice_id is not None, ref_text=ref_text)
