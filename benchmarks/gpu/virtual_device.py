"""A GPU with two streams and stated costs, on a clock of its own, under the real engine thread.

The runner below launches nothing: each prefill, step and decode occupies its stream for as long as
``DeviceCosts`` says, and a ticket is ready when the clock has passed its end. Worker, batch and
scheduler are the product's, so first sound, gaps and throughput follow from the costs alone, and a
minute of calls takes seconds::

    from gpu.virtual_device import DeviceCosts, simulate, single_calls, poisson_calls

    one = simulate(single_calls(20), DeviceCosts())
    one.first_ms(0.5)  # p50 of the first audible sound; silent_frames=0: of the first frame
    many = simulate(poisson_calls(20.0, 14.0), DeviceCosts(draw=((1, 1.4), (64, 2.0))), until=16.0)
    many.first_ms(0.95, after=7.0), many.gap_free(before=8.0)
    simulate([Arrival(0.0, 9.0, False)] * 192, DeviceCosts()).audio_rate
    simulate(calls, costs, scheduling=SchedulerSettings(slots=192, max_waiting=1024, lead_ms=400))

Costs are milliseconds by size: points ``(rows, ms)`` between which and beyond which they are
linear. The defaults are arithmetic for an H200 and the 1.7B model (counted nodes and bytes, about
30 % uncertain), measured on no device. Rows are padded to captured sizes, as the runner pads them.
"""

from __future__ import annotations

import heapq
import random
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gpu.load import Call, Load
from numpy.typing import NDArray

from qwen3tts_engine.qwen3.kernels.cuda import bucket_for, buckets_up_to
from qwen3tts_engine.qwen3.kernels.runner import PREFILL_LENGTHS
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeRow, PrefillRow, StepRow
from qwen3tts_engine.qwen3.model.config import FRAME_SAMPLES, ModelConfig, Samples
from qwen3tts_engine.qwen3.model.prompt import Layout, Prompt
from qwen3tts_engine.scheduler import SchedulerSettings
from tests.tiny_models.published import PUBLISHED

MODEL = "1.7b-custom_voice"
MS = 1e-3
SAMPLE_RATE = 24_000
LOUD = 0.3
CODES = 2000
"""Different codes: a generation whose codes repeat would be ended."""
POSITIONS = 2048
PREFIX_BYTES = 1 << 20
IDLE_S = 1e-3

ByRows = tuple[tuple[int, float], ...]
"""(rows, ms), rising in rows."""


def at_rows(points: ByRows, rows: float) -> float:
    """Return the ms at ``rows``: linear between the points and beyond the last two."""
    if len(points) == 1 or rows <= points[0][0]:
        return points[0][1]
    at = min(bisect_left(points, (rows, 0.0)), len(points) - 1)
    (low, first), (high, last) = points[at - 1 : at + 1]
    return first + (rows - low) * (last - first) / (high - low)


@dataclass(frozen=True, slots=True)
class DeviceCosts:
    """Milliseconds of each kind of work; on the device unless it says host."""

    draw: ByRows = ((1, 2.9), (256, 4.45))
    """Sixteen codes of a frame: sampling and code predictor, by rows."""
    talker: ByRows = ((1, 1.42), (256, 2.7))
    """Talker step, by rows."""
    prefill: ByRows = ((16, 2.1), (256, 3.0))
    """Prefill, by rows times length of the captured size."""
    decode: ByRows = ((1, 1.8), (128, 5.6))
    """Codec, by rows times frames of one decode."""
    download: float = 0.06
    """Results to the host, with the event."""
    host_turn: float = 0.15
    """Host, a turn: the plan, rows' text, events."""
    host_launch: float = 0.08
    """Host, a launch: upload and replay."""
    host_row: float = 0.025
    """Host, a row of a step."""
    host_prefill: float = 0.4
    """Host, a prefilled row: embedding, reset of its slot."""
    host_wait: float = 0.0
    """Host, after a wait for the device: until the thread runs again (switch interval)."""

    def scaled(self, factor: float, *names: str) -> DeviceCosts:
        """Return the costs with some of them multiplied: how far is a result off if they are?"""
        changed: dict[str, Any] = {}
        for name in names:
            cost = getattr(self, name)
            if isinstance(cost, tuple):
                changed[name] = tuple((rows, ms * factor) for rows, ms in cost)
            else:
                changed[name] = cost * factor
        return replace(self, **changed)


class VirtualClock:
    """Seconds that pass when work is done or waited for."""

    def __init__(self) -> None:
        self._now = 0.0

    @property
    def now(self) -> float:
        """Seconds."""
        return self._now

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def spend(self, ms: float) -> None:
        """Host work of so many milliseconds."""
        self._now += ms * MS

    def wait_until(self, end: float) -> None:
        """Let the time pass."""
        self._now = max(self._now, end)


