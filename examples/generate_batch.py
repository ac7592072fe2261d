"""Speak several texts in one batch, whole, with the names of the official package.

python examples/generate_batch.py --model Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice --out batch
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.wav import wav_bytes
from qwen3tts_engine.qwen3.dffdeeq import Qwen3TTSModel

TEXTS = ["Good morning.", "Guten Morgen.", "Bonjour."]
LANGUAGES = ["English", "German", "French"]


def to_pcm(sound: NDArray[np.float32]) -> NDArray[np.int16]:
    return np.rint(sound * 32767).astype(np.int16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder or hub id")
    parser.add_argument("--speaker", default="ryan")
    parser.add_argument("--out", default="batch", help="folder")
    parser.add_argument("--max-frames", type=int, default=250)
    options = parser.parse_args()

    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    with Qwen3TTSModel.from_pretrained(options.model) as model:
        began = time.perf_counter()
        sounds, rate = model.generate_custom_voice(
            TEXTS,
            speaker=options.speaker,
            language=LANGUAGES,
            max_new_tokens=options.max_frames,
        )
    seconds = sum(map(len, sounds)) / rate
    for number, sound in enumerate(sounds):
        (folder / f"{number}.wav").write_bytes(wav_bytes(to_pcm(sound), rate))
    print(f"{seconds:.1f} s of sound in {time.perf_counter() - began:.1f} s, in {folder}")


if __name__ == "__main__":
    main()
