"""``mr-qwen3tts softphone`` as people start it: the address that it prints is a telephone."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.conftest import require_package
from tests.softphone.browser import Chromium
from tests.softphone.served import at_the_page

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

WITHIN_S = 60.0
CALLS = 10


@asynccontextmanager
async def command(tmp_path: Path, *arguments: str) -> AsyncIterator[tuple[str, Process]]:
    """The softphone as a process with a voice of its own: its address and the process.

    In the end it is interrupted as by Ctrl-C, unless it is gone already.
    """
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
            yield found[0], process
            if process.returncode is not None:
                return
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


REFUSED = ["WebSocket connection to .* failed", "ERR_CONNECTION"]
"""What Chromium itself writes to the console when a server is gone."""


async def test_a_server_that_is_killed_in_a_call_is_told(
    chromium: Chromium, tmp_path: Path
) -> None:
    async with (
        command(tmp_path) as (url, process),
        at_the_page(chromium, url, allowed_errors=REFUSED) as person,
    ):
        await person.call()
        process.kill()
        await process.wait()
        said, remedy = await person.notice("server_lost")
        assert said
        assert remedy
        # It might have come back; when it does not, the call is over, and that is reported.
        await person.visit.until("() => ['ended', 'idle'].includes(window.softphone.state)")
        remedies = person.page.locator("#notice[data-code] .notice-remedy")
        assert await remedies.inner_text()


def held(process: Process) -> tuple[int, int, int]:
    """File handles, threads and resident memory (kB) of a process."""
    place = Path(f"/proc/{process.pid}")
    status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
    handles = len(list((place / "fd").iterdir()))
    return handles, int(status["Threads"]), int(status["VmRSS"].split()[0])


async def test_ten_calls_leave_no_socket_thread_or_memory_in_the_process(
    chromium: Chromium, tmp_path: Path
) -> None:
    async with (
        command(tmp_path) as (url, process),
        at_the_page(chromium, url) as person,
    ):

        async def one_call() -> None:
            await person.call()
            before = len(person.visit.received)
            await person.put("Yes.")
            await person.visit.message("spoken", after=before)
            await person.hang_up()

        for _ in range(2):  # what is made once and kept is made now
            await one_call()
        first = held(process)
        for _ in range(CALLS):
            await one_call()
        # One more hello: all that the server did for the last call is over by its answer.
        await person.page.reload()
        await person.ready()
        last = held(process)
    handles, threads, memory_kb = (
        after - before for after, before in zip(last, first, strict=True)
    )
    assert handles <= 1
    assert threads <= 1
    assert memory_kb < CALLS * 1024