class RealClock(VirtualClock):
    """Real time, in which a wait sleeps as one for a GPU does; host work takes what it takes."""

    def __init__(self) -> None:
        self.late_s: list[float] = []
        """After each wait: until the thread ran again."""

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def spend(self, ms: float) -> None:
        """See VirtualClock."""

    def wait_until(self, end: float) -> None:
        """Sleep without the interpreter's lock."""
        time.sleep(max(0.0, end - time.monotonic()))
        self.late_s.append(time.monotonic() - end)


class VirtualTicket:
    """Result that is ready at a time of the virtual clock."""

    def __init__(self, result: NDArray[Any], end: float, device: VirtualDevice) -> None:
        self._result, self.end, self._device = result, end, device

    @property
    def ready(self) -> bool:
        """See Ticket."""
        return self._device.clock.now >= self.end

    def wait(self) -> NDArray[Any]:
        """Let the clock pass until the end."""
        clock = self._device.clock
        if clock.now < self.end:
            clock.wait_until(self.end)
            clock.spend(self._device.costs.host_wait)
        return self._result


@dataclass(frozen=True, slots=True)
class VirtualPrefix:
    """A cached prefix of so many positions."""

    length: int
    bytes: int = PREFIX_BYTES


class VirtualDevice:
    """See StepRunner: streams ``frames`` and ``sound``, each a time until which it is busy."""

    positions = POSITIONS
    steps_prompts = True

    def __init__(
        self, costs: DeviceCosts, clock: VirtualClock, *, slots: int = 192, silent_frames: int = 1
    ) -> None:
        """Start idle; the first ``silent_frames`` of each row are silence, as CustomVoice's are."""
        self.costs, self.clock, self.slots = costs, clock, slots
        self._silent = silent_frames
        self._rows = buckets_up_to(slots)
        self._draw = np.random.default_rng(1)
        self._frames_end = 0.0
        self._codes_end = 0.0
        self._sound_end = 0.0
        self.decode_ends: list[float] = []
        """When each decode was on the host."""
        self.busy_frames = 0.0
        self.busy_sound = 0.0
        """Seconds of work in each stream."""

    def _in_frames(self, ms: float) -> float:
        self._frames_end = max(self._frames_end, self.clock.now) + ms * MS
        self.busy_frames += ms * MS
        return self._frames_end

    def running(self) -> AbstractContextManager[object]:
        """See StepRunner."""
        return nullcontext()

    def prefill(self, rows: Sequence[PrefillRow]) -> None:
        """See StepRunner."""
        costs = self.costs
        self.clock.spend(costs.host_prefill * len(rows))
        for cached in (False, True):
            some = [row for row in rows if (row.position is not None) is cached]
            if cached and some:
                # The talker's step takes the last position.
                self.clock.spend(costs.host_launch)
                self._in_frames(at_rows(costs.talker, bucket_for(len(some), self._rows)))
            elif some:
                self._prefilled(some)

    def _prefilled(self, rows: Sequence[PrefillRow]) -> None:
        count = bucket_for(len(rows), buckets_up_to(8, (1, 2, 4)))
        length = bucket_for(max(len(row.embeds) for row in rows), PREFILL_LENGTHS)
        self.clock.spend(self.costs.host_launch)
        self._in_frames(at_rows(self.costs.prefill, count * length))

    def step(self, rows: Sequence[StepRow]) -> VirtualTicket:
        """See StepRunner."""
        costs, count = self.costs, bucket_for(len(rows), self._rows)
        self.clock.spend(costs.host_launch + costs.host_row * len(rows))
        self._codes_end = self._in_frames(at_rows(costs.draw, count))
        self._in_frames(at_rows(costs.talker, count))
        codes = self._draw.integers(CODES, size=(len(rows), 16))
        return VirtualTicket(codes, self._codes_end + costs.download * MS, self)

    def decode(self, rows: Sequence[DecodeRow]) -> VirtualTicket:
        """See StepRunner."""
        costs, frames = self.costs, rows[0].frames
        self.clock.spend(costs.host_launch)
        ms = at_rows(costs.decode, bucket_for(len(rows), self._rows) * frames)
        start = max(self._sound_end, self._codes_end, self.clock.now)
        self._sound_end = start + ms * MS
        self.busy_sound += ms * MS
        sound = np.full((len(rows), frames * FRAME_SAMPLES), LOUD, np.float32)
        for index, row in enumerate(rows):
            sound[index, : max(0, self._silent - row.first_frame) * FRAME_SAMPLES] = 0.0
        end = self._sound_end + costs.download * MS
        self.decode_ends.append(end)
        return VirtualTicket(sound, end, self)

    def replay(self, slot: int, codec: Any | None, codes: NDArray[np.int64]) -> Samples:
        """See StepRunner; a virtual decode does not fail."""
        raise NotImplementedError

    def prefill_prefix(self, slot: int, embeds: Any) -> VirtualPrefix:
        """See StepRunner."""
        self.clock.spend(self.costs.host_launch)
        self._in_frames(at_rows(self.costs.prefill, bucket_for(len(embeds), PREFILL_LENGTHS)))
        return VirtualPrefix(len(embeds))

    def snapshot_prefix(self, slot: int, length: int) -> VirtualPrefix:
        """See StepRunner."""
        return VirtualPrefix(length)

    def free(self, slot: int) -> None:
        """See StepRunner."""

    def reset(self) -> None:
        """See StepRunner."""


