"""A command at a real terminal: a pseudo-terminal is its controlling one, so that Ctrl-C and Ctrl-D
are what a person's keys are."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import struct
import sys
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

DEADLINE_S = 60.0
"""Bounds a test that would wait for ever; nothing is measured with it."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """The person's side."""

    def __init__(self, fd: int, process: asyncio.subprocess.Process) -> None:
        self._fd = fd
        self.process = process
        self.raw = ""
        """Everything that was shown, with escape sequences."""

    @property
    def shown(self) -> str:
        """The same without them."""
        return _ESCAPES.sub("", self.raw)

    def type(self, text: str) -> None:
        """Press keys; ``\\x03`` is Ctrl-C, ``\\x04`` Ctrl-D."""
        os.write(self._fd, text.encode())

    async def until(self, wanted: str) -> None:
        """Wait until something is shown; fails when the command ends before that."""
        async with asyncio.timeout(DEADLINE_S):
            while wanted not in self.shown:
                assert await self._read(), f"{wanted!r} was not shown: {self.shown!r}"

    async def ended(self) -> int:
        """Wait for the command's end, and return its exit code."""
        async with asyncio.timeout(DEADLINE_S):
            while await self._read():
                pass
            return await self.process.wait()

    async def _read(self) -> bool:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)
        try:
            data = os.read(self._fd, 65_536)
        except OSError:  # Linux says EIO when the last one that had it open has gone
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)


@asynccontextmanager
async def at_terminal(
    *arguments: str, width: int = 80, env: Mapping[str, str] | None = None
) -> AsyncIterator[Terminal]:
    """Run ``mr-qwen3tts`` with these arguments at a terminal of its own."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    # The first terminal that a session's leader opens becomes its controlling one.
    code = (
        "import os, sys; fd = os.open(os.ttyname(0), os.O_RDWR); os.close(fd);"
        "from qwen3tts_cli.main import main; main()"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, *arguments),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={"PYTHONPATH": ":".join(sys.path), "TERM": "xterm", "PATH": os.environ["PATH"]}
        | dict(env or {}),
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
