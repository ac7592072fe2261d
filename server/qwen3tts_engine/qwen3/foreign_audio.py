"""Audio files that are no plain WAV (MP3, Ogg, FLAC, M4A and so on), through PyAV.

PyAV is optional. The files come from strangers, and decoders of C crash on some of them, so each
is decoded in a process of its own (audio_worker.py), which takes a quarter of a second more.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import qwen3tts_engine
from qwen3tts_engine.qwen3 import audio_worker
from qwen3tts_wire.child_environment import child_environment
from qwen3tts_wire.errors import BadRequest

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
"""Longest that a file may take, whatever the process does."""


def decode_foreign(data: bytes, max_s: float) -> tuple[NDArray[np.float32], int]:
    """Decode the first audio track of a file: mono samples, shape [n], and their rate in hertz.

    Raises:
        BadRequest: PyAV is not installed, or this is no audio that it can read.
        audio_worker.TooLong: more than ``max_s`` seconds.
    """
    module = audio_worker.__name__
    try:
        done = subprocess.run(
            # -P: the current folder is no place to import from.
            [sys.executable, "-P", "-m", module, repr(max_s)],
            input=data,
            capture_output=True,
            timeout=TIMEOUT_S,
            env=_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        log.warning("the audio decoder took more than %g s", TIMEOUT_S)
        raise _not_audio() from None
    except OSError as error:
        raise BadRequest(
            f"No process can be started to decode the recording: {error.strerror}.",
            remedy="Give a WAV file with 16 bits.",
        ) from None
    if done.returncode == audio_worker.NO_PYAV:
        raise BadRequest(
            "The reference recording is no WAV file, and other formats need the package PyAV.",
            remedy="Give a WAV file with 16 bits, or install PyAV: pip install av.",
        )
    if done.returncode == audio_worker.TOO_LONG:
        raise audio_worker.TooLong
    if done.returncode != 0:
        if done.returncode != audio_worker.NOT_AUDIO:
            log.warning("the audio decoder ended with status %d", done.returncode)
        raise _not_audio()
    samples = np.frombuffer(done.stdout, "<f4", offset=4).astype(np.float32)
    return samples, int.from_bytes(done.stdout[:4], "little")


def _environment() -> dict[str, str]:
    """What it needs, with the folder of our packages on the path, installed or not."""
    root = str(Path(qwen3tts_engine.__file__).resolve().parent.parent)
    return {**child_environment(roots=[root]), "OPENBLAS_NUM_THREADS": "1"}


def _not_audio() -> BadRequest:
    return BadRequest(
        "The reference recording is no audio file that can be read.",
        remedy="Give a WAV file with 16 bits, or MP3, Ogg, FLAC or M4A.",
    )
