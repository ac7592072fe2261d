"""Predicts the engine on a GPU: counted kernels and bytes, stated arithmetic, the real scheduler.

    PYTHONPATH=.:server:codecs python benchmarks/engine_model.py --json engine_model.json

No GPU is used, and no figure here is a measurement of one. Kernels and bytes of each stage are
counted on the path that a GPU runs (gpu/census.py, of the 1.7B model). A stage takes

    the sum of its kernels' launches + max(bytes / bandwidth, FLOP / tflops)

and these costs drive a virtual device under the real worker, batch and scheduler
(gpu/virtual_device.py). Every assumption is printed, and how far each result moves if it is wrong
by 30 %. `--policies` compares ways to choose the first chunk: by deadline (the default), by load
(powers of two), and fixed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache

import torch
from common import Bench
from gpu.census import NODE_US, PRODUCT_US, PRODUCTS, Stage, census
from gpu.persistent import BARRIER_US, predicted_ms
from gpu.trace import StageName, meta_model
from gpu.virtual_device import (
    Arrival,
    ByRows,
    DeviceCosts,
    Simulation,
    poisson_calls,
    simulate,
    single_calls,
)
from torch.utils.flop_counter import FlopCounterMode

from qwen3tts_engine.qwen3.kernels.persistent_predictor import MOST_ROWS
from qwen3tts_engine.qwen3.model.codec_layers import TORCH_CODEC_KERNELS
from qwen3tts_engine.scheduler import SchedulerSettings
from tests.tiny_models.published import PUBLISHED

MODEL = "1.7b-custom_voice"
ROWS = (1, 8, 16, 17, 64, 192)
FUSED_ROWS = 16
FRAME_SAMPLES = 1920
PREFIX_BYTES = 1 << 28
AIMS = {
    "step_ms": "2.8",
    "first_ms": "12",
    "p50_20rps": "",
    "p95_20rps": "20",
    "audio_s_per_s": "1300",
}
"""Most, and of the last the least."""
ATTENTION = ("_attend", "_attend_first", "_attend_prompt")
SLOW = {"sample_us": 7.5, "attend_us": 4.0}
"""What these two kernels may take at most, by their instructions; assumed."""
WARM_S = 7.0
"""Until as many speak as will."""
BURST_S = 4.0
"""Speech of each row of a burst; its beginning and end are not full."""
STEADY_BURST_S = 9.0
Results = dict[str, float]


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What no count says; defaults for an H200."""

    node_us: float = NODE_US
    """Launch of a captured kernel."""
    product_us: float = PRODUCT_US
    """The same of a matrix product, with its first bytes' way."""
    sample_us: float = NODE_US
    """The same of the sampling kernel, which is longer than a trivial one; see SLOW."""
    attend_us: float = NODE_US
    """The same of attention at few positions."""
    bandwidth: float = 4.0
    """TB/s that products of few rows reach."""
    tflops: float = 400.0
    """Products of many rows in bfloat16 and float16."""
    codec_tflops: float = 100.0
    """The codec's convolutions, small and with a float32 sum."""
    barrier_us: float = BARRIER_US
    """A barrier of the persistent predictor."""
    host_turn: float = 0.15
    """ms a turn of the host."""
    host_launch: float = 0.08
    """ms a launch."""
    host_row: float = 0.025
    """ms a row of a step."""
    host_prefill: float = 0.4
    """ms a prefilled row."""
    download: float = 0.06
    """ms of a result to the host."""
    host_wait: float = 0.05
    """ms until the thread runs again after a wait."""


@cache
def counted(rows: int) -> Mapping[StageName, Stage]:
    """Kernels and bytes of each stage."""
    return census(MODEL, rows=rows)


@cache
def flop_of_a_frame() -> dict[str, float]:
    """FLOP a row and frame: 2 for each weight of the language model at each of its positions."""
    config = PUBLISHED[MODEL]
    flop = {}
    for name, layers, positions in (
        ("talker", config.talker.layers, 1),
        ("predictor", config.predictor.layers, config.predictor.groups + 1),
    ):
        heads = 2 * layers.heads + 2 * layers.kv_heads
        weights = layers.layers * layers.hidden * (heads * layers.head_dim + 3 * layers.ffn)
        flop[name] = 2.0 * weights * positions
    model = meta_model(MODEL, torch.bfloat16, torch.float16)
    kernels, model.decoder.kernels = model.decoder.kernels, TORCH_CODEC_KERNELS
    try:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            state = model.decoder.new_state(0)
            slot = torch.zeros(1, dtype=torch.int64, device="meta")
            codes = torch.zeros(1, 1, 16, dtype=torch.int64, device="meta")
            model.decoder.run(state, slot, codes)
    finally:
        model.decoder.kernels = kernels
    return flop | {"codec": float(counter.get_total_flops()), "draw": 0.0}


