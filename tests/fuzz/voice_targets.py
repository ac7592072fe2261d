"""Fuzz targets: reference recordings for cloning, settings of voices in Piper's format."""

from __future__ import annotations

import contextlib
import json

import numpy as np

from qwen3tts_codecs.wav import DamagedWav, NotWav, WavFile
from qwen3tts_engine.piper.voice_files import parse_config
from qwen3tts_wire.errors import BadRequest
from tests.engine.piper.tiny_vits import LOW, MANY, tiny_config
from tests.fuzz.target import Target
from tests.qwen3.voices.recordings import ALAW, FLOAT, PCM, ULAW, chunk, extensible, riff, wav

SOUND = np.linspace(-1, 1, 40, dtype=np.float32)


def run_wav(data: bytes) -> None:
    with contextlib.suppress(NotWav, DamagedWav):
        file = WavFile.parse(data)
        samples = file.samples()
        assert samples.shape == (file.frames, file.channels)
        assert samples.dtype == np.float32
        assert samples.nbytes <= 4 * len(data)


def run_voice_settings(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        config = parse_config(data)
        assert 8000 <= config.sample_rate <= 48_000
        assert all(0 <= one < 65536 for ids in config.phoneme_ids.values() for one in ids)


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
    "voice_settings": Target(
        run_voice_settings,
        "Settings of a voice are within their bounds, or are refused.",
        tuple(json.dumps(tiny_config(shape)).encode() for shape in (LOW, MANY)),
        words=(b'"sample_rate"', b'"phoneme_id_map"', b"1e999", b"null", b"[[", b"NaN"),
    ),
}
