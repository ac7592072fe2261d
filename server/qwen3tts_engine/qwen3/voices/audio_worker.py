"""Process that decodes one audio file: ``python -m`` this module, MAX_SECONDS.

File on standard input; rate (four bytes) and mono float32 samples, little-endian, on standard
output. Only containers of plain audio are opened, none that refer to other files or addresses.
"""

from __future__ import annotations

import importlib
import io
import resource
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

NO_PYAV, NOT_AUDIO, TOO_LONG = 3, 4, 5
"""Exit statuses, besides 0; every other one is a crash."""
MEMORY_BYTES = 4 << 30
"""Address space of the process."""
CPU_S = 30
"""Seconds of CPU; a minute of audio takes a fraction of one."""
CONTAINERS = (
    "wav,w64,aiff,au,caf,flac,ogg,mp3,aac,ac3,eac3,amr,mov,mp4,m4a,3gp,matroska,webm,asf,wv,tta,ape"
)
"""FFmpeg names. No playlists, image or subtitle formats."""


class TooLong(Exception): ...


class NotAudio(Exception): ...


def decode(av: ModuleType, data: bytes, max_s: float) -> tuple[NDArray[np.float32], int]:
    """Decode the first audio track: mono samples [n] and their rate in hertz.

    Raises:
        NotAudio: unknown container, damaged, or without audio.
        TooLong: more than ``max_s`` seconds.
    """
    parts: list[NDArray[np.float32]] = []
    rate = count = 0
    try:
        with av.open(
            io.BytesIO(data),
            options={"format_whitelist": CONTAINERS, "protocol_whitelist": "none"},
        ) as container:
            for mono, rate in _frames(av, container):
                parts.append(mono)
                count += len(mono)
                if count > max_s * rate:
                    raise TooLong
    except (av.error.FFmpegError, ValueError, EOFError):
        raise NotAudio from None
    if not parts:
        raise NotAudio
    return np.concatenate(parts), rate


def _frames(av: ModuleType, container: Any) -> Iterator[tuple[NDArray[np.float32], int]]:
    if not container.streams.audio:
        return
    # Interleaved: of 8 channels and more, PyAV 18 cannot read the planes.
    resampler = av.AudioResampler(format="flt")
    for frame in container.decode(container.streams.audio[0]):
        for plain in resampler.resample(frame):
            samples = plain.to_ndarray().reshape(plain.samples, -1)
            yield samples.mean(axis=1, dtype=np.float32), plain.sample_rate


def run(arguments: list[str], given: BinaryIO, answer: BinaryIO) -> int:
    try:
        av = importlib.import_module("av")
    except ImportError:
        return NO_PYAV
    try:
        samples, rate = decode(av, given.read(), float(arguments[0]))
    except NotAudio:
        return NOT_AUDIO
    except TooLong:
        return TOO_LONG
    answer.write(rate.to_bytes(4, "little"))
    answer.write(samples.astype("<f4").tobytes())
    answer.flush()
    return 0


def main() -> None:
    for what, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (bound, hard))
    sys.exit(run(sys.argv[1:], sys.stdin.buffer, sys.stdout.buffer))


if __name__ == "__main__":
    main()
