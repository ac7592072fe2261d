"""Fuzz target: reference recordings for cloning."""

from __future__ import annotations

import contextlib

import numpy as np

from qwen3tts_engine.qwen3.wav_file import Damaged, NotThisKind, WavFile
from tests.fuzz.target import Target
from tests.qwen3.recordings import ALAW, FLOAT, PCM, ULAW, chunk, extensible, riff, wav

SOUND = np.linspace(-1, 1, 40, dtype=np.float32)


def run_wav(data: bytes) -> None:
    with contextlib.suppress(NotThisKind, Damaged):
        file = WavFile.parse(data)
        samples = file.samples()
        assert samples.shape == (file.frames, file.channels)
        assert samples.dtype == np.float32
        assert samples.nbytes <= 4 * len(data)


TARGETS: dict[str, Target] = {
    "wav": Target(
        run_wav,
        "A WAV file is read within its own bytes, or is refused.",
        (
            *(wav(SOUND, tag=PCM, bits=bits) for bits in (8, 16, 24, 32)),
            *(wav(SOUND, tag=FLOAT, bits=bits) for bits in (32, 64)),
            *(wav(SOUND.reshape(-1, 2), tag=tag, bits=8) for tag in (ULAW, ALAW)),
            riff(
                chunk(b"LIST", b"odd"),
                chunk(b"fmt ", extensible(PCM, 1, 24_000, 16)),
                chunk(b"data", bytes(20)),
            ),
        ),
        words=(b"fmt ", b"data", b"RIFF", b"WAVE", b"\xfe\xff", b"\xff\xff\xff\xff"),
    ),
}
