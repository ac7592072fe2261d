"""What is said where there is no telephone: a WAV file for each turn, or this machine's speaker."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import wave
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.clock import Clock

from .player import NoPlayer, Player, open_player
from .response_sink import ResponseSink

KINDS = ("wav", "play", "off")
KEPT_S = 600
"""Of one turn, the sound kept for its file; what is beyond is paced and left out."""
FOLDER = Path("data", "qwen3tts")
"""Where files go, from the host's working directory, if nothing else is said."""

Problem = Callable[[str, BaseException | str], None]
"""Told of what went wrong: a constant name for the kind of it, and the error."""


class LocalSink(ResponseSink):
    """Paces frames as a call would, and keeps or plays them.

    What cannot be kept or played is paced all the same and the problem is told once: whoever
    speaks is not to fail for it. Where nothing can play, files are written instead.

    Args:
        kind: "wav", "play" or "off".
        folder: where WAV files go; None is a folder in the host's data.
        name: the conversation; part of the files' names.
        lead_ms: how far the handing over is ahead of the hearing.
        linger_ms: a turn is over so long after its last frame.
        clock: where the time comes from.
        problem: told what went wrong; nothing is raised for it.
        payload: what the frames hold; the file and the speaker get its samples.
        find_player: starts what plays, for samples of a rate in Hz; may raise NoPlayer.
    """

    def __init__(
        self,
        kind: str = "wav",
        folder: str | None = None,
        *,
        name: str = "local",
        lead_ms: int = 60,
        linger_ms: int = 300,
        clock: Clock | None = None,
        problem: Problem = lambda what, error: None,
        payload: Payload = PCMU,
        find_player: Callable[[int], Awaitable[Player]] = open_player,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"local sound is one of {', '.join(KINDS)}, not {kind!r}")
        super().__init__(None, payload=payload, lead_ms=lead_ms, linger_ms=linger_ms, clock=clock)
        self.kind = kind
        self.files: deque[Path] = deque(maxlen=64)
        """Written so far, the last ones."""
        self._folder = Path(folder) if folder else FOLDER
        self._name = re.sub(r"[^\w.-]+", "_", name).strip("._")[:64] or "local"
        self._problem = problem
        self._find_player = find_player
        self._player: Player | None = None
        self._sound = bytearray()
        self._most_bytes = KEPT_S * payload.sample_hz * 2
        self._numbers = itertools.count(1)

    async def open_response(self) -> bool:
        """A turn begins."""
        self._sound.clear()
        if self.kind == "play":
            try:
                self._player = await self._find_player(self.payload.sample_hz)
            except (NoPlayer, OSError) as error:
                self._problem("local sound", error)
                self.kind = "wav"
        return True

    async def take(self, payload: bytes) -> bool:
        """One more frame."""
        if self.kind == "off":
            return True
        pcm = self.payload.decode(payload).tobytes()
        if self._player is not None:
            await self._play(self._player, pcm)
        elif self.kind == "wav" and len(self._sound) < self._most_bytes:
            self._sound += pcm
        return True

    async def close_response(self, cut: bool) -> None:
        """The turn is over: its file is written, or its player ends."""
        player, self._player = self._player, None
        if player is not None:
            await player.close(cut)
        if self._sound:
            sound = bytes(self._sound)
            self._sound.clear()
            began = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
            path = self._folder / f"{self._name}-{began}-{next(self._numbers)}.wav"
            try:
                await asyncio.to_thread(_write_wav, path, self.payload.sample_hz, sound)
            except OSError as error:
                self._problem("local sound", error)
            else:
                self.files.append(path)

    async def _play(self, player: Player, pcm: bytes) -> None:
        try:
            await player.play(pcm)
        except Exception as error:  # of whatever plays: the turn goes on in silence
            self._problem("local sound", error)
            self._player = None
            await player.close(True)


def _write_wav(path: Path, rate_hz: int, pcm: bytes) -> None:
    """Write one channel of s16le samples into a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate_hz)
        sound.writeframes(pcm)
