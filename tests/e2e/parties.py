"""Who takes part in a call of the tests: a server process, two phones, ears."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.phone import Phone, PhoneSettings


class ServerProcess:
    """``mr-qwen3tts serve`` as a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1].partition("/")[0])

    @classmethod
    async def start(cls, port: int = 0) -> ServerProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "qwen3tts_cli.main",
            "serve",
            "--port",
            str(port),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        async with asyncio.timeout(20):
            url = (await process.stdout.readline()).decode().strip()
        assert url.startswith("ws://"), "the server did not start"
        return cls(process, url)

    async def kill(self) -> None:
        """It vanishes: no close frame, no farewell."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def server_process(port: int = 0) -> AsyncIterator[ServerProcess]:
    server = await ServerProcess.start(port)
    try:
        yield server
    finally:
        await server.kill()


class Ear:
    """Listens to a call to its end."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.frames: list[HeardFrame] = []
        self._frames: list[NDArray[np.int16]] = []
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for frame in self._call.audio():
            self.frames.append(frame)
            self._frames.append(frame.samples)
            async with self._changed:
                self._changed.notify_all()

    async def heard(self) -> NDArray[np.int16]:
        """All that came, shape [n] at 8 kHz, when the call has ended."""
        await self._task
        runs = groupby(self.frames, key=lambda frame: frame.rate_hz)
        return np.concatenate([at_8k([each.samples for each in run], hz) for hz, run in runs])

    async def sound(self, seconds: float = 0.5) -> None:
        """Return when so much sound has come."""
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: self._loud_s() >= seconds)

    def _loud_s(self) -> float:
        return sum(
            frame.duration_s
            for frame in self.frames
            if np.abs(frame.samples.astype(int)).max() > 200
        )


def at_8k(pieces: list[NDArray[np.int16]], rate_hz: int) -> NDArray[np.int16]:
    """Pieces of one rate in a row, at 8 kHz, by a filter that is none of ours."""
    whole = np.concatenate(pieces)
    if rate_hz == 8000:
        return whole
    down = resample_poly(whole.astype(float), 1, rate_hz // 8000, window=("kaiser", 8.0))
    clipped: NDArray[np.int16] = np.clip(np.rint(down), -32768, 32767).astype(np.int16)
    return clipped


@asynccontextmanager
async def connected(agent: Phone, caller: Phone) -> AsyncIterator[tuple[PhoneCall, PhoneCall]]:
    """The caller phones the agent: the agent's call and the caller's."""
    theirs = await caller.dial(agent.uri)
    async with asyncio.timeout(10):
        ours = await anext(agent.incoming())
        await ours.answer()
        await theirs.answered()
    try:
        yield ours, theirs
    finally:
        await ours.hangup()
        await theirs.hangup()


def phone(url: str, **settings: object) -> Phone:
    return Phone(PhoneSettings(server_url=url, **settings))  # type: ignore[arg-type]
