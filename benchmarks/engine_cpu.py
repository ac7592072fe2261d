"""The engine on one CPU thread, with a tiny checkpoint: what our own machinery costs.

- *bare*: prefill, frame step and codec in a plain loop, all rows in step, chunks of 8 frames.
- *engine*: the same number of frames through ``Qwen3Engine``: its worker, scheduler, guards, word
  times and the event loop that reads. Texts end by themselves.
- *overhead*: the engine's time for a frame over the bare one's.
- *load*: a checkpoint of the 0.6B sizes, beside the official package (where ``make oracle`` made
  its environment); see checkpoint_load.py.
- *operations*: dispatched for a frame of the real 1.7B model; see op_count.py for the rule.

Times real time is audio seconds made in a second. Rounds of all ways alternate, the best counts.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from checkpoint_load import build, loaded
from common import Bench
from op_count import PLAIN_TORCH, frame_ops

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.prompt import build_prompt
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.step import frame_step, prefill
from tests.tiny_models.checkpoint import make_tiny

ROWS = (1, 4, 16)
CHUNK = 8
FRAME_S = 0.08
SAMPLES_PER_S = 24_000
TEXT = (
    "Good morning, this is the line, and it works. We are happy that you called, and we will be"
    " with you in a moment. "
)
MODEL = "1.7b-custom_voice"


def text(row: int) -> str:
    """About 15 s, another for each row."""
    return f"Number {row}. " + 2 * TEXT


def bare(model: Qwen3Model, rows: int, frames: int) -> tuple[float, float]:
    """Seconds for so many frames of each row, and until the first is sound."""
    assert model.tokenizer is not None
    kv_cache = KvCache(model.config, slots=rows, positions=2048)
    state = model.decoder.new_state(rows)
    slots, hidden = torch.arange(rows), model.config.talker.layers.hidden
    ids = [model.tokenizer.encode(text(row)) for row in range(rows)]
    pad = model.config.text_ids.tts_pad
    waiting = torch.full((rows,), pad)
    may_end = torch.zeros(rows, dtype=torch.bool)
    began = time.perf_counter()
    prompts = [
        model.embed(build_prompt(model.config, text_ids=one, speaker="ryan", layout="full"))
        for one in ids
    ]
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    longest = int(lengths.max())
    embeds = torch.zeros(rows, longest, hidden)
    for row, prompt in enumerate(prompts):
        kv_cache.reset(row, Sampling(), row)
        embeds[row, : len(prompt)] = prompt
    prefill(model, kv_cache, slots, embeds, lengths, torch.zeros_like(lengths), kv_len=longest)
    first, made = 0.0, []
    for frame in range(frames):
        kv_len = min(2048, -(-(longest + frame + 1) // 64) * 64)
        made.append(frame_step(model, kv_cache, slots, waiting, may_end, kv_len))
        if not first or len(made) == CHUNK:
            model.decoder.run(state, slots, torch.stack(made, dim=1))
            first = first or time.perf_counter() - began
            made = []
    return time.perf_counter() - began, first


async def engine(running: Qwen3Engine, rows: int) -> tuple[float, float, float]:
    """Seconds of work, seconds of audio, and the mean wait for the first of it."""
    audio, firsts = 0, []

    async def one(row: int) -> None:
        nonlocal audio
        asked = time.perf_counter()
        heard = False
        async for chunk in running.synthesize(SynthesisRequest(text(row), seed=row)):
            if chunk.pcm and not heard:
                heard = True
                firsts.append(time.perf_counter() - asked)
            audio += chunk.samples

    began = time.perf_counter()
    await asyncio.gather(*(one(row) for row in range(rows)))
    return time.perf_counter() - began, audio / SAMPLES_PER_S, sum(firsts) / len(firsts)


def measured(
    folder: Path, rows: Sequence[int], rounds: int, profile: bool
) -> dict[int, tuple[float, float, float, float]]:
    """Times real time bare and in the engine, first audio in ms of both, by rows."""
    model = Qwen3Model.load(folder)
    result = {}

    async def speak() -> None:
        running = Qwen3Engine(Qwen3Settings(str(folder), slots=max(rows)))
        await running.start()
        await engine(running, 1)
        for count in rows:
            best, plain, first, plain_first = 0.0, 0.0, 1e9, 1e9
            for _ in range(rounds):
                took, audio, waited = await engine(running, count)
                best, first = max(best, audio / took), min(first, waited)
                frames = max(CHUNK, round(audio / FRAME_S / count))
                took, waited = await asyncio.to_thread(bare, model, count, frames)
                plain = max(plain, count * frames * FRAME_S / took)
                plain_first = min(plain_first, waited)
            result[count] = plain, best, 1e3 * plain_first, 1e3 * first
        await running.close()

    if profile:
        import threading

        from qwen3tts_engine.qwen3.engine import worker

        run = worker.Worker.run
        profiles = []

        def profiled(self: worker.Worker) -> None:
            one = cProfile.Profile()
            profiles.append(one)
            one.runcall(run, self)

        worker.Worker.run = profiled  # type: ignore[method-assign]
        asyncio.run(speak())
        for each in profiles:
            pstats.Stats(each).sort_stats("tottime").print_stats(45)
        assert threading.active_count()
    else:
        asyncio.run(speak())
    return result


def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="where the worker's time goes")
    bench = Bench("engine_cpu", "the engine on one CPU thread", parser)
    torch.set_num_threads(1)
    rounds = 1 if bench.quick else 3
    with tempfile.TemporaryDirectory() as folder:
        tiny = make_tiny(Path(folder))["custom_voice"]
        found = measured(tiny, ROWS, rounds, bench.args.profile)
    bench.table(
        "tiny checkpoint, one thread: times real time, all rows together",
        ["rows", "bare", "engine", "overhead", "bare first ms", "engine first ms"],
        [
            [rows, plain, ours, plain / ours, plain_first, first]
            for rows, (plain, ours, plain_first, first) in found.items()
        ],
    )
    counts = {}
    for device, dtype in (("cpu", torch.float32), ("cuda", torch.bfloat16)):
        parts = frame_ops(MODEL, device=device, dtype=dtype)
        counts[device] = {name: part.total() for name, part in parts.items()}
    rows_of_table: list[list[object]] = [
        ["plain torch (as stated)", *PLAIN_TORCH.values(), sum(PLAIN_TORCH.values())]
    ]
    for device, count in counts.items():
        rows_of_table.append([f"here, as on {device}", *count.values(), sum(count.values())])
    bench.table(
        f"operations dispatched for a frame of {MODEL}",
        ["", *PLAIN_TORCH, "sum"],
        rows_of_table,
    )
    with tempfile.TemporaryDirectory() as folder:
        ours, official = loaded(build(Path(folder), small=bench.quick), "float32")
    sides = {"ours": ours} | ({"official": official} if official else {})
    bench.table(
        "load" + (", 2 layers and 20,000 text ids" if bench.quick else ", 0.6B") + ", float32",
        ["", "load s", "first sound s", "MB"],
        [[n, one["load_s"], one.get("first_s"), one["rss_mb"]] for n, one in sides.items()],
    )
    bench.figure(
        load_s=ours["load_s"],
        rss_mb=ours["rss_mb"],
        **({"load_over_official": ours["load_s"] / official["load_s"]} if official else {}),
        rt_1row=found[1][1],
        rt_16rows=found[16][1],
        first_audio_ms=found[1][3],
        overhead_ratio=found[16][0] / found[16][1],
        ops_per_frame=sum(counts["cpu"].values()),
    )


if __name__ == "__main__":
    main()