def stage_ms(stage: Stage, flop: float, tflops: float, assumed: Assumptions) -> float:
    """Milliseconds of one stage."""
    launches = stage.nodes * assumed.node_us
    for names, us in (
        (PRODUCTS, assumed.product_us),
        (("_sample",), assumed.sample_us),
        (ATTENTION, assumed.attend_us),
    ):
        launches += sum(stage.names[name] for name in names) * (us - assumed.node_us)
    work = max(stage.bytes / (assumed.bandwidth * 1e12), flop / (tflops * 1e12))
    return launches / 1e3 + work * 1e3


def of_stage(name: StageName, rows: int, assumed: Assumptions) -> float:
    """Milliseconds of a stage by rows."""
    tflops = assumed.codec_tflops if name == "codec" else assumed.tflops
    positions = 16 if name == "prefill" else 1
    flop = flop_of_a_frame()["talker" if name == "prefill" else name]
    return stage_ms(counted(rows)[name], flop * rows * positions, tflops, assumed)


def costs_of(assumed: Assumptions, *, persistent: bool = False) -> DeviceCosts:
    """Return the device's costs; ``persistent``: with the persistent predictor up to its rows."""

    def points(*names: StageName) -> ByRows:
        return tuple((rows, sum(of_stage(name, rows, assumed) for name in names)) for rows in ROWS)

    draw = points("draw", "predictor")
    if persistent:
        config = PUBLISHED[MODEL].predictor
        bandwidth = assumed.bandwidth * 1e12
        few = tuple(
            (
                rows,
                of_stage("draw", rows, assumed)
                + predicted_ms(
                    config, rows=rows, bandwidth=bandwidth, barrier_us=assumed.barrier_us
                ),
            )
            for rows in (1, MOST_ROWS)
        )
        draw = (*few, *((rows, ms) for rows, ms in draw if rows > MOST_ROWS))
    return DeviceCosts(
        draw=draw,
        talker=points("talker"),
        prefill=((16, of_stage("prefill", 1, assumed)), (256, of_stage("prefill", 16, assumed))),
        decode=points("codec"),
        **{
            name: getattr(assumed, name)
            for name in (
                *("download", "host_turn", "host_launch", "host_row"),
                *("host_prefill", "host_wait"),
            )
        },
    )


def run(costs: DeviceCosts, *, seconds: float, burst_s: float = BURST_S) -> Results:
    """Predict a step, the first audible sound, 20 requests a second, the most audio."""
    one = simulate(single_calls(10), costs, prefix_bytes=PREFIX_BYTES)
    poisson = poisson_calls(20.0, seconds + WARM_S)
    many = simulate(poisson, costs, until=seconds + WARM_S, prefix_bytes=PREFIX_BYTES)
    burst = simulate([Arrival(0.0, burst_s, paced=False)] * 192, costs, prefix_bytes=PREFIX_BYTES)
    return {
        "step_ms": costs.draw[0][1] + costs.talker[0][1],
        "first_ms": one.first_ms(0.5),
        "p50_20rps": many.first_ms(0.5, after=WARM_S),
        "p95_20rps": many.first_ms(0.95, after=WARM_S),
        "audio_s_per_s": burst.audio_rate,
    }


# --- the first chunk ---

POLICIES: dict[str, int | str | None] = {
    "deadline": None,
    "load": "load",
    "fixed 1": 1,
    "fixed 4": 4,
    "fixed 8": 8,
}
CALLS = (1, 8, 32, 64, 128)
MEAN_S = 8.0


