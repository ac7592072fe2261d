"""Calls over media streams: the delay that each adapter adds, the queue at the far end, the flush.

The far ends are in a process of their own (`stream_far_end.py`): they speak each format as its
documents have it, and play what comes from a queue in real time. This process is the streams'
server. It plays a tone that it has at hand to each call, and interrupts it at a random moment,
again and again.

*Added* is from the moment the sound is there to its first message at the far end: resampling,
coding, framing, the sink's wait, and the connection on this machine. *Queue* is the most that ever
lay unplayed at the far end. *Flush* is from the interruption to the far end's having dropped its
queue; on AudioSocket, which plays immediately, to the last frame that holds sound. *In* is from the
caller's sound at the far end to a frame in the program. *CPU* is this process's for a call that
speaks and listens all the time, and how many of them a core carries by that.
"""

from __future__ import annotations

import asyncio
import bisect
import json
import os
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from common import Bench
from numpy.typing import NDArray

from qwen3tts_phone.streams.call import StreamCall
from qwen3tts_phone.streams.server import Streams
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_speech.link import SpeechLink

LINES = (
    "audiosocket",
    "asterisk",
    "twilio",
    "telnyx",
    "plivo",
    "exotel",
    "vonage",
    "jambonz",
)
NOWHERE = "ws://127.0.0.1:1/v1/speech"
FAR_END = Path(__file__).with_name("stream_far_end.py")
LOUD = 8000
MATCH_S = 0.4
"""A loud frame that is heard later than this is another one."""


def tone(seconds: float) -> NDArray[np.int16]:
    """At the voice's 24 kHz."""
    at = np.arange(round(24_000 * seconds)) / 24_000
    return (9000 * np.sin(2 * np.pi * 500 * at)).astype(np.int16)


SHORT = tone(1.5)
SETTLE_S = 1.2
"""Before the processor time is counted: the beginning of all calls."""


@dataclass
class Told:
    """Notes of one call's program; seconds of the monotonic clock."""

    port: int
    """Port of the far end."""
    spoke_at: list[float] = field(default_factory=list)
    interrupted_at: list[float] = field(default_factory=list)
    heard_loud_at: list[float] = field(default_factory=list)


async def listens(call: StreamCall, told: Told) -> None:
    """Notes each beginning of sound."""
    was_loud = False
    async for frame in call.audio:
        is_loud = int(np.abs(frame.samples.astype(int)).max(initial=0)) > LOUD
        if is_loud and not was_loud:
            told.heard_loud_at.append(time.monotonic())
        was_loud = is_loud


async def turns(call: StreamCall, told: Told, until: float) -> None:
    """Speaks and is interrupted until then."""
    chance = random.Random(call.id)
    await asyncio.sleep(0.3)
    while time.monotonic() < until:
        told.spoke_at.append(time.monotonic())
        playing = asyncio.ensure_future(call.play(SHORT, 24_000))
        await asyncio.sleep(chance.uniform(0.6, 1.2))
        told.interrupted_at.append(time.monotonic())
        call.interrupt()
        await playing
        await asyncio.sleep(chance.uniform(0.2, 0.35))


async def speaks_on(call: StreamCall, told: Told, until: float) -> None:
    """Speaks without a break until then: the next piece is ready before one has ended."""
    playing = asyncio.ensure_future(call.play(SHORT, 24_000))
    while time.monotonic() < until:
        following = asyncio.ensure_future(call.play(SHORT, 24_000))
        await playing
        playing = following
    call.interrupt()
    await playing


@dataclass
class Run:
    """One run of a line."""

    told: list[Told]
    far_end: list[dict[str, Any]]
    cpu_s: float
    """Processor time of this process, while all calls were up."""
    wall_s: float


@asynccontextmanager
async def served(line: str) -> AsyncIterator[tuple[Streams, str]]:
    """The streams' server for one line, and its address."""
    link = SpeechLink(NOWHERE)
    settings = StreamSettings(kinds=(line,), server_url=NOWHERE, max_calls=1000, insecure=True)
    try:
        async with Streams(settings, link=link) as streams:
            if line == "audiosocket":
                yield streams, f"tcp://127.0.0.1:{streams.audiosocket_port}"
            else:
                yield streams, f"ws://127.0.0.1:{streams.port}/{line}"
    finally:
        await link.close()


