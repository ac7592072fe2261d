"""The engine on a GPU: models of the published sizes with random weights.

It needs torch, triton, numpy, safetensors and tokenizers, and no checkpoint. Two commands, the
first of which says whether the engine is right on this GPU (about three minutes)::

    PYTHONPATH=.:server:codecs python benchmarks/engine_gpu.py --check --json gpu_check.json
    PYTHONPATH=.:server:codecs python benchmarks/engine_gpu.py --model 1.7b --json engine_gpu.json

- *parts*: a frame step by part, plain and captured in graphs. *floor* is the time that reading all
  weights and the rows' keys and values takes at the measured copy bandwidth; *predicted* is what
  the counted nodes and bytes give (gpu/census.py). *whole* is a step and a decode of one frame for
  every row, as the runner launches them.
- *first*: time to the first audible sample of single calls on an idle engine; in the full and the
  streaming layout, and of a cloned voice that goes on from a recording.
- *poisson*: requests at random times, of 4 to 12 s, whether or not earlier ones are done; measured
  for a minute behind half a minute of warm-up. A gap is a moment after a 40 ms prebuffer at which
  a listener has nothing.
- *throughput*: so many slots speak, unpaced: seconds of audio made in a second.
- *calls*: most calls that speak in real time with p95 of first audio below 100 ms and no gap.

All loads go through the real worker and scheduler, from request to samples in the engine's output;
no network. Each row begins with a silent frame, as published CustomVoice weights make it, and the
product's trimming takes it away: *first* is the first audible sound. Lengths are drawn, for random
weights do not end by themselves. A part that fails is noted, and the rest goes on.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Literal

import torch
from common import Bench
from gpu.check import CHECKS, Place, this_gpu
from gpu.loads import QUICK, TINY, Loads, Sizes
from gpu.machine import machine, state
from gpu.parity import few_layers
from gpu.parts import Floor, bandwidth, narrow, part_times, profile, timed

from qwen3tts_engine.qwen3.kernels.cuda import EagerBackend
from qwen3tts_engine.qwen3.kernels.memory import format_bytes
from qwen3tts_engine.qwen3.kernels.runner import LaunchMode, Runner
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, StepRow
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.prompt import Layout
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_wire.errors import EngineUnavailable
from tests.tiny_models.published import PUBLISHED
from tests.tiny_models.weights import random_weights

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256)
"""Rows of the parts; captured and eager at the same."""
MOST_SLOTS = 256
RATES = (20.0, 1.0, 10.0)
"""The one that counts first: time may run out."""
KEYS = (
    *("gpu", "model", "first_ms_p50_1call", "first_ms_p50_streaming", "first_ms_p50_clone"),
    *("first_ms_p95_20rps", "gapfree_pct_20rps", "step_ms_1row", "step_ms_64rows"),
    *("predicted_ms_1row", "floor_ratio_1row", "audio_s_per_s", "realtime_calls"),
)
"""Keys of the closing line; ``none`` where there is nothing to say."""
PARTS = ("parts", "first", "poisson", "throughput", "calls")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Run:
    """One model on one device."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.args = bench, bench.args
        self.device = torch.device(self.args.device)
        if self.device.type == "cuda":
            self.device = torch.device("cuda", self.device.index or 0)
            torch.cuda.set_device(self.device)
        self.began = time.monotonic()
        self.figures: dict[str, float | int | str] = {}
        self.sizes = TINY if self.args.tiny else QUICK if bench.quick else Sizes()
        self.runs = 3 if self.args.tiny else 20
        facts = machine(self.device)
        self.figures.update(gpu=facts["device"].replace(" ", "-"), model=self.args.model)
        bench.table("machine", ["what", "is"], list(facts.items()))

    def left(self) -> float:
        """Seconds of the budget."""
        return float(self.args.budget - (time.monotonic() - self.began))

    def note(self, text: str) -> None:
        """A line with the time."""
        self.bench.note(f"[{time.monotonic() - self.began:5.0f} s] {text}")

    def config(self) -> ModelConfig:
        """The published one, or few columns of it."""
        config = PUBLISHED[f"{self.args.model}-custom_voice"]
        return few_layers(narrow(config)) if self.args.tiny else config

    def load(self) -> None:
        """Weights, then slots and graphs."""
        args, on_gpu = self.args, self.device.type == "cuda"
        dtype = DTYPES[args.dtype or ("bfloat16" if on_gpu else "float32")]
        codec = DTYPES[args.codec_dtype or ("float16" if on_gpu else "float32")]
        config = self.config()
        self.bandwidth = bandwidth(self.device, self.copied())
        self.note(f"copy bandwidth {self.bandwidth / 1e12:.3g} TB/s")
        # The codec is folded on the CPU, in float64.
        weights = random_weights(config, device=self.device, dtype=dtype)[0]
        self.model = Qwen3Model.from_weights(
            config,
            weights,
            random_weights(config)[1],
            device=self.device,
            dtype=dtype,
            codec_dtype=codec,
            tf32=args.tf32,
        )
        self.note(f"weights made: talker {dtype}, codec {codec}")
        self.runner = self.make_runner()
        for line in self.runner.memory.lines():
            self.bench.note("    " + line)
        shown = ""

        def progress(what: str, done: int, of: int) -> None:
            nonlocal shown
            if what != shown or done % 10 == 0 or done == of:
                shown = what
                self.note(f"{what} {done}/{of}")

        began = time.monotonic()
        self.runner.warmup(progress)
        self.figures["warmup_s"] = time.monotonic() - began
        count, size = self.runner.captured
        for each in self.runner.notes:
            self.note(each)
        self.bench.table("notes of the engine", ["note"], [[each] for each in self.runner.notes])
        self.note(f"{self.runner.slots} slots, {count} sizes captured, {format_bytes(size)}")
        self.figures.update(slots=self.runner.slots, captured=count)
        if on_gpu:
            used = torch.cuda.max_memory_allocated(self.device)
            self.figures["memory_gib"] = round(used / 2**30, 2)
        self.loads = Loads(self.model, self.runner, self.sizes)

    def copied(self) -> int:
        """Bytes of the copy that measures the bandwidth: little of a small GPU."""
        if self.args.tiny:
            return 1 << 22
        if self.device.type != "cuda":
            return 1 << 28
        return min(1 << 31, torch.cuda.mem_get_info(self.device)[0] // 8)

    def make_runner(self) -> Runner:
        """With the slots that were asked for; else as many as there is room for."""
        asked = self.args.slots
        choices: list[int | Literal["auto"]] = [asked] if asked else [MOST_SLOTS, "auto"]
        for slots in choices:
            try:
                return Runner(
                    self.model,
                    slots=slots,
                    positions=self.args.positions,
                    compile=self.args.compile,
                    launch=LaunchMode(static=True, persistent=self.args.persistent),
                )
            except EngineUnavailable as error:
                if slots == choices[-1]:
                    raise
                self.note(f"{error.message} Slots auto.")
        raise AssertionError

    # --- steps ---

    def predicted(self, rows: int) -> float | None:
        """Milliseconds of a step and a decode by counted nodes and bytes; None if not counted."""
        if self.args.tiny:
            return None
        try:
            from gpu.census import NODE_US, PRODUCT_US, PRODUCTS, census

            stages = census(f"{self.args.model}-custom_voice", rows=rows)
        except Exception as error:
            self.note(f"not counted: {type(error).__name__}: {error}")
            return None
        frame = [stage for name, stage in stages.items() if name != "prefill"]
        nodes = sum(stage.nodes for stage in frame)
        products = sum(stage.names[name] for stage in frame for name in PRODUCTS)
        size = sum(stage.bytes for stage in frame)
        launches = nodes * NODE_US + products * (PRODUCT_US - NODE_US)
        return launches / 1e3 + 1e3 * size / self.bandwidth

    def parts(self) -> None:
        """Part by part."""
        floor = Floor.of(self.model)
        self.note(
            f"read for a frame: talker {floor.talker / 1e9:.3f} GB, predictor"
            f" {floor.predictor / 1e9:.3f} GB, codec {floor.codec / 1e9:.3f} GB"
        )
        table: list[list[object]] = []
        try:
            for rows in (each for each in ROWS if each <= self.runner.slots):
                self.parts_of(rows, 1e3 * floor.seconds(self.bandwidth, rows), table)
        finally:
            self.bench.table(
                f"{self.args.model}: ms of a frame step, mid-utterance",
                ["", "rows", "sampling", "predictor", "talker", "codec", "sum", "whole",
                 "predicted", "floor", "x floor"],
                table,
            )  # fmt: skip

    def parts_of(self, rows: int, least: float, table: list[list[object]]) -> None:
        """Of so many rows, plain and captured; ``least``: the floor in milliseconds."""
        captured = self.runner._backend
        backends = [("plain", EagerBackend())] if rows in (1, 64) or not captured.captures else []
        if captured.captures:
            backends.append(("captured", captured))  # type: ignore[arg-type]
        for name, backend in backends:
            runs = max(2, self.runs // 4) if name == "plain" else self.runs
            times = part_times(self.runner, rows, backend, runs)
            total = sum(times.values())
            row: list[object] = [name, rows, *times.values(), total, "", "", least, total / least]
            if name == backends[-1][0]:
                step, whole = self.whole(rows)
                row[7], row[10] = whole, whole / least
                expected = self.predicted(rows)
                if expected is not None:
                    row[8] = expected
                if rows in (1, 64):
                    plural = "s" * (rows > 1)
                    self.figures[f"step_ms_{rows}row{plural}"] = whole
                    self.figures[f"frames_ms_{rows}row{plural}"] = step
                if rows == 1:
                    self.figures["floor_ratio_1row"] = whole / least
                    if expected is not None:
                        self.figures["predicted_ms_1row"] = expected
            table.append(row)

    def whole(self, rows: int) -> tuple[float, float]:
        """Milliseconds of a step, and of a step and a decode of one frame, by the runner."""
        runner = self.runner
        hidden = self.model.config.talker.layers.hidden
        embeds = torch.randn(24, hidden, device=self.device).to(self.model.dtype) * 0.1
        pad = self.model.config.text_ids.tts_pad
        runner.prefill([PrefillRow(slot, embeds, Sampling(), slot) for slot in range(rows)])
        steps = [StepRow(slot, pad, False) for slot in range(rows)]
        at = 0

        def step() -> None:
            nonlocal at
            runner.step(steps)
            at += 1

        def both() -> None:
            step()
            runner.decode([DecodeRow(slot, at - 1, 1) for slot in range(rows)])

        alone = 1e3 * timed(step, self.device, self.runs)
        whole = 1e3 * timed(both, self.device, self.runs)
        runner.reset()
        return alone, whole

    # --- calls ---

    def first(self) -> None:
        """Single calls."""
        kinds: dict[str, tuple[Layout, bool]] = {
            "1call": ("full", False),
            "streaming": ("streaming", False),
            "clone": ("full", True),
        }
        table: list[list[object]] = []
        columns: list[str] = []
        try:
            for name, (layout, clone) in kinds.items():
                found = self.loads.first(layout, clone=clone)
                columns = columns or list(found)
                table.append([name, *(found.get(each, "") for each in columns)])
                self.figures[f"first_ms_p50_{name}"] = found["p50"]
        finally:
            self.bench.table(
                "single calls: ms from the request to the first audible sound, and marks, median",
                ["voice and layout", *columns],
                table,
            )

    def poisson(self) -> None:
        """Open loop."""
        table: list[list[object]] = []
        try:
            for rate in RATES:
                if rate != RATES[0] and self.left() < 120:
                    self.note(f"{rate:g} requests a second left out: the time is up")
                    continue
                found = self.loads.poisson(rate, share=1.0 if rate == RATES[0] else 0.3)
                table.append([rate, *found.values(), *[""] * (5 - len(found))])
                self.note(f"{rate:g} requests a second: {table[-1]} {state(self.device)}")
                if not found["calls"]:
                    continue
                short = f"{rate:g}rps"
                self.figures[f"first_ms_p50_{short}"] = found["p50"]
                self.figures[f"first_ms_p95_{short}"] = found["p95"]
                self.figures[f"gapfree_pct_{short}"] = found["gap-free %"]
        finally:
            self.bench.table(
                "requests at random times: first audible ms, utterances without a gap",
                ["requests/s", "calls", "p50", "p95", "p99", "gap-free %"],
                table,
            )

    def throughput(self) -> None:
        """As fast as it goes."""
        slots = self.runner.slots
        table: list[list[object]] = []
        try:
            for rows in dict.fromkeys(min(each, slots) for each in (64, 128, 192, 256)):
                table.append([rows, self.loads.throughput(rows)])
                self.note(f"{rows} rows unpaced: {table[-1][1]:.0f} audio-s/s")
                rate = float(table[-1][1])  # type: ignore[arg-type]
                self.figures[f"audio_s_per_s_{rows}rows"] = rate
                best = max(rate, float(self.figures.get("audio_s_per_s", 0.0)))
                self.figures["audio_s_per_s"] = best
        finally:
            self.bench.table("unpaced", ["rows", "audio seconds a second"], table)

    def calls(self) -> None:
        """The most that hold."""
        table: list[list[object]] = []

        def told(row: list[float]) -> None:
            table.append(list(row))
            self.note(f"{row[0]:.0f} calls: p95 {row[2]:.1f} ms, {row[3]:.0f} with a gap")

        try:
            self.figures["realtime_calls"] = self.loads.most_calls(self.left, told)
        finally:
            self.bench.table(
                "concurrent in real time", ["calls", "utterances", "first p95 ms", "gaps"], table
            )

    def profiled(self) -> None:
        """By kernel."""
        for rows in (1, min(64, self.runner.slots)):
            profile(self.runner, rows)

    # --- all of it ---

    def attempt(self, name: str) -> bool:
        """Run one part; what fails is noted, and the JSON file written as far as it goes."""
        self.note(name)
        try:
            getattr(self, name)()
            return True
        except Exception as error:
            # What a GPU may do is not known beforehand, and the other parts are wanted.
            self.bench.failed(name, error)
            return False
        finally:
            self.bench.save(**self.figures)

    def measure(self) -> bool:
        """Every part that was asked for; False if one failed."""
        if not self.attempt("load"):
            return False
        good = True
        for part in self.args.part or PARTS:
            if self.left() < 0:
                self.note(f"{part} left out: the time is up")
                continue
            good &= self.attempt(part)
        if self.args.profile:
            good &= self.attempt("profiled")
        return good

    def check(self) -> bool:
        """Is the engine right here? False if not."""
        place = this_gpu(self.device) if self.device.type == "cuda" else Place(self.device, slots=2)
        if self.args.tiny:
            place.config = narrow(place.config)
            place.dtype = place.codec_dtype = torch.float32
        rows: list[list[object]] = []
        for name, check in CHECKS.items():
            try:
                for result in check(place):
                    rows.append([result.name, "yes" if result.passed else "NO", result.text])
                    self.note(f"{'passed' if result.passed else 'FAILED'} {result.name}:"
                              f" {result.text}")  # fmt: skip
            except Exception as error:
                # As in attempt().
                self.bench.failed(name, error)
                rows.append([name, "NO", f"{type(error).__name__}: {error}"])
        self.bench.table("is the engine right on this device?", ["check", "passed", ""], rows)
        failed = sum(row[1] == "NO" for row in rows)
        self.figures.update(checks=len(rows), failed=failed)
        return not failed


def main() -> None:
    """Run the parts, one after the other; failures are reported, and the rest goes on."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--check", action="store_true", help="whether the engine is right here, and nothing else")
    add("--model", default="1.7b", choices=("0.6b", "1.7b"))
    add("--part", action="append", choices=PARTS, help="only this; may be repeated")
    add("--tiny", action="store_true", default=None, help="few columns; without a GPU the default")
    add("--slots", type=int, help=f"concurrent rows (as many as fit, at most {MOST_SLOTS}; tiny 4)")
    add("--positions", type=int, help="of a row (1024; tiny: 256)")
    add("--dtype", choices=tuple(DTYPES), help="of talker and predictor (bfloat16 on a GPU)")
    add("--codec-dtype", choices=tuple(DTYPES), help="of the codec (float16 on a GPU)")
    add("--tf32", action="store_true", help="a float32 codec may round its products to TF32")
    add("--compile", action="store_true", help="torch.compile inside the graphs")
    add("--persistent", action="store_true", help="codes 1 to 15 by one kernel, up to 8 rows")
    add("--profile", action="store_true", help="where the time of each part goes, by kernel")
    add("--budget", type=float, default=540.0, help="seconds after which no part begins")
    bench = Bench("engine_gpu", "the engine on a GPU", parser)
    args = bench.args
    if args.tiny is None:
        args.tiny = args.device == "cpu"
    if args.tiny:
        args.slots = args.slots or 4
    args.positions = args.positions or (256 if args.tiny else 1024)
    if args.device == "cpu":
        torch.set_num_threads(1)
    # The engine's thread and this one share the interpreter, as it does with a server.
    sys.setswitchinterval(0.001)
    run = Run(bench)
    good = run.check() if args.check else run.measure()
    keys = ("gpu", "checks", "failed") if args.check else KEYS
    # What was not measured, for want of a GPU, slots or time, is reported as such.
    bench.figure(**{**dict.fromkeys(keys, "none"), **run.figures})
    if not good:
        sys.exit(1)


if __name__ == "__main__":
    main()
