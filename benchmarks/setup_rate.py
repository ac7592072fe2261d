"""Calls set up a second: answered, refused with 503, or lost; and what they leave behind.

SIPp is the callers: each calls, talks for a second, and hangs up. This process is the phone; it
answers each call and sends silence. The rates rise until the phone refuses calls.

*Lost* are calls without a final answer; those *broken* were answered, and did not end as the
caller wanted. Times begin with a call's first INVITE. *Dropped* are datagrams that did not fit into
the socket's buffer; the last row has the buffer that a ``net.core.rmem_max`` of 212992 permits.
*Shed* counts INVITEs that were refused because messages waited or were dropped; the other calls
were, because too many waited to be taken, or could not be paced. *Leaked* are calls, media legs,
descriptors and tasks that are left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import math
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from calls import p95
from common import Bench

from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.sip.transport import listeners as sockets
from qwen3tts_speech.link import SpeechLink

SCENARIO = Path(__file__).with_name("setup_rate_sipp.xml")
RATES = (40, 80, 120, 160)
RAMP = (200, 240, 320, 400, 480, 640)
"""Until calls are refused."""
QUICK_RATES = (40, 160, 480)
SMALL_BUFFER = 212_992
GIVE_UP_S = 20
"""SIPp waits no longer for an answer."""
GONE_WITHIN_S = 80.0
"""More than an unacknowledged answer and its BYE take, 32 s each."""
NO_SERVER = "ws://127.0.0.1:1/v1/speech"


@dataclass
class Seen:
    """Results of one rate."""

    rate: int
    buffer: int
    calls: int
    answered: int
    refused: int
    shed: int
    """INVITEs, with those sent again, refused because messages waited or were dropped."""
    lost: int
    """Without any final answer."""
    broken: int
    """Answered, and not ended as the caller wanted."""
    dropped: int
    times: Times
    leaked: int

    @property
    def whole(self) -> bool:
        """True if every call was answered."""
        return self.answered == self.calls and not self.broken


async def attend(call: PhoneCall) -> None:
    """Answer one call, unless its caller has given up, and wait for its end."""
    with contextlib.suppress(CallError):
        await call.answer()
        await call.ended()


async def answer_all(phone: Phone) -> None:
    """Answer all calls, until cancelled."""
    async with asyncio.TaskGroup() as group:
        async for call in phone.incoming():
            group.create_task(attend(call))


def held(phone: Phone) -> int:
    """Calls, media legs, descriptors and tasks that this process has."""
    legs = len(phone._media.process.legs)
    calls = len(phone.calls) + len(phone.sip.agent.calls)
    # Transactions answer retransmissions for 32 s after a call; that is a task for all of them.
    tasks = [each for each in asyncio.all_tasks() if "Timekeeper" not in repr(each.get_coro())]
    return legs + calls + len(os.listdir("/proc/self/fd")) + len(tasks)


def dropped(port: int) -> int:
    """Datagrams that the kernel has dropped at a UDP port of this machine."""
    lines = Path("/proc/net/udp").read_text("ascii").splitlines()[1:]
    rows = (line.split() for line in lines)
    return sum(int(row[-1]) for row in rows if int(row[1].rpartition(":")[2], 16) == port)


Times = dict[str, list[float]]
"""Milliseconds from the first INVITE to the first response (1) and to the answer (2)."""


async def callers(port: int, rate: int, calls: int) -> tuple[dict[str, int], Times]:
    """Place so many calls; SIPp's counters and times."""
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            *("sipp", f"127.0.0.1:{port}", "-sf", str(SCENARIO), "-i", "127.0.0.1", "-t", "u1"),
            *("-m", str(calls), "-l", str(calls), "-r", str(rate), "-nostdin"),
            *("-recv_timeout", str(GIVE_UP_S * 1000), "-key", "rtp_port", "9"),
            *("-trace_stat", "-stf", "stat.csv", "-trace_rtt", "-rtt_freq", "1"),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(calls / rate + 4 * GIVE_UP_S):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        *_, totals = rows_of(folder, "stat.csv")
        times: Times = {"1": [], "2": []}
        for row in rows_of(folder, "*_rtt.csv"):
            times[row["rtd_no"]].append(float(row["response_time_ms"]))
    names = ("answered", "refused", "FailedCall")
    return {name: int(totals[f"{name}(C)"]) for name in names}, times


