"""One side of `engine_cpu` in a process of its own: ours, or the official package's.

    python benchmarks/cpu_sides.py '{"side": "ours", "folder": ..., "threads": 1, ...}'

The last line of the output is JSON. Both sides make as many frames, of the same checkpoint, with
the sampling of the checkpoint. A step is the time between two calls of the talker, the codec's
time that of frames in chunks (ours) or of one piece (official: what it does, and its best case).
The least over the frames counts, since other work on the machine only adds.
"""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

CHUNK = 4
"""Frames of a chunk of ours."""
PIECE = 24
"""Frames of the official package's piece."""
TEXT = "Good morning, this is the line, and it works. We are happy that you called."
Found = dict[str, float]


def rss_mb() -> float:
    """Resident memory of this process."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * 4096 / 2**20


def least(work: Callable[[], object], rounds: int) -> float:
    """Seconds of the quickest round."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def quantized(asked: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a load for what is asked."""
    if asked["quantize"] == "none":
        return {}
    return {"quantize": asked["quantize"], "quantize_cache": Path(asked["cache"])}


def ours(asked: dict[str, Any]) -> Found:
    """Milliseconds a step by rows, milliseconds of codec a frame."""
    from qwen3tts_engine.qwen3.model.model import Qwen3Model

    began = time.perf_counter()
    model = Qwen3Model.load(
        asked["folder"],
        dtype=getattr(torch, asked["dtype"]),
        **quantized(asked),
    )
    found = {"load_s": time.perf_counter() - began}
    for threads in asked["threads"]:
        torch.set_num_threads(threads)
        for rows in asked["rows"]:
            found[f"step_ms_{threads}t_{rows}r"] = our_step(model, rows, asked["frames"])
        found[f"codec_ms_{threads}t"] = our_codec(model, asked["rounds"])
    return found


def our_step(model: Any, rows: int, frames: int) -> float:
    """Milliseconds of a frame step of so many rows, behind a prefill of 16 positions."""
    from qwen3tts_engine.qwen3.model.kv_cache import KvCache
    from qwen3tts_engine.qwen3.model.sampling import Sampling
    from qwen3tts_engine.qwen3.model.step import frame_step, prefill

    kv_cache = KvCache(model.config, slots=rows, positions=256, dtype=model.dtype)
    slots, text = torch.arange(rows), torch.full((rows,), model.config.text_ids.tts_pad)
    model.talker.text.prepare(text.tolist())
    for row in range(rows):
        kv_cache.reset(row, Sampling(), row)
    hidden = model.config.talker.layers.hidden
    embeds = torch.randn(rows, 16, hidden).to(model.dtype)
    length = torch.full((rows,), 16)
    prefill(model, kv_cache, slots, embeds, length, torch.zeros_like(length), kv_len=16)
    may_end = torch.zeros(rows, dtype=torch.bool)

    def step() -> object:
        return frame_step(model, kv_cache, slots, text, may_end, 64)

    step()
    return 1e3 * least(step, frames)


def our_codec(model: Any, rounds: int) -> float:
    """Milliseconds a frame of one stream, in chunks."""
    state, slot = model.decoder.new_state(1), torch.zeros(1, dtype=torch.int64)
    codes = torch.randint(0, 2048, (1, CHUNK, 16))
    model.decoder.run(state, slot, codes)
    return 1e3 * least(lambda: model.decoder.run(state, slot, codes), rounds) / CHUNK


def engine(asked: dict[str, Any]) -> Found:
    """One call through the whole engine: real-time factor, first sound, memory after load."""
    from qwen3tts_engine.qwen3.api import Qwen3TTS

    before, began = rss_mb(), time.perf_counter()
    settings: dict[str, Any] = asked["settings"]
    tts = Qwen3TTS.load(
        asked["folder"],
        dtype=asked["dtype"],
        **(quantized(asked) | settings),
    )
    found = {"load_s": time.perf_counter() - began, "rss_mb": rss_mb() - before}
    found["rss_all_mb"] = rss_mb()
    few, many = asked["few"], asked["many"]

    def speak(frames: int) -> tuple[float, float, float]:
        began, first, samples = time.perf_counter(), 0.0, 0
        pieces = tts.stream(TEXT, voice="ryan", seed=1, max_new_tokens=frames, mode="whole")
        for pcm, _ in pieces:
            first = first or time.perf_counter() - began
            samples += len(pcm)
        return time.perf_counter() - began, first, samples / 24_000

    speak(few)
    rates, firsts, audio_s = [], [], 0.0
    for _ in range(asked["rounds"]):
        short, long = speak(few), speak(many)
        rates.append((long[0] - short[0]) / (long[2] - short[2]))
        firsts += [short[1], long[1]]
        audio_s = long[2]
    found |= {"rtf": min(rates), "first_ms": 1e3 * min(firsts), "audio_s": audio_s}
    tts.close()
    return found


def official(asked: dict[str, Any]) -> Found:
    """The same of the official package."""
    package: Any = importlib.import_module("qwen_tts")
    before, began = rss_mb(), time.perf_counter()
    tts: Any = package.Qwen3TTSModel.from_pretrained(
        asked["folder"], dtype=getattr(torch, asked["dtype"])
    )
    found: Found = {"load_s": time.perf_counter() - began, "rss_mb": rss_mb() - before}
    found["rss_all_mb"] = rss_mb()
    codec = tts.model.speech_tokenizer
    calls: list[float] = []
    tts.model.talker.register_forward_pre_hook(lambda *_: calls.append(time.perf_counter()))
    decode = codec.decode
    silence = [torch.zeros(1920).numpy()]
    codec.decode = lambda encoded: (silence * len(encoded), 24_000)
    for threads in asked["threads"]:
        torch.set_num_threads(threads)
        for rows in asked["rows"]:
            calls.clear()
            tts.generate_custom_voice(
                text=[TEXT] * rows,
                language=["english"] * rows,
                speaker=["ryan"] * rows,
                max_new_tokens=asked["frames"] + 3,
            )
            # The first is the prompt's, and the step behind it warms up.
            steps = [after - at for at, after in itertools.pairwise(calls[1:])]
            found[f"step_ms_{threads}t_{rows}r"] = 1e3 * min(steps)
            found[f"step_p50_ms_{threads}t_{rows}r"] = 1e3 * statistics.median(steps)
            found[f"steps_{threads}t_{rows}r"] = len(steps)
        codes = torch.randint(0, 2048, (PIECE, 16))
        decode([{"audio_codes": codes}])
        taken = least(lambda: decode([{"audio_codes": codes}]), asked["rounds"])  # noqa: B023
        found[f"codec_ms_{threads}t"] = 1e3 * taken / PIECE
    return found


def forecast(asked: dict[str, Any]) -> Found:
    """What ``mr-qwen3tts doctor`` expects of 0.6B, by quantization."""
    from qwen3tts_engine.qwen3.kernels import cpu_forecast

    made = cpu_forecast.forecast()
    found = {f"rtf_{kind}": value for kind, value in made.factors["0.6B"].items()}
    return found | {"seconds": made.seconds}


SIDES: dict[str, Callable[[dict[str, Any]], Found]] = {
    "ours": ours,
    "engine": engine,
    "forecast": forecast,
    "official": official,
}


def main(given: Sequence[str]) -> None:
    """Measure one side; ``given``: what is asked, in JSON."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    asked = json.loads(given[0])
    torch.manual_seed(0)
    print(json.dumps(SIDES[asked["side"]](asked)))


if __name__ == "__main__":
    main(sys.argv[1:])