async def run(line: str, calls: int, seconds: float, *, busy: bool) -> Run:
    """``busy``: every call speaks all the time; else in turns."""
    told: list[Told] = []
    does = speaks_on if busy else turns
    async with served(line) as (streams, url):
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(FAR_END.parents[1]), *sys.path]),
        }
        far_end = await asyncio.create_subprocess_exec(
            sys.executable,
            str(FAR_END),
            line,
            url,
            str(calls),
            str(seconds + 0.4),
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        tasks: list[asyncio.Task[None]] = []
        incoming = streams.incoming()
        until = 0.0
        for _ in range(calls):
            call = await anext(incoming)
            until = until or time.monotonic() + seconds
            await call.answer()
            told.append(Told(int(call._wire.peer.rpartition(":")[2])))
            tasks.append(asyncio.create_task(listens(call, told[-1])))
            tasks.append(asyncio.create_task(does(call, told[-1], until)))
        await asyncio.sleep(SETTLE_S if busy else 0.0)
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(max(0.0, until - began - 0.2))
        cpu_s, wall_s = time.process_time() - cpu, time.monotonic() - began
        assert far_end.stdout is not None
        out = await far_end.stdout.read()
        await far_end.wait()
        await asyncio.gather(*tasks, return_exceptions=True)
    return Run(told, json.loads(out), cpu_s, wall_s)


def delays_ms(causes: list[float], effects: list[float], most_s: float) -> list[float]:
    """From each cause to the first effect after it, where there is one in time."""
    found: list[float] = []
    for cause in causes:
        place = bisect.bisect_left(effects, cause)
        if place < len(effects) and effects[place] - cause <= most_s:
            found.append(1000 * (effects[place] - cause))
    return found


def last_sound_ms(
    interrupted_at: list[float], loud_at: list[float], next_at: list[float]
) -> list[float]:
    """From each interruption to the last sound that came after it and before the next turn."""
    found = []
    for at in interrupted_at:
        place = bisect.bisect_left(next_at, at)
        end = next_at[place] if place < len(next_at) else at + 1.0
        after = [each for each in loud_at if at <= each < end]
        found.append(1000 * (after[-1] - at) if after else 0.0)
    return found


def p95(values: list[float]) -> float:
    """95 % are not above it."""
    if not values:
        return float("nan")
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


@dataclass
class Line:
    """The figures of one line."""

    name: str
    added_ms: list[float]
    flush_ms: list[float]
    in_ms: list[float]
    queued_ms: float
    late: int
    """Messages with sound that came after the far end had dropped its queue."""
    cpu_percent: float
    """Percent of a core, for a call."""

    @property
    def row(self) -> list[Any]:
        """For the table."""
        calls = 100 / self.cpu_percent
        return [
            self.name,
            len(self.added_ms),
            statistics.median(self.added_ms),
            p95(self.added_ms),
            statistics.median(self.flush_ms),
            p95(self.flush_ms),
            self.late,
            self.queued_ms,
            statistics.median(self.in_ms),
            p95(self.in_ms),
            self.cpu_percent,
            round(calls),
        ]


async def measured(name: str, calls: int, seconds: float, busy_calls: int, busy_s: float) -> Line:
    """One line in turns, and then with many calls that speak all the time."""
    shown = await run(name, calls, seconds, busy=False)
    busy = await run(name, busy_calls, busy_s, busy=True)
    added: list[float] = []
    flush: list[float] = []
    heard: list[float] = []
    late = 0
    # The far end's calls come in any order.
    for told, far in zip(shown.told, _matched(shown), strict=True):
        loud = far["loud_came_at"]
        added += delays_ms(told.spoke_at, loud, 1.0)
        heard += delays_ms(far["loud_sent_at"], told.heard_loud_at, MATCH_S)
        if name == "audiosocket":
            flush += last_sound_ms(told.interrupted_at, loud, told.spoke_at)
            continue
        flush += delays_ms(told.interrupted_at, far["cleared_at"], 1.0)
        for at in far["cleared_at"]:
            place = bisect.bisect_right(told.spoke_at, at)
            end = told.spoke_at[place] if place < len(told.spoke_at) else at + 1.0
            late += sum(at < each < end for each in loud)
    queued = [each["most_queued_s"] for each in (*shown.far_end, *busy.far_end)]
    return Line(
        name,
        added,
        flush,
        heard,
        1000 * max(queued),
        late,
        100 * busy.cpu_s / busy.wall_s / busy_calls,
    )


def _matched(shown: Run) -> list[dict[str, Any]]:
    """The far end of each call, by its port."""
    by_port = {far["port"]: far for far in shown.far_end}
    return [by_port[told.port] for told in shown.told]


async def main() -> None:
    """All lines, one after the other."""
    bench = Bench("streams", "Calls over media streams: added delay, queue at the far end, flush.")
    calls, seconds = (2, 2.6) if bench.quick else (4, 30.0)
    busy_calls, busy_s = (10, 2.6) if bench.quick else (20, 10.0)
    lines: list[Line] = []
    for name in LINES:
        try:
            lines.append(await measured(name, calls, seconds, busy_calls, busy_s))
        except Exception as error:  # the other lines go on
            bench.failed(name, error)
    bench.table(
        "calls over streams (ms)",
        [
            "line",
            "turns",
            "added p50",
            "p95",
            "flush p50",
            "p95",
            "late",
            "queue max",
            "in p50",
            "p95",
            "CPU % a call",
            "calls a core",
        ],
        [line.row for line in lines],
    )
    bench.figure(
        added_ms_p95=p95([each for line in lines for each in line.added_ms]),
        queued_ms_max=max(line.queued_ms for line in lines),
        flush_ms_p95=p95([each for line in lines for each in line.flush_ms]),
        late_messages=sum(line.late for line in lines),
        calls_a_core_min=round(min(100 / line.cpu_percent for line in lines)),
    )


if __name__ == "__main__":
    asyncio.run(main())
