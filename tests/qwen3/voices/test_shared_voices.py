"""Replicas of the tiny Base checkpoint that share a store of voices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_server.run import running_server
from qwen3tts_server.settings import ServerSettings, VoiceSettings
from qwen3tts_server.voices.catalogue import VoiceCatalogue
from qwen3tts_wire.client import Audio, SpeechClient
from qwen3tts_wire.errors import BadRequest, UnknownVoice
from tests.qwen3.engine.engine_world import GREEDY, made, recording
from tests.qwen3.voices.recordings import PCM, wav

SAMPLES, _ = recording()
SOUND = wav(SAMPLES, tag=PCM, bits=16)
WORDS = "good morning"


@pytest.fixture
async def pair(
    tiny: dict[str, Path], tmp_path: Path
) -> AsyncIterator[tuple[VoiceCatalogue, VoiceCatalogue]]:
    """Two replicas; neither engine has a folder of its own."""
    settings = VoiceSettings(store=str(tmp_path), refresh_s=3600.0)
    both = [VoiceCatalogue(made(tiny["base"], warmup=False, slots=2), settings) for _ in range(2)]
    for each in both:
        await each.start()
    yield both[0], both[1]
    for each in both:
        await each.close()


async def said(voices: VoiceCatalogue, voice: str) -> bytes:
    request = SynthesisRequest("Good morning.", voice=voice, sampling=GREEDY, seed=1)
    chunks: list[PcmChunk] = [chunk async for chunk in voices.synthesize(request)]
    return b"".join(chunk.pcm for chunk in chunks)


async def test_both_speak_with_what_was_uploaded_to_one(
    pair: tuple[VoiceCatalogue, VoiceCatalogue],
) -> None:
    one, other = pair
    kept = await one.add("Anna", SOUND, ref_text=WORDS)
    assert kept.seconds == 2.0
    first = await said(one, "anna")
    for name in ("clone:Anna", kept.voice_id, kept.content):
        other.check(name, "en")
        second = await said(other, name)
        assert len(first) == len(second) > 0
        apart = np.frombuffer(first, "<i2").astype(int) - np.frombuffer(second, "<i2")
        assert abs(apart).max() < 33
    assert other.resolve("anna") == kept.voice_id
    assert other.resolve(None) == other.resolve("alloy") == kept.voice_id
    assert [each.id for each in other.voices()] == ["clone:Anna"]
    with pytest.raises(UnknownVoice):
        other.check("anna", "tlh")
    await other.remove("anna")
    await one.refresh()
    with pytest.raises(UnknownVoice):
        await said(one, "clone:Anna")


async def test_a_reference_is_found_by_its_id_and_a_bad_one_is_refused(
    pair: tuple[VoiceCatalogue, VoiceCatalogue],
) -> None:
    one, other = pair
    loaded = await one.load_voice(ref_audio=SOUND, x_vector_only=True)
    found = await other.load_voice(voice_id=loaded.voice_id)
    assert found.voice_id == loaded.voice_id
    assert "live" in other.modes(loaded.voice_id)
    assert await said(other, loaded.voice_id)
    with pytest.raises(BadRequest):
        await one.add("noise", b"not a sound", ref_text=WORDS)
    with pytest.raises(BadRequest, match="words"):
        await one.add("silent", SOUND)
    assert not one.stored()


async def test_a_deleted_voice_is_gone_from_the_engine(
    pair: tuple[VoiceCatalogue, VoiceCatalogue],
) -> None:
    one, _ = pair
    kept = await one.add("Anna", SOUND, ref_text=WORDS)
    engine = one.inner
    assert isinstance(engine, Qwen3Engine)
    await engine.forget_voice(kept.voice_id)
    await engine.forget_voice(kept.voice_id)
    with pytest.raises(UnknownVoice):
        engine.check(kept.voice_id, None)
    assert await said(one, "anna")


@pytest.mark.network
async def test_the_wire_loads_a_stored_voice_by_name(tiny: dict[str, Path], tmp_path: Path) -> None:
    settings = ServerSettings(voices=VoiceSettings(store=str(tmp_path)))
    engine = made(tiny["base"], warmup=False, slots=2)
    async with running_server(engine, settings=settings) as server:
        kept = await server.service.voices.add("Anna", SOUND, ref_text=WORDS)
        async with await SpeechClient.connect(server.url) as client:
            for name in ("clone:Anna", "anna", kept.voice_id):
                ready = await client.load_voice(voice_id=name)
                assert (ready.voice_id, ready.cached) == (kept.voice_id, True)
                assert ready.ref_text == WORDS
            context = await client.open(voice="clone:anna", seed=1, sampling=GREEDY)
            await context.append("Good morning.")
            await context.end()
            assert any([isinstance(event, Audio) async for event in context])
            with pytest.raises(UnknownVoice):
                await client.load_voice(voice_id="clone:absent")
