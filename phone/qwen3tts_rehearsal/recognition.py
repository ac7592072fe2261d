"""Words of a stretch of speech, by any recogniser of the agents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.detection.recogniser import Recogniser, Recognition, Samples

Transcribe = Callable[[Samples, int], Awaitable[str]]
"""Function of samples (int16, shape [n]) and their rate that returns their words. Raises
SpeechError.
"""

BLOCK_S = 0.1
AROUND_S = 0.3
"""Silence before and after, which recognisers are used to."""


class SpanRecogniser:
    """`Transcribe` by a recogniser; ``at_once`` stretches at a time."""

    def __init__(self, recogniser: Recogniser, at_once: int = 2) -> None:
        self._recogniser = recogniser
        self._slots = asyncio.Semaphore(at_once)

    async def __call__(self, samples: Samples, rate_hz: int) -> str:
        wanted_hz = self._recogniser.rate_hz
        around = np.zeros(round(AROUND_S * wanted_hz), np.int16)
        if rate_hz != wanted_hz:
            resampler = Resampler(rate_hz, wanted_hz, aligned=True)
            samples = np.concatenate((resampler.push(samples), resampler.flush()))
        samples = np.concatenate((around, samples, around))
        async with self._slots:
            recognition = await self._recogniser.open()
            try:
                return await self._recognised(recognition, samples, wanted_hz)
            finally:
                await recognition.close()

    async def _recognised(self, recognition: Recognition, samples: Samples, rate_hz: int) -> str:
        size = round(BLOCK_S * rate_hz)
        recognition.begin_turn(0.0)
        for start in range(0, len(samples), size):
            block = samples[start : start + size]
            recognition.push(block, (start + len(block)) / rate_hz)
            await asyncio.sleep(0)
        return (await recognition.end_turn(len(samples) / rate_hz)).text.strip()
