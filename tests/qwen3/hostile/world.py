"""What the tests of hostile callers ask of an engine, and how they tell that two speeches are one.

The codes of a speech follow from its own text and seed and must be equal bit for bit; its samples
are rounded to 16 bits behind a codec whose frames go together in other ways under other load, and
so may differ by the last bit.
"""

from __future__ import annotations

import asyncio
import io
import time
import wave
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_engine.qwen3.engine.jobs import Job
from qwen3tts_text.growing import LiveText
from qwen3tts_wire.heard import Word
from tests.engine.waiting import until
from tests.qwen3.engine.engine_world import recording

LAST_BIT = 1
"""Largest difference between samples of the same codes."""


@dataclass
class Spoken:
    """One speech."""

    text: str
    chunks: list[PcmChunk] = field(default_factory=list)
    codes: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def pcm(self) -> NDArray[np.int16]:
        return np.frombuffer(b"".join(chunk.pcm for chunk in self.chunks), "<i2")

    @property
    def words(self) -> list[Word]:
        return [word for chunk in self.chunks for word in chunk.words]

    @property
    def end(self) -> str | None:
        return self.chunks[-1].end if self.chunks else None


class Listener:
    """An engine whose generations are looked at."""

    def __init__(self, engine: Qwen3Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = engine
        self._jobs: dict[int, Job] = {}
        loaded = engine._started().loaded
        make = loaded.job

        def noted(request: SynthesisRequest, *given: Any) -> Job:
            job = make(request, *given)
            self._jobs[id(request)] = job
            return job

        monkeypatch.setattr(loaded, "job", noted)

    async def hear(self, text: str, *, first: int | None = None, **fields: Any) -> Spoken:
        """Hear a text to its end, or only so many chunks of it; audio is played immediately."""
        spoken = Spoken(text)
        lead: PlayoutLead | None = fields.get("lead")
        given = 0
        request = SynthesisRequest(text, **fields)
        stream = self.engine.synthesize(request)
        try:
            async for chunk in stream:
                spoken.chunks.append(chunk)
                given += chunk.samples
                if lead is not None:
                    lead.sent(chunk.samples, time.monotonic())
                    lead.report(given, True, time.monotonic())
                if first is not None and len(spoken.chunks) >= first:
                    break
        finally:
            await stream.aclose()
        job = self._jobs.get(id(request))
        if job is not None:
            spoken.codes = [tuple(map(int, frame)) for frame in job.codes]
        return spoken

    @property
    def jobs(self) -> list[Job]:
        """The generations so far."""
        return list(self._jobs.values())

    def forget(self) -> None:
        """Keep nothing of what was heard."""
        self._jobs.clear()

    async def idle(self) -> None:
        """Wait until nothing is under way; then every row must be free."""
        worker = self.engine._started().worker
        while self.engine.under_way:
            await asyncio.wrap_future(worker.when_idle(lambda: None))
        batch = worker._batch
        slots = self.engine._started().loaded.runner.slots
        assert sorted(batch._free) == list(range(slots))
        assert worker._scheduler.active == worker._scheduler.waiting == 0


def same(one: Spoken, other: Spoken) -> bool:
    """Whether they are one speech."""
    if one.codes != other.codes or len(one.pcm) != len(other.pcm) or not one.codes:
        return False
    apart = np.abs(one.pcm.astype(np.int32) - other.pcm.astype(np.int32))
    return bool(apart.max() <= LAST_BIT)


def check_spans(words: Sequence[Word], text: str) -> None:
    """Every letter and digit of the text is in one word, the words are in order, and none is over
    another."""
    spans = [(word.char_start, word.char_end) for word in words]
    assert all(start < end for start, end in spans)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    inside = {at for start, end in spans for at in range(start, end)}
    assert [c for at, c in enumerate(text) if c.isalnum() and at not in inside] == []
    assert all(any(map(str.isalnum, text[start:end])) for start, end in spans)
    assert all(0 <= word.start <= word.end for word in words)
    assert all(a.end <= b.start for a, b in pairwise(words))


def check_words(words: Sequence[Word], text: str, expected: Iterable[str]) -> None:
    """Every word once, in order, where it stands in the text, and none over another."""
    assert [text[word.char_start : word.char_end] for word in words] == list(expected)
    assert all(a.char_end <= b.char_start for a, b in pairwise(words))
    assert all(0 <= word.start <= word.end for word in words)
    assert all(a.end <= b.start for a, b in pairwise(words))


def check_words_in_time(chunks: Sequence[PcmChunk]) -> None:
    """No word ends behind the samples that were given out with it."""
    given = 0
    for chunk in chunks:
        given += chunk.samples
        assert all(word.end <= given for word in chunk.words)


async def write(more: LiveText, pieces: Iterable[str], at: int = 0) -> None:
    """Push pieces one after the other, each when the engine has taken the one before."""
    for piece in pieces:
        if not more.push(piece, range(at, at + len(piece) + 1)):
            return
        at += len(piece)
        await until(lambda: not more._parts or more.closed)
    more.end()


def wav(samples: NDArray[np.float32] | None = None, rate: int = 24_000) -> bytes:
    """A sound file."""
    if samples is None:
        samples, rate = recording()
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return data.getvalue()
