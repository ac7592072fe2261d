"""Playback without a telephone: a WAV file for each turn, or this machine's loudspeaker."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.wav import wav_bytes
from qwen3tts_pacer.clock import Clock
from qwen3tts_speech.player import MissingProgram, Player, open_player
from qwen3tts_wire.errors import SpeechError

from .response_sink import ResponseSink

CLOSE_S = 2.0
"""Timeout of a player's end."""
KINDS = ("wav", "play", "off")
KEPT_S = 600
"""Seconds of a turn kept for its file."""
FOLDER = Path("data", "qwen3tts")
"""Default folder, below the host's working directory."""

Problem = Callable[[str, BaseException | str], None]
"""Called with the kind of a failure and its error."""


class LocalSink(ResponseSink):
    """Paces frames as a call does, and writes or plays them.

    A failure of file or player is reported once and never raised; without a player files are
    written.

    Args:
        kind: "wav", "play" or "off".
        folder: of WAV files; None: a folder in the host's data.
        name: the conversation; part of file names.
        lead_ms: playout lead.
        linger_ms: time after the last frame that ends a turn.
        clock: of the pacing.
        problem: called with failures.
        payload: codec of the frames.
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
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"local sound is one of {', '.join(KINDS)}, not {kind!r}")
        super().__init__(None, payload=payload, lead_ms=lead_ms, linger_ms=linger_ms, clock=clock)
        self.kind = kind
        self.files: deque[Path] = deque(maxlen=64)
        """The last files written."""
        self._folder = Path(folder) if folder else FOLDER
        self._name = re.sub(r"[^\w.-]+", "_", name).strip("._")[:64] or "local"
        self._problem = problem
        self._player: Player | None = None
        self._sound = bytearray()
        self._most_bytes = KEPT_S * payload.sample_hz * 2
        self._numbers = itertools.count(1)

    async def open_response(self) -> bool:
        self._sound.clear()
        if self.kind == "play":
            try:
                self._player = await open_player(self.payload.sample_hz)
            except (MissingProgram, OSError) as error:
                self._problem("local sound", error)
                self.kind = "wav"
        return True

    async def take(self, payload: bytes) -> bool:
        if self.kind == "off":
            return True
        pcm = self.payload.decode(payload).tobytes()
        if self._player is not None:
            await self._play(self._player, pcm)
        elif self.kind == "wav" and len(self._sound) < self._most_bytes:
            self._sound += pcm
        return True

    async def close_response(self, cut: bool) -> None:
        player, self._player = self._player, None
        if player is not None:
            await self._end(player, cut)
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
            await player.write(pcm)
        except Exception as error:  # of whatever plays: the turn goes on in silence
            self._problem("local sound", error)
            self._player = None
            await player.stop()

    async def _end(self, player: Player, cut: bool) -> None:
        try:
            if not cut:
                async with asyncio.timeout(CLOSE_S):
                    await player.finish()
        except (SpeechError, OSError, TimeoutError) as error:
            self._problem("local sound", error)
        finally:
            await player.stop()


def _write_wav(path: Path, rate_hz: int, pcm: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(wav_bytes(pcm, rate_hz))
