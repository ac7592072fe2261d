"""A real Whisper in its own process, behind the server's route."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import threading
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_server import recognition as recognition_process
from qwen3tts_server.recognition import NICER, RecognitionProcess
from qwen3tts_server.settings import OpenAISettings, ServerSettings
from qwen3tts_wire.errors import BadRequest, EngineUnavailable
from tests.agent.recognition.real_whisper import real_whisper, speech
from tests.server.openai.caller import calling
from tests.server.openai.test_transcriptions import transcribe

pytestmark = pytest.mark.network
TEXT = "Good morning, how can I help you today?"


@pytest.fixture
async def recording() -> bytes:
    engine = EmbeddedEngine()
    await engine.start()
    try:
        samples = await speech(engine, TEXT)
    finally:
        await engine.close()
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(24_000)
        out.writeframes(samples.tobytes())
    return file.getvalue()


@pytest.fixture
def process() -> Iterator[RecognitionProcess]:
    made = RecognitionProcess(real_whisper())
    yield made
    made.close()


async def test_any_engine_has_recordings_written_down_by_the_model_that_is_named(
    recording: bytes,
) -> None:
    settings = ServerSettings(openai=OpenAISettings(whisper=real_whisper()))
    async with calling(EmbeddedEngine(), settings) as caller:
        answer = await transcribe(caller, recording)
    assert answer.status == 200
    assert "good morning" in answer.json()["text"].lower()


def test_it_yields_the_processor_and_has_no_keys_of_the_server(
    process: RecognitionProcess, recording: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QWEN3TTS_API_KEYS", "secret-of-the-server")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret-of-the-proxy@192.0.2.1")
    seconds, heard = process.hear(recording, "en", max_s=60.0, stopped=lambda: False)
    assert seconds > 1.0
    assert heard[-1].end_s <= seconds + 0.5
    assert process.pid is not None
    nicer = os.getpriority(os.PRIO_PROCESS, process.pid)
    assert nicer == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICER)
    environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    assert b"secret-of-the-server" not in environment
    assert b"secret-of-the-proxy" not in environment


def test_unreadable_and_stopped_recordings_leave_the_next_one_its_own_answer(
    process: RecognitionProcess, recording: bytes
) -> None:
    with pytest.raises(BadRequest):
        process.hear(b"no sound", None, max_s=60.0, stopped=lambda: False)
    process.hear(recording, None, max_s=60.0, stopped=lambda: True)
    _, heard = process.hear(recording, None, max_s=60.0, stopped=lambda: False)
    assert "good morning" in heard[0].text.lower()


def test_a_process_that_is_lost_costs_its_recording_and_not_the_next_one(
    process: RecognitionProcess, recording: bytes
) -> None:
    process.hear(recording, None, max_s=60.0, stopped=lambda: False)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(EngineUnavailable, match="process ended"):
        process.hear(recording, None, max_s=60.0, stopped=lambda: False)
    assert process.hear(recording, None, max_s=60.0, stopped=lambda: False)[1]


@pytest.mark.parametrize(
    ("bounds", "stopped", "more"),
    [
        pytest.param({"STOPPED_S": 0.05}, True, b"", id="stopped"),
        pytest.param({"MODEL_S": 0.05, "SLOWEST": 0.0}, False, b"", id="not-stopped"),
        pytest.param({"STOPPED_S": 0.05}, False, bytes(8 << 20), id="reads-nothing"),
    ],
)
def test_a_process_that_hangs_is_replaced(
    process: RecognitionProcess,
    recording: bytes,
    monkeypatch: pytest.MonkeyPatch,
    bounds: dict[str, float],
    stopped: bool,
    more: bytes,
) -> None:
    process.hear(recording, None, max_s=60.0, stopped=lambda: False)
    hung = process.pid
    assert hung is not None
    os.kill(hung, signal.SIGSTOP)
    with monkeypatch.context() as tiny:
        for name, seconds in bounds.items():
            tiny.setattr(recognition_process, name, seconds)
        with pytest.raises(EngineUnavailable, match="did not answer in time"):
            process.hear(recording + more, None, max_s=60.0, stopped=lambda: stopped)
    assert not Path(f"/proc/{hung}").exists()
    assert process.hear(recording, None, max_s=60.0, stopped=lambda: False)[1]


def test_a_process_that_is_being_started_does_not_outlive_the_close(
    process: RecognitionProcess, recording: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = threading.Thread(target=process.close)
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def slow(*given: Any, **options: Any) -> subprocess.Popen[bytes]:
        closing.start()
        started.append(popen(*given, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", slow)
    with pytest.raises(EngineUnavailable):
        process.hear(recording, None, max_s=60.0, stopped=lambda: False)
    closing.join()
    assert started[0].poll() is not None
    with pytest.raises(EngineUnavailable, match="is closed"):
        process.hear(recording, None, max_s=60.0, stopped=lambda: False)
    assert len(started) == 1
    assert process.pid is None
