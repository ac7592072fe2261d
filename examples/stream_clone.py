r"""Stream a cloned voice with the names of the fork dffdeeq/Qwen3-TTS-streaming.

    python examples/stream_clone.py --model Qwen/Qwen3-TTS-12Hz-0.6B-Base \
        --audio me.wav --text-of-audio "What I say in it." --out clone.wav
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.wav import wav_bytes
from qwen3tts_engine.qwen3.dffdeeq import Qwen3TTSModel

RATE = 24_000


def to_pcm(sound: NDArray[np.float32]) -> NDArray[np.int16]:
    return np.rint(sound * 32767).astype(np.int16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder or hub id of a Base checkpoint")
    parser.add_argument("--audio", required=True, help="recording of the voice, 1 to 60 s")
    parser.add_argument("--text-of-audio", required=True, help="what is said in it")
    parser.add_argument("--text", default="And this is what I never said.")
    parser.add_argument("--out", default="clone.wav")
    parser.add_argument("--max-frames", type=int, default=250)
    options = parser.parse_args()

    with Qwen3TTSModel.from_pretrained(options.model) as model:
        model.enable_streaming_optimizations()
        prompt = model.create_voice_clone_prompt(options.audio, options.text_of_audio)
        began = time.perf_counter()
        chunks: list[NDArray[np.float32]] = []
        for pcm, _ in model.stream_generate_voice_clone(
            text=options.text,
            language="English",
            voice_clone_prompt=prompt,
            emit_every_frames=4,
            max_frames=options.max_frames,
        ):
            if not chunks:
                print(f"first chunk after {1000 * (time.perf_counter() - began):.0f} ms")
            chunks.append(pcm)
    sound = np.concatenate(chunks)
    Path(options.out).write_bytes(wav_bytes(to_pcm(sound), RATE))
    print(f"{len(sound) / RATE:.1f} s of sound in {options.out}")


if __name__ == "__main__":
    main()
