"""The agent's own echo: does it ever silence the agent, and is who talks over it heard in time.

The agent speaks (eSpeak, -15 to -26 dBFS, mu-law) and its voice comes back through a hybrid's
response (line_sounds.EchoPath: other responses, or a loudspeaker telephone's room of 60 ms), so
many dB below, so much later, through mu-law once more, with the line's noise. All times are
simulated; frames of 20 ms. In the second table a caller begins to talk over it in mid-sentence.

- *false*: calls of 18 in which the agent was silenced (with nobody there).
- *missed*: of the callers, those who did not silence it by their last sound.
- *cut in*: from a caller's first sound to the decision, ms; without an echo and without the guard
  it is the detector's own time.
- *us*: of the whole core for 20 ms while the agent speaks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
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

from qwen3tts_phone.call_events import HeardFrame
from qwen3tts_phone.listening.core import ListeningCore
from qwen3tts_phone.listening.events import CallerCutIn
from qwen3tts_phone.listening.settings import ListenSettings
from qwen3tts_phone.sent_audio import SentFrame

RATE_HZ = 8000
WAY_S = 0.013
"""From a frame's last sample to its arrival."""
AGENT = (
    "Thank you for calling Baker and Sons. Our office is open from nine to five on weekdays.",
    "Your parcel has left the warehouse this morning, and it will arrive tomorrow before noon.",
)
LEVELS = (-15.0, -20.0, -26.0)


def call(
    agent: Sound,
    caller: Sound,
    echo: EchoPath | None,
    *,
    guard: bool = True,
    noise_dbfs: float = -65.0,
    seed: int = 1,
) -> tuple[list[float], float]:
    """When the caller cut in (s), and the processor time of a frame (us)."""
    count = max(len(agent), len(caller)) // FRAME
    sent = on_the_line(np.pad(agent, (0, count * FRAME + FRAME - len(agent))))
    voice = np.pad(caller, (0, count * FRAME + FRAME - len(caller)))
    hiss = np.random.default_rng(seed).normal(size=count * FRAME) * 10 ** (noise_dbfs / 20)
    core = ListeningCore(ListenSettings(echo_guard=guard), 0.0)
    cut_in: list[float] = []
    cpu_s = 0.0
    for number in range(count):
        piece = slice(number * FRAME, (number + 1) * FRAME)
        ours: Samples = sent[piece]
        back = echo.push(ours) / 32768.0 if echo is not None else 0.0
        heard = on_the_line(back + voice[piece] + hiss[piece])
        at = (number + 1) * FRAME / RATE_HZ + WAY_S
        went = [SentFrame(ours, RATE_HZ, number * FRAME / RATE_HZ)] if np.any(ours) else []
        began = time.process_time()
        core.agent_speaking(True, at)
        events = core.push(HeardFrame(heard, at, False, RATE_HZ, number * FRAME), went)
        cpu_s += time.process_time() - began
        cut_in += [event.at for event in events if isinstance(event, CallerCutIn)]
    return cut_in, 1e6 * cpu_s / count


def alone(agent: Sequence[Sound], **how: Any) -> tuple[int, int, float]:
    """Calls, those in which the echo silenced the agent, and microseconds a frame."""
    noise_dbfs, guard = how.pop("noise_dbfs", -65.0), how.pop("guard", True)
    calls = false = 0
    costs = []
    for said in agent:
        for dbfs in LEVELS:
            for seed in (1, 2, 3):
                sound = np.concatenate((np.zeros(4000), at_level(said, dbfs), np.zeros(8000)))
                cut_in, cost = call(
                    sound,
                    np.zeros(1),
                    EchoPath(seed=seed, **how),
                    guard=guard,
                    noise_dbfs=noise_dbfs,
                    seed=seed,
                )
                calls += 1
                false += bool(cut_in)
                costs.append(cost)
    return calls, false, float(np.mean(costs))


