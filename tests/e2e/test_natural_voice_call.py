"""The natural voice on a call: an interruption gives the words that the far end received."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import numpy as np
import pytest

from qwen3tts_engine.base import SAMPLE_RATE, PcmChunk, SynthesisRequest
from qwen3tts_engine.piper.engine import PiperEngine, PiperSettings
from qwen3tts_server.run import running_server
from tests.audio import lag_of, reference_8k
from tests.e2e.parties import Ear, connected, phone

pytestmark = pytest.mark.network

TEXT = (
    "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty."
)
SILENT_PEAK = 8
"""Samples up to the smallest level of mu-law are silence."""
FRAME = SAMPLE_RATE // 50
TAIL = round(0.3 * 8000)
"""Samples that were received last, at 8 kHz."""


class Watched(PiperEngine):
    """Keeps the sound and the words of all that is said, as the engine gives them out."""

    def __init__(self) -> None:
        super().__init__(PiperSettings(voices=("en_US-joe-medium",), workers=1))
        self.pcm = bytearray()
        self.middles: list[int] = []
        """Of the words, in samples from the beginning."""

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        base = len(self.pcm) // 2
        async for chunk in super().synthesize(request):
            self.pcm += chunk.pcm
            self.middles += [base + (word.start + word.end) // 2 for word in chunk.words]
            yield chunk


@pytest.mark.parametrize("seconds", [0.7, 1.6, 3.1])
async def test_an_interrupted_sentence_was_heard_to_the_word_that_the_far_end_received(
    seconds: float,
) -> None:
    engine = Watched()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url, codecs=("PCMU",)) as agent,
        phone(server.url, codecs=("PCMU",)) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        utterance = ours.speak(TEXT)
        await ear.sound(seconds)
        assert ours.interrupt() == [utterance]
        spoken = await utterance.spoken()
        await ours.hangup()
        received = await ear.heard()
    assert spoken.interrupted
    assert spoken.heard + spoken.remaining == TEXT
    reference = reference_8k(np.frombuffer(bytes(engine.pcm), "<i2"))
    # By its end, not by the time since its beginning: a gap on a busy machine counts as no words.
    end = 1 + int(np.flatnonzero(np.abs(received.astype(int)) > SILENT_PEAK)[-1])
    tail = received[end - TAIL : end]
    samples = (lag_of(tail, reference) + TAIL) * SAMPLE_RATE // 8000
    least, most = (
        sum(middle <= samples + room for middle in engine.middles) for room in (-FRAME, 3 * FRAME)
    )
    assert least > 0
    assert least <= len(spoken.heard.split()) <= most
