"""Gaps, added delay, bursts and recovery of the pacer on bursty arrival traces, in virtual time.

Every trace is a call of many utterances (traces.py), each with arrivals of its own; *warm* leaves
the first ten out. Beside the adaptive policy: the usual prebuffer of a fixed size, the usual sender
that makes up for lost time immediately ("catch-up"), and two oracles with hindsight: the least wait
of each utterance, and the least single wait that serves the whole trace.

Twenty kinds of trace. A *dry spell* is a hole in the speech; a *stall* is a run of arrivals by
which a playout from the first arrival on falls behind further than before (`traces.stalls`).

FIGURE: ``bursts`` = slots less than half a ptime after the one before, in all runs, those with a
sender that wakes up late included; ``added_steady_ms`` = mean of first speech after first byte,
warm, on the steady traces; ``gaps_warm`` = holes in warm utterances that a permitted wait (200 ms)
would have avoided, out of ``utterances_warm``; ``over_oracle_ms`` = the longest warm wait above the
one oracle wait of that trace, worst trace; ``over_each_ms``, ``over_each_p90_ms`` and
``over_each_max_ms`` = the wait above the utterance's own oracle, mean, 90th percentile and most,
worst trace, and ``over_60_ms`` = utterances in which it is above 60 ms; ``dry_a_stall`` = the most
dry spells for each stall of an utterance that the oracle saves, cold and warm.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean, median

from common import Bench
from traces import PTIME_S, STEADY, TRACES, Utterance, least_wait, stalls

from qwen3tts_pacer.core import PacerCore
from qwen3tts_pacer.policy import Filling, FillingPolicy, FillingSettings
from qwen3tts_pacer.slot import Frame, Kind

SAMPLES = 480  # a frame of 20 ms at 24 kHz
SILENCE = b"\xff" * 160
WARM_AFTER = 10
CEILING_S = FillingSettings().ceiling_s
BUSY = 0.02  # share of wake-ups that come 1 to 150 ms late in the runs with a busy sender


class FixedPrebuffer:
    """The usual rule: start, and start again after an underrun, once this much is queued."""

    def __init__(self, wanted_s: float) -> None:
        self._wanted = wanted_s - 1e-9
        self._frames = 0

    def begin(self, context: int, key: str) -> None:
        """See `Filling`."""
        self._frames = 0

    def arrived(self, context: int, first: int, count: int, now: float) -> None:
        """See `Filling`."""
        self._frames = first + count

    def start_at(self, context: int) -> float:
        """See `Filling`."""
        return 0.0 if self._frames * PTIME_S >= self._wanted else 1e9

    def starved(self, context: int) -> None:
        """See `Filling`."""

    def resume_at(self, context: int, queued_s: float, now: float) -> float:
        """See `Filling`."""
        return now if queued_s >= self._wanted else 1e9

    def end(self, context: int) -> None:
        """See `Filling`."""


@dataclass
class Result:
    """Result of one utterance."""

    wait: float
    """First speech slot after the first arrival, seconds."""
    holes: list[float] = field(default_factory=list)
    """Silence within the speech, seconds each."""
    recovery: list[float] = field(default_factory=list)
    """From the first arrival after the queue ran dry to speech, seconds each."""


@dataclass
class Run:
    """A call: utterances one after the other."""

    results: list[Result]
    bursts: int = 0
    faults: int = 0
    """Frames lost, doubled or out of order."""
    skipped: int = 0


def play(utterances: list[Utterance], policy: Filling, rng: random.Random, busy: float = 0) -> Run:
    """Play a call through the core; ``busy`` = chance that a wake-up comes 1 to 150 ms late."""
    core = PacerCore(PTIME_S, policy, silence=SILENCE)
    now = rng.uniform(0.0, PTIME_S)
    core.start(now)
    last = -1.0
    run = Run([])
    for number, utterance in enumerate(utterances):
        request = now + 0.5
        core.begin(number, now, "voice@server")
        arrivals = [(request + chunk.at, chunk.frames) for chunk in utterance]
        total = sum(chunk.frames for chunk in utterance)
        pushed = played = arrived = 0
        spoke = 0.0
        result: Result | None = None
        while played < total:
            deadline = core.next_deadline()
            assert deadline is not None
            now = deadline + (rng.uniform(0.001, 0.15) if rng.random() < busy else 0.0)
            while arrived < len(arrivals) and arrivals[arrived][0] <= now:
                at, count = arrivals[arrived]
                starts = [(pushed + n) * SAMPLES for n in range(count)]
                core.push([Frame(b"", b"", b"", number, s, s + SAMPLES) for s in starts], at)
                pushed += count
                arrived += 1
                if arrived == len(arrivals):
                    core.finish(number, at)
            slot = core.due(now)
            if slot is None:
                continue
            run.bursts += now - last < PTIME_S / 2 - 1e-9
            last = now
            if slot.kind is not Kind.SPEECH or slot.frame is None:
                continue
            if result is None:
                result = Result(now - arrivals[0][0])
            elif not busy and slot.deadline - spoke > 1.5 * PTIME_S:
                result.holes.append(slot.deadline - spoke - PTIME_S)
                came = next(at for at, _ in arrivals if at > spoke)
                result.recovery.append(slot.deadline - came)
            run.faults += slot.frame.start != played * SAMPLES
            played += 1
            spoke = slot.deadline
        assert result is not None
        run.results.append(result)
    run.skipped = core.skipped_slots
    return run


def catch_up(utterances: list[Utterance], prebuffer_s: float = 0.04) -> Run:
    """Absolute deadlines against what was sent: after an underrun the rest goes immediately."""
    run = Run([])
    for utterance in utterances:
        arrivals = [chunk.at for chunk in utterance for _ in range(chunk.frames)]
        first = round(prebuffer_s / PTIME_S) - 1
        start = arrivals[min(first, len(arrivals) - 1)]
        result = Result(start - arrivals[0])
        sent = start - 1.0
        for n, at in enumerate(arrivals):
            now = max(at, start + n * PTIME_S)
            if n and now - sent > 1.5 * PTIME_S:
                result.holes.append(now - sent - PTIME_S)
                result.recovery.append(0.0)
            run.bursts += now - sent < PTIME_S / 2 - 1e-9
            sent = now
        run.results.append(result)
    return run


def oracle(utterances: list[Utterance], rng: random.Random, wait_s: float | None = None) -> Run:
    """Each utterance with its own least wait, or all with this one, through the same core."""
    run = Run([])
    for each in utterances:
        wait = least_wait(each) if wait_s is None else wait_s
        policy = FillingPolicy(FillingSettings(pinned_s=wait, ceiling_s=60.0))
        run.results += play([each], policy, rng).results
    return run


def over(wait_s: float, oracle_s: float = 0.0) -> float:
    """Milliseconds above the oracle's wait."""
    return round(1000 * (wait_s - oracle_s), 1) + 0.0  # no minus zero


