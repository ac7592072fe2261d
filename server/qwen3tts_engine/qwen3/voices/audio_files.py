"""Audio files other than WAV, decoded through PyAV in a separate process."""

from __future__ import annotations

import logging
import subprocess

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.qwen3.voices import audio_worker
from qwen3tts_wire.child.process import command, environment
from qwen3tts_wire.errors import BadRequest

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
"""Bound of the decoder process."""


def decode_foreign(data: bytes, max_s: float) -> tuple[NDArray[np.float32], int]:
    """Decode the first audio track of a file: mono samples [n] and their rate in hertz.

    In a process of its own, since decoders in C crash on hostile files. BadRequest if PyAV is
    missing or fails; TooLong above ``max_s``.
    """
    module = audio_worker.__name__
    try:
        done = subprocess.run(
            command(module, repr(max_s)),
            input=data,
            capture_output=True,
            timeout=TIMEOUT_S,
            env={**environment(module), "OPENBLAS_NUM_THREADS": "1"},
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


def _not_audio() -> BadRequest:
    return BadRequest(
        "The reference recording is no audio file that can be read.",
        remedy="Give a WAV file with 16 bits, or MP3, Ogg, FLAC or M4A.",
    )
