"""Simulated callers phone agents: calls in ten minutes, the same verdicts again, planted faults.

Eleven agents answer in a process of their own (`tests/rehearsal/faulty_agents.py`): one is sound,
ten have one planted fault each. The callers speak with eSpeak's voices, understand by Whisper
tiny.en, and phone over real SIP and RTP; half of the calls are over a line with loss, jitter and
street noise. *Same verdicts* is the share of repetitions by one seed whose verdicts all are those
of most. A fault is found if its own verdict fails in every call to that agent; a false alarm is a
call to the sound agent in which any verdict fails.

With ``--judge`` the callers phone two more agents, who understand by Whisper on the same cores: one
with a fixed pause that is silenced by any voice, one that prepares its replies, chooses its pauses
and ducks. No figure of the closing line is theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from common import Bench

from qwen3tts_cli.rehearsal_page import write_page
from qwen3tts_rehearsal.junit import junit_xml
from qwen3tts_rehearsal.results import CallResult, RehearsalResult
from qwen3tts_rehearsal.scenario import LineSettings, read_scenario
from qwen3tts_rehearsal.webhook import WebhookReceiver
from tests.rehearsal.faulty_agents import ADAPTIVE, FAULTS, FIXED, SOUND
from tests.rehearsal.planted import (
    FOUND_BY,
    SCENARIOS,
    Job,
    callers,
    found,
    hours,
    make,
    order_of,
    signature,
)

ROOT = Path(__file__).resolve().parent.parent
BAD_LINE = LineSettings(
    codec="PCMU", loss=1.0, burst=1.5, jitter_ms=30, noise="street", snr_db=20.0
)
TEN_MINUTES_S = 600.0
JUDGED = (
    ROOT / "configs/scenarios/digits.yaml",
    ROOT / "configs/scenarios/hesitation.yaml",
    ROOT / "configs/scenarios/barge_in.yaml",
    SCENARIOS / "nod.yaml",
)
QUICK_FAULTS = ("choppy", "dropping_digits", "wrong_codec")


@dataclass
class Made:
    """All calls, and what they cost."""

    jobs: list[Job] = field(default_factory=list)
    calls: list[CallResult] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0
    """Processor time of callers, agents, voices and recogniser."""

    def of(self, group: str) -> list[CallResult]:
        """Return the calls of one group."""
        return [
            call for job, call in zip(self.jobs, self.calls, strict=True) if group_of(job) == group
        ]


def group_of(job: Job) -> str:
    """Name of the calls that are repetitions of each other."""
    line = ", bad line" if job.scenario.line.loss else ""
    return f"{job.fault}, {job.scenario.name}{line}"


def plan(quick: bool, repeats: int) -> list[Job]:
    """Return all calls; those that last longest come first."""
    times = 1 if quick else 3
    faults = QUICK_FAULTS if quick else FAULTS
    slow_first = sorted(faults, key=lambda each: each not in ("deaf", "silent_after_tool", "late"))
    jobs = [
        Job(user, order_of(user))
        for fault in slow_first
        for user in (f"{fault}.{number}" for number in range(times))
    ]
    bad = [SOUND] if quick else [SOUND, "dropping_digits"]
    for fault in bad:
        users = [f"{fault}.bad{number}" for number in range(repeats)]
        jobs += [Job(user, order_of(user, BAD_LINE)) for user in users]
    jobs += [Job(f"{SOUND}.hours{number}", hours()) for number in range(repeats)]
    users = [f"{SOUND}.{number}" for number in range(1 if quick else 10)]
    return [*jobs, *(Job(user, order_of(user)) for user in users)]


@asynccontextmanager
async def agents(webhook: str) -> AsyncIterator[str]:
    """The agents' process; host and port where they answer."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.rehearsal.faulty_agents",
        webhook,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        uri = (await process.stdout.readline()).decode().strip()
        yield uri.removeprefix("sip:").partition("@")[2] or uri.removeprefix("sip:")
    finally:
        process.stdin.close()
        await process.wait()


def judged(repeats: int) -> list[Job]:
    """Return the calls to the agents whose conversation is compared."""
    scenarios = [read_scenario(each) for each in JUDGED]
    return [
        Job(f"{agent}.{scenario.name}{number}", scenario)
        for number in range(repeats)
        for scenario in scenarios
        for agent in (FIXED, ADAPTIVE)
    ]


async def measure(bench: Bench, folder: Path) -> Made:
    """Make all calls."""
    made = Made(plan(bench.quick, 2 if bench.quick else bench.args.repeats))
    if bench.args.judge:
        made = Made(judged(1 if bench.quick else 5))
    before = _cpu_s()
    async with (
        WebhookReceiver() as webhook,
        agents(webhook.url) as there,
        callers(there, webhook, folder) as simulated,
    ):
        began = time.monotonic()
        made.calls = await make(simulated, made.jobs, bench.args.at_once)
        made.seconds = time.monotonic() - began
    made.cpu_s = _cpu_s() - before
    return made


def _cpu_s() -> float:
    used = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def same_share(calls: Sequence[CallResult]) -> float:
    """Return the share of calls whose verdicts are those of most of them."""
    return Counter(map(signature, calls)).most_common(1)[0][1] / len(calls) if calls else 1.0


