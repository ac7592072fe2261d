"""``mr-qwen3tts softphone`` as people start it: the address that it prints is a telephone."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.conftest import require_package
from tests.softphone.browser import Chromium
from tests.softphone.served import at_the_page

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

WITHIN_S = 60.0


@asynccontextmanager
async def command(tmp_path: Path, *arguments: str) -> AsyncIterator[tuple[str, int]]:
    """The softphone as a process with a voice of its own: its address and its process."""
    require_package("aiortc", "pip install 'mr_qwen3tts[webrtc]'")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qwen3tts_cli.main", "softphone", "--port", "0", *arguments),
        env={
            **os.environ,
            "PYTHONPATH": ":".join(sys.path),
            "COLUMNS": "200",
            "XDG_STATE_HOME": str(tmp_path / "state"),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told = ""
    try:
        async with asyncio.timeout(WITHIN_S):
            assert process.stdout is not None
            while not (found := re.search(r"https?://\S+#token=\S+", told)):
                line = (await process.stdout.readline()).decode()
                assert line, told
                told += line
            yield found[0], process.pid
            process.send_signal(signal.SIGINT)
            told += (await process.stdout.read()).decode()
            assert await process.wait() in (0, 130), told
            assert "Traceback" not in told
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("arguments", [(), ("--host", "0.0.0.0")], ids=["http", "https"])
async def test_what_it_prints_is_a_telephone(
    chromium: Chromium, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    async with command(tmp_path, *arguments) as (url, _):
        secure = url.startswith("https")
        assert secure == bool(arguments)
        # The certificate is made by itself; a person says so to the browser once.
        options = {"ignore_https_errors": secure}
        at = re.sub(r"//[^:/]+", "//127.0.0.1", url)
        async with at_the_page(chromium, at, **options) as person:
            await person.call()
            await person.type("Good morning.")
            [spoken] = await person.spoken()
            assert (await person.visit.heard()).loud_s() > 0.3
            await person.hang_up()
    assert spoken["heard"] == "Good morning."


def held(pid: int) -> tuple[int, int, int]:
    """File handles, threads and resident memory (kB) of a process."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return (
        len(os.listdir(f"/proc/{pid}/fd")),
        int(status["Threads"]),
        int(status["VmRSS"].split()[0]),
    )
