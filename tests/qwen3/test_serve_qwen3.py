"""The engine behind the real WebSocket, and the command that serves it."""

from __future__ import annotations

import asyncio
import io
import itertools
import signal
import sys
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_server.run import RunningServer, running_server
from qwen3tts_wire.client import Alignment, Audio, Context, Done, SpeechClient, Started
from qwen3tts_wire.errors import UnknownVoice
from tests.fakes import settle
from tests.qwen3.engine.engine_world import made, recording

pytestmark = pytest.mark.network

TEXT = "Good morning, this is the line."


@pytest.fixture
async def server(tiny: dict[str, Path]) -> AsyncIterator[RunningServer]:
    async with running_server(made(tiny["custom_voice"])) as running:
        yield running


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[SpeechClient]:
    async with asyncio.timeout(60), await SpeechClient.connect(server.url) as connected:
        yield connected


async def write(context: Context, text: str = TEXT, size: int = 3) -> None:
    for at in range(0, len(text), size):
        await context.append(text[at : at + size])
    await context.end()


async def test_text_that_is_written_live_is_heard_whole(client: SpeechClient) -> None:
    for mode in ("auto", "live"):
        context = await client.open(voice="ryan", mode=mode)
        await write(context)
        events = [event async for event in context]
        started, done = events[0], events[-1]
        assert isinstance(started, Started)
        assert started.mode == mode
        assert isinstance(done, Done)
        assert done.reason == "text_end"
        pcm = b"".join(event.pcm for event in events if isinstance(event, Audio))
        assert len(pcm) // 2 == done.samples > 24_000
        assert np.abs(np.frombuffer(pcm, "<i2").astype(int)).max() > 3000
        words = [word for e in events if isinstance(e, Alignment) for word in e.words]
        assert [TEXT[word.char_start : word.char_end] for word in words] == [
            *("Good", "morning", "this", "is", "the", "line")
        ]
        assert all(a.end <= b.start for a, b in itertools.pairwise(words))
        assert {"slot", "prefill", "first_codes", "first_pcm"} <= set(done.marks)


async def test_what_is_cancelled_is_silent_and_frees_its_row(
    client: SpeechClient, server: RunningServer
) -> None:
    context = await client.open()
    await write(context, f"{TEXT} " * 8)
    async for event in context:
        if isinstance(event, Audio):
            break
    answer = await context.cancel(0)
    assert answer.confirmed
    assert answer.text_heard == ""
    engine = server.service.voices.inner
    while engine.under_way:  # type: ignore[attr-defined]
        await settle(1)


async def test_eight_concurrent_contexts_are_each_heard_whole(client: SpeechClient) -> None:
    contexts = [await client.open(seed=number) for number in range(8)]
    await asyncio.gather(*map(write, contexts))

    async def heard(context: Context) -> Done:
        events = [event async for event in context]
        done = events[-1]
        assert isinstance(done, Done)
        assert sum(len(e.pcm) for e in events if isinstance(e, Audio)) // 2 == done.samples
        return done

    for done in await asyncio.gather(*map(heard, contexts)):
        assert done.samples > 24_000
        assert done.reason == "text_end"


async def test_an_unknown_voice_is_an_error_of_its_context(client: SpeechClient) -> None:
    context = await client.open(voice="absent")
    with pytest.raises(UnknownVoice, match="absent"):
        [_ async for _ in context]
    assert not client.closed


async def test_a_voice_of_a_recording_is_loaded_and_heard(tiny: dict[str, Path]) -> None:
    samples, rate = recording()
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    async with (
        asyncio.timeout(60),
        running_server(made(tiny["base"])) as server,
        await SpeechClient.connect(server.url) as client,
    ):
        ready = await client.load_voice(data.getvalue(), "A buzz that comes and goes.")
        assert ready.ref_text == "A buzz that comes and goes."
        context = await client.open(voice=ready.voice_id, mode="auto")
        await write(context)
        events = [event async for event in context]
    # It goes on from its recording, and so takes no text while it speaks.
    assert isinstance(events[0], Started)
    assert events[0].mode == "clause"
    assert isinstance(events[-1], Done)
    assert events[-1].samples > 0


async def command(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "qwen3tts_cli.main",
        *arguments,
        env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_the_command_serves_a_checkpoint_and_shows_what_it_does(
    tiny: dict[str, Path],
) -> None:
    folder = str(tiny["custom_voice"])
    process = await command(
        *("serve", "--engine", "qwen3", "--model", folder, "--port", "0", "--slots", "2")
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            url = (await process.stdout.readline()).decode().strip()
            async with await SpeechClient.connect(url) as client:
                context = await client.open()
                await write(context)
                events = [event async for event in context]
            assert isinstance(events[-1], Done)
            process.terminate()
            _, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    shown = err.decode()
    for told in ("Loading PyTorch", "Loading …", "CustomVoice", "all slots"):
        assert told in shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_signal_while_the_model_loads_ends_the_command(
    tiny: dict[str, Path], number: signal.Signals, code: int
) -> None:
    folder = str(tiny["custom_voice"])
    process = await command("serve", "--engine", "qwen3", "--model", folder, "--port", "0")
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while b"Loading \xe2\x80\xa6" not in await process.stderr.readline():
                assert not process.stderr.at_eof()
            process.send_signal(number)
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert process.returncode == code
    assert out == b""
    assert b"Traceback" not in err
