"""The agent's own echo: does it ever silence the agent, and is who talks over it heard in time.

The agent speaks (eSpeak, -15 to -26 dBFS, mu-law) and its voice comes back through a hybrid's
response (line_sounds.EchoPath: other responses, or a loudspeaker telephone's room with a tail of 30
to 100 ms), some dB below, some time later, through mu-law once more, with the line's noise. All
times are simulated; frames of 20 ms. In the second table a caller begins to talk over it in
mid-sentence, one to two seconds after its beginning.

- *false*: calls in which the agent was silenced (with no caller there), from its first sound on.
- *before him*: of the calls with a caller, those in which the agent was silenced before his first
  sound.
- *missed*: of the callers, those who did not silence it by their last sound.
- *cut in*: from a caller's first sound to the decision, ms; without an echo and without the guard
  it is the detector's own time.
  ``over_ms_p95_worst`` is the p95 of that caller's level, and line, at which it is longest.
- *us*: of the whole core for 20 ms while the agent speaks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any

import numpy as np
from common import Bench
from greetings import Sound
from line_sounds import (
    FRAME,
    EchoPath,
    Samples,
    at_level,
    callers,
    on_the_line,
    speech,
    voiced_from_to,
)

from qwen3tts_phone.audio.frames import HeardFrame, SentFrame
from qwen3tts_phone.detection.core import SpeechDetectionCore
from qwen3tts_phone.detection.events import CallerCutIn
from qwen3tts_phone.detection.settings import ListenSettings

RATE_HZ = 8000
WAY_S = 0.013
"""From a frame's last sample to its arrival."""
AGENT = (
    "Thank you for calling Baker and Sons. Our office is open from nine to five on weekdays.",
    "Your parcel has left the warehouse this morning, and it will arrive tomorrow before noon.",
)
VOICES = ("en-gb+f2", "en-us+m3")
LEVELS = (-15.0, -20.0, -26.0)
DELAYS = (0.0, 60.0, 180.0, 400.0)
ROOMS = (0.0, 30.0, 60.0, 100.0)
"""Tails in ms; 0 is a hybrid's response."""


def call(
    agent: Sound,
    caller: Sound,
    echo: EchoPath | None,
    *,
    guard: bool = True,
    noise_dbfs: float = -65.0,
    later: EchoPath | None = None,
    seed: int = 1,
) -> tuple[list[float], float]:
    """Time of the barge-in (s), and the processor time of a frame (us).

    ``later``: the echo's path in the second half.
    """
    count = max(len(agent), len(caller)) // FRAME
    sent = on_the_line(np.pad(agent, (0, count * FRAME + FRAME - len(agent))))
    voice = np.pad(caller, (0, count * FRAME + FRAME - len(caller)))
    hiss = np.random.default_rng(seed).normal(size=count * FRAME) * 10 ** (noise_dbfs / 20)
    core = SpeechDetectionCore(ListenSettings(echo_guard=guard), 0.0)
    cut_in: list[float] = []
    cpu_s = 0.0
    for number in range(count):
        piece = slice(number * FRAME, (number + 1) * FRAME)
        ours: Samples = sent[piece]
        back = echo.push(ours) / 32768.0 if echo is not None else 0.0
        if later is not None:
            other = later.push(ours) / 32768.0
            back = other if number > count // 2 else back
        heard = on_the_line(back + voice[piece] + hiss[piece])
        at = (number + 1) * FRAME / RATE_HZ + WAY_S
        went = [SentFrame(ours, RATE_HZ, number * FRAME / RATE_HZ)] if np.any(ours) else []
        began = time.process_time()
        core.agent_speaking(True, at)
        events = core.push(HeardFrame(heard, at, False, RATE_HZ, number * FRAME), went)
        cpu_s += time.process_time() - began
        cut_in += [event.at for event in events if isinstance(event, CallerCutIn)]
    return cut_in, 1e6 * cpu_s / count


