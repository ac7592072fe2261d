"""The server as people start it, under several concurrent attacks."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qwen3tts_wire.client import Audio, SpeechClient
from tests.server.hostile.world import (
    CONT,
    KEY,
    NATIVE,
    PING,
    PROTOCOLS,
    RUNVNC,
    SPEECH,
    TEXT,
    VLLM,
    VOICES,
    World,
    frame,
    request,
    upgrade,
)

pytestmark = pytest.mark.network

SECRET = "the caller's secret"
SETTINGS = {
    "server": {
        "access": {"head_timeout_s": 1.0, "body_timeout_s": 1.0, "unread_timeout_s": 2.0},
        "ping_interval_s": 1.0,
        "ping_timeout_s": 1.0,
        "drain_timeout_s": 1.0,
    }
}
READY_S = 60
SPEECH_MESSAGE: dict[str, object] = {"type": "generate_stream", "text": f"{SECRET}. " * 100}
OPENED: dict[str, list[dict[str, object]]] = {
    NATIVE: [
        {"type": "context.open", "context_id": "a", "context_no": 1},
        {"type": "text.append", "context_id": "a", "text": f"{SECRET}. " * 100},
    ],
    VLLM: [
        {"type": "session.config"},
        {"type": "input.text", "text": f"{SECRET}. " * 100},
        {"type": "input.done"},
    ],
    RUNVNC: [{"type": "init", "voice_id": "en-us"}, *[SPEECH_MESSAGE] * 20],
}


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str, Path]]:
    """A server process, its URL, and the file of its log."""
    config, log = folder / "server.yaml", folder / "log"
    config.write_text(json.dumps(SETTINGS))
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "qwen3tts_cli.main", "serve"),
            *("--port", "0", "--workers", "1", "--config", str(config)),
            env={
                "PYTHONPATH": ":".join(sys.path),
                "QWEN3TTS_API_KEYS": KEY,
                "QWEN3TTS__ENGINE__NAME": "embedded",
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(READY_S):
            url = (await process.stdout.readline()).decode().strip()
            yield process, url, log
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def held(pid: int) -> tuple[int, int]:
    """Open files and sockets, and KiB of memory, of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s*(\d+) kB", status)
    assert found
    return len(os.listdir(f"/proc/{pid}/fd")), int(found[1])


async def heard(client: SpeechClient) -> int:
    """Bytes of a sentence; what is in them differs, since eSpeak NG's noise does."""
    context = await client.open()
    await context.append("Nobody else is heard here.")
    await context.end()
    return sum([len(each.pcm) async for each in context if isinstance(each, Audio)])


async def attacks(world: World) -> None:
    """All clients concurrently, without waiting for anything."""
    key: dict[str, Any] = {"Authorization": f"Bearer {KEY}"}
    speech = json.dumps({"input": f"{SECRET}. " * 100, "response_format": "pcm"}).encode()
    posted = request("POST", SPEECH, speech, Content_Type="application/json", **key)
    nested = b'{"input":' * 20_000
    for data in (
        b"",
        b"GET / HTTP/1.1\r\nX: ",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\r\n" * 5000,
        bytes(100_000),
        request("GET", f"/{SECRET.replace(' ', '%20')}?api_key={KEY}"),
        request("GET", "/health", Connection="keep-alive") * 500,
        posted[:-5],
        posted.replace(KEY.encode(), b"wrong"),
        request("POST", SPEECH, nested, Content_Type="application/json", **key),
        request("POST", SPEECH, Transfer_Encoding="chunked", **key) + b"1\r\nx\r\n" * 20_000,
        request("POST", VOICES, b"--b\r\n", Content_Type="multipart/form-data; boundary=b", **key),
        request("POST", VOICES, Content_Length=str(1 << 50), **key),
        *(upgrade(path, subprotocol) for path, subprotocol in PROTOCOLS.items()),
        upgrade(NATIVE, Content_Length="1", **key),
    ):
        for _ in range(3):
            await world.attacker(data)
    for path in PROTOCOLS:
        opened = OPENED[path]
        for end in (
            b"",
            frame(TEXT, b"\xff"),
            frame(TEXT, b"{" * 100_000),
            frame(TEXT, b"[" + b"[]," * 50_000 + b"[]]"),
            frame(TEXT, b"x", mask=False),
            frame(TEXT, b"x" * 3_000_000),
            frame(PING, b"x" * 125) * 20_000,
            frame(TEXT) * 20_000,
            frame(TEXT, b"{", fin=False) + frame(CONT, b" ", fin=False) * 20_000,
        ):
            one = await world.websocket(path, *opened, **key)
            one.writer.transport.pause_reading()  # type: ignore[attr-defined]
            one.writer.write(end)


async def test_a_server_process_outlives_them_all(tmp_path: Path) -> None:
    world = World(cast(Any, SimpleNamespace(port=0)), cast(Any, None))
    try:
        await besieged(world, tmp_path)
    finally:
        for each in world.attackers:
            each.reset()


async def besieged(world: World, folder: Path) -> None:
    async with started(folder) as (process, url, log):
        world.server = cast(Any, SimpleNamespace(port=int(url.split(":")[2].split("/")[0])))
        async with await SpeechClient.connect(url, api_key=KEY, open_timeout=20) as client:
            sound = await heard(client)
            assert sound > 24_000
            files, memory = held(process.pid)
            attacking = asyncio.create_task(attacks(world))
            while not attacking.done():
                assert await heard(client) == sound
            await attacking
            assert await heard(client) == sound
            for each in world.attackers:
                each.reset()
            # What they held is given back, be it after the time that they are given.
            while held(process.pid)[0] > files:
                assert await heard(client) == sound
            assert held(process.pid)[1] < memory + 200_000
        # Nor do those keep it from stopping who take nothing and do not go.
        key: dict[str, Any] = {"Authorization": f"Bearer {KEY}"}
        for path in PROTOCOLS:
            one = await world.websocket(path, *OPENED[path], **key)
            one.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await world.attacker(request("GET", "/health", Connection="keep-alive"))
        await world.attacker(b"GET / HTTP/1.1\r\n")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        told = log.read_text()
    assert "Traceback" not in told
    assert SECRET not in told
    assert KEY not in told
    assert len(told) < 200_000
