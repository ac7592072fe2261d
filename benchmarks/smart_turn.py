"""Smart Turn as a turn detector: processor time and memory of a decision, and when it is there.

One thread. Peers are the vendor's own figure (12 ms of processor time, on another machine) and the
usual pause of 600 ms, beside which an answer after ``detector_ms`` = 150 ms stands.

- *features*: from 8 s of a call at 8 kHz to the log-mel spectrum, resampling included.
- *network*: onnxruntime's part.
- *answer*: from the question to the answer through the shared thread, wall time, by the number of
  calls that pause in the same moment.
- *memory*: resident, of a process of its own, before onnxruntime, loaded, after 20 answers.

The file is that of ``--file``, else of an installed pipecat-ai.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from common import Bench

from qwen3tts_phone.detection.endpointing import TurnSoFar
from qwen3tts_phone.detection.smart_turn import AUTO, SmartTurn, log_mel, window

RATE_HZ = 8000
ASKED_MS = 150
VENDOR_MS = 12.0
PAUSES_A_MINUTE = 10
"""Pauses of a caller who speaks half of the time."""


def p(values: Sequence[float], q: int) -> float:
    """A percentile; nan of nothing."""
    return float(np.percentile(values, q)) if len(values) else float("nan")


def sound(seconds: float, seed: int = 0) -> np.ndarray:
    """Noise: what it holds does not change the work."""
    chance = np.random.default_rng(seed)
    return np.asarray(chance.normal(0, 1000, round(seconds * RATE_HZ)), np.int16)


def parts(detector: SmartTurn, times: int) -> dict[str, list[float]]:
    """Processor time of the parts of an answer, ms."""
    network = detector._network
    session = network._session
    assert session is not None
    found: dict[str, list[float]] = {"features": [], "network": [], "whole": []}
    turn = sound(8.0)
    for _ in range(times):
        began = time.process_time()
        features = log_mel(window(turn, RATE_HZ))
        between = time.process_time()
        session.run(None, {"input_features": features[np.newaxis]})
        ended = time.process_time()
        found["features"].append(1000 * (between - began))
        found["network"].append(1000 * (ended - between))
        found["whole"].append(1000 * (ended - began))
    return found


async def answers(detector: SmartTurn, calls: int, times: int) -> list[float]:
    """Wall time of answers to calls that pause in the same moment, ms; -1 = none came in time."""
    turn = TurnSoFar(sound(8.0), RATE_HZ, "", 0.0, 8.0, 8.15)

    async def ask() -> float:
        began = time.perf_counter()
        answer = await detector.finished(turn)
        return 1000 * (time.perf_counter() - began) if answer is not None else -1.0

    found: list[float] = []
    for _ in range(times):
        found += await asyncio.gather(*(ask() for _ in range(calls)))
    return found


def resident_mb() -> float:
    """Resident memory of this process, MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def memory(file: str) -> None:
    """Print a process' memory as JSON."""
    before = resident_mb()
    detector = SmartTurn(file)
    began = time.perf_counter()
    detector.check()
    load_s, loaded = time.perf_counter() - began, resident_mb()
    for seed in range(20):
        detector._network.probability(sound(8.0, seed), RATE_HZ)
    print(json.dumps([before, loaded, resident_mb(), load_s]))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", default=AUTO, help="smart-turn-v3.2-cpu.onnx")
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    bench = Bench("smart_turn", "cost of a turn detector", parser)
    file = bench.args.file
    if bench.args.memory:
        memory(file)
        return
    detector = SmartTurn(file)
    detector.check()
    times = 30 if bench.quick else 200
    found = parts(detector, times)
    bench.table(
        "processor time of an answer, ms",
        ["part", "p50", "p95"],
        [
            *([name, p(each, 50), p(each, 95)] for name, each in found.items()),
            ["the vendor's figure", VENDOR_MS, VENDOR_MS],
        ],
    )
    rows: list[list[object]] = []
    waits: dict[int, list[float]] = {}
    for calls in (1, 4, 8):
        waits[calls] = asyncio.run(answers(detector, calls, max(5, times // calls)))
        came = [each for each in waits[calls] if each >= 0]
        late = len(waits[calls]) - len(came)
        rows.append([calls, p(came, 50), p(came, 95), ASKED_MS + p(came, 95), late])
    rows.append(["pause of 600 ms", "", "", 600, ""])
    columns = ["calls at a time", "answer ms p50", "p95", "after the last sound p95", "none"]
    bench.table("answers, wall time", columns, rows)
    output = subprocess.run(
        [sys.executable, __file__, "--memory", "--file", file],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    before, loaded, after, load_s = json.loads(output)
    bench.table(
        "resident memory, MB",
        ["before", "loaded", "after 20 answers", "loading s"],
        [[before, loaded, after, load_s]],
    )
    whole = p(found["whole"], 50)
    bench.figure(
        cpu_ms_p50=whole,
        cpu_ms_p95=p(found["whole"], 95),
        answer_ms_p50=p([each for each in waits[1] if each >= 0], 50),
        answer_ms_p95=p([each for each in waits[1] if each >= 0], 95),
        core_a_call_percent=100 * PAUSES_A_MINUTE * whole / 60_000,
        memory_mb=after - before,
        load_s=load_s,
    )


if __name__ == "__main__":
    main()
