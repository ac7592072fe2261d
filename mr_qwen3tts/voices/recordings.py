"""References from files and web addresses, bounded. Blocking.

Errors name kind, size or status, never content. Files lie below an `Access`'s folders, links
resolved. A name is resolved once, each IP address checked, and a checked one connected (no DNS
rebinding), redirects too. No proxy is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import socket
import ssl
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

import numpy as np

from qwen3tts_codecs.errors import CodecError
from qwen3tts_codecs.pcm import Pcm
from qwen3tts_codecs.resample import Resampler
from qwen3tts_codecs.wav import HEADER_BYTES, DamagedWav, NotWav, WavFile, wav_bytes
from qwen3tts_wire.addresses import is_public

MAX_BYTES: Final = 20 * 1024 * 1024
"""Size of a file or answer."""
FETCH_S: Final = 10.0
"""Deadline with redirects."""
MAX_REDIRECTS: Final = 3
MAX_WORDS: Final = 4096
"""Transcript characters, as the server's."""
VOICE_HZ: Final = 24_000
"""Rate of a reduced recording."""
_BEGINNINGS: Final = (b"RIFF", b"RF64", b"fLaC", b"OggS", b"ID3", b"\x1aE\xdf\xa3", b"FORM")
"""WAV, FLAC, Ogg, MP3 with ID3, Matroska and WebM, AIFF."""
_REDIRECTS: Final = (301, 302, 303, 307, 308)

Stamp = tuple[int, int, int]
"""Inode, bytes, change time in ns."""


class RecordingError(Exception):
    """Unavailable or invalid recording."""


@dataclass(frozen=True, slots=True)
class Access:
    """Permissions of reads."""

    folders: tuple[str, ...] | None = None
    """Relative to the working directory; None: any file."""
    private: bool = False
    """True if private networks are allowed."""


ANY_FILE = Access()
"""For the operator's names."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A file as read."""

    data: bytes
    content: str
    """SHA-256, hexadecimal."""
    words: str | None
    """Transcript of the ``.txt`` file."""
    stamp: Stamp | None
    """None for an address."""


def is_recording(name: str) -> bool:
    return name.lower().startswith(("http://", "https://", "file://")) or name.startswith(
        ("/", "~")
    )


def without_query(where: str) -> str:
    """Return a place for logs: a query may be a key."""
    return where.partition("?")[0].partition("#")[0] if "://" in where else where


def read(where: str, access: Access) -> Recording:
    """Read a recording.

    Raises:
        RecordingError: missing, too large, not audio, too slow, or outside ``access``.
    """
    if where.lower().startswith(("http://", "https://")):
        data = _Fetch(private=access.private).run(where)
        return Recording(_sound(data), hashlib.sha256(data).hexdigest(), None, None)
    path = _path(where)
    data, state = _file(_allowed(path, access))
    words = _words(path.with_suffix(".txt"), access)
    return Recording(_sound(data), hashlib.sha256(data).hexdigest(), words, state)


def stamp(where: str, access: Access) -> Stamp | None:
    """Return a file's state; None: unreadable, or an address."""
    if where.lower().startswith(("http://", "https://")):
        return None
    try:
        return _stamp(os.stat(_allowed(_path(where), access)))
    except (OSError, ValueError, RecordingError):
        return None


def fitting(data: bytes, most: int, *, cut: bool) -> bytes:
    """Return it within ``most`` bytes.

    A WAV file becomes mono, 16 bits, 24 kHz; ``cut``: truncated.

    Raises:
        RecordingError: still too long.
    """
    if len(data) <= most:
        return data
    try:
        samples, rate = _mono(data)
    except (NotWav, DamagedWav, CodecError):
        raise RecordingError(
            f"it has {len(data)} bytes, and {most} are the most that the server takes: make it "
            "shorter, or a WAV file of 16 bits, 24 kHz and one channel"
        ) from None
    room = (most - HEADER_BYTES) // 2
    if len(samples) > room and not cut:
        raise RecordingError(
            f"it lasts {len(samples) / rate:.0f} s, and {room // rate} s are the most that the "
            "server takes: cut it, and the words beside it"
        )
    return wav_bytes(samples[:room], rate)


# --- files


def _path(where: str) -> Path:
    if where.lower().startswith("file://"):
        where = where[7:].removeprefix("localhost")
    try:
        path = Path(where).expanduser()
    except RuntimeError:  # no home
        path = Path(where)
    if not path.is_absolute():
        raise RecordingError("it is not an absolute path")
    return path


def _allowed(path: Path, access: Access) -> Path:
    try:
        found = path.resolve(strict=True)
        if access.folders is None or any(
            found.is_relative_to(Path(each).expanduser().resolve()) for each in access.folders
        ):
            return found
    except OSError as error:
        raise RecordingError(f"it cannot be read: {error.strerror}") from None
    except (ValueError, RuntimeError):  # a zero byte in its name; a loop of links; no home
        raise RecordingError("it is no path") from None
    raise RecordingError(
        "it lies in none of the folders for recordings: put it beside the persona, or name its "
        "folder in MR_QWEN3TTS_RECORDINGS_DIR"
    )