def alone(pool: Executor, agent: Sequence[Sound], **how: Any) -> tuple[int, int, float]:
    """Calls, those in which the echo silenced the agent, and microseconds a frame.

    From the middle on the echo comes ``slips_ms`` later, by another response if ``changed``.
    """
    noise_dbfs, guard = how.pop("noise_dbfs", -65.0), how.pop("guard", True)
    slips_ms, changed = how.pop("slips_ms", None), how.pop("changed", 0)
    jobs = []
    for said in agent:
        for number, dbfs in enumerate(LEVELS):
            for seed in range(3 * number + 1, 3 * number + 4):
                sound = np.concatenate((np.zeros(4000), at_level(said, dbfs), np.zeros(8000)))
                later = None
                if slips_ms is not None:
                    moved = {**how, "delay_ms": how["delay_ms"] + slips_ms}
                    later = EchoPath(seed=seed + changed, **moved)
                others = {"guard": guard, "noise_dbfs": noise_dbfs, "later": later, "seed": seed}
                jobs.append((sound, np.zeros(1), EchoPath(seed=seed, **how), others))
    done = list(pool.map(_job, jobs))
    return (
        len(done),
        sum(any(at > 4000 / RATE_HZ for at in cut_in) for cut_in, _ in done),
        float(np.mean([us for _, us in done])),
    )


def _job(job: tuple[Sound, Sound, EchoPath | None, dict[str, Any]]) -> tuple[list[float], float]:
    agent, caller, echo, how = job
    return call(agent, caller, echo, **how)


def over(
    pool: Executor,
    agent: Sequence[Sound],
    said: Sequence[Sound],
    dbfs: float,
    echo: dict[str, Any] | None,
    *,
    guard: bool = True,
) -> tuple[int, int, int, list[float]]:
    """Results of the callers.

    Their number, calls in which the agent was silenced before them, callers who were not heard,
    and the time of each other, ms.
    """
    jobs = []
    spans = []
    for number, utterance in enumerate(said):
        begins, ends = voiced_from_to(utterance)
        start = RATE_HZ + (number * 731) % RATE_HZ
        sound = np.concatenate((at_level(agent[number % len(agent)], -20), np.zeros(RATE_HZ)))
        caller = np.concatenate((np.zeros(start), at_level(utterance, dbfs)))
        path = None
        if echo is not None:
            path = EchoPath(seed=number, delay_ms=DELAYS[number % len(DELAYS)], **echo)
        jobs.append((sound, caller, path, {"guard": guard, "seed": number}))
        spans.append(((start + begins) / RATE_HZ, (start + ends) / RATE_HZ))
    missed = before = 0
    took = []
    for (begins_s, ends_s), (cut_in, _) in zip(spans, pool.map(_job, jobs), strict=True):
        before += any(at <= begins_s for at in cut_in)
        heard = [at for at in cut_in if at > begins_s]
        if not heard or heard[0] > ends_s + 0.1:
            missed += 1
        else:
            took.append(1000 * (heard[0] - WAY_S - begins_s))
    return len(said), before, missed, took


def main() -> None:
    """Measure and print; the closing line is of -12 dB, flat and in a room of 60 ms."""
    bench = Bench("echo_guard", __doc__ or "")
    voices = VOICES[:1] if bench.quick else VOICES
    agent = [sound for voice in voices for sound in asyncio.run(speech(AGENT, voice))]
    said = asyncio.run(callers(14 if bench.quick else 56, np.random.default_rng(3)))
    with ProcessPoolExecutor() as pool:
        false, calls, cost, moved = echoes(bench, pool, agent)
        talked = talks(bench, pool, agent, said)
    bench.figure(
        calls_12_db=calls,
        false_12_db_flat=false[12.0, 0.0],
        false_12_db_room=false[12.0, 60.0],
        false_6_db_flat=false[6.0, 0.0],
        false_6_db_room=false[6.0, 60.0],
        false_20_db_room=false[20.0, 60.0],
        **moved,
        **talked,
        us_per_frame=cost,
    )


