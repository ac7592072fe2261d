"""Where an opening from memory ends and the rest begins: one sound, without a gap or a click."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_engine.base import Engine, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings
from qwen3tts_engine.starter.engine import StarterEngine, StarterSettings
from qwen3tts_engine.starter.memory import SILENT
from qwen3tts_server.settings import ServerSettings
from qwen3tts_server.speech_stream import SpeechStream
from qwen3tts_server.utterance import AudioPiece
from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.heard import Word
from qwen3tts_wire.messages import ContextOpen
from tests.conftest import require_package

PHRASES = ("Sure,", "One moment, please.", "Good morning")
REST = "I can look that up for you today."
DURATION_MS = 50
"""The bound of facts on cut and whole speech: what a listener takes for the same rhythm."""


@dataclass
class Spoken:
    """All of a context."""

    pcm: NDArray[np.int16]
    words: list[Word]
    from_cache: bool


async def spoken(
    engine: Engine, text: str, form: AudioFormat | None = None, parts: int = 1
) -> Spoken:
    """A context whose text comes in so many parts."""
    order = ContextOpen(context_id="a", context_no=1, format=form or AudioFormat())
    step = -(-len(text) // parts)
    async with SpeechStream(engine, order, ServerSettings()) as speaking:
        for begin in range(0, len(text), step):
            speaking.append(text[begin : begin + step])
        speaking.end()
        data = b"".join([item.data async for item in speaking if isinstance(item, AudioPiece)])
    utterance = speaking.utterance
    return Spoken(np.frombuffer(data, "<i2"), utterance.words, utterance.from_cache)


async def length(engine: Engine, text: str) -> int:
    """Samples of an opening before something else."""
    chunks = engine.synthesize(SynthesisRequest(text))
    return sum([chunk.samples async for chunk in chunks])


@pytest.fixture
async def embedded() -> AsyncIterator[StarterEngine]:
    require_package("espeakng_loader", "pip install 'mr_qwen3tts[embedded]'")
    inner = EmbeddedEngine(EmbeddedSettings(workers=2))
    engine = StarterEngine(inner, StarterSettings(phrases=PHRASES))
    await engine.start()
    yield engine
    await engine.close()


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[StarterEngine]:
    require_package("torch", "pip install 'mr_qwen3tts[qwen3]'")
    from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
    from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
    from tests.tiny_models.checkpoint import make_tiny

    inner = Qwen3Engine(Qwen3Settings(str(make_tiny(tmp_path)["custom_voice"]), positions=512))
    engine = StarterEngine(inner, StarterSettings(phrases=PHRASES[:1]))
    await engine.start()
    assert engine.entries == 2
    yield engine
    await engine.close()


@pytest.mark.parametrize("phrase", PHRASES)
async def test_the_rest_goes_on_where_the_opening_ends(
    embedded: StarterEngine, phrase: str
) -> None:
    joint = await length(embedded, phrase)
    said = await spoken(embedded, f"{phrase} {REST}", parts=7)
    assert said.from_cache
    near = said.pcm[joint - 2 : joint + 2].astype(np.int32)
    elsewhere = np.abs(np.diff(said.pcm.astype(np.int32)))
    assert np.max(np.abs(np.diff(near))) <= max(SILENT, np.percentile(elsewhere, 99))


@pytest.mark.parametrize("phrase", PHRASES[:2])
async def test_the_rhythm_is_that_of_the_whole(embedded: StarterEngine, phrase: str) -> None:
    text = f"{phrase} {REST}"
    whole = await spoken(embedded.inner, text)
    cut = await spoken(embedded, text)
    assert (whole.from_cache, cut.from_cache) == (False, True)
    most = DURATION_MS * 24
    assert abs(len(whole.pcm) - len(cut.pcm)) <= most
    assert [(each.text, each.char_start, each.char_end) for each in cut.words] == [
        (each.text, each.char_start, each.char_end) for each in whole.words
    ]
    for one, other in zip(whole.words, cut.words, strict=True):
        assert abs(one.start - other.start) <= most


@pytest.mark.parametrize("form", [AudioFormat("pcm_s16le", 8000), AudioFormat("pcm_s16le", 16000)])
async def test_a_resampled_joint_has_no_step_either(
    embedded: StarterEngine, form: AudioFormat
) -> None:
    joint = await length(embedded, "Sure,") * form.sample_rate // 24_000
    said = await spoken(embedded, f"Sure, {REST}", form)
    steps = np.abs(np.diff(said.pcm.astype(np.int32)))
    assert np.max(steps[joint - 40 : joint + 40]) <= np.percentile(steps, 99)


async def test_the_tiny_checkpoint_joins_too(tiny: StarterEngine) -> None:
    joint = await length(tiny, "Sure,")
    said = await spoken(tiny, f"Sure, {REST}", parts=5)
    assert said.from_cache
    assert len(said.pcm) > joint
    steps = np.abs(np.diff(said.pcm.astype(np.int32)))
    # Random weights make noise, at whose ends there is no silence: the joint must be no louder.
    assert steps[joint - 1] <= np.max(np.delete(steps, joint - 1))
    starts = [each.char_start for each in said.words]
    assert starts == sorted(set(starts))
    assert said.words[0].char_start == 0
    assert all(
        one.end <= other.start for one, other in zip(said.words, said.words[1:], strict=False)
    )