class PromptOnly:
    """A model that lays prompts out and embeds nothing."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def embed(self, prompt: Prompt, *, x_vector: Any | None = None) -> Prompt:
        """See Qwen3Model."""
        return prompt


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """A request."""

    at: float
    """Seconds."""
    seconds: float
    """Of speech."""
    paced: bool = True
    """False: as fast as it can be made."""


def single_calls(count: int, every_s: float = 2.0037) -> list[Arrival]:
    """Calls on an idle engine, out of step with it."""
    return [Arrival(0.1 + every_s * index, 1.0) for index in range(count)]


def poisson_calls(
    rate: float, seconds: float, lengths: tuple[float, float] = (4.0, 12.0), seed: int = 1
) -> list[Arrival]:
    """Requests at random times, ``rate`` a second."""
    draw = random.Random(seed)
    found, at = [], draw.expovariate(rate)
    while at < seconds:
        found.append(Arrival(at, draw.uniform(*lengths)))
        at += draw.expovariate(rate)
    return found


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value below which a share lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class Simulation:
    """What calls got."""

    calls: list[Call]
    turns: int
    seconds: float
    """Virtual."""
    device: VirtualDevice

    def first_ms(self, share: float, *, after: float = 0.0) -> float:
        """Percentile of the first audible sound of calls asked for ``after``, milliseconds."""
        calls = [call for call in self.calls if call.asked >= after and call.heard]
        return percentile((call.first_ms(0) for call in calls), share)

    def gap_free(self, *, before: float = float("inf")) -> float:
        """Share of the calls asked for ``before`` whose listeners never ran dry."""
        calls = [call for call in self.calls if call.heard and call.asked < before]
        return sum(not call.has_gap(0) for call in calls) / max(1, len(calls))

    @property
    def audio_rate(self) -> float:
        """Seconds of speech made in a second."""
        made = sum(samples for call in self.calls for _, samples in call.heard)
        return made / SAMPLE_RATE / self.seconds


def simulate(
    arrivals: Iterable[Arrival],
    costs: DeviceCosts,
    *,
    slots: int = 192,
    until: float | None = None,
    scheduling: SchedulerSettings | None = None,
    prefix_bytes: int = 0,
    layout: Layout = "full",
    silent_frames: int = 1,
) -> Simulation:
    """Run requests through the real worker on a virtual device.

    Args:
        arrivals: the requests.
        costs: of the device.
        slots: of the device, and of ``scheduling``.
        until: seconds; None: until all have been said.
        scheduling: None: the defaults.
        prefix_bytes: of cached prefixes; 0: none are cached.
        layout: of the prompts.
        silent_frames: at the start of each row, which are trimmed; 0: the first frame is audible.
    """
    clock = VirtualClock()
    device = VirtualDevice(costs, clock, slots=slots, silent_frames=silent_frames)
    load = Load(
        PromptOnly(PUBLISHED[MODEL]),
        device,
        seed=3,
        clock=clock,
        scheduling=scheduling,
        prefix_bytes=prefix_bytes,
        layout=layout,
        trim=True,
    )
    waiting = sorted(arrivals)
    heapq.heapify(waiting)
    calls: list[Call] = []
    turns = 0
    while until is None or clock.now < until:
        while waiting and waiting[0].at <= clock.now:
            arrival = heapq.heappop(waiting)
            call, _ = load.call(arrival.seconds, paced=arrival.paced)
            call.asked = arrival.at
            calls.append(call)
        if not waiting and not load.worker.under_way:
            break
        clock.spend(costs.host_turn)
        wake = load.worker.turn(clock.now)
        turns += 1
        following = waiting[0].at if waiting else float("inf")
        if wake is None:
            wake = following if waiting else clock.now + IDLE_S
        clock.wait_until(min(wake, following))
    return Simulation(calls, turns, clock.now, device)
