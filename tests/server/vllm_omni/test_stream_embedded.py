"""The protocol with the voice that comes with the server."""

from __future__ import annotations

import base64
import io
import itertools

import av
import numpy as np
import pytest

from tests.server.vllm_omni.line import CLOSE, DONE, SENTENCES, STREAM, config, text
from tests.server.vllm_omni.peer import peer, serving

pytestmark = pytest.mark.network
pytest.importorskip("espeakng_loader", reason="the extra 'embedded' is not installed")

WORDS = "Good morning to all of you. It is half past nine, and Dr. Smith is waiting."


def loudest(pcm: bytes) -> int:
    return int(abs(np.frombuffer(pcm, "<i2").astype(int)).max())


async def test_files_streams_words_and_units_with_a_real_voice() -> None:
    from qwen3tts_engine.embedded.engine import EmbeddedEngine

    hub = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
    first = config(language="English", response_format="pcm", model=hub, voice="Vivian")
    async with serving(EmbeddedEngine()) as server:
        async with peer(server, first) as client:
            await client.say(text(WORDS), DONE)
            await client.until("session.done")
            whole = client.sound
            assert len(whole) > 2 * 24_000 * 2
            assert loudest(whole) > 3000

            for form in ("mp3", "opus", "flac", "wav"):
                await client.say(config(response_format=form, language="en"), text(WORDS), DONE)
                await client.until("session.done")
                with av.open(io.BytesIO(client.sound), "r") as file:
                    frames = list(file.decode(audio=0))
                seconds = sum(frame.samples for frame in frames) / frames[0].sample_rate
                assert seconds == pytest.approx(len(whole) / 48_000, abs=0.1)

            await client.say({**STREAM, "language": "en"}, text(WORDS), DONE)
            await client.until("session.done")
            assert len(client.frames) > 10
            assert len(client.sound) == pytest.approx(len(whole), rel=0.02)

            await client.say(config(response_format="pcm", speed=2.0), text(WORDS), DONE)
            await client.until("session.done")
            assert 0.3 < len(client.sound) / len(whole) < 0.75

        ask = {**SENTENCES, "word_timestamps": True, "task_type": "CustomVoice", "voice": "nova"}
        async with peer(server, ask, *map(text, WORDS), DONE, CLOSE) as client:
            heard = await client.until("session.done")
            starts = [each for each in heard if each["type"] == "audio.start"]
            assert " ".join(each["sentence_text"] for each in starts) == WORDS
            assert len(starts) == 2
            last = [each for each in heard if each.get("timestamps")]
            words = [word for each in last for word in each["timestamps"]]
            assert [word["word"] for word in words][:2] == ["Good", "morning"]
            for each in last:
                times = [word["start_ms"] for word in each["timestamps"]]
                assert all(a <= b for a, b in itertools.pairwise(times))
                assert each["timestamps"][-1]["end_ms"] <= each["chunk_end_ms"]
            sound = b"".join(
                base64.b64decode(each["audio_b64"])
                for each in heard
                if each["type"] == "audio.chunk"
            )
            assert loudest(sound) > 3000
            assert await client.rest() == ([], 1000)
