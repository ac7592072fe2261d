"""Speech for the tests of listening: the embedded voice at 8 kHz, through mu-law."""

from __future__ import annotations

import asyncio
import functools

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import decode_ulaw, encode_ulaw
from qwen3tts_codecs.resample import Resampler
from qwen3tts_engine.base import SAMPLE_RATE, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine

Samples = NDArray[np.int16]

CALLER = "Well, I was thinking about Thursday, or perhaps Friday."
AGENT = "Your parcel has left the warehouse this morning, and it will arrive tomorrow before noon."


@functools.cache
def spoken(text: str, voice: str = "en-us", dbfs: float = -22.0) -> Samples:
    """The text as it comes from a quiet line, without silence around it, so loud on average.

    To be called where no event loop runs.
    """
    sound = np.frombuffer(asyncio.run(_said(text, voice)), "<i2")
    narrow = Resampler(SAMPLE_RATE, 8000).push(sound).astype(np.float64)
    loud = np.flatnonzero(np.abs(narrow) > 0.02 * np.abs(narrow).max())
    narrow = narrow[loud[0] : loud[-1] + 1]
    narrow *= 32768 * 10 ** (dbfs / 20) / np.sqrt(np.mean(narrow**2))
    return on_the_line(narrow)


async def _said(text: str, voice: str) -> bytes:
    engine = EmbeddedEngine()
    await engine.start()
    try:
        request = SynthesisRequest(text, voice=voice)
        return b"".join([chunk.pcm async for chunk in engine.synthesize(request)])
    finally:
        await engine.close()


def on_the_line(sound: NDArray[np.float64]) -> Samples:
    """Through mu-law and back; whole frames of 20 ms."""
    pcm = np.clip(np.rint(sound), -32768, 32767).astype(np.int16)
    return decode_ulaw(encode_ulaw(pcm[: len(pcm) // 160 * 160]))


def quiet(seconds: float, seed: int = 1) -> Samples:
    """Return audio of a line without speech."""
    hiss = np.random.default_rng(seed).normal(0.0, 8.0, round(seconds * 50) * 160)
    return on_the_line(hiss)


def echo_of(sent: Samples, down_db: float, delay: int, seed: int = 1) -> Samples:
    """What comes back of it after ``delay`` samples: a hybrid's response, and mu-law once more."""
    at = np.arange(40)
    taps = np.exp(-at / 8) * np.cos(0.7 * at)
    taps += 0.1 * np.random.default_rng(seed).normal(size=40) * np.exp(-at / 12)
    taps *= 10 ** (-down_db / 20) / np.sqrt(np.mean(np.abs(np.fft.rfft(taps, 512)[20:220]) ** 2))
    late = np.concatenate((np.zeros(delay), sent.astype(np.float64)))
    return on_the_line(np.convolve(late, taps)[: len(sent)])


def room_echo_of(sent: Samples, down_db: float, delay: int, seed: int = 1) -> Samples:
    """The same from a room with a tail of 60 ms: it dies away by 8.7 dB in 36 ms."""
    at = np.arange(1440)
    taps = np.random.default_rng(seed).normal(size=1440) * np.exp(-at / 288)
    taps *= 10 ** (-down_db / 20) / np.sqrt(np.mean(np.abs(np.fft.rfft(taps, 4096)[154:1741]) ** 2))
    late = np.concatenate((np.zeros(delay), sent.astype(np.float64)))
    return on_the_line(np.convolve(late, taps)[: len(sent)])
