"""A real Whisper, where there is one (`real_whisper`), hears the embedded voice on a telephone."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import AsyncExitStack

import numpy as np
import pytest

from qwen3tts_agent.recognition.settings import WhisperSettings
from qwen3tts_agent.recognition.whisper import WhisperRecogniser
from qwen3tts_engine.base import SAMPLE_RATE
from tests.agent.recognition.real_whisper import real_whisper, said, telephone
from tests.agent.recognition.sounds import RATE, Talk
from tests.conftest import require_package

pytestmark = pytest.mark.network

BOUND_S = 400.0
TEXTS = (
    "What time do you open tomorrow?",
    "I would like to book a table for four people on Friday evening.",
    "No, thank you.",
)
LONG = (
    "Good morning, my name is Peter and I am calling about the house in the garden street.",
    "We have seen the pictures, and my wife would like to know how many rooms there are.",
    "The kitchen looks very small, but the living room has a window to the river.",
    "Last week my brother told me that the train stops near the church every hour.",
    "Could you send me a letter with the price and the name of the owner?",
    "My old car is broken, so I can only come on Monday after the doctor has called.",
    "Please remember that we have two children and a big black dog.",
    "If all of that is possible, I will bring the money with me on Saturday.",
)


@pytest.fixture(scope="module")
def model() -> str:
    require_package("faster_whisper", "pip install faster-whisper")
    return real_whisper()


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def in_common(said: str, heard: str) -> int:
    """How many words of the one are in the other."""
    return sum((Counter(words(said)) & Counter(words(heard))).values())


async def test_it_understands_a_telephone_and_makes_nothing_up_of_noise(model: str) -> None:
    turns, sentences = await said(*TEXTS), await said(*LONG)
    async with AsyncExitStack() as stack, asyncio.timeout(BOUND_S):
        recogniser = WhisperRecogniser(WhisperSettings(model, languages=("en",), timeout_s=120.0))
        stack.push_async_callback(recogniser.close)
        await recogniser.warm()
        recognition = await recogniser.open()
        talk = Talk(recognition)
        right = total = 0
        for text, samples in zip(TEXTS, turns, strict=True):
            last = talk.turn(samples)
            recognition.pause(last)
            heard = await recognition.end_turn(last)
            right, total = right + in_common(text, heard.text), total + len(words(text))
            assert heard.confidence is not None
            assert heard.confidence > 0.3
        assert right >= 0.7 * total
        # A turn of more than a window: neither its beginning nor its middle or end is missing.
        breath = np.zeros(RATE // 2, np.int16)
        long = np.concatenate([part for each in sentences for part in (each, breath)])
        assert len(long) > 33 * RATE
        heard = await recognition.end_turn(talk.turn(long))
        assert in_common(" ".join(LONG), heard.text) >= 0.7 * len(words(" ".join(LONG)))
        assert {"morning", "garden", "dog", "saturday"} <= set(words(heard.text))
        chance = np.random.default_rng(3)
        for level in (30.0, 300.0, 1500.0):
            noise = telephone(chance.normal(0.0, level, 3 * SAMPLE_RATE).astype(np.int16))
            assert (await recognition.end_turn(talk.turn(noise))).text == ""
