"""References: decoding, measuring, bounded loads."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import re
import stat
import urllib.parse
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qwen3tts_codecs.wav import DamagedWav, NotWav, WavFile
from qwen3tts_engine.qwen3.voices.audio_files import decode_foreign
from qwen3tts_engine.qwen3.voices.audio_worker import TooLong
from qwen3tts_wire.errors import BadRequest, LimitExceeded, ServerBusy

Kind = Literal["inline", "web", "file"]
URL_MAX = 4096
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{0,31}):", re.IGNORECASE)
STEP = 1 << 16
"""Characters decoded in one go."""
_ESCAPED = (("%2B", "+"), ("%2b", "+"), ("%2F", "/"), ("%2f", "/"), ("%3D", "="), ("%3d", "="))
_BLANKS = str.maketrans("", "", "\r\n\t ")


@dataclass(frozen=True, slots=True)
class Reference:
    kind: Kind
    text: str
    """Base64 or address."""


def parse_reference(ref: str, most_bytes: int) -> Reference:
    """Classify a reference without decoding.

    Args:
        ref: ``data:``, ``http:``, ``https:`` or ``file:`` address, or base64.
        most_bytes: of the recording.

    Raises:
        BadRequest, LimitExceeded: unusable.
    """
    ref = ref.strip()
    scheme = _SCHEME.match(ref)
    if scheme is None:
        return _inline(ref, most_bytes)
    kind = scheme[1].lower()
    if kind == "data":
        head, comma, body = ref.partition(",")
        if not comma or not head.lower().endswith(";base64"):
            raise BadRequest(
                "The reference's data: address holds no base64.",
                remedy="Write data:audio/wav;base64,... with the bytes of a sound file.",
            )
        if "%" in body:
            for escaped, char in _ESCAPED:
                body = body.replace(escaped, char)
        return _inline(body, most_bytes)
    if kind not in ("http", "https", "file"):
        raise BadRequest(
            "The reference is an address of a kind that is not served.",
            remedy="Send the sound file itself, as base64 or as a data: address.",
        )
    if len(ref) > URL_MAX or not ref.isascii() or not ref.isprintable() or " " in ref:
        raise BadRequest(
            "The reference's address is too long, or holds what addresses may not.",
            remedy=f"At most {URL_MAX} characters; anything but plain ASCII as %XX.",
        )
    return Reference("file" if kind == "file" else "web", ref)


def _inline(text: str, most_bytes: int) -> Reference:
    # Lines of four characters are the shortest that anybody could mean.
    if len(text) > 2 * most_bytes + 1024:
        raise too_large(most_bytes)
    return Reference("inline", text)


def decode_inline(reference: Reference, most_bytes: int, *, step: int = STEP) -> bytes:
    """Decode base64 in a thread, by pieces: megabytes block other threads.

    Raises:
        BadRequest, LimitExceeded: unusable.
    """
    data = bytearray()
    rest = ""
    for start in range(0, len(reference.text), step):
        rest += reference.text[start : start + step].translate(_BLANKS)
        if "=" in rest:
            # The end, but for what it lacks.
            rest += reference.text[start + step :].translate(_BLANKS)[:3]
            break
        whole = len(rest) // 4 * 4
        data += _decoded(rest[:whole])
        rest = rest[whole:]
        if len(data) > most_bytes:
            raise too_large(most_bytes)
    last, equals, more = rest.partition("=")
    if equals and more not in ("", "="):
        raise _no_base64()
    # Padding may be missing, or be there for nothing: what the last characters mean is clear.
    data += _decoded(last + "=" * (-len(last) % 4))
    if len(data) > most_bytes:
        raise too_large(most_bytes)
    if not data:
        raise BadRequest("The reference is empty.", remedy="Send a sound file as base64.")
    return bytes(data)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _no_base64() from None


def _no_base64() -> BadRequest:
    return BadRequest(
        "The reference is not base64.",
        remedy="Send a sound file's bytes as base64 (RFC 4648 section 4).",
    )


def read_file(address: str, folders: tuple[str, ...], most_bytes: int) -> bytes:
    """Read a ``file:`` address within the folders, in a thread.

    Raises:
        BadRequest: missing or forbidden, alike.
        LimitExceeded: too large.
    """
    if not folders:
        raise BadRequest(
            "This server reads no reference from files.",
            remedy="Send the sound file itself, as base64 or as a data: address; or name folders"
            " in voices.file_folders.",
        )
    path = _path(address)
    allowed = [os.path.realpath(folder) for folder in folders]
    try:
        if path is None or not _within(os.path.realpath(path), allowed):
            raise _no_file()
        with open(path, "rb", opener=_opened_at_once) as file:
            # What was opened, should the path have changed meanwhile.
            handle = file.fileno()
            opened = Path(f"/proc/self/fd/{handle}")
            if opened.exists() and not _within(os.path.realpath(opened), allowed):
                raise _no_file()
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _no_file()
            data = file.read(most_bytes + 1)
    except (OSError, ValueError):
        raise _no_file() from None
    if len(data) > most_bytes:
        raise too_large(most_bytes)
    return data


def _opened_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _path(address: str) -> str | None:
    parts = urllib.parse.urlsplit(address)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        return None
    path = urllib.parse.unquote(parts.path)
    return path if path.startswith("/") and path.isprintable() else None


def _within(path: str, folders: list[str]) -> bool:
    return any(os.path.commonpath([path, folder]) == folder for folder in folders)


def _no_file() -> BadRequest:
    return BadRequest(
        "There is no such file in the folders for references.",
        remedy="Write file:///FOLDER/NAME with a folder of voices.file_folders.",
    )


def too_large(most_bytes: int) -> LimitExceeded:
    return LimitExceeded(
        f"The reference recording has more than {most_bytes} bytes.",
        remedy="10 s of one voice are enough; a compressed file is smaller.",
    )


def seconds_of(audio: bytes, most: float) -> float | None:
    """Return a file's seconds, or None; raises LimitExceeded."""
    try:
        seconds = _seconds(audio, most)
    except TooLong:
        seconds = None
    except (DamagedWav, BadRequest):
        return None
    if seconds is None or seconds > most:
        raise LimitExceeded(
            f"The recording has more than {most:g} s.",
            remedy="Cut out a part in which the voice speaks; 10 s are a good length.",
        )
    return seconds


def _seconds(audio: bytes, most: float) -> float:
    try:
        file = WavFile.parse(audio)
    except NotWav:
        # A decoder of its own process: what strangers send is not decoded in this one.
        samples, rate = decode_foreign(audio, most)
        return round(len(samples) / rate, 3)
    return round(file.frames / max(1, file.rate), 3)


class LoadLimiter:
    """Semaphore of ``most`` loads with at most ``waiting`` waiters."""

    def __init__(self, most: int, waiting: int) -> None:
        self._room = asyncio.Semaphore(most)
        self._most = most + waiting
        self._here = 0

    @contextlib.asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        if self._here >= self._most:
            raise ServerBusy(
                f"{self._here} voices are being made ready.", remedy="Try again in a moment."
            )
        self._here += 1
        try:
            async with self._room:
                yield
        finally:
            self._here -= 1


class KeyedLocks:
    """Lock by key, while used."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def of(self, thing: str) -> AsyncIterator[None]:
        lock, count = self._locks.get(thing, (asyncio.Lock(), 0))
        self._locks[thing] = (lock, count + 1)
        try:
            async with lock:
                yield
        finally:
            lock, count = self._locks[thing]
            if count > 1:
                self._locks[thing] = (lock, count - 1)
            else:
                del self._locks[thing]
