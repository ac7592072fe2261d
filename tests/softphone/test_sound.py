"""The measure of what a browser heard: it forgives a jitter buffer, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import decode_ulaw, encode_ulaw
from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from tests.softphone.sound import Likeness, at_8k, likeness

TEXT = "This sentence goes through the line as it was spoken, whatever the line may be made of."
Samples = NDArray[np.int16]


async def said(text: str) -> Samples:
    engine = EmbeddedEngine()
    await engine.start()
    try:
        request = SynthesisRequest(text, final=True)
        pcm = b"".join([chunk.pcm async for chunk in engine.synthesize(request)])
    finally:
        await engine.close()
    return np.frombuffer(pcm, "<i2").astype(np.int16)


def at_48k(samples: Samples, *, before_s: float = 0.7) -> Samples:
    """As it came out of a browser: 24 to 48 kHz, with silence around it."""
    silence = np.zeros(int(48_000 * before_s), np.int16)
    return np.concatenate([silence, np.repeat(samples, 2), silence])


async def compared(change: str) -> Likeness:
    sentence = await said(TEXT)
    heard = at_48k(sentence)
    middle = len(heard) // 2
    match change:
        case "nothing":
            pass
        case "stretched":
            heard = np.concatenate([heard[:middle], heard[middle - 480 :]])
        case "telephone":
            narrow = decode_ulaw(encode_ulaw(at_8k(heard, 48_000)))
            heard = np.repeat(narrow, 6)
        case "half":
            heard = heard.copy()
            heard[middle:] = 0
        case "other words":
            heard = at_48k(
                await said("Nothing of the kind was ever said by anybody in this house.")
            )
        case "gaps":
            heard = heard.copy()
            for start in range(0, len(heard), 9600):
                heard[start : start + 4800] = 0
    return likeness(sentence, 24_000, heard, 48_000)


@pytest.mark.parametrize("change", ["nothing", "stretched", "telephone"])
async def test_a_sentence_is_known_again_behind_a_jitter_buffer_and_a_telephone(
    change: str,
) -> None:
    like = await compared(change)
    assert like.segments > 15
    assert like.found >= like.segments - 1  # one is cut through
    assert like.spread_ms <= 12
    assert like.pesq > 3.5
    assert like.whole


@pytest.mark.parametrize("change", ["half", "other words", "gaps"])
async def test_a_sentence_that_did_not_come_whole_is_told(change: str) -> None:
    like = await compared(change)
    assert like.found < 0.7 * like.segments
    assert not like.whole
    assert like.known == (change == "half")