def _file(path: Path) -> tuple[bytes, Stamp]:
    try:
        # A named pipe would wait for its writer, and a device never ends. Its links are resolved.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        with open(handle, "rb") as file:
            state = os.fstat(handle)
            if not stat.S_ISREG(state.st_mode):
                raise RecordingError("it is no file")
            if state.st_size > MAX_BYTES:
                raise RecordingError(f"it has more than {MAX_BYTES} bytes")
            return file.read(MAX_BYTES), _stamp(state)
    except OSError as error:
        raise RecordingError(f"it cannot be read: {error.strerror}") from None
    except ValueError:  # a zero byte in its name
        raise RecordingError("it is no path") from None


def _stamp(state: os.stat_result) -> Stamp:
    return state.st_ino, state.st_size, state.st_mtime_ns


def _words(path: Path, access: Access) -> str | None:
    try:
        data, _ = _file(_allowed(path, access))
    except RecordingError:
        return None
    return data[: 4 * MAX_WORDS].decode("utf-8", "replace").strip()[:MAX_WORDS] or None


def _sound(data: bytes) -> bytes:
    frame = len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0  # MP3 or AAC as it is
    if not (data.startswith(_BEGINNINGS) or data[4:8] == b"ftyp" or frame):
        raise RecordingError("it is no sound file" if data else "it is empty")
    return data


def _mono(data: bytes) -> tuple[Pcm, int]:
    file = WavFile.parse(data)
    if not file.rate:
        raise DamagedWav
    samples = file.mono()
    if file.rate <= VOICE_HZ:
        return samples, file.rate
    resampler = Resampler(file.rate, VOICE_HZ, aligned=True)
    return np.concatenate([resampler.push(samples), resampler.flush()]), VOICE_HZ


# --- addresses


class _Fetch:
    """Download of at most ``FETCH_S``."""

    def __init__(self, *, private: bool) -> None:
        self._private = private
        self._socket: socket.socket | None = None
        self._late = False

    def run(self, url: str) -> bytes:
        watchdog = threading.Timer(FETCH_S, self._cut)
        watchdog.daemon = True
        watchdog.start()
        try:
            for _ in range(1 + MAX_REDIRECTS):
                answer = self._ask(url)
                if isinstance(answer, bytes):
                    return answer
                url = _further(url, answer)
            raise RecordingError(f"its address leads on more than {MAX_REDIRECTS} times")
        except (OSError, http.client.HTTPException, ValueError) as error:
            if self._late or isinstance(error, TimeoutError):
                raise RecordingError(f"it did not come within {FETCH_S:g} s") from None
            raise RecordingError(f"it cannot be fetched: {_kind(error)}") from None
        finally:
            watchdog.cancel()

    def _ask(self, url: str) -> bytes | str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RecordingError("its address is no http address")
        if parts.username is not None:
            raise RecordingError("its address has a user name, which is not sent")
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        line = kind(parts.hostname, parts.port, timeout=FETCH_S)
        try:
            line.sock = self._connected(line.host, line.port)
            if secure:
                line.sock = ssl.create_default_context().wrap_socket(
                    line.sock, server_hostname=line.host
                )
            self._socket = line.sock  # the line forgets it when the answer begins
            if self._late:
                raise TimeoutError
            path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
            query = f"?{quote(parts.query, safe='/%:@!$&()*+,;=~?')}" if parts.query else ""
            line.request("GET", path + query, headers={"User-Agent": "mr-qwen3tts"})
            answer = line.getresponse()
            if answer.status in _REDIRECTS and (location := answer.getheader("Location")):
                return location
            if answer.status != 200:
                raise RecordingError(f"its address answers {answer.status}")
            body = answer.read(MAX_BYTES + 1)
            if len(body) > MAX_BYTES:
                raise RecordingError(f"it has more than {MAX_BYTES} bytes")
            if self._late:
                raise TimeoutError
            if answer.length:
                raise RecordingError("it was cut off on its way")
            return body
        finally:
            line.close()

    def _connected(self, host: str, port: int) -> socket.socket:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        places = [(family, place) for family, _, _, _, place in found]
        # One that is not public makes all of them suspect.
        if not self._private and not all(is_public(str(place[0])) for _, place in places):
            raise RecordingError(
                "its address leads to this machine or a private network, which is asked only with "
                "MR_QWEN3TTS_PRIVATE_RECORDINGS=1"
            )
        failure: OSError = ConnectionRefusedError()
        for family, place in places:
            if self._late:
                raise TimeoutError
            self._socket = way = socket.socket(family, socket.SOCK_STREAM)
            try:
                way.settimeout(FETCH_S)
                way.connect(place)
                return way
            except OSError as error:
                way.close()
                failure = error
        raise failure

    def _cut(self) -> None:
        self._late = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it has just ended
                # Below TLS's own shutdown, which would wait for the other side.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _further(url: str, location: str) -> str:
    further = urljoin(url, location)
    if url.lower().startswith("https:") and not further.lower().startswith("https:"):
        raise RecordingError("its address leads from https to http")
    return further


def _kind(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
