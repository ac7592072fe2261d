"""The engine on a GPU: models of the published sizes with random weights.

It needs torch, triton, numpy, safetensors and tokenizers, and no checkpoint. One command:

    PYTHONPATH=.:server:codecs python benchmarks/engine_gpu.py --model 1.7b --json engine_gpu.json

- *parts*: a frame step by part, plain and captured in graphs, beside the bandwidth floor: the time
  that reading all weights and the rows' keys and values takes at the measured copy bandwidth.
  *whole* is a step and a decode of one frame for every row, as the runner launches them.
- *first*: time to the first audible sample of single calls on an idle engine.
- *poisson*: requests at random times, of 4 to 12 s, whether or not earlier ones are done. Audible
  means: behind 0 or 1 leading frames of silence. A gap is a moment after a 40 ms prebuffer at which
  a listener has nothing.
- *throughput*: all slots speak, unpaced: seconds of audio made in a second.
- *calls*: most calls that speak in real time with p95 of first audio below 100 ms and no
  gap.

All loads go through the real worker and scheduler, from request to samples in the engine's output;
no network. Lengths are drawn, for random weights do not end by themselves.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from common import Bench
from gpu.load import Call, Load
from gpu.parts import Floor, bandwidth, narrow, part_times, profile, sync, timed

from qwen3tts_engine.qwen3.kernels.cuda import EagerBackend
from qwen3tts_engine.qwen3.kernels.memory import format_bytes
from qwen3tts_engine.qwen3.kernels.runner import LaunchMode, Runner
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, StepRow
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampling import Sampling
from tests.tiny_models.published import PUBLISHED
from tests.tiny_models.weights import random_weights

ROWS = (1, 8, 32, 64)
RATES = (1.0, 10.0, 20.0)
LENGTHS = (4.0, 12.0)
SILENT = (0, 1)
FIRST_LIMIT_MS = 100.0
KEYS = (
    *("gpu", "model", "first_ms_p50_1call", "first_ms_p95_20rps", "gapfree_pct_20rps"),
    *("step_ms_1row", "step_ms_64rows", "floor_ratio_1row", "audio_s_per_s", "realtime_calls"),
)
"""Keys of the closing line; ``none`` where there is nothing to say."""
PARTS = ("parts", "first", "poisson", "throughput", "calls")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def heard(calls: Sequence[Call]) -> list[Call]:
    """Utterances heard to their end; an error is one too many."""
    for call in calls:
        if call.error is not None:
            raise call.error
    return [call for call in calls if call.over.is_set() and call.heard]


class Run:
    """One model on one device."""

    def __init__(self, bench: Bench) -> None:
        args = bench.args
        self.bench = bench
        self.args = args
        self.device = torch.device(args.device)
        self.figures: dict[str, float | int | str] = {}
        self.began = time.monotonic()
        gpu = "cpu"
        if self.device.type == "cuda":
            gpu = torch.cuda.get_device_name(self.device).replace(" ", "-")
        self.figures.update(gpu=gpu, model=args.model)
        self.small = args.tiny or bench.quick
        self.runs = 3 if args.tiny else 20

    def left(self) -> float:
        """Seconds of the budget."""
        return float(self.args.budget - (time.monotonic() - self.began))

    def note(self, text: str) -> None:
        """A line with the time."""
        self.bench.note(f"[{time.monotonic() - self.began:5.0f} s] {text}")

    def config(self) -> ModelConfig:
        """The published one, or few columns of it."""
        config = PUBLISHED[f"{self.args.model}-custom_voice"]
        if self.args.tiny:
            vocab = config.talker.text_vocab
            config = narrow(config)
            config = replace(config, talker=replace(config.talker, text_vocab=vocab))
        return config

    def load(self) -> None:
        """Weights, then slots and graphs."""
        args, on_gpu = self.args, self.device.type == "cuda"
        dtype = DTYPES[args.dtype or ("bfloat16" if on_gpu else "float32")]
        codec = DTYPES[args.codec_dtype or ("float16" if on_gpu else "float32")]
        config = self.config()
        # The codec is folded on the CPU, in float64.
        weights = random_weights(config, device=self.device, dtype=dtype)[0]
        codec_weights = random_weights(config)[1]
        self.model = Qwen3Model.from_weights(
            config,
            weights,
            codec_weights,
            device=self.device,
            dtype=dtype,
            codec_dtype=codec,
            tf32=args.tf32,
        )
        self.note(f"weights made: talker {dtype}, codec {codec}")
        self.runner = Runner(
            self.model,
            slots=args.slots,
            positions=args.positions,
            compile=args.compile,
            launch=LaunchMode(static=True),
        )
        for line in self.runner.memory.lines():
            self.bench.note("    " + line)
        shown = ""

        def progress(what: str, done: int, of: int) -> None:
            nonlocal shown
            if what != shown or done % 10 == 0 or done == of:
                shown = what
                self.note(f"{what} {done}/{of}")

        self.runner.warmup(progress)
        count, size = self.runner.captured
        for each in self.runner.notes:
            self.note(each)
        self.note(f"{count} sizes captured, {format_bytes(size)}")
        if on_gpu:
            used = torch.cuda.max_memory_allocated(self.device)
            self.figures.update(memory_gib=round(used / 2**30, 2))

    # --- steps ---

    def parts(self) -> None:
        """Part by part."""
        device = self.device
        rate = bandwidth(device, 1 << (22 if self.args.tiny else 31))
        self.note(f"copy bandwidth {rate / 1e12:.3g} TB/s")
        floor = Floor.of(self.model)
        self.note(
            f"read for a frame: talker {floor.talker / 1e9:.3f} GB, predictor"
            f" {floor.predictor / 1e9:.3f} GB, codec {floor.codec / 1e9:.3f} GB"
        )
        backends = [("plain", EagerBackend())]
        if self.runner._backend.captures:
            backends.append(("captured", self.runner._backend))  # type: ignore[arg-type]
        table: list[list[object]] = []
        for rows in (each for each in ROWS if each <= self.runner.slots):
            least = 1e3 * floor.seconds(rate, rows)
            for name, backend in backends:
                runs = max(2, self.runs // 4) if name == "plain" else self.runs
                times = part_times(self.runner, rows, backend, runs)
                total = sum(times.values())
                row: list[object] = [name, rows, *times.values(), total, "", least, total / least]
                if name == backends[-1][0]:
                    step, whole = self.whole(rows)
                    row[7] = whole
                    row[9] = whole / least
                    if rows in (1, 64):
                        self.figures[f"step_ms_{rows}row{'s' * (rows > 1)}"] = whole
                        self.figures[f"frames_ms_{rows}row{'s' * (rows > 1)}"] = step
                    if rows == 1:
                        self.figures["floor_ratio_1row"] = whole / least
                table.append(row)
        self.bench.table(
            f"{self.args.model}: ms of a frame step, mid-utterance",
            ["", "rows", "sampling", "predictor", "talker", "codec", "sum", "whole", "floor",
             "x floor"],
            table,
        )  # fmt: skip

    def whole(self, rows: int) -> tuple[float, float]:
        """Milliseconds of a step, and of a step and a decode of one frame, by the runner."""
        runner = self.runner
        hidden = self.model.config.talker.layers.hidden
        embeds = torch.randn(24, hidden, device=self.device).to(self.model.dtype) * 0.1
        pad = self.model.config.text_ids.tts_pad
        for slot in range(rows):
            runner.prefill([PrefillRow(slot, embeds, Sampling(), slot)])
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
        for slot in range(rows):
            runner.free(slot)
        return alone, whole

    # --- calls ---

    def with_load(self, use: Callable[[Load], None]) -> None:
        """A worker for one part; slots are as new after it."""
        self.runner.reset()
        load = Load(self.model, self.runner)
        with load.running():
            use(load)
        sync(self.device)

    def first(self) -> None:
        """Single calls."""

        def use(load: Load) -> None:
            load.one_by_one(3)
            calls = load.one_by_one(4 if self.small else 40)
            for call in calls:
                if call.error is not None:
                    raise call.error
            times = [call.first_ms(0) for call in calls]
            p50 = percentile(times, 0.5)
            marks = [
                {name: 1e3 * (at - call.asked) for name, at in call.marks.items()} for call in calls
            ]
            names = list(marks[0])
            middle = {name: percentile([each[name] for each in marks], 0.5) for name in names}
            self.bench.table(
                "single calls: ms from the request, median",
                [*names, "first sound p50", "p95"],
                [[*middle.values(), p50, percentile(times, 0.95)]],
            )
            self.figures["first_ms_p50_1call"] = p50

        self.with_load(use)

    def poisson(self) -> None:
        """Open loop."""
        table: list[list[object]] = []

        def use(load: Load) -> None:
            for rate in RATES:
                seconds = 1.0 if self.args.tiny else (8.0 if self.bench.quick else 15.0)
                if rate == RATES[0]:
                    seconds *= 1.5
                lengths = (0.5, 1.0) if self.args.tiny else LENGTHS
                calls = heard(load.poisson(rate, seconds, lengths))
                for silent in SILENT:
                    times = [call.first_ms(silent) for call in calls]
                    free = [not call.has_gap(silent) for call in calls]
                    p50, p95 = percentile(times, 0.5), percentile(times, 0.95)
                    share = 100 * sum(free) / max(1, len(free))
                    table.append([rate, silent, len(calls), p50, p95, share])
                    if rate == RATES[-1] and silent == 0:
                        self.figures["first_ms_p95_20rps"] = p95
                        self.figures["first_ms_p50_20rps"] = p50
                        self.figures["gapfree_pct_20rps"] = share
                self.note(f"{rate:g} requests a second: {table[-2:]}")

        try:
            self.with_load(use)
        finally:
            self.bench.table(
                "Poisson arrivals: first audible ms, utterances without a gap",
                ["requests/s", "silent frames", "calls", "p50", "p95", "gapfree %"],
                table,
            )

    def throughput(self) -> None:
        """As fast as it goes."""
        counts = [each for each in (64, self.runner.slots) if each <= self.runner.slots]
        table: list[list[object]] = []

        def use(load: Load) -> None:
            for count in dict.fromkeys(counts or [self.runner.slots]):
                seconds = 2.0 if self.args.tiny else (5.0 if self.bench.quick else 10.0)
                lengths = (1.0, 2.0) if self.args.tiny else LENGTHS
                began = time.monotonic()
                calls = load.at_once(count, seconds, lengths, paced=False)
                end = time.monotonic()
                middle = began + (end - began) / 4
                samples = sum(
                    size for call in calls for at, size in call.heard if middle <= at < end
                )
                load.stop(calls)
                heard(calls)
                table.append([count, samples / 24_000 / (end - middle)])

        self.with_load(use)
        self.bench.table("unpaced", ["rows", "audio seconds a second"], table)
        self.figures["audio_s_per_s"] = table[0][1]  # type: ignore[assignment]

    def calls(self) -> None:
        """The most that hold."""
        table: list[list[object]] = []
        most = self.runner.slots
        best = 0

        def holds(load: Load, count: int) -> bool:
            seconds = 1.5 if self.args.tiny else (6.0 if self.bench.quick else 12.0)
            lengths = (0.5, 1.0) if self.args.tiny else (4.0, 8.0)
            calls = load.at_once(count, seconds, lengths, paced=True)
            load.stop(calls)
            good = heard(calls)
            p95 = percentile([call.first_ms(0) for call in good], 0.95)
            gaps = sum(call.has_gap(0) for call in good)
            table.append([count, len(good), p95, gaps])
            self.note(f"{count} concurrent: p95 {p95:.1f} ms, {gaps} with a gap")
            return p95 < FIRST_LIMIT_MS and not gaps

        def use(load: Load) -> None:
            nonlocal best
            low, high, count = 0, most + 1, min(64, most)
            while high - low > max(1, most // 16) and self.left() > 30:
                if holds(load, count):
                    low = best = count
                else:
                    high = count
                count = min(most, 2 * low) if high > most else (low + high) // 2
                if low == most or count in (low, 0):
                    break

        try:
            self.with_load(use)
        finally:
            self.bench.table(
                "concurrent in real time", ["calls", "utterances", "first p95 ms", "gaps"], table
            )
        self.figures["realtime_calls"] = best

    def profiled(self) -> None:
        """By kernel."""
        for rows in (1, min(64, self.runner.slots)):
            profile(self.runner, rows)


def main() -> None:
    """Run the parts, one after the other; failures are reported, and the rest goes on."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    there = torch.cuda.is_available()
    add = parser.add_argument
    add("--device", default="cuda" if there else "cpu")
    add("--model", default="1.7b", choices=("0.6b", "1.7b"))
    add("--part", action="append", choices=PARTS, help="only this; may be repeated")
    add("--tiny", action="store_true", default=None, help="few columns; without a GPU the default")
    add("--slots", type=int, help="concurrent rows (256; tiny: 4)")
    add("--positions", type=int, help="of a row (1024; tiny: 256)")
    add("--dtype", choices=tuple(DTYPES), help="of talker and predictor (bfloat16 on a GPU)")
    add("--codec-dtype", choices=tuple(DTYPES), help="of the codec (float16 on a GPU)")
    add("--tf32", action="store_true", help="a float32 codec may round its products to TF32")
    add("--compile", action="store_true", help="torch.compile inside the graphs")
    add("--profile", action="store_true", help="where the time of each part goes, by kernel")
    add("--budget", type=float, default=480.0, help="seconds after which no part begins")
    bench = Bench("engine_gpu", "the engine on a GPU", parser)
    args = bench.args
    if args.tiny is None:
        args.tiny = args.device == "cpu"
    args.slots = args.slots or (4 if args.tiny else 256)
    args.positions = args.positions or (256 if args.tiny else 1024)
    if args.device == "cpu":
        torch.set_num_threads(1)
    # The engine's thread and this one share the interpreter, as it does with a server.
    sys.setswitchinterval(0.001)
    run = Run(bench)
    bench.note(
        f"torch {torch.__version__}, {run.figures['gpu']}, {threading.active_count()} threads"
    )
    run.load()
    for part in args.part or PARTS:
        if run.left() < 0:
            bench.note(f"{part} left out: the time is up")
            continue
        run.note(part)
        try:
            getattr(run, part)()
        except Exception as error:
            bench.failed(part, error)
        bench.save(**run.figures)
    if args.profile:
        try:
            run.profiled()
        except Exception as error:
            bench.failed("profile", error)
    # What was not measured, for want of a GPU, slots or time, is reported as such.
    bench.figure(**{**dict.fromkeys(KEYS, "none"), **run.figures})


if __name__ == "__main__":
    main()
