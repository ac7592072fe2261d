"""A speech server as a process of its own, with the embedded voice, that keeps what it said.

    python -m tests.mindroot_host.speech_server --port PORT --record FOLDER

Each segment becomes ``NUMBER.json`` (its text) and ``NUMBER.pcm`` (every sample that the engine
gave, 24 kHz). The voice's noise is unseeded: what a call is compared with must be the very run.
Prints where it listens, and then nothing more.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import SAMPLE_RATE, PcmChunk, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_server.run import running_server

TIMES_REAL_TIME = 4
"""As fast as a good model speaks; the embedded voice would have said all before it is stopped."""


class KeepingEngine(EmbeddedEngine):
    """Real speech, with a copy of every segment in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._numbers = itertools.count(len(list(folder.glob("*.json"))))

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        name = f"{next(self._numbers):05d}"
        said = {"text": request.text, "voice": request.voice, "speed": request.speed}
        (self._folder / f"{name}.json").write_text(json.dumps(said))
        with (self._folder / f"{name}.pcm").open("wb", buffering=0) as kept:
            async for chunk in super().synthesize(request):
                kept.write(chunk.pcm)
                yield chunk
                await asyncio.sleep(chunk.samples / SAMPLE_RATE / TIMES_REAL_TIME)


@dataclass(frozen=True)
class Said:
    """One segment that the engine was asked for."""

    text: str
    voice: str | None
    pcm: NDArray[np.int16]
    """24 kHz, shape [n]; less than all where it was stopped."""


def said(folder: Path, after: int = 0) -> list[Said]:
    """What was said so far, in the order in which it was asked for, without the first ``after``."""
    segments = []
    for file in sorted(folder.glob("*.json"))[after:]:
        about = json.loads(file.read_text() or "{}")
        pcm = np.frombuffer(file.with_suffix(".pcm").read_bytes(), dtype="<i2")
        segments.append(Said(about["text"], about["voice"], pcm))
    return segments


class SpeechServer:
    """The process, for the tests; started again on the same port after a kill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self._process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/speech"

    def start(self) -> None:
        """Listen; on the port of before, if there was one."""
        self.folder.mkdir(exist_ok=True, parents=True)
        command = [sys.executable, "-m", __spec__.name, "--port", str(self.port)]
        with (self.folder / "stderr").open("ab") as stderr:
            self._process = subprocess.Popen(
                [*command, "--record", str(self.folder)],
                env={"PYTHONPATH": ":".join(sys.path)},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line.isdigit(), (self.folder / "stderr").read_text()[-2000:]
        self.port = int(line)

    def kill(self) -> None:
        """It vanishes: no close frame, no farewell."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


async def _serve(port: int, folder: Path) -> None:
    async with running_server(KeepingEngine(folder), port=port) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--record", type=Path, required=True)
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.record))
