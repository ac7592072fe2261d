"""What the caches of a cloned voice save, on a checkpoint of the 0.6B Base sizes, random weights.

- *made*: a recording becomes a voice: speaker embedding, codes and the codec's state behind them.
- *same recording*: the same file once more; it is found by its content.
- *by id, memory* and *by id, disk*: the voice is named; a new engine finds it in its folder.
- *prompt, computed* and *prompt, cached*: prefill of the reference's positions at admission, and
  the same with the keys and values kept with the voice.
- *limit*: what seed programs computed at each generation (all of *made* and the whole prompt).

One thread, float32, the best of the rounds; a reference of 3 s (`--seconds`).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

import torch
from checkpoint_load import build
from common import Bench

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
from qwen3tts_wire.messages import Sampling
from tests.parity.inputs import RATE, voiced

WORDS = "What I say in the recording, and some more of it."
TEXT = "Good morning, this is the line, and it works."
CHUNK = 1


async def seconds(work: Awaitable[object]) -> float:
    """Seconds until it is done."""
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def prefill_s(engine: Qwen3Engine, voice: str) -> float:
    """Seconds from the slot to the end of the prompt's prefill."""
    request = SynthesisRequest(
        TEXT,
        voice=voice,
        language="en",
        sampling=Sampling(temperature=0),
        seed=1,
        initial_codec_chunk_frames=CHUNK,
    )
    speech = engine.synthesize(request)
    chunk = await anext(speech)
    await speech.aclose()
    return chunk.marks["prefill"] - chunk.marks["slot"]


async def measure(folder: Path, seconds_of_speech: float, rounds: int) -> dict[str, float]:
    """Best seconds of each step."""
    settings = Qwen3Settings(
        model=str(folder), slots=1, warmup=True, voice_folder=folder.parent / "voices"
    )
    found: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    for number in range(rounds):
        audio = voiced(seconds_of_speech, number), RATE
        engine = Qwen3Engine(settings)
        await engine.start()
        try:
            add("made", await seconds(engine.load_voice(ref_audio=audio, ref_text=WORDS)))
            again = seconds(engine.load_voice(ref_audio=audio, ref_text=WORDS))
            add("same recording", await again)
            voice = (await engine.load_voice(ref_audio=audio, ref_text=WORDS)).voice_id
            add("by id, memory", await seconds(engine.load_voice(voice_id=voice)))
            add("prompt, computed", await prefill_s(engine, voice))
            add("prompt, cached", await prefill_s(engine, voice))
        finally:
            await engine.close()
        engine = Qwen3Engine(settings)
        await engine.start()
        try:
            add("by id, disk", await seconds(engine.load_voice(voice_id=voice)))
        finally:
            await engine.close()
    return {name: min(values) for name, values in found.items()}


def main() -> None:
    """Build the checkpoint, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of the reference")
    bench = Bench("voice_constants", __doc__ or "", parser)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        made = build(Path(folder), task="base", small=bench.quick)
        found = asyncio.run(measure(made, bench.args.seconds, 1 if bench.quick else 3))
    limit = found["made"] + found["prompt, computed"]
    cached = found["by id, memory"] + found["prompt, cached"]
    rows = [(name, 1000 * value) for name, value in found.items()]
    bench.table(
        "a cloned voice", ("step", "ms"), [*rows, ("limit: all of it, each time", 1000 * limit)]
    )
    bench.figure(
        made_ms=1000 * found["made"],
        by_id_ms=1000 * found["by id, memory"],
        from_disk_ms=1000 * found["by id, disk"],
        prompt_ms=1000 * found["prompt, computed"],
        cached_prompt_ms=1000 * found["prompt, cached"],
        saved_ms=1000 * (limit - cached),
    )


if __name__ == "__main__":
    main()
