from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from qwen3tts_cli.serve import is_loopback
from qwen3tts_cli.voices import speaks
from qwen3tts_wire.messages import VoiceInfo

pytestmark = pytest.mark.network


async def command(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "qwen3tts_cli.main",
        *arguments,
        env={"PYTHONPATH": ":".join(sys.path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A server process and its URL."""
    process = await command("serve", "--port", "0", "--workers", "1")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            yield process, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_server_tells_its_url_speaks_and_ends_in_order() -> None:
    async with serving() as (process, url):
        assert url.startswith("ws://127.0.0.1:")
        asked = await command("voices", "--server", url, "--language", "de", "--json")
        out, err = await asked.communicate()
        assert (asked.returncode, err) == (0, b"")
        voices = json.loads(out)
        assert voices
        assert all(voice["language"].startswith("de") for voice in voices)

        said = await command("say", "Good morning.", "--out", "-", "--server", url)
        out, err = await said.communicate()
        assert (said.returncode, err) == (0, b"")
        assert out[:4] == b"RIFF"
        assert len(out) > 24_000

        port = url.split(":")[2].split("/")[0]
        second = await command("serve", "--port", port)
        _, err = await second.communicate()
        assert second.returncode == 3
        assert f"Port {port} of 127.0.0.1 is in use." in err.decode()

        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("box", False)],
)
def test_an_address_that_others_can_reach_is_known(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(None, True), ("en", True), ("en-gb", True), ("en-GB", True), ("en-US", False), ("e", False)],
)
def test_a_language_finds_its_kinds(wanted: str | None, found: bool) -> None:
    assert speaks(VoiceInfo("a", "A", "en-GB"), wanted) is found
