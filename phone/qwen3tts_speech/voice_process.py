"""Speech server of this program, in a child process.

::

    async with VoiceProcess() as voice:
        client = await SpeechClient.connect(voice.url)

It listens on a port of 127.0.0.1, with its own key, and is restarted at the same address.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import qwen3tts_codecs
import qwen3tts_wire
from qwen3tts_wire.addresses import know_key
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import (
    ConnectionLost,
    EngineUnavailable,
    ProtocolError,
    SpeechError,
    error_from_wire,
)
from qwen3tts_wire.process import child_environment

logger = logging.getLogger(__name__)

DEFAULT_URL: Final = "ws://127.0.0.1:8765/v1/speech"
"""Default of ``mr-qwen3tts serve``."""
SERVER_ENV: Final = "MR_QWEN3TTS_SERVER"
LOOK_S: Final = 2.0
"""Longest wait for an answer at the default address."""
START_S: Final = 600.0
"""Longest start: a checkpoint may have to be fetched."""
END_S: Final = 5.0
"""Longest end of the process before it is killed."""
RESTARTS: Final = 3
"""Restarts within ``RESTART_WINDOW_S``."""
RESTART_WINDOW_S: Final = 60.0
ENVIRONMENT: Final = (
    *("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT", "SSL_CERT_FILE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "MR_QWEN3TTS_CHECKPOINT"),
)
"""Variables of the engines, beside ``QWEN3TTS__…``."""


def on_stderr(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # it is closed
        sys.stderr.write(f"{line}\n")


async def voice_server(
    stack: contextlib.AsyncExitStack, named: str | None, announce: Callable[[str], None]
) -> str:
    """Return a speech server's address, started here if needed.

    Args:
        stack: closes a voice process.
        named: address of the settings; see `found_server`.
        announce: called with what is started.

    Raises EngineUnavailable.
    """
    url = await found_server(named)
    if url is not None:
        return url
    announce(f"No speech server is named, and none answers at {DEFAULT_URL}: starting the voice …")
    voice = await stack.enter_async_context(VoiceProcess())
    announce(voice.engine)
    return voice.url


async def found_server(named: str | None = None) -> str | None:
    """Return an existing server's address, or None.

    ``named``, else ``MR_QWEN3TTS_SERVER``; else the default address if a server answers.
    """
    if named or (named := os.environ.get(SERVER_ENV, "").strip()):
        return named
    try:
        async with asyncio.timeout(LOOK_S):
            client = await SpeechClient.connect(DEFAULT_URL, open_timeout=LOOK_S)
    except (ConnectionLost, ProtocolError, TimeoutError):
        return None
    except SpeechError:  # it is busy or wants another key: the first use tells what to do
        return DEFAULT_URL
    await client.close()
    return DEFAULT_URL


class VoiceProcess:
    """Speech server in a child process; an async context manager.

    Entering raises EngineUnavailable.
    """

    def __init__(self) -> None:
        self.url = ""
        """Address for a `SpeechClient` of this process, which needs no key."""
        self.engine = ""
        self.up = asyncio.Event()
        self._key = secrets.token_urlsafe(24)
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._ends: deque[float] = deque(maxlen=RESTARTS)

    @property
    def pid(self) -> int:
        process = self._process
        return process.pid if process is not None and process.returncode is None else 0

    async def __aenter__(self) -> Self:
        try:
            await self._begin(0)
        except BaseException:
            await self.close()
            raise
        know_key(self.url, self._key)
        self._keeping = asyncio.create_task(self._keep(), name="voice process")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.cancel()
            await asyncio.wait([keeping])
        know_key(self.url, "")
        process, self._process = self._process, None
        if process is not None:
            await _end(process)

    # --- inside

    async def _begin(self, port: int) -> None:
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "qwen3tts_server.child"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=_environment(),
            )
        except OSError as error:
            raise EngineUnavailable(f"The voice cannot be started: {error}.") from error
        assert process.stdin is not None
        assert process.stdout is not None
        asked = json.dumps({"key": self._key, "port": port}).encode() + b"\n"
        try:
            process.stdin.write(asked)
            async with asyncio.timeout(START_S):
                told = _read(await process.stdout.readline())
        except TimeoutError:
            raise EngineUnavailable(f"The voice did not start within {START_S:g} s.") from None
        if told is None:
            code = await process.wait()
            raise EngineUnavailable(
                f"The voice did not start: its process {_how(code)}.",
                remedy="What it wrote to standard error says why; mr-qwen3tts doctor finds out.",
            )
        if (failed := told.get("error")) is not None:
            raise error_from_wire(failed["code"], failed["message"], remedy=failed["remedy"])
        self.url, self.engine = told["ready"]["url"], told["ready"]["engine"]
        self.up.set()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while self._process is not None:
            code = await self._process.wait()
            self.up.clear()
            ends, now = self._ends, loop.time()
            if len(ends) == RESTARTS and ends[0] > now - RESTART_WINDOW_S:
                logger.error("the voice process %s again; it is not started any more", _how(code))
                return
            ends.append(now)
            logger.error("the voice process %s; it is started again", _how(code))
            try:
                await self._begin(int(self.url.rsplit(":", 1)[1].partition("/")[0]))
            except SpeechError as error:
                logger.error("%s", error)
                return


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _how(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _environment() -> dict[str, str]:
    packages = (qwen3tts_wire, qwen3tts_codecs)
    roots = [str(Path(each.__path__[0]).resolve().parent) for each in packages]
    settings = [name for name in os.environ if name.startswith("QWEN3TTS__")]
    return child_environment(also=(*ENVIRONMENT, *settings), roots=roots)
