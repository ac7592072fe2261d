"""Our server in a process of its own, and the real clients in theirs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.install import CLIENTS, PYTHON, STAMP
from tests.conftest import leave_out

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
INTEGRATIONS = [ROOT / "server", ROOT / "integrations/pipecat", ROOT / "integrations/livekit"]
"""What a client needs of this tree to use our plugins."""
ENOUGH = 90
"""Seconds after which a client has hung."""

Client = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="session")
def clients() -> Path:
    if not STAMP.exists():
        leave_out("the environment of the real clients is not there (make clients)")
    return PYTHON


@contextmanager
def started(*options: str) -> Iterator[str]:
    """A server process; yields where it listens, ``http://127.0.0.1:PORT``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "qwen3tts_cli.main", "serve", "--port", "0", *options],
        env={"PYTHONPATH": ":".join(sys.path), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("ws://127.0.0.1:"), "the server did not start"
        yield "http" + url.removeprefix("ws").removesuffix("/v1/speech")
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(scope="session")
def server(clients: Path) -> Iterator[str]:
    """The embedded voice, started as people start it."""
    with started("--engine", "embedded", "--workers", "2") as url:
        yield url


@pytest.fixture
async def client(clients: Path, tmp_path: Path) -> AsyncIterator[Client]:
    """Run one of the scripts beside this file with a client's own interpreter; its JSON."""
    running: list[asyncio.subprocess.Process] = []

    async def run(script: str, *arguments: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            str(clients),
            str(HERE / script),
            *arguments,
            cwd=tmp_path,
            env={
                "PATH": f"{CLIENTS / 'bin'}:{os.environ['PATH']}",
                "HOME": str(tmp_path),
                "PYTHONPATH": ":".join(map(str, INTEGRATIONS)),
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        running.append(process)
        out, err = await asyncio.wait_for(process.communicate(), ENOUGH)
        assert process.returncode == 0, err.decode()[-3000:]
        return json.loads(out.decode().splitlines()[-1])

    yield run
    for process in running:
        if process.returncode is None:
            process.kill()
            await process.communicate()