def fair(utterance: Utterance) -> bool:
    """True if a permitted wait would have avoided every gap."""
    return least_wait(utterance) <= CEILING_S


def dry_a_stall(run: Run, utterances: list[Utterance]) -> float:
    """The most dry spells for each stall, of the utterances that a permitted wait would save."""
    return max(
        (
            len(result.holes) / max(1, stalls(utterance))
            for result, utterance in zip(run.results, utterances, strict=True)
            if fair(utterance)
        ),
        default=0.0,
    )


def row(trace: str, name: str, run: Run, utterances: list[Utterance], first: int) -> list[object]:
    """One line of the table, over the utterances from ``first`` on."""
    results = run.results[first:]
    waits = [1000 * each.wait for each in results]
    holes = [1000 * hole for each in results for hole in each.holes]
    minutes = sum(chunk.frames for each in utterances[first:] for chunk in each) * PTIME_S / 60
    recovery = [1000 * each for result in results for each in result.recovery]
    return [
        trace,
        name,
        round(median(waits)),
        round(max(waits)),
        round(100 * sum(each.holes == [] for each in results) / len(results), 1),
        round(len(holes) / minutes, 2),
        round(max(holes, default=0.0)),
        round(median(recovery)) if recovery else "",
        run.bursts,
    ]


def replayed(utterance: Utterance, times: int = 20) -> tuple[Result, float]:
    """The same arrivals again and again: the last time, and the oracle's wait on the same grid."""
    last = play([utterance] * times, FillingPolicy(), random.Random(1)).results[-1]
    best = oracle([utterance] * times, random.Random(1)).results[-1]
    return last, last.wait - best.wait


def cost() -> list[list[object]]:
    """Microseconds of the core a frame."""
    rows: list[list[object]] = []
    count = 20_000
    frames = [Frame(b"", b"", b"", 1, n * SAMPLES, (n + 1) * SAMPLES) for n in range(count)]
    best: dict[str, float] = {}
    for _ in range(5):
        core = PacerCore(PTIME_S, silence=SILENCE, capacity=count)
        core.start(0.0)
        core.begin(1, 0.0)
        begin = time.perf_counter()
        for n in range(0, count, 4):
            core.push(frames[n : n + 4], 0.0)
        pushed = time.perf_counter()
        for n in range(count):
            core.due(n * PTIME_S)
        spoken = time.perf_counter()
        core.interrupt(count * PTIME_S)
        silent = time.perf_counter()
        for n in range(count):
            core.due((count + n) * PTIME_S)
        ended = time.perf_counter()
        for _ in range(count):
            core.due(0.0)
        early = time.perf_counter()
        for name, seconds in {
            "push, a frame in fours": pushed - begin,
            "due, a slot of speech": spoken - pushed,
            "due, a slot of silence": ended - silent,
            "due, nothing yet": early - ended,
        }.items():
            best[name] = min(best.get(name, 1e9), 1e6 * seconds / count)
    rows += [[name, round(value, 2)] for name, value in best.items()]
    return rows


