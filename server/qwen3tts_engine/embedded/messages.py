"""What an engine and its worker say to each other on the worker's pipes: pure, for both ends.

A message is its length (u32, of what follows), its kind (u8) and its body; little-endian.

========= ================ =====================================================================
kind      direction        body
========= ================ =====================================================================
SAY       to the worker    job u32, words a minute u16, pause u8, length of voice u16, voice, text
STOP      to the worker    job u32
READY     from the worker  JSON: version, sample_rate, voices, variants
MISSING   from the worker  why the library cannot be loaded, UTF-8; the worker ends
SOUND     from the worker  job u32, number of words u16, words (position u32, sample u32), s16le
DONE      from the worker  job u32, to the end u8
FAILED    from the worker  job u32, why, UTF-8
========= ================ =====================================================================
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from enum import IntEnum

from qwen3tts_engine.embedded.library import VoiceEntry

MAX_BODY = 1 << 20
"""Bytes; a longer one is a broken pipe protocol, not a message. The longest real one is READY."""

_HEAD = struct.Struct("<IB")
_JOB = struct.Struct("<I")
_SAY = struct.Struct("<IHBH")
_SOUND = struct.Struct("<IH")
_WORD = struct.Struct("<II")
_DONE = struct.Struct("<IB")


class Kind(IntEnum):
    """The kind of a message."""

    SAY = 1
    STOP = 2
    READY = 3
    MISSING = 4
    SOUND = 5
    DONE = 6
    FAILED = 7


class BadMessage(ValueError):
    """The bytes are not a message."""


@dataclass(frozen=True, slots=True)
class Say:
    """Speak ``text``."""

    job: int
    text: str
    voice: str
    rate: int
    pause: bool

    def encode(self) -> bytes:
        """As bytes."""
        voice = self.voice.encode()
        body = _SAY.pack(self.job, self.rate, self.pause, len(voice)) + voice + self.text.encode()
        return _message(Kind.SAY, body)


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop speaking, unless the job is over."""

    job: int

    def encode(self) -> bytes:
        """As bytes."""
        return _message(Kind.STOP, _JOB.pack(self.job))


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker can speak."""

    version: str
    sample_rate: int
    voices: tuple[VoiceEntry, ...]
    variants: tuple[VoiceEntry, ...]

    def encode(self) -> bytes:
        """As bytes."""
        return _message(Kind.READY, json.dumps(asdict(self)).encode())


@dataclass(frozen=True, slots=True)
class Missing:
    """The library cannot be loaded."""

    reason: str

    def encode(self) -> bytes:
        """As bytes."""
        return _message(Kind.MISSING, self.reason.encode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Sound:
    """Samples (s16le), and the words that begin in them: (code point, sample) from the start."""

    job: int
    pcm: bytes
    words: tuple[tuple[int, int], ...] = ()

    def encode(self) -> bytes:
        """As bytes."""
        head = _SOUND.pack(self.job, len(self.words))
        return _message(
            Kind.SOUND, b"".join((head, *(_WORD.pack(*w) for w in self.words), self.pcm))
        )


@dataclass(frozen=True, slots=True)
class Done:
    """The job is over: to the end of the text, or stopped."""

    job: int
    to_the_end: bool = True

    def encode(self) -> bytes:
        """As bytes."""
        return _message(Kind.DONE, _DONE.pack(self.job, self.to_the_end))


@dataclass(frozen=True, slots=True)
class Failed:
    """The job is over: the library refused it."""

    job: int
    reason: str

    def encode(self) -> bytes:
        """As bytes."""
        return _message(Kind.FAILED, _JOB.pack(self.job) + self.reason.encode(errors="replace"))


Message = Say | Stop | Ready | Missing | Sound | Done | Failed


class Decoder:
    """Bytes in, messages out, however the bytes were cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def push(self, data: bytes) -> list[Message]:
        """The messages that are complete with ``data``.

        Raises:
            BadMessage: the bytes are not a message; nothing after them can be read.
        """
        buffer = self._buffer
        buffer += data
        messages: list[Message] = []
        at = 0
        while len(buffer) - at >= _HEAD.size:
            length, kind = _HEAD.unpack_from(buffer, at)
            if not 1 <= length <= MAX_BODY:
                raise BadMessage(f"a message of {length} bytes; there may be 1 to {MAX_BODY}")
            end = at + 4 + length
            if end > len(buffer):
                break
            messages.append(_decode(kind, bytes(buffer[at + _HEAD.size : end])))
            at = end
        del buffer[:at]
        return messages


def _message(kind: Kind, body: bytes) -> bytes:
    return _HEAD.pack(len(body) + 1, kind) + body


def _decode(kind: int, body: bytes) -> Message:
    try:
        match kind:
            case Kind.SAY:
                job, rate, pause, length = _SAY.unpack_from(body)
                voice_end = _SAY.size + length
                if voice_end > len(body):
                    raise BadMessage("SAY ends within its voice")
                voice = body[_SAY.size : voice_end].decode()
                return Say(job, body[voice_end:].decode(), voice, rate, bool(pause))
            case Kind.STOP:
                return Stop(*_JOB.unpack(body))
            case Kind.READY:
                return _ready(json.loads(body))
            case Kind.MISSING:
                return Missing(body.decode())
            case Kind.SOUND:
                return _sound(body)
            case Kind.DONE:
                job, to_the_end = _DONE.unpack(body)
                return Done(job, bool(to_the_end))
            case Kind.FAILED:
                (job,) = _JOB.unpack_from(body)
                return Failed(job, body[_JOB.size :].decode())
            case _:
                raise BadMessage(f"no message is of kind {kind}")
    except (struct.error, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadMessage(f"kind {kind}: {error}") from error


def _sound(body: bytes) -> Sound:
    job, count = _SOUND.unpack_from(body)
    pcm_at = _SOUND.size + count * _WORD.size
    if pcm_at > len(body) or (len(body) - pcm_at) % 2:
        raise BadMessage(f"SOUND of {len(body)} bytes with {count} words")
    words = tuple(_WORD.iter_unpack(body[_SOUND.size : pcm_at]))
    return Sound(job, body[pcm_at:], words)


def _ready(fields: dict[str, object]) -> Ready:
    try:
        return Ready(
            version=str(fields["version"]),
            sample_rate=int(str(fields["sample_rate"])),
            voices=_entries(fields["voices"]),
            variants=_entries(fields["variants"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadMessage(f"READY: {error!r}") from error


def _entries(listed: object) -> tuple[VoiceEntry, ...]:
    if not isinstance(listed, list):
        raise TypeError("voices are not a list")
    return tuple(
        VoiceEntry(
            name=entry["name"],
            identifier=entry["identifier"],
            languages=tuple((int(priority), str(tag)) for priority, tag in entry["languages"]),
            gender=entry["gender"],
        )
        for entry in listed
    )
