"""Qwen3-TTS on a CPU at the sizes of 0.6B, beside the official package; and what the engine adds.

A checkpoint with random weights of the published sizes, in the published format; each side in a
process of its own (cpu_sides.py), the official one where ``make oracle`` made its environment.

- *step*: of the language model, talker and 15 codes, for all rows together.
- *codec*: a frame of one stream. Ours: chunks of 4 frames, as they arrive; the official package's:
  24 frames in one piece, which costs it least.
- *x official*: how many times as fast a step is as the official one in bfloat16, its faster type.
- *engine*: one call through the whole engine, on all cores: real-time factor (seconds of work for a
  second of speech), first sound, memory after load, beside the forecast of `mr-qwen3tts doctor`.
- *overhead*: a tiny checkpoint on one thread: times real time in a plain loop of the model (bare),
  and through the engine's worker, scheduler, guards, word times and event loop.
- *load*: float32, see checkpoint_load.py.

The least over frames or rounds counts: other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from checkpoint_load import OFFICIAL_PYTHON, build, loaded
from common import Bench

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.prompt import build_prompt
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.step import frame_step, prefill
from tests.tiny_models.checkpoint import make_tiny

ROOT = Path(__file__).resolve().parent.parent
SIDES = Path(__file__).with_name("cpu_sides.py")
OURS = (("float32", "none"), ("bfloat16", "none"), ("float32", "int8"), ("float32", "int4"))
"""Type of numbers, and quantization."""
TINY_ROWS = (1, 16)
CHUNK = 8
FRAME_S = 0.08
SAMPLES_PER_S = 24_000
TEXT = (
    "Good morning, this is the line, and it works. We are happy that you called, and we will be"
    " with you in a moment. "
)
Found = dict[str, float]


class Sides:
    """Runs sides over one checkpoint; a side that fails is noted, and the rest goes on."""

    def __init__(self, bench: Bench, folder: Path, cache: Path) -> None:
        self._bench = bench
        self._asked: dict[str, Any] = {
            "folder": str(folder),
            "cache": str(cache),
            "threads": [1] if bench.quick else [1, 2],
            "rows": [1, 4],
            "frames": 3 if bench.quick else 6,
            "rounds": 3 if bench.quick else 8,
        }

    @property
    def threads(self) -> list[int]:
        """Numbers of threads."""
        found: list[int] = self._asked["threads"]
        return found

    @property
    def rows(self) -> list[int]:
        """Numbers of rows."""
        found: list[int] = self._asked["rows"]
        return found

    def run(self, side: str, **asked: Any) -> Found:
        """What the side found; nothing if it failed."""
        python, paths = sys.executable, {}
        if side == "official":
            python = str(OFFICIAL_PYTHON)
            paths = {"PYTHONPATH": str(ROOT / "tests" / "parity" / "stubs")}
        done = subprocess.run(
            [python, str(SIDES), json.dumps(self._asked | {"side": side} | asked)],
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
            env=os.environ | {"HF_HUB_OFFLINE": "1"} | paths,
        )
        if done.returncode:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            self._bench.failed(f"{side} {asked}", RuntimeError(last))
            return {}
        found: Found = json.loads(done.stdout.splitlines()[-1])
        return found


def beside_official(bench: Bench, sides: Sides) -> tuple[dict[str, Found], Found]:
    """Steps and codec of all sides: by side, and figures."""
    found: dict[str, Found] = {}
    if OFFICIAL_PYTHON.exists():
        found["official, bfloat16"] = sides.run("official", dtype="bfloat16")
        if not bench.quick:
            found["official, float32"] = sides.run("official", dtype="float32", threads=[1])
    for dtype, quantize in OURS[bench.quick :]:
        name = dtype if quantize == "none" else quantize
        found[f"ours, {name}"] = sides.run("ours", dtype=dtype, quantize=quantize)
    best = found.get("official, bfloat16", {})
    table: list[list[object]] = []
    for threads in sides.threads:
        for name, one in found.items():
            if f"step_ms_{threads}t_1r" not in one:
                continue
            line: list[object] = [f"{threads} thread{'s' * (threads > 1)}: {name}"]
            for rows in sides.rows:
                key = f"step_ms_{threads}t_{rows}r"
                line += [one.get(key), ratio(best.get(key), one.get(key))]
            table.append([*line, one.get(f"codec_ms_{threads}t")])
    columns = [""]
    for rows in sides.rows:
        columns += [f"step ms, {rows} row{'s' * (rows > 1)}", "x official"]
    size = "2 layers, tiny codec" if bench.quick else "0.6B"
    bench.table(f"beside the official package, {size}", [*columns, "codec ms a frame"], table)
    figures: Found = {}
    for name, key in (("bfloat16", "bf16"), ("int8", "int8"), ("int4", "int4")):
        one = found.get(f"ours, {name}", {})
        steps = [each for each in one if each.startswith("step_ms")]
        ratios = [value for each in steps if (value := ratio(best.get(each), one[each]))]
        if ratios:
            figures[f"{key}_over_official"] = best["step_ms_1t_1r"] / one["step_ms_1t_1r"]
            figures[f"{key}_over_official_least"] = min(ratios)
    if codec := found["ours, bfloat16" if bench.quick else "ours, float32"].get("codec_ms_1t"):
        figures["codec_ms"] = codec
        if official := best.get("codec_ms_1t"):
            figures["codec_ms_official"] = official
    return found, figures


def ratio(official: float | None, ours: float | None) -> float | None:
    """How many times as fast ours is, if both are known."""
    return official / ours if official and ours else None


def whole_engine(bench: Bench, sides: Sides) -> Found:
    """One call through the engine in each type, and the forecast."""
    # It is one of all layers.
    forecast = {} if bench.quick else sides.run("forecast")
    table: list[list[object]] = []
    figures: Found = {}
    frames = {"few": 4, "many": 10} if bench.quick else {"few": 8, "many": 28}
    for dtype, quantize in OURS[2:3] if bench.quick else OURS[1:]:
        name = dtype if quantize == "none" else quantize
        one = sides.run(
            "engine", dtype=dtype, quantize=quantize, rounds=1, settings={"slots": 4}, **frames
        )
        expected = forecast.get(f"rtf_{quantize}")
        error = 100 * (expected / one["rtf"] - 1) if one and expected else None
        rest = [one.get(key) for key in ("first_ms", "load_s", "rss_mb", "rss_all_mb")]
        table.append([name, one.get("rtf"), expected, error, *rest])
        if one:
            key = "bf16" if quantize == "none" else quantize
            figures |= {f"rtf_{key}": one["rtf"], f"rss_mb_{key}": one["rss_mb"]}
            if error is not None:
                figures[f"forecast_off_pct_{key}"] = error
    bench.table(
        "one call through the engine, all cores"
        + (", 2 layers, tiny codec" if bench.quick else ", 0.6B"),
        ["", "rt factor", "forecast", "off %", "first ms", "load s", "MB", "MB with imports"],
        table,
    )
    return figures


# --- what the engine adds, on a tiny checkpoint ---


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


def overhead(
    folder: Path, rows: Sequence[int], rounds: int
) -> dict[int, tuple[float, float, float, float]]:
    """Times real time bare and in the engine, first audio in ms of both, by rows."""
    model = Qwen3Model.load(folder)
    result = {}

    async def speak() -> None:
        running = Qwen3Engine(Qwen3Settings(str(folder), slots=max(rows), threads=1))
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

    asyncio.run(speak())
    return result


def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    bench = Bench("engine_cpu", "the engine on a CPU", parser)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        made = build(Path(folder), small=bench.quick)
        sides = Sides(bench, made, Path(folder) / "quantized")
        _, figures = beside_official(bench, sides)
        figures |= whole_engine(bench, sides)
        ours, official = loaded(made, "float32")
    both = {"ours": ours} | ({"official": official} if official else {})
    bench.table(
        "load" + (", 2 layers and 20,000 text ids" if bench.quick else ", 0.6B") + ", float32",
        ["", "load s", "first sound s", "MB"],
        [[n, one["load_s"], one.get("first_s"), one["rss_mb"]] for n, one in both.items()],
    )
    with tempfile.TemporaryDirectory() as folder:
        tiny = make_tiny(Path(folder))["custom_voice"]
        found = overhead(tiny, TINY_ROWS, 1 if bench.quick else 3)
    bench.table(
        "tiny checkpoint, one thread: times real time, all rows together",
        ["rows", "bare", "engine", "overhead", "bare first ms", "engine first ms"],
        [
            [rows, plain, ours_rt, plain / ours_rt, plain_first, first]
            for rows, (plain, ours_rt, plain_first, first) in found.items()
        ],
    )
    bench.figure(
        **figures,
        load_s=ours["load_s"],
        **({"load_over_official": ours["load_s"] / official["load_s"]} if official else {}),
        rt_1row=found[1][1],
        rt_16rows=found[16][1],
        first_audio_ms=found[1][3],
        overhead_ratio=found[16][0] / found[16][1],
    )


if __name__ == "__main__":
    main()
