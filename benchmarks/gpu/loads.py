"""Loads on the real worker: first sound, requests at random times, throughput, calls that hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from gpu.load import SAMPLE_RATE, Call, Clone, Load
from gpu.parts import sync
from gpu.silence import SilentStart

from qwen3tts_engine.qwen3.engine.jobs import VoiceConditioning
from qwen3tts_engine.qwen3.kernels.runner import Runner
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.prompt import Layout, Reference

FIRST_LIMIT_MS = 100.0
REFERENCE_FRAMES = 38
"""Three seconds of recording."""
REFERENCE_TEXT = 12


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long the loads are."""

    singles: int = 40
    warm_s: float = 30.0
    measured_s: float = 60.0
    burst_s: float = 10.0
    hold_s: float = 12.0
    lengths: tuple[float, float] = (4.0, 12.0)
    """Seconds of an utterance."""


QUICK = Sizes(4, 2.0, 6.0, 4.0, 5.0)
TINY = Sizes(2, 0.2, 0.6, 1.0, 0.8, (0.5, 1.0))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share lies; not a number of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def heard(calls: Sequence[Call]) -> list[Call]:
    """Utterances heard to their end; an error is one too many."""
    for call in calls:
        if call.error is not None:
            raise call.error
    return [call for call in calls if call.over.is_set() and call.heard]


class Loads:
    """Loads on one model and its runner; rows begin with a silent frame, which is trimmed."""

    def __init__(self, model: Qwen3Model, runner: Runner, sizes: Sizes) -> None:
        self.model, self.runner, self.sizes = model, runner, sizes

    @contextmanager
    def load(self, *, layout: Layout = "full") -> Iterator[Load]:
        """A worker for one load; slots are as new after it."""
        self.runner.reset()
        load = Load(self.model, SilentStart(self.runner), layout=layout, trim=True)
        with load.running():
            yield load
        sync(self.runner.model.device)

    def clone(self) -> Clone:
        """A voice that goes on from a recording, with what a server keeps of it."""
        config, runner = self.model.config, self.runner
        hidden = config.talker.layers.hidden
        draw = torch.Generator().manual_seed(7)
        codes = torch.randint(
            0, config.talker.codes, (REFERENCE_FRAMES, config.talker.code_groups), generator=draw
        )
        runner.replay(0, None, codes.numpy())
        snapshot = runner.codec.snapshot(0)
        x_vector = (torch.randn(hidden, generator=draw) * 0.1).to(
            self.model.device, self.model.dtype
        )
        text = tuple(range(REFERENCE_TEXT))
        reference = Reference(text, tuple(tuple(frame) for frame in codes.tolist()))
        return Clone(VoiceConditioning("clone", x_vector, snapshot), reference)

    def first(self, layout: Layout, *, clone: bool) -> dict[str, float]:
        """Single calls on an idle engine: milliseconds to the first audible sound, and marks."""
        voice = self.clone() if clone else None
        with self.load(layout=layout) as load:
            load.clone = voice
            load.one_by_one(min(3, self.sizes.singles))
            calls = load.one_by_one(self.sizes.singles)
        for call in calls:
            if call.error is not None:
                raise call.error
        times = [call.first_ms(0) for call in calls]
        found = {"p50": percentile(times, 0.5), "p95": percentile(times, 0.95)}
        for name in calls[0].marks:
            values = [1e3 * (call.marks[name] - call.asked) for call in calls if name in call.marks]
            found[name] = percentile(values, 0.5)
        return found

    def poisson(self, rate: float, *, share: float) -> dict[str, float]:
        """Open loop, measured behind the warm-up; ``share`` of the full time."""
        sizes = self.sizes
        warm_s = share * sizes.warm_s
        with self.load() as load:
            began = time.monotonic()
            calls = load.poisson(rate, warm_s + share * sizes.measured_s, sizes.lengths)
        calls = [call for call in heard(calls) if call.asked >= began + warm_s]
        times = [call.first_ms(0) for call in calls]
        free = sum(not call.has_gap(0) for call in calls)
        if not calls:
            return {"calls": 0}
        return {
            "calls": len(calls),
            "p50": percentile(times, 0.5),
            "p95": percentile(times, 0.95),
            "p99": percentile(times, 0.99),
            "gap-free %": 100 * free / max(1, len(calls)),
        }

    def throughput(self, rows: int) -> float:
        """Unpaced: seconds of audio made in a second."""
        with self.load() as load:
            began = time.monotonic()
            calls = load.at_once(rows, self.sizes.burst_s, self.sizes.lengths, paced=False)
            end = time.monotonic()
            middle = began + (end - began) / 4
            samples = sum(size for call in calls for at, size in call.heard if middle <= at < end)
            load.stop(calls)
            heard(calls)
        return samples / SAMPLE_RATE / (end - middle)

    def holds(self, count: int) -> tuple[float, int, int]:
        """Paced calls all the time: p95 of the first audible sound, utterances, and with gaps."""
        low, high = self.sizes.lengths
        with self.load() as load:
            calls = load.at_once(count, self.sizes.hold_s, (low, min(high, 2 * low)), paced=True)
            load.stop(calls)
        good = heard(calls)
        times = [call.first_ms(0) for call in good]
        return percentile(times, 0.95), len(good), sum(call.has_gap(0) for call in good)

    def most_calls(self, left: Callable[[], float], told: Callable[[list[float]], None]) -> int:
        """The most that hold in real time, by bisection while there is time."""
        most, best = self.runner.slots, 0
        low, high, count = 0, most + 1, min(64, most)
        while high - low > max(1, most // 16) and left() > 3 * self.sizes.hold_s:
            p95, spoken, gaps = self.holds(count)
            told([count, spoken, p95, gaps])
            if p95 < FIRST_LIMIT_MS and not gaps:
                low = best = count
            else:
                high = count
            count = min(most, 2 * low) if high > most else (low + high) // 2
            if low == most or count in (low, 0):
                break
        return best
