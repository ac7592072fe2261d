"""Speak text while a language model still writes it; every word's delta is a piece.

python examples/speak_deltas.py --model Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice --out deltas.wav
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.wav import wav_bytes
from qwen3tts_engine.qwen3.api import Qwen3TTS

TEXT = "Good morning. Your table is reserved for half past seven, near the window."

RATE = 24_000


def deltas(text: str, seconds: float) -> Iterator[str]:
    """Give a word at a time, as a model does."""
    for word in text.split():
        yield f"{word} "
        time.sleep(seconds)


def to_pcm(sound: NDArray[np.float32]) -> NDArray[np.int16]:
    return np.rint(sound * 32767).astype(np.int16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder or hub id")
    parser.add_argument("--voice", help="one of the checkpoint's")
    parser.add_argument("--delta-ms", type=float, default=50.0, help="pause between words")
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--out", default="deltas.wav")
    parser.add_argument("--max-frames", type=int, default=250)
    options = parser.parse_args()

    with Qwen3TTS.load(options.model, warmup=True) as tts:
        began = time.perf_counter()
        chunks: list[NDArray[np.float32]] = []
        for pcm, _ in tts.stream(
            deltas(TEXT, options.delta_ms / 1000),
            voice=options.voice,
            language="en",
            speed=options.speed,
            max_new_tokens=options.max_frames,
        ):
            if not chunks:
                print(f"first sound after {1000 * (time.perf_counter() - began):.0f} ms")
            chunks.append(pcm)
    sound = np.concatenate(chunks)
    Path(options.out).write_bytes(wav_bytes(to_pcm(sound), RATE))
    print(f"{len(sound) / RATE:.1f} s of sound in {options.out}")


if __name__ == "__main__":
    main()
