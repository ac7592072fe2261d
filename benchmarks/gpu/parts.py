"""Times of a frame step's parts, beside the time of reading their weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from qwen3tts_engine.qwen3.kernels.cuda import EagerBackend, GraphBackend
from qwen3tts_engine.qwen3.kernels.memory import tensor_bytes
from qwen3tts_engine.qwen3.kernels.runner import Runner
from qwen3tts_engine.qwen3.kernels.stages import DecodeKey, StepKey
from qwen3tts_engine.qwen3.model.config import LayersConfig, ModelConfig
from qwen3tts_engine.qwen3.model.kv_cache import FRAME, POS
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.sampler import FrameRows
from qwen3tts_engine.qwen3.model.sampling import Sampling

Work = Callable[[], None]
POSITION = 150
"""Position of the talker's sequence where steps are measured: mid-utterance."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Bytes that a frame must read."""

    talker: int
    predictor: int
    codec: int
    position: int
    """Keys and values of one position of one row."""

    @classmethod
    def of(cls, model: Qwen3Model) -> Floor:
        """Counted over the weights as they lie there; embeddings are looked up, not read."""
        device, talker, predictor = model.device, model.talker, model.predictor
        layers = model.config.talker.layers
        groups = model.config.predictor.groups
        return cls(
            talker=tensor_bytes([talker.stack, talker.norm, talker.head], device),
            # Positions 0 and 1 go through together, every other code by itself.
            predictor=groups * tensor_bytes([predictor.stack], device)
            + tensor_bytes([predictor.heads, predictor.norm], device),
            codec=tensor_bytes([model.decoder], device),
            position=2 * layers.layers * layers.kv_heads * layers.head_dim * model.dtype.itemsize,
        )

    def seconds(self, bandwidth: float, rows: int) -> float:
        """At so many bytes a second."""
        kv = rows * POSITION * self.position
        return (self.talker + self.predictor + self.codec + kv) / bandwidth


def sync(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def bandwidth(device: torch.device, size: int) -> float:
    """Bytes a second of a copy, read and written."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    to = torch.empty_like(source)

    def work() -> None:
        to.copy_(source)

    return 2 * size / timed(work, device, 20)


def timed(work: Work, device: torch.device, runs: int) -> float:
    """Seconds of one run, the median of five lots.

    Each lot is launched run after run and waited for at its end.
    """
    for _ in range(2):
        work()
    lots = []
    for _ in range(5):
        sync(device)
        began = time.perf_counter()
        for _ in range(runs):
            work()
        sync(device)
        lots.append((time.perf_counter() - began) / runs)
    return sorted(lots)[len(lots) // 2]


def works(runner: Runner, rows: int) -> dict[str, tuple[Work, ...]]:
    """The parts of a step of so many rows, mid-utterance, as they stand."""
    model, kv_cache = runner.model, runner.kv_cache
    kv_len = min(runner.positions, 256)
    count = min(rows, runner.slots)
    for slot in range(count):
        kv_cache.reset(slot, Sampling(), slot)
    middle = min(POSITION, runner.positions - 1)
    kv_cache.counters[:count, POS], kv_cache.counters[:count, FRAME] = middle, middle
    stages = runner._stages
    step = stages.step(StepKey(rows, kv_len, False))
    decode = stages.decode(DecodeKey(rows, 1))
    for static in (step, decode):
        static.integers[0].copy_(torch.arange(rows, device=model.device).clamp(max=count - 1))
    groups = model.config.talker.code_groups
    rest = torch.randn(rows, model.config.predictor.vocab, device=model.device).to(model.dtype)
    slots, _, may_end = step.integers.unbind(0)

    @torch.no_grad()
    def sampling() -> None:
        found = FrameRows(model.constants, kv_cache, slots, may_end, full_sort=False)
        sampler, tables = model.kernels.sampler(found), model.predictor.inputs
        sampler.first(tables[0])
        for group in range(1, groups - 1):
            sampler.sample_input(group, rest, tables[group])
        sampler.sample(groups - 1, rest)
        sampler.finish()

    def back() -> None:
        # The sequences do not grow while they are measured.
        kv_cache.counters[:count, :2].fill_(middle)

    draw, advance = step.works
    return {"step": (draw, advance, back), "sampling": (sampling,), "codec": decode.works}


def in_order(several: Sequence[Work]) -> Work:
    """One after the other, as one."""

    def work() -> None:
        for one in several:
            one()

    return work


def part_times(runner: Runner, rows: int, backend: GraphBackend, runs: int) -> dict[str, float]:
    """Milliseconds of each part: sampling, predictor, talker, codec."""
    device = runner.model.device
    times = {}
    for name, part in works(runner, rows).items():
        ready = backend.capture(part, "sound" if name == "codec" else "frames")
        times[name] = 1e3 * timed(in_order(ready), device, runs)
        if name == "step":
            # The talker needs the codes that were drawn: it is what is left of the step.
            times["draw"] = 1e3 * timed(ready[0], device, runs)
    return {
        "sampling": times["sampling"],
        "predictor": max(0.0, times["draw"] - times["sampling"]),
        "talker": max(0.0, times["step"] - times["draw"]),
        "codec": times["codec"],
    }


def profile(runner: Runner, rows: int, lines: int = 25) -> None:
    """Time of each part, by kernel."""
    device = runner.model.device
    activities = [torch.profiler.ProfilerActivity.CPU]
    sort = "self_cpu_time_total"
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
        sort = "self_device_time_total"
    for name, part in works(runner, rows).items():
        ready = EagerBackend().capture(part, "frames")
        for one in ready:
            one()
        sync(device)
        with torch.profiler.profile(activities=activities) as seen:
            for _ in range(3):
                for one in ready:
                    one()
            sync(device)
        print(f"\n== {name}, {rows} rows, three runs")
        print(seen.key_averages().table(sort_by=sort, row_limit=lines, max_name_column_width=70))


def narrow(config: ModelConfig) -> ModelConfig:
    """A published model with all its layers and codebooks, but few columns."""

    def thin(layers: LayersConfig, hidden: int) -> LayersConfig:
        return replace(layers, hidden=hidden, ffn=24, head_dim=16)

    talker, predictor, decoder = config.talker, config.predictor, config.codec.decoder
    # What differs in width stays different: a projection stands between.
    wide = 24 if talker.layers.hidden == predictor.layers.hidden else 32
    return replace(
        config,
        talker=replace(
            talker,
            layers=thin(talker.layers, wide),
            text_vocab=512,
            text_hidden=32,
            max_positions=512,
        ),
        predictor=replace(predictor, layers=thin(predictor.layers, 24)),
        codec=replace(
            config.codec,
            decoder=replace(
                decoder,
                codebook_dim=16,
                latent_dim=16,
                hidden_size=16,
                intermediate_size=16,
                head_dim=8,
                decoder_dim=32,
            ),
        ),
    )
