"""Engines of the tiny checkpoints, and what tests ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
from qwen3tts_text.growing import LiveText
from qwen3tts_wire.messages import Sampling

TEXT = "Good morning."
GREEDY = Sampling(temperature=0.0)
DESCRIPTION = "A calm old man."


def made(folder: Path, **settings: Any) -> Qwen3Engine:
    """An engine that has not been started."""
    return Qwen3Engine(Qwen3Settings(str(folder), **settings))


async def spoken(engine: Qwen3Engine, text: str = TEXT, **fields: Any) -> list[PcmChunk]:
    request = SynthesisRequest(text, **fields)
    return [chunk async for chunk in engine.synthesize(request)]


def sound(chunks: Sequence[PcmChunk]) -> NDArray[np.float32]:
    pcm = np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2")
    return pcm.astype(np.float32) / np.float32(32768)


async def said(engine: Qwen3Engine, text: str = TEXT, **fields: Any) -> NDArray[np.float32]:
    return sound(await spoken(engine, text, **fields))


def growing(text: str) -> LiveText:
    """Text that is all there, in the way of text that grows."""
    more = LiveText()
    push(more, text)
    more.end()
    return more


def push(more: LiveText, text: str, at: int = 0) -> None:
    assert more.push(text, range(at, at + len(text) + 1))


def recording(seconds: float = 2.0, pitch: float = 150.0) -> tuple[NDArray[np.float32], int]:
    """Something like a voice: a buzz that comes and goes."""
    t = np.arange(round(seconds * 24_000)) / 24_000
    k = np.arange(1, 9)[:, None]
    buzz = np.sum(np.sin(2 * np.pi * pitch * k * t) / k, axis=0)
    samples = 0.1 * buzz * (1 + np.sin(2 * np.pi * 3 * t))
    return np.asarray(samples, np.float32), 24_000


def alike(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Whether they are of the same codes: rounding differs with how frames and rows are put
    together, and the samples by less than anybody hears."""
    return len(one) == len(other) and bool(np.abs(one - other).max(initial=0) < 1e-3)


def assert_same(one: NDArray[np.float32], other: NDArray[np.float32]) -> None:
    assert len(one) == len(other) > 0
    assert np.abs(one - other).max() < 1e-3