def rows_of(folder: str, name: str) -> list[dict[str, str]]:
    """The rows of a file that SIPp wrote."""
    (path,) = Path(folder).glob(name)
    with path.open(encoding="ascii") as file:
        return list(csv.DictReader(file, delimiter=";"))


async def run(rate: int, seconds: float, buffer: int) -> Seen:
    """One rate, for a time."""
    sockets.RECEIVE_BYTES = buffer
    calls = int(rate * seconds)
    settings = PhoneSettings(max_calls=calls + 1)
    async with Phone(settings, link=SpeechLink(NO_SERVER), announce=None) as phone:
        answering = asyncio.create_task(answer_all(phone))
        await asyncio.sleep(0)
        before = held(phone)
        counted, times = await callers(phone.port, rate, calls)
        until = time.monotonic() + GONE_WITHIN_S
        while (leaked := held(phone) - before) > 0 and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        shed, not_read = phone.sip.room.overload.shed, dropped(phone.port)
        answering.cancel()
        await asyncio.wait([answering])
    answered, refused = counted["answered"], counted["refused"]
    lost = calls - answered - refused
    broken = counted["FailedCall"] - lost
    return Seen(
        rate, buffer, calls, answered, refused, shed, lost, broken, not_read, times, max(0, leaked)
    )


async def measure(bench: Bench) -> None:
    """All rows, and the figures."""
    seconds = bench.args.seconds or (4.0 if bench.quick else 20.0)
    rates = bench.args.rates or (QUICK_RATES if bench.quick else RATES)
    ramp = () if bench.quick or bench.args.rates else RAMP
    full = sockets.RECEIVE_BYTES
    runs: list[Seen] = []
    for rate in (*rates, *ramp):
        if rate in ramp and any(each.refused for each in runs):
            break
        runs.append(await run(rate, seconds, full))
    runs.append(await run(runs[-1].rate, seconds, SMALL_BUFFER))
    report(bench, runs)


def report(bench: Bench, runs: list[Seen]) -> None:
    """The table and the closing line."""
    bench.table(
        "calls set up by one phone; each lasts a second",
        [
            *("per_s", "buffer", "calls", "answered", "503", "shed", "lost", "broken", "dropped"),
            *("first_ms_p95", "answer_ms_p95", "leaked"),
        ],
        [
            [
                *(each.rate, each.buffer, each.calls, each.answered, each.refused, each.shed),
                *(each.lost, each.broken, each.dropped),
                *(p95(each.times["1"]), p95(each.times["2"]), each.leaked),
            ]
            for each in runs
        ],
    )
    bench.note("aims: no call lost without an answer, nothing leaked, at any rate")
    best = max((each for each in runs if each.whole), key=lambda each: each.rate, default=None)
    bench.figure(
        setups_per_s=best.rate if best else 0,
        first_response_ms_p95=p95(best.times["1"]) if best else math.nan,
        lost=sum(each.lost for each in runs),
        leaked=sum(each.leaked for each in runs),
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, help="of each rate, instead of 20")
    parser.add_argument("--rates", type=int, nargs="*", help="instead of 40 80 120 160 and a ramp")
    bench = Bench("setup_rate", str(__doc__), parser)
    if shutil.which("sipp") is None:
        raise SystemExit("SIPp makes the calls, and is not installed: apt-get install sip-tester")
    asyncio.run(measure(bench))


if __name__ == "__main__":
    main()
