"""Speech out of this machine's loudspeaker, through a player program that is fed as it comes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress

from qwen3tts_cli.exits import MissingProgram
from qwen3tts_cli.wav import UNKNOWN_BYTES
from qwen3tts_phone.audio.wav import wav_header
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.process import PLAYING, child_environment

PLAYERS: dict[str, Callable[[int], list[str]]] = {
    "aplay": lambda hz: ["-q", "-t", "raw", "-f", "S16_LE", "-r", str(hz), "-c", "1", "-"],
    "paplay": lambda hz: ["--raw", "--format=s16le", f"--rate={hz}", "--channels=1"],
    "ffplay": lambda _: ["-nodisp", "-autoexit", "-loglevel", "error", "-f", "wav", "-i", "-"],
}
"""What is tried, in order, and its arguments at a rate in hertz."""
MAX_ERROR_BYTES = 4096
STOP_S = 2.0
"""How long a player may take to end when it is told to."""


class PlayerFailed(SpeechError):
    """The player program ended before the sound did."""

    code = "player_failed"


def find_player(which: Callable[[str], str | None] = shutil.which) -> tuple[str, str]:
    """Name and path of the first player that is installed.

    Raises:
        MissingProgram: there is none.
    """
    for name in PLAYERS:
        if path := which(name):
            return name, path
    raise MissingProgram(
        f"no player is installed: none of {', '.join(PLAYERS)} is on the path.",
        remedy="Install alsa-utils, pulseaudio-utils or ffmpeg; or write a file with --out.",
    )


class Player:
    """A running player; it takes sound no faster than it plays it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process
        assert process.stdin is not None
        self._stdin = process.stdin
        self._said = b""
        # A player that nobody listens to would stop at a full pipe.
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls, rate_hz: int, found: tuple[str, str] | None = None, arguments: Sequence[str] = ()
    ) -> Player:
        """Start ``found`` (a name and a path) or the first player that is installed."""
        name, path = found or find_player()
        process = await asyncio.create_subprocess_exec(
            path,
            *(arguments or PLAYERS[name](rate_hz)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=child_environment(also=PLAYING),
            # Ctrl-C is for us; we end the player ourselves.
            start_new_session=True,
        )
        player = cls(name, process)
        if name == "ffplay":
            await player.write(wav_header(UNKNOWN_BYTES, rate_hz, 1))
        return player

    async def write(self, pcm: bytes) -> None:
        """Hand over samples, 16 bits little-endian; waits while the player has enough.

        Raises:
            PlayerFailed: it has ended; says why if it told.
        """
        try:
            self._stdin.write(pcm)
            await self._stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise await self._failure() from None

    async def finish(self) -> None:
        """Wait until everything has been heard; raises `PlayerFailed` as `write` does."""
        self._stdin.close()
        with suppress(BrokenPipeError, ConnectionResetError):
            await self._stdin.wait_closed()
        if await self._process.wait() != 0:
            raise await self._failure()

    async def stop(self, patience_s: float = STOP_S) -> None:
        """Silence now; harmless when it has ended."""
        if self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(patience_s):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        await self._listening

    async def _listen(self) -> None:
        """Keep the beginning of what the player says."""
        assert self._process.stderr is not None
        while said := await self._process.stderr.read(MAX_ERROR_BYTES):
            self._said = (self._said + said)[:MAX_ERROR_BYTES]

    async def _failure(self) -> PlayerFailed:
        await self._listening
        code = await self._process.wait()
        reason = " ".join(self._said.decode("utf-8", "replace").split())[:300]
        return PlayerFailed(
            f"{self._name} ended with {code}: {reason or 'no reason given'}.",
            remedy="Check the sound device, or write a file with --out.",
        )