def main() -> None:
    """Measure and print."""
    bench = Bench("pacer_traces", (__doc__ or "").partition("\n")[0])
    count = 60 if bench.quick else 210
    peers: dict[str, Callable[[], Filling]] = {
        "fixed 40 ms": lambda: FixedPrebuffer(0.04),
        "fixed 60 ms": lambda: FixedPrebuffer(0.06),
        "fixed 100 ms": lambda: FixedPrebuffer(0.10),
    }
    table: list[list[object]] = []
    again: list[list[object]] = []
    excess: list[list[object]] = []
    gaps = warm = bursts = faults = above_60 = 0
    steady: list[float] = []
    for trace, make in TRACES.items():
        utterances = [make(random.Random(f"{trace} {n}")) for n in range(count)]
        phase = random.Random(f"phase {trace}")
        cold = Run([play([each], FillingPolicy(), phase).results[0] for each in utterances])
        ours = play(utterances, FillingPolicy(), random.Random(1))
        late = play(utterances, FillingPolicy(), random.Random(2), BUSY)
        bursts += ours.bursts + late.bursts
        faults += ours.faults + late.faults
        lenient = [n for n in range(WARM_AFTER, count) if fair(utterances[n])]
        table.append(row(trace, "ours, cold", cold, utterances, WARM_AFTER))
        table.append(row(trace, "ours, warm", ours, utterances, WARM_AFTER))
        for name, peer in peers.items():
            table.append(
                row(trace, name, play(utterances, peer(), random.Random(1)), utterances, WARM_AFTER)
            )
        table.append(row(trace, "catch-up 40 ms", catch_up(utterances), utterances, WARM_AFTER))
        each = oracle(utterances, random.Random(1))
        table.append(row(trace, "oracle, each", each, utterances, WARM_AFTER))
        served = lenient or range(WARM_AFTER, count)  # of three traces a permitted wait saves none
        one = max(least_wait(utterances[n]) for n in served)
        single = oracle(utterances, random.Random(1), one)
        holes = sum(len(ours.results[n].holes) for n in lenient)
        gaps += holes
        warm += len(lenient)
        waits = [ours.results[n].wait for n in served]
        above = sorted(ours.results[n].wait - each.results[n].wait for n in served)
        above_60 += sum(more > 0.0605 for more in above)
        excess.append(
            [
                trace,
                len(served),
                len(lenient),
                holes,
                over(max(waits), max(single.results[n].wait for n in served)),
                over(mean(waits), mean(single.results[n].wait for n in served)),
                over(mean(above)),
                over(above[int(0.9 * len(above))]),
                over(above[-1]),
                dry_a_stall(cold, utterances),
                dry_a_stall(ours, utterances),
            ]
        )
        if lenient:
            results = [replayed(utterances[n]) for n in lenient[: count // 10]]
            again.append(
                [
                    trace,
                    len(results),
                    sum(len(result.holes) for result, _ in results),
                    over(mean(more for _, more in results)),
                    over(max(more for _, more in results)),
                ]
            )
        if trace in STEADY:
            steady += [1000 * result.wait for result in ours.results[WARM_AFTER:]]
    bench.table(
        "the pacer on arrival traces",
        [
            "trace",
            "policy",
            "wait p50 ms",
            "max",
            "gap-free %",
            "holes/min",
            "hole max ms",
            "recovery p50",
            "bursts",
        ],
        table,
    )
    bench.table(
        "warm, utterances that a wait of up to 200 ms saves, else all: our wait above the oracles'",
        [
            "trace",
            "utterances",
            "saved by the oracle",
            "holes of these",
            "max over one wait ms",
            "mean over one",
            "mean over each",
            "p90 over each",
            "max over each",
            "dry a stall, cold",
            "warm",
        ],
        excess,
    )
    bench.table(
        "the same arrivals for the 20th time",
        ["trace", "utterances", "holes", "mean over oracle ms", "max"],
        again,
    )
    costs = cost()
    bench.table("cost of the core on this machine", ["call", "us"], costs)
    if faults:
        bench.note(f"{faults} frames were lost, doubled or out of order")
    bench.figure(
        bursts=bursts,
        added_steady_ms=mean(steady),
        gaps_warm=gaps,
        over_oracle_ms=max(float(str(line[4])) for line in excess),
        utterances_warm=warm,
        over_each_ms=max(float(str(line[6])) for line in excess),
        over_each_p90_ms=max(float(str(line[7])) for line in excess),
        over_each_max_ms=max(float(str(line[8])) for line in excess),
        over_60_ms=above_60,
        dry_a_stall=max(max(float(str(value)) for value in line[9:]) for line in excess),
        faults=faults,
        due_us=float(str(costs[1][1])),
    )


if __name__ == "__main__":
    main()