def over(
    agent: Sequence[Sound],
    said: Sequence[Sound],
    dbfs: float,
    echo: dict[str, Any] | None,
    *,
    guard: bool = True,
) -> tuple[int, int, list[float]]:
    """Callers, those who were not heard, and how long each of the others took, ms."""
    missed = 0
    took = []
    for number, utterance in enumerate(said):
        begins, ends = voiced_from_to(utterance)
        start = RATE_HZ + (number * 731) % RATE_HZ
        sound = np.concatenate((at_level(agent[number % len(agent)], -20), np.zeros(RATE_HZ)))
        caller = np.concatenate((np.zeros(start), at_level(utterance, dbfs)))
        path = EchoPath(seed=number, **echo) if echo is not None else None
        cut_in, _ = call(sound, caller, path, guard=guard, seed=number)
        heard = [at for at in cut_in if at > (start + begins) / RATE_HZ]
        if not heard or heard[0] > (start + ends) / RATE_HZ + 0.1:
            missed += 1
        else:
            took.append(1000 * (heard[0] - WAY_S - (start + begins) / RATE_HZ))
    return len(said), missed, took


def main() -> None:
    """Measure and print; the closing line is of -20 and -30 dB."""
    bench = Bench("echo_guard", __doc__ or "")
    agent = asyncio.run(speech(AGENT, "en-gb+f2"))
    said = asyncio.run(callers(14 if bench.quick else 56, np.random.default_rng(3)))
    delays = (20.0, 250.0) if bench.quick else (0.0, 20.0, 60.0, 150.0, 250.0, 500.0)
    rows: list[list[Any]] = []
    false_at: dict[float, int] = {}
    costs = []
    without = alone(agent, down_db=20.0, delay_ms=120.0, guard=False)
    rows.append(["-20 dB, 120 ms, no guard", *without])
    for down_db in (6.0, 12.0, 20.0, 30.0):
        for delay_ms in delays:
            calls, false, cost = alone(agent, down_db=down_db, delay_ms=delay_ms)
            rows.append([f"-{down_db:g} dB, {delay_ms:g} ms", calls, false, cost])
            false_at[down_db] = false_at.get(down_db, 0) + false
            costs.append(cost)
    noisy = alone(agent, down_db=20.0, delay_ms=180.0, noise_dbfs=-48.0)
    rows.append(["-20 dB, 180 ms, noise at -48 dBFS", *noisy])
    room = alone(agent, down_db=20.0, delay_ms=180.0, room_ms=60.0)
    rows.append(["-20 dB, 180 ms, a room of 60 ms", *room])
    bench.table("the echo alone", ["echo", "calls", "false", "us"], rows)
    spoken: list[list[Any]] = []
    figures: dict[str, float] = {}
    for name, dbfs, echo, guard in (
        ("no echo, no guard", -20.0, None, False),
        ("no echo", -20.0, None, True),
        ("no echo", -30.0, None, True),
        ("-20 dB, 150 ms", -15.0, {"down_db": 20.0, "delay_ms": 150.0}, True),
        ("-20 dB, 150 ms", -20.0, {"down_db": 20.0, "delay_ms": 150.0}, True),
        ("-20 dB, 150 ms", -26.0, {"down_db": 20.0, "delay_ms": 150.0}, True),
        ("-30 dB, 150 ms", -26.0, {"down_db": 30.0, "delay_ms": 150.0}, True),
    ):
        count, missed, took = over(agent, said, dbfs, echo, guard=guard)
        p50, p95 = (float(np.percentile(took or [float("nan")], at)) for at in (50, 95))
        spoken.append([f"{name}, caller at {dbfs:g} dBFS", count, missed, p50, p95])
        if echo is not None and dbfs == -20.0:
            figures = {"over_missed": missed, "over_ms_p50": p50, "over_ms_p95": p95}
    bench.table(
        "a caller talks over the agent at -20 dBFS",
        ["echo", "callers", "missed", "cut in p50", "p95"],
        spoken,
    )
    bench.figure(
        false_20_db=false_at[20.0],
        false_30_db=false_at[30.0],
        false_12_db=false_at[12.0],
        **figures,
        us_per_frame=float(np.mean(costs)),
    )


if __name__ == "__main__":
    main()