def echoes(
    bench: Bench, pool: Executor, agent: Sequence[Sound]
) -> tuple[dict[tuple[float, float], int], int, float, dict[str, int]]:
    """The first table, and its figures.

    The rate of false detections by level and room, the number of calls of each, the processor
    time of a frame (us), and the figures of paths that move.
    """
    rows: list[list[Any]] = []
    false_at: dict[tuple[float, float], int] = {}
    costs = []
    of = 0
    without = alone(pool, agent[:2], down_db=20.0, delay_ms=120.0, guard=False)
    rows.append(["-20 dB, 120 ms, no guard", *without])
    for room_ms in ROOMS:
        for down_db in (6.0, 12.0, 20.0, 30.0):
            delays = DELAYS if down_db == 12.0 and not bench.quick else DELAYS[1::2]
            of = false = 0
            spent = []
            for delay_ms in delays:
                calls, silenced, cost = alone(
                    pool,
                    agent if down_db == 12.0 else agent[:2],
                    down_db=down_db,
                    delay_ms=delay_ms,
                    room_ms=room_ms,
                )
                of, false = of + calls, false + silenced
                spent.append(cost)
            where = f"a room of {room_ms:g} ms" if room_ms else "flat"
            rows.append([f"-{down_db:g} dB, {where}", of, false, float(np.mean(spent))])
            false_at[down_db, room_ms] = false
            costs.append(float(np.mean(spent)))
    some = agent[:2] if bench.quick else agent
    moved = {"calls_12_db_slip": 0, "false_12_db_slip": 0}
    for name, how in (
        ("noise at -48 dBFS", {"noise_dbfs": -48.0}),
        ("20 ms later from the middle on", {"slips_ms": 20.0}),
        ("60 ms earlier from the middle on", {"slips_ms": -60.0}),
        ("another response, 40 ms later, from the middle on", {"slips_ms": 40.0, "changed": 50}),
    ):
        for room_ms in (0.0, 60.0):
            row = alone(pool, some, down_db=12.0, delay_ms=180.0, room_ms=room_ms, **how)
            where = f"a room of {room_ms:g} ms" if room_ms else "flat"
            rows.append([f"-12 dB, {where}, {name}", *row])
            if "slips_ms" in how and "changed" not in how:
                moved["calls_12_db_slip"] += row[0]
                moved["false_12_db_slip"] += row[1]
    bench.table("the echo alone", ["echo", "calls", "false", "us"], rows)
    most = len(agent) * len(LEVELS) * 3 * len(DELAYS[1::2] if bench.quick else DELAYS)
    return false_at, most, float(np.mean(costs)), moved


def talks(
    bench: Bench, pool: Executor, agent: Sequence[Sound], said: Sequence[Sound]
) -> dict[str, float]:
    """The second table; callers above -32 dBFS over an echo at -12 dB, flat and in the room."""
    rows: list[list[Any]] = []
    missed_12 = missed_all = before_all = 0
    took_12: list[float] = []
    p95_at: list[float] = []
    for name, levels, echo, guard in (
        ("no echo, no guard", (-20.0, -31.0), None, False),
        ("no echo", (-20.0, -31.0), None, True),
        ("-20 dB", (-20.0, -31.0), {"down_db": 20.0}, True),
        (
            "-20 dB, a room of 60 ms",
            (-20.0, -26.0, -31.0),
            {"down_db": 20.0, "room_ms": 60.0},
            True,
        ),
        ("-12 dB", (-16.0, -20.0, -26.0, -31.0), {"down_db": 12.0}, True),
        (
            "-12 dB, a room of 60 ms",
            (-16.0, -20.0, -26.0, -31.0),
            {"down_db": 12.0, "room_ms": 60.0},
            True,
        ),
        ("-6 dB", (-20.0, -26.0, -31.0), {"down_db": 6.0}, True),
        ("-6 dB, a room of 60 ms", (-20.0, -26.0, -31.0), {"down_db": 6.0, "room_ms": 60.0}, True),
    ):
        for dbfs in levels:
            count, before, missed, took = over(pool, agent, said, dbfs, echo, guard=guard)
            high = _middle_and_high(took)
            rows.append([f"{name}, caller at {dbfs:g} dBFS", count, before, missed, *high])
            missed_all += missed
            before_all += before
            if echo is not None and echo["down_db"] == 12.0:
                missed_12 += missed
                took_12 += took
                p95_at.append(high[1])
    bench.table(
        "a caller talks over the agent at -20 dBFS",
        ["echo", "callers", "before him", "missed", "cut in p50", "p95"],
        rows,
    )
    p50, p95 = _middle_and_high(took_12)
    return {
        "over_missed": missed_all,
        "over_before": before_all,
        "over_12_db_missed": missed_12,
        "over_ms_p50": p50,
        "over_ms_p95": p95,
        "over_ms_p95_worst": max(p95_at),
    }


def _middle_and_high(took: Sequence[float]) -> tuple[float, float]:
    p50, p95 = np.percentile(took or [float("nan")], (50, 95))
    return float(p50), float(p95)


if __name__ == "__main__":
    main()
