"""What a context of the client gives to whoever reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qwen3tts_wire.alignment import Word
from qwen3tts_wire.formats import AudioFormat


@dataclass(frozen=True, slots=True)
class Started:
    """The server has accepted the context."""

    mode: str
    """The mode really used."""
    format: AudioFormat
    voice: str | None
    language: str | None
    ignored: tuple[str, ...]
    """Options that the engine does not know."""
    marks: Mapping[str, float]
    """Server-monotonic milliseconds."""


@dataclass(frozen=True, slots=True)
class Audio:
    """Samples that follow on those before."""

    pcm: bytes
    """In the context's format."""
    offset: int
    """Position of the first sample in the context."""
    received_at: float = 0.0
    """The client's monotonic clock, seconds."""
    clause_start: bool = False
    """The first sample is the first of a clause."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Words of the audio that follows."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """All audio has come."""

    samples: int
    """Of the whole context."""
    chars: int
    clauses: int
    reason: str
    """``text_end``, ``dry``, ``regenerated``, ``silence`` or ``frame_cap``."""
    marks: Mapping[str, float]
    """Server-monotonic milliseconds."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The answer to a cancel."""

    sent: int
    """Samples that the server sent (received, where the server did not answer)."""
    generated: int
    """Samples that the engine made (received, where the server did not answer)."""
    text_heard: str
    text_remaining: str
    played: int = 0
    """The position that the text was cut at."""
    confirmed: bool = True
    """The server's answer; False: worked out here, because the server is gone or had forgotten."""
    marks: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """The server was lost; the sound that follows comes from another connection.

    Positions go on from those before. Words told before that lie behind ``offset`` do not count:
    they are told again.
    """

    offset: int
    """Position at which the sound goes on."""
    char: int
    """Where in the text it goes on, in code points."""
    gap_s: float
    """Seconds from the last sound received to this."""
    reason: str
    """How the server was lost."""


Event = Started | Audio | Alignment | Done | Resumed
