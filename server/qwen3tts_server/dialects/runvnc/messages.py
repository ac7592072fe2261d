"""Messages and frames of the runvnc protocol."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import Annotated, ClassVar

from qwen3tts_engine.base import MAX_FIRST_CHUNK
from qwen3tts_text.surrogates import clean
from qwen3tts_wire.errors import BadRequest, SpeechError
from qwen3tts_wire.fields import DecodeError, Flag, Text, Whole, decode

FRAME = 160
"""20 ms at 8 kHz, bytes."""
SILENCE = b"\xff"
"""Mu-law zero (ITU-T G.711 table 2a), padding of the last frame."""


class FrameQueue:
    """Mu-law frames at least ``step_s`` apart; 0: unpaced."""

    def __init__(self, step_s: float = 0.0) -> None:
        self._step_s = step_s
        self._waiting: deque[bytes] = deque()
        self._rest = b""
        self._begun: float | None = None
        self._taken = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) - len(data) % FRAME
        self._waiting.extend(data[at : at + FRAME] for at in range(0, whole, FRAME))
        self._rest = data[whole:]

    def finish(self) -> None:
        if self._rest:
            self._waiting.append(self._rest.ljust(FRAME, SILENCE))
            self._rest = b""

    def clear(self) -> None:
        self._waiting.clear()
        self._rest = b""

    def due(self, now: float) -> float | None:
        """Time of the next frame; None: empty."""
        if not self._waiting:
            return None
        if not self._step_s:
            return now
        if self._begun is None:
            self._begun = now
        # After a pause in the audio the grid restarts: late frames are not sent in a burst.
        self._begun = max(self._begun, now - (self._taken + 1) * self._step_s)
        return self._begun + self._taken * self._step_s

    def take(self, most: int, now: float) -> list[bytes]:
        taken: list[bytes] = []
        while len(taken) < most and (due := self.due(now)) is not None and due <= now:
            taken.append(self._waiting.popleft())
            self._taken += 1
        return taken


_MOST = 1 << 31
"""The session's own bounds are smaller."""
Words = Annotated[str, Text(0, _MOST)]
Name = Annotated[str, Text(0, 256, printable=True)]
Tokens = Annotated[int, Whole(0, 10_000)]


@dataclass(frozen=True)
class Init:
    type: ClassVar[str] = "init"
    ref_audio_base64: Annotated[str, Text(0, _MOST)] | None = None
    """A sound file in base64, or as a data URL."""
    voice_id: Name | None = None
    """Known voice; ignored beside ``ref_audio_base64``."""
    ref_text: Annotated[str, Text(0, 4096)] | None = None
    """Transcript."""
    auto_transcribe: Annotated[bool, Flag()] = False
    """Transcribe here."""
    x_vector_only: Annotated[bool, Flag()] = False
    """Use only its speaker embedding (x-vector)."""
    language: Annotated[str, Text(0, 64, printable=True)] | None = None
    """Default language."""


@dataclass(frozen=True)
class GenerateStream:
    """Speak unpaced."""

    type: ClassVar[str] = "generate_stream"
    text: Words
    language: Annotated[str, Text(0, 64, printable=True)] | None = None
    voice_id: Name | None = None
    """For this text only."""
    initial_chunk_tokens: Tokens | None = None
    emit_every_frames: Tokens | None = None

    @property
    def first_frames(self) -> int | None:
        asked = self.initial_chunk_tokens or self.emit_every_frames
        return min(asked, MAX_FIRST_CHUNK) if asked else None


@dataclass(frozen=True)
class Generate(GenerateStream):
    """Speak paced."""

    type: ClassVar[str] = "generate"


@dataclass(frozen=True)
class TextPiece:
    type: ClassVar[str] = "text"
    text: Words
    final: Annotated[bool, Flag()] = False
    language: Annotated[str, Text(0, 64, printable=True)] | None = None
    voice_id: Name | None = None


@dataclass(frozen=True)
class Cancel:
    type: ClassVar[str] = "cancel"


@dataclass(frozen=True)
class Ping:
    type: ClassVar[str] = "ping"


Message = Init | GenerateStream | Generate | TextPiece | Cancel | Ping
KINDS: dict[str, type] = {
    kind.type: kind for kind in (Init, GenerateStream, Generate, TextPiece, Cancel, Ping)
}


def read(text: str) -> Message:
    """Parse a message, ignoring unknown fields of other servers.

    Raises:
        BadRequest, LimitExceeded: it is invalid.
    """
    message = decode(text, KINDS, strict=False)
    if message is None:
        raise BadRequest(
            "There is no message of this type.", remedy=f"The types are: {', '.join(KINDS)}."
        )
    if isinstance(message, DecodeError):
        raise message.error
    known: Message = message
    return known


def say(kind: str, **fields: object) -> str:
    """Return JSON text without None fields."""
    given = {name: value for name, value in fields.items() if value is not None}
    return clean(json.dumps({"type": kind, **given}, ensure_ascii=False))


def error_message(error: SpeechError, ends: str) -> str:
    """Return ``error``; ``ends``: ``speech``, ``connection`` or ``none``."""
    return say("error", message=str(error), code=error.code, retryable=error.retryable, ends=ends)
