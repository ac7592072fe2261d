"""What an engine and its worker say to each other on the worker's pipes: pure, for both ends.

A message is its length (u32, of what follows), its kind (u8) and its body; little-endian.

========= ================ =====================================================================
kind      direction        body
========= ================ =====================================================================
SAY       to the worker    job u32, length of options u16, options (JSON object), text
GO        to the worker    job u32: it has another turn
STOP      to the worker    job u32
READY     from the worker  JSON object: what the engine wants to know of it
MISSING   from the worker  JSON array: why it cannot speak, remedy; the worker ends
NOTE      from the worker  JSON object: what the engine wants to know later
SOUND     from the worker  job u32, number of words u16, numbers of a word u8, words (u32), s16le
PAUSED    from the worker  job u32: its turn is over, its text is not
DONE      from the worker  job u32, to the end u8
FAILED    from the worker  job u32, JSON array: why, code, remedy
========= ================ =====================================================================
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import struct
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NoReturn

MAX_BODY = 1 << 20
"""Bytes; a longer one is a broken pipe protocol, not a message. The longest real one is READY."""

_HEAD = struct.Struct("<IB")
_JOB = struct.Struct("<I")
_SAY = struct.Struct("<IH")
_SOUND = struct.Struct("<IHB")
_DONE = struct.Struct("<IB")

Word = tuple[int, ...]
"""A word in numbers, as an engine and its worker agree; as many for each word of a message."""


class Kind(IntEnum):
    """The kind of a message."""

    SAY = 1
    STOP = 2
    READY = 3
    MISSING = 4
    SOUND = 5
    DONE = 6
    FAILED = 7
    GO = 8
    PAUSED = 9
    NOTE = 10


class BadMessage(ValueError):
    """The bytes are not a message."""


@dataclass(frozen=True, slots=True)
class Say:
    """Speak ``text``; the first turn of the job begins."""

    job: int
    text: str
    options: Mapping[str, Any]
    """How: voice, speed and the like; as JSON can hold them."""

    def encode(self) -> bytes:
        """As bytes."""
        options = json.dumps(dict(self.options)).encode()
        return _message(Kind.SAY, _SAY.pack(self.job, len(options)) + options + self.text.encode())


@dataclass(frozen=True, slots=True)
class Go:
    """Go on with a job that paused."""

    job: int

    def encode(self) -> bytes:
        """As bytes."""
        return _message(Kind.GO, _JOB.pack(self.job))


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

    facts: Mapping[str, Any]

    def encode(self) -> bytes:
        """As bytes."""
        return _message(Kind.READY, json.dumps(dict(self.facts)).encode())


@dataclass(frozen=True, slots=True)
class Missing:
    """The worker cannot speak."""

    reason: str
    remedy: str = ""

    def encode(self) -> bytes:
        """As bytes."""
        return _message(Kind.MISSING, json.dumps([self.reason, self.remedy]).encode())


@dataclass(frozen=True, slots=True)
class Note:
    """The worker found something that the engine should know; no job depends on it."""

    facts: Mapping[str, Any]

    def encode(self) -> bytes:
        """As bytes."""
        return _message(Kind.NOTE, json.dumps(dict(self.facts)).encode())


@dataclass(frozen=True, slots=True)
class Sound:
    """Samples (s16le), and words that begin in them or before."""

    job: int
    pcm: bytes
    words: tuple[Word, ...] = ()

    def encode(self) -> bytes:
        """As bytes."""
        width = len(self.words[0]) if self.words else 0
        numbers = [number for word in self.words for number in word]
        body = struct.pack(f"<{len(numbers)}I", *numbers)
        return _message(Kind.SOUND, _SOUND.pack(self.job, len(self.words), width) + body + self.pcm)


@dataclass(frozen=True, slots=True)
class Paused:
    """The job's turn is over; it waits for another."""

    job: int

    def encode(self) -> bytes:
        """As bytes."""
        return _message(Kind.PAUSED, _JOB.pack(self.job))


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
    """The job is over: it was refused, and would be again."""

    job: int
    reason: str
    code: str = ""
    """Of a SpeechError; empty: what the library answered."""
    remedy: str = ""

    def encode(self) -> bytes:
        """As bytes."""
        told = json.dumps([self.reason, self.code, self.remedy]).encode()
        return _message(Kind.FAILED, _JOB.pack(self.job) + told)


Order = Say | Go | Stop
"""What a worker is told."""
Message = Order | Ready | Missing | Note | Sound | Paused | Done | Failed


