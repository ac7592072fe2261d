"""A speech server in a child process: reached by this process alone, and gone with it."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from pathlib import Path

import pytest

from qwen3tts_speech import voice_process
from qwen3tts_speech.voice_process import VoiceProcess, found_server
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import BadRequest, ConnectionLost, EngineUnavailable

ROOT = Path(__file__).parents[2]
WITHIN_S = 60
PARENT = """
import asyncio
from qwen3tts_speech.voice_process import VoiceProcess
async def main():
    async with VoiceProcess() as voice:
        print(voice.pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


def gone(pid: int) -> bool:
    """Whether the process has ended, waiting for it; also one that is no child of ours."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(WITHIN_S * 1000))
    finally:
        os.close(handle)


@pytest.mark.network
async def test_it_answers_this_process_alone_and_is_started_again_when_it_has_ended() -> None:
    async with asyncio.timeout(WITHIN_S), VoiceProcess() as voice:
        assert voice.engine
        client = await SpeechClient.connect(voice.url)
        assert client.session.engine
        await client.close()
        with pytest.raises(BadRequest, match="API key"):
            await SpeechClient.connect(voice.url, api_key="another")
        first, url = voice.pid, voice.url
        os.kill(first, signal.SIGKILL)
        while voice.pid in (first, 0):  # what it was is known to have ended, and it is up again
            await asyncio.to_thread(gone, first)
            await voice.up.wait()
            await asyncio.sleep(0)
        client = await SpeechClient.connect(url)
        await client.close()
        second = voice.pid
        assert (voice.url, second != first) == (url, True)
    assert await asyncio.to_thread(gone, second)
    with pytest.raises(ConnectionLost):
        await SpeechClient.connect(url)


@pytest.mark.network
async def test_it_ends_with_a_program_that_is_killed() -> None:
    async with asyncio.timeout(WITHIN_S):
        parent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PARENT),
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
            stdout=asyncio.subprocess.PIPE,
        )
        assert parent.stdout is not None
        pid = int(await parent.stdout.readline())
        parent.kill()
        await parent.wait()
        assert await asyncio.to_thread(gone, pid)


@pytest.mark.network
async def test_why_it_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QWEN3TTS__ENGINE__NAME", "upstream")
    with pytest.raises(BadRequest, match=r"upstream\.url"):
        async with asyncio.timeout(WITHIN_S), VoiceProcess():
            pass


@pytest.mark.network
async def test_a_missing_package_is_told_with_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('no', name='uvicorn')")
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    with pytest.raises(EngineUnavailable, match="'uvicorn'") as told:
        async with asyncio.timeout(WITHIN_S), VoiceProcess():
            pass
    assert "pip install 'mr_qwen3tts[server,voice]'" in told.value.remedy


async def test_a_server_is_named_or_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice_process, "DEFAULT_URL", "ws://127.0.0.1:1/v1/speech")
    monkeypatch.delenv("MR_QWEN3TTS_SERVER", raising=False)
    assert await found_server() is None
    monkeypatch.setenv("MR_QWEN3TTS_SERVER", "ws://192.0.2.1/v1/speech")
    assert await found_server() == "ws://192.0.2.1/v1/speech"
    assert await found_server("ws://192.0.2.2/v1/speech") == "ws://192.0.2.2/v1/speech"
