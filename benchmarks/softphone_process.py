"""The softphone as a process of its own, as a user starts it; it says its address itself."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

START_S = 30.0


@dataclass(frozen=True)
class SoftphoneProcess:
    """Process with its page."""

    url: str
    """The page's address with its token."""
    pid: int

    @property
    def scheme(self) -> str:
        """``http`` or ``https``."""
        return urlsplit(self.url).scheme

    @property
    def port(self) -> int:
        """Port of the page."""
        return urlsplit(self.url).port or 0

    @property
    def token(self) -> str:
        """Token of access."""
        return self.url.partition("#token=")[2]


@asynccontextmanager
async def softphone_process(folder: Path, *arguments: str) -> AsyncIterator[SoftphoneProcess]:
    """Start ``mr-qwen3tts softphone`` with further arguments, and end it.

    ``folder`` takes its state. Raises RuntimeError with what it said when it does not come up.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qwen3tts_cli.main", "softphone", "--port", "0", *arguments),
        env={
            **os.environ,
            "PYTHONPATH": ":".join(sys.path),
            "COLUMNS": "200",
            "XDG_STATE_HOME": str(folder),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    told = ""
    try:
        async with asyncio.timeout(START_S):
            while not (found := re.search(r"https?://\S+#token=\S+", told)):
                line = (await process.stdout.readline()).decode()
                if not line:
                    raise RuntimeError(f"the softphone did not start: {told[-1000:]}")
                told += line
        yield SoftphoneProcess(found[0], process.pid)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(10):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