def policy(name: str, calls: int, costs: DeviceCosts, seconds: float) -> tuple[object, ...]:
    """One row: so many calls speak on average, each new one at a random time."""
    scheduling = SchedulerSettings(
        slots=192,
        max_waiting=1024,
        initial_codec_chunk_frames=POLICIES[name],  # type: ignore[arg-type]
    )

    def simulated(arrivals: Sequence[Arrival], until: float | None = None) -> Simulation:
        return simulate(
            arrivals, costs, until=until, scheduling=scheduling, prefix_bytes=PREFIX_BYTES
        )

    warm = MEAN_S
    many = simulated(poisson_calls(calls / MEAN_S, warm + seconds), warm + seconds)
    burst = simulated([Arrival(0.0, BURST_S, paced=False)] * calls)
    return (
        name,
        calls,
        many.first_ms(0.5, after=warm),
        many.first_ms(0.95, after=warm),
        100.0 * (1 - many.gap_free()),
        burst.audio_rate,
    )


def main() -> None:
    """Print assumptions, counts, predictions, and what moves them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--h100", action="store_true", help="3.0 TB/s in place of 4.0")
    parser.add_argument("--policies", action="store_true", help="compare first chunks as well")
    bench = Bench("engine_model", "the engine on a GPU, predicted", parser)
    assumed = Assumptions(bandwidth=3.0) if bench.args.h100 else Assumptions()
    bench.table("assumptions", ["assumption", "value"], list(asdict(assumed).items()))
    flop = flop_of_a_frame()
    names: tuple[StageName, ...] = ("draw", "predictor", "talker", "codec", "prefill")
    bench.table(
        f"{MODEL}: counted, and ms by the arithmetic",
        ["stage", "kernels", "MB", "GFLOP a row", *(f"ms, {rows} rows" for rows in ROWS)],
        [
            [
                name,
                counted(1)[name].nodes,
                counted(1)[name].bytes / 1e6,
                flop.get(name, 16 * flop["talker"]) / 1e9,
                *(of_stage(name, rows, assumed) for rows in ROWS),
            ]
            for name in names
        ],
    )
    seconds = 3.0 if bench.quick else 20.0
    burst_s = BURST_S if bench.quick else STEADY_BURST_S
    base = run(costs_of(assumed), seconds=seconds, burst_s=burst_s)
    persistent = run(costs_of(assumed, persistent=True), seconds=seconds, burst_s=burst_s)
    slow = run(costs_of(replace(assumed, **SLOW)), seconds=seconds, burst_s=burst_s)
    bench.table(
        "predicted",
        ["result", "aim", "predicted", "sampling 7.5, attention 4 us", "persistent predictor"],
        [[name, AIMS[name], base[name], slow[name], persistent[name]] for name in base],
    )
    sensitivity(bench, assumed, 2.0 if bench.quick else 5.0)
    if bench.args.policies:
        costs = costs_of(assumed)
        some = CALLS[:3] if bench.quick else CALLS
        bench.table(
            "first chunk: policies",
            ["policy", "calls", "first p50 ms", "first p95 ms", "with a gap %", "audio s/s"],
            [
                policy(name, calls, costs, 4.0 if bench.quick else 12.0)
                for calls in some
                for name in POLICIES
            ],
        )
    bench.figure(
        **base,
        step_ms_slow_kernels=slow["step_ms"],
        first_ms_slow_kernels=slow["first_ms"],
        **{f"{name}_persistent": value for name, value in persistent.items()},
    )


QUICK = ("bandwidth",)
"""Assumptions that a quick run moves."""


def sensitivity(bench: Bench, assumed: Assumptions, seconds: float) -> None:
    """Show by how much each result moves with one assumption 30 % lower and higher."""
    base = run(costs_of(assumed), seconds=seconds)
    rows = []
    for field in fields(assumed):
        if field.name == "barrier_us" or (bench.quick and field.name not in QUICK):
            continue
        value = getattr(assumed, field.name)
        low, high = (
            run(costs_of(replace(assumed, **{field.name: factor * value})), seconds=seconds)
            for factor in (0.7, 1.3)
        )
        moved = [
            f"{100 * (low[name] / before - 1):+.0f}, {100 * (high[name] / before - 1):+.0f} %"
            for name, before in base.items()
        ]
        rows.append([field.name, *moved])
    bench.table("results with an assumption 30 % lower, higher", ["assumption", *base], rows)


if __name__ == "__main__":
    main()