@dataclass(slots=True)
class Decoder:
    """Bytes in, messages out, however the bytes were cut."""

    _buffer: bytearray = field(default_factory=bytearray)

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
                return _say(body)
            case Kind.GO:
                return Go(*_JOB.unpack(body))
            case Kind.STOP:
                return Stop(*_JOB.unpack(body))
            case Kind.READY:
                return Ready(_object(body))
            case Kind.MISSING:
                return Missing(*_texts(body, 2))
            case Kind.NOTE:
                return Note(_object(body))
            case Kind.SOUND:
                return _sound(body)
            case Kind.PAUSED:
                return Paused(*_JOB.unpack(body))
            case Kind.DONE:
                job, to_the_end = _DONE.unpack(body)
                return Done(job, bool(to_the_end))
            case Kind.FAILED:
                return _failed(body)
            case _:
                raise BadMessage(f"no message is of kind {kind}")
    except (struct.error, ValueError, RecursionError) as error:
        if isinstance(error, BadMessage):
            raise
        raise BadMessage(f"kind {kind}: {error}") from error


def _say(body: bytes) -> Say:
    job, length = _SAY.unpack_from(body)
    text_at = _SAY.size + length
    if text_at > len(body):
        raise BadMessage("SAY ends within its options")
    return Say(job, body[text_at:].decode(), _object(body[_SAY.size : text_at]))


def _sound(body: bytes) -> Sound:
    job, count, width = _SOUND.unpack_from(body)
    pcm_at = _SOUND.size + count * width * 4
    if pcm_at > len(body) or (len(body) - pcm_at) % 2 or bool(count) != bool(width):
        raise BadMessage(f"SOUND of {len(body)} bytes with {count} words of {width} numbers")
    numbers = struct.unpack_from(f"<{count * width}I", body, _SOUND.size)
    words = tuple(numbers[at : at + width] for at in range(0, len(numbers), width or 1))
    return Sound(job, body[pcm_at:], words)


def _failed(body: bytes) -> Failed:
    (job,) = _JOB.unpack_from(body)
    return Failed(job, *_texts(body[_JOB.size :], 3))


def _texts(data: bytes, count: int) -> list[str]:
    told = _json(data)
    if not isinstance(told, list) or [type(each) for each in told] != [str] * count:
        raise BadMessage(f"no JSON array of {count} texts")
    return told


def _object(data: bytes) -> dict[str, Any]:
    given = _json(data)
    if not isinstance(given, dict):
        raise BadMessage("no JSON object")
    return given


def _json(data: bytes) -> Any:
    return json.loads(data.decode(), parse_constant=_no_number)


def _no_number(name: str) -> NoReturn:
    raise BadMessage(f"{name} is no number")


PIPE_BYTES = 1 << 20
"""Room on standard output: some 23 s of sound."""


class Inbox:
    """Messages from the parent."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._decoder = Decoder()
        self._messages: deque[Message] = deque()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self.ended = False

    def next(self) -> Message | None:
        """The next message, waiting for it; None when the parent is gone."""
        while not self._messages and not self.ended:
            self._read()
        return self._messages.popleft() if self._messages and not self.ended else None

    def stops(self, job: int) -> bool:
        """Whether the job is not wanted any more; never waits."""
        while not self.ended and self._poll.poll(0):
            self._read()
        return self.ended or Stop(job) in self._messages

    def _read(self) -> None:
        data = os.read(self._fd, 1 << 16)
        if data:
            self._messages.extend(self._decoder.push(data))
        else:
            self.ended = True


def write(fd: int, message: Ready | Missing | Note | Sound | Paused | Done | Failed) -> None:
    """Write the whole message."""
    data = memoryview(message.encode())
    while data:
        data = data[os.write(fd, data) :]


def main(serve: Callable[[int, int], int]) -> int:
    """Run ``serve`` with the descriptors of orders and answers; the process's exit status."""
    # The terminal's interrupt goes to the whole group; the parent decides when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever a library prints must not mix with the messages.
    out = os.dup(sys.stdout.fileno())
    _widen(out)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(BrokenPipeError):
        return serve(sys.stdin.fileno(), out)
    return 0


def _widen(pipe: int) -> None:
    """Have room for a whole clause, so that a busy parent does not hold up the next job."""
    # Linux alone, and there not beyond what the system allows.
    if (set_size := getattr(fcntl, "F_SETPIPE_SZ", None)) is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, set_size, PIPE_BYTES)
