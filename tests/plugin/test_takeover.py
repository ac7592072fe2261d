"""Two speech servers as processes of their own: one is killed in the middle of a sentence."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.providers import ProviderManager
from mr_qwen3tts.connection import ServerLink
from mr_qwen3tts.host import Host
from mr_qwen3tts.plugin import Plugin
from qwen3tts_wire.client import Context
from qwen3tts_wire.events import Audio
from tests.mindroot_host.hearing import heard_end, words
from tests.mindroot_host.playout import TICK_S, Event, played
from tests.mindroot_host.speech_server import SpeechServer, said
from tests.plugin.test_whole_plugin import context

pytestmark = pytest.mark.network

TEXT = (
    "The pharmacy opens at eight in the morning and closes at six in the evening. "
    "On Saturdays it is open until one."
)
RATE = 24_000
KILLED_AFTER_FRAMES = 60
"""1.2 s of 20 ms: in the middle of the first sentence."""


@asynccontextmanager
async def two(folder: Path) -> AsyncIterator[tuple[SpeechServer, SpeechServer, ServerLink]]:
    main, other = SpeechServer(folder / "main"), SpeechServer(folder / "other")
    link = ServerLink(main.url, fallback_url=other.url)
    try:
        link.keep()
        yield main, other, link
    finally:
        await link.close()
        main.kill()
        other.kill()


def kill(server: SpeechServer) -> None:
    server.kill()


def stop(server: SpeechServer) -> None:
    assert server._process is not None
    os.kill(server._process.pid, signal.SIGTERM)


async def sound(context: Context, after_s: float, then: Callable[[], None]) -> np.ndarray:
    """All that is heard; ``then`` happens after so much of it."""
    pcm, done = b"", False
    async for event in context:
        if isinstance(event, Audio):
            assert event.offset * 2 == len(pcm)
            pcm += event.pcm
        if not done and len(pcm) / 2 / RATE >= after_s:
            done = True
            then()
    assert done
    return np.frombuffer(pcm, "<i2")


@pytest.mark.parametrize(("end", "written"), [(kill, False), (stop, True)])
async def test_the_other_server_says_the_rest_of_a_sentence(
    end: Callable[[SpeechServer], None], written: bool, tmp_path: Path
) -> None:
    pytest.importorskip("espeakng_loader")
    async with asyncio.timeout(60), two(tmp_path) as (main, _, link):
        client = await link.client()
        context = await client.open(voice="en-us", window_ms=1000.0)
        await context.append(TEXT if written else TEXT[:60])
        if written:
            await context.end()

        def then() -> None:
            end(main)
            if not written:
                later.append(asyncio.create_task(finish()))

        async def finish() -> None:
            await context.append(TEXT[60:])
            await context.end()

        later: list[asyncio.Task[None]] = []
        heard = await sound(context, 1.5, then)
        await asyncio.gather(*later)
        spoken = [each.text.strip(".,") for each in context.words]
        assert spoken == TEXT.replace(",", "").replace(".", "").split()
        assert context.heard(len(heard)).text_heard == TEXT
        ends = [each.end for each in context.words]
        assert ends == sorted(ends)
        assert ends[-1] <= len(heard)


async def test_the_rest_of_a_plugins_reply_is_said_by_the_other_server(tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader")
    async with asyncio.timeout(60), two(tmp_path) as (main, other, _):
        services, commands = ProviderManager(), ProviderManager()
        events: list[Event] = [(0.0, "start", None)]

        async def speak() -> None: ...

        async def chunk(audio_chunk: bytes, context: Any = None) -> bool:
            payload = base64.b64encode(audio_chunk).decode()
            events.append((TICK_S * len(events), "chunk", payload))
            if len(events) == KILLED_AFTER_FRAMES:
                main.kill()
            return True

        commands.register_function("speak", "mr_qwen3tts", speak)
        services.register_function("sip_audio_out_chunk", "mr_sip", chunk)
        plugin = Plugin(Host(services, commands))
        env = {
            "MR_QWEN3TTS_URL": main.url,
            "MR_QWEN3TTS_FALLBACK_URL": other.url,
            "MR_QWEN3TTS_RETURN_AHEAD_MS": "0",
        }
        here = context("call", **env)
        try:
            await plugin.speak(TEXT, None, here, {})
            while not plugin.records.last:  # noqa: ASYNC110 - two other processes do it
                await asyncio.sleep(0.05)
            told = plugin.heard(here)
            outcomes = [each.outcome for each in plugin.records.last]
        finally:
            await plugin.shutdown()
        assert told is not None
        assert (told["heard"] + told["remaining"], told["interrupted"]) == (TEXT, False)
        assert outcomes == ["said"]
        assert len(events) > 2 * KILLED_AFTER_FRAMES
        begun = [each.text for each in said(main.folder)]
        assert begun
        assert words(begun[0]) == words(TEXT)[: len(words(begun[0]))]
        heard_end(played(events), said(other.folder), TEXT)