def different(calls: Sequence[CallResult]) -> str:
    """Return the verdicts that are not the same in all calls."""
    seen: dict[str, set[bool]] = {}
    for call in calls:
        for each in call.verdicts:
            seen.setdefault(each.name, set()).add(each.passed)
    errors = sum(bool(each.error) for each in calls)
    names = [name for name, values in seen.items() if len(values) > 1]
    return ", ".join([*names, *([f"{errors} not judged"] if errors else [])]) or "-"


def report(bench: Bench, made: Made) -> None:
    """The tables and the closing line."""
    groups = list(dict.fromkeys(map(group_of, made.jobs)))
    repeated = [group for group in groups if len(made.of(group)) > 1]
    bench.table(
        "the same verdicts by the same seed",
        ["agent, scenario", "calls", "passed", "same %", "not the same"],
        [
            [
                group,
                len(calls),
                sum(each.passed for each in calls),
                100 * same_share(calls),
                different(calls),
            ]
            for group in repeated
            for calls in (made.of(group),)
        ],
    )
    planted: dict[str, list[CallResult]] = {}
    for job, call in zip(made.jobs, made.calls, strict=True):
        if job.fault in FAULTS:
            planted.setdefault(job.fault, []).append(call)
    bench.table(
        "planted faults",
        ["fault", "its verdict", "calls", "found", "measured", "limit"],
        [
            [
                fault,
                FOUND_BY[fault],
                len(calls),
                sum(found(fault, each) for each in calls),
                *_figure(fault, calls[0]),
            ]
            for fault, calls in planted.items()
        ],
    )
    sound = [
        call for job, call in zip(made.jobs, made.calls, strict=True) if job.fault not in FAULTS
    ]
    alarms = Counter(verdict.name for call in sound for verdict in call.failed) + Counter(
        f"not judged: {call.error}" for call in sound if call.error
    )
    bench.note(f"the sound agent: {len(sound)} calls; failed verdicts: {dict(alarms) or 'none'}")
    spoken_s = sum(each.duration_s for each in made.calls)
    bench.note(
        f"{len(made.calls)} calls of {spoken_s / len(made.calls):.1f} s in {made.seconds:.0f} s,"
        f" {bench.args.at_once} at a time: {TEN_MINUTES_S / made.seconds * len(made.calls):.0f} in"
        f" ten minutes (aim: 100); {made.cpu_s / len(made.calls):.2f} s of processor time a call,"
        " agents, voices and recogniser included"
    )
    same = [each for group in repeated for each in [made.of(group)] if len(each) > 1]
    bench.figure(
        calls=len(made.calls),
        seconds=made.seconds,
        same_verdicts_pct=100
        * sum(same_share(each) * len(each) for each in same)
        / sum(map(len, same)),
        planted_found=sum(
            all(found(fault, each) for each in calls) for fault, calls in planted.items()
        ),
        planted=len(planted),
        false_alarms=sum(not each.passed for each in sound),
    )


def _figure(fault: str, call: CallResult) -> tuple[str, str]:
    """Return what was measured by a fault's verdict, and its limit."""
    for verdict in call.verdicts:
        if verdict.name == FOUND_BY[fault]:
            return str(verdict.measured)[-28:], str(verdict.limit)[:24]
    return call.error[:28], "-"


def report_judged(bench: Bench, made: Made) -> None:
    """The table of the two agents whose conversation is compared."""
    rows = []
    for scenario in dict.fromkeys(job.scenario.name for job in made.jobs):
        for agent in (FIXED, ADAPTIVE):
            calls = [each for each in made.of(f"{agent}, {scenario}") if not each.error]
            rows.append([scenario, agent, len(calls), *(_mean(calls, each) for each in MEASURES)])
            stops = [each.passed for call in calls for each in call.verdicts if each.name == STOPS]
            rows[-1].append(stops.count(False) if stops else "-")
    bench.table(
        "conversation: fixed (pause of 600 ms, silenced by any voice) and adaptive",
        ["scenario", "agent", "calls", *MEASURES.values(), "stopped by a backchannel"],
        rows,
    )
    bench.save()


MEASURES = {
    "cut_offs": "cut-offs a call",
    "response_mean_s": "wait (s)",
    "interruption_max_ms": "interruption to silence (ms)",
}
STOPS = "backchannel_stops"


def _mean(calls: Sequence[CallResult], name: str) -> float | str:
    values = [each.figures[name] for each in calls if name in each.figures]
    return sum(values) / len(values) if values else "-"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=6, help="calls at a time")
    parser.add_argument("--repeats", type=int, default=20, help="repetitions by one seed")
    parser.add_argument("--html", type=Path, metavar="FOLDER", help="write the reports there")
    parser.add_argument("--judge", action="store_true", help="compare two ways to converse")
    bench = Bench("rehearsal", str(__doc__), parser)
    with tempfile.TemporaryDirectory() as temporary:
        folder = bench.args.html or Path(temporary)
        folder.mkdir(exist_ok=True)
        made = asyncio.run(measure(bench, folder))
        if bench.args.html is not None:
            result = RehearsalResult(tuple(made.calls), made.seconds, len(made.jobs))
            write_page(result, folder / "index.html", target="planted faults")
            (folder / "junit.xml").write_text(junit_xml(result), "utf-8")
    if bench.args.judge:
        report_judged(bench, made)
    else:
        report(bench, made)


if __name__ == "__main__":
    main()
