"""Concurrent whole calls: how exact the sound leaves, what a call costs, how soon it is heard.

SIPp is the callers: it calls, acknowledges, and waits to be hung up on. Their sound goes to and
comes from a receiver in a process of its own, which reads the kernel's time stamps. This process is
the phone: it answers, takes in what the callers say, and speaks to each call sentences of its own,
once from audio that it has at hand (24 kHz, resampled and compressed as it is played) and once by a
speech server with the embedded engine, in a process of its own.

*CPU* is in % of one core a call: the phone and its media process together, and each of the others.
*Gaps* are packets missing at the receiver, slots without one, and dry spells in a sentence.
*First RTP* is from the phone's decision to answer to the first packet's departure. *Whole* are the
calls of which SIPp saw the whole course, and whose caller and phone each heard the other.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from common import Bench
from numpy.typing import NDArray
from pacing import cpu_s
from rtp_receiver import Lateness, Receiver, judge
from server_process import ServerProcess

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_speech.link import SpeechLink

SCENARIO = Path(__file__).with_name("calls_sipp.xml")
COUNTS = (1, 10, 50, 100, 200)
QUICK_COUNTS = (10, 100)
ON_TIME_MS = 1.0
"""The most calls are counted of which 99 % of the packets are not later than this."""
CALLS_PER_S = 50
"""SIPp places so many a second."""
SETTLE_S = 1.0
PAUSE_S = 0.3
"""Between two sentences."""
WAYS = ("cached", "engine")


@dataclass
class Seen:
    """Results of one run."""

    way: str
    lateness: Lateness
    whole: int
    dry: int
    first_rtp_ms: list[float]
    cpu: dict[str, float]
    """% of a core a call, by process."""
    memory_kb: float
    """Memory of the phone and its media process, a call."""
    sentences: int

    @property
    def gaps(self) -> int:
        """All missing packets."""
        return self.lateness.gaps + self.dry

    @property
    def good(self) -> bool:
        """True if the machine carried so many calls."""
        enough = self.whole == self.lateness.calls
        return enough and self.gaps == 0 and self.lateness.p99 <= ON_TIME_MS


@dataclass
class Under:
    """The calls of a run, as they are answered and spoken to."""

    calls: list[PhoneCall] = field(default_factory=list)
    answered_at: list[float] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)
    """Frames of each caller that were taken in."""
    sentences: list[int] = field(default_factory=list)
    """That each of them was told to the end."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)


def sentences_of(number: int) -> list[str]:
    """Sentences of this call, and of no other."""
    return [
        f"Hello, this is your own call, number {number}.",
        f"Your order {number * 7 + 3} has left the house and comes on Friday.",
        f"If you want to speak to somebody, please press {number % 9 + 1} now.",
    ]


async def recorded(count: int) -> list[list[NDArray[np.int16]]]:
    """The sentences of so many calls as samples at 24 kHz."""
    engine = EmbeddedEngine()
    await engine.start()

    async def spoken(text: str) -> NDArray[np.int16]:
        pcm = b"".join([chunk.pcm async for chunk in engine.synthesize(SynthesisRequest(text))])
        return np.frombuffer(pcm, "<i2").astype(np.int16)

    try:
        return [[await spoken(text) for text in sentences_of(n)] for n in range(count)]
    finally:
        await engine.close()


Talk = Callable[[PhoneCall, int, int], Coroutine[None, None, None]]
"""Says sentence ``turn`` of call ``number``; returns when it was heard."""


async def attend(call: PhoneCall, number: int, under: Under, talk: Talk) -> None:
    """Answer, speak until it is over, hang up."""
    under.answered_at[number] = time.monotonic()
    await call.answer()
    listening = asyncio.create_task(listen(call, number, under))
    speaking = asyncio.create_task(speak(call, number, under, talk))
    await under.stop.wait()
    speaking.cancel()
    await call.hangup()
    await listening
    with contextlib.suppress(asyncio.CancelledError):
        await speaking


async def speak(call: PhoneCall, number: int, under: Under, talk: Talk) -> None:
    """One sentence after the other."""
    for turn in itertools.count():
        await talk(call, number, turn)
        under.sentences[number] += 1
        await asyncio.sleep(PAUSE_S)


async def listen(call: PhoneCall, number: int, under: Under) -> None:
    """Take in what the caller says."""
    async for _ in call.audio():
        under.heard[number] += 1


@contextlib.asynccontextmanager
async def callers(
    phone: Phone, receiver: Receiver, count: int
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
    """SIPp with so many callers."""
    with tempfile.TemporaryDirectory() as folder:
        errors = Path(folder) / "errors"
        process = await asyncio.create_subprocess_exec(
            *("sipp", f"127.0.0.1:{phone.port}", "-sf", str(SCENARIO), "-i", "127.0.0.1"),
            *("-t", "u1", "-m", str(count), "-l", str(count), "-r", str(CALLS_PER_S), "-nostdin"),
            *("-key", "rtp_port", str(receiver.port), "-trace_err", "-error_file", str(errors)),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield process, errors
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def memory_kb(*pids: int) -> float:
    """Memory of these processes, shared pages counted once."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return float(total)


async def run(
    way: str,
    count: int,
    seconds: float,
    receiver: Receiver,
    link: SpeechLink,
    talk: Talk,
    server_pid: int | None,
) -> Seen:
    """Concurrent calls, for a time."""
    under = Under(answered_at=[0.0] * count, heard=[0] * count, sentences=[0] * count)
    settings = PhoneSettings(max_calls=count + 1, media_silent_s=0.0, vanished_s=0.0)
    attending: list[asyncio.Task[None]] = []
    async with Phone(settings, link=link) as phone:
        pids = {"phone": os.getpid(), "media": phone.media_pid}
        before_kb = memory_kb(*pids.values())
        async with callers(phone, receiver, count) as (sipp, errors):
            pids |= {"SIPp": sipp.pid, "receiver": receiver.pid}
            if server_pid is not None:
                pids["server"] = server_pid
            async with asyncio.timeout(20 + count / CALLS_PER_S):
                async for call in phone.incoming():
                    under.calls.append(call)
                    attending.append(asyncio.create_task(attend(call, len(attending), under, talk)))
                    if len(attending) == count:
                        break
                await asyncio.gather(*(call.answered() for call in under.calls))
            receiver.talk([(call.facts.media.local or ("", 0))[1] for call in under.calls])
            await asyncio.sleep(SETTLE_S)
            receiver.begin()
            used, began = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
            await asyncio.sleep(seconds)
            lasted = time.monotonic() - began
            cpu = {
                name: (cpu_s(pid) - used[name]) / lasted / count * 100 for name, pid in pids.items()
            }
            after_kb = memory_kb(pids["phone"], pids["media"])
            rows = await asyncio.to_thread(receiver.end)
            receiver.talk([])
            under.stop.set()
            outcomes = await asyncio.gather(*attending, return_exceptions=True)
            async with asyncio.timeout(20):
                status = await sipp.wait()
            if status:
                raise RuntimeError(f"sipp ended with {status}: {errors.read_text()[-500:]}")
    failed = [str(each) for each in outcomes if each is not None]
    if failed:
        raise RuntimeError(f"{len(failed)} of {count} calls failed: {failed[0]}")
    stats = [call.stats() for call in under.calls]
    lateness = judge(rows)
    return Seen(
        way,
        lateness,
        sum(
            heard > 0 and each.speech_sent > 0
            for heard, each in zip(under.heard, stats, strict=True)
        ),
        sum(each.starvations for each in stats),
        [
            (each.first_sent_at - at) * 1000
            for each, at in zip(stats, under.answered_at, strict=True)
            if each.first_sent_at is not None
        ],
        cpu,
        (after_kb - before_kb) / count,
        sum(under.sentences),
    )


def p95(values: list[float]) -> float:
    """95 % are not above it."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.95))] if values else float("nan")


async def measure(bench: Bench) -> None:
    """All rows, and the figures."""
    counts = bench.args.calls or (QUICK_COUNTS if bench.quick else COUNTS)
    seconds = bench.args.seconds or (4.0 if bench.quick else 60.0)
    audio = await recorded(max(counts))

    async def from_cache(call: PhoneCall, number: int, turn: int) -> None:
        sentences = audio[number]
        await call.play(sentences[turn % len(sentences)], 24_000)

    async def by_engine(call: PhoneCall, number: int, turn: int) -> None:
        sentences = sentences_of(number)
        await call.say(sentences[turn % len(sentences)])

    runs: list[Seen] = []
    receiver = Receiver()
    async with ServerProcess.running("embedded", "server") as server:
        link = SpeechLink(f"ws://127.0.0.1:{server.port}/v1/speech")
        for way in bench.args.ways:
            talk, server_pid = (from_cache, None) if way == "cached" else (by_engine, server.pid)
            for count in counts:
                try:
                    runs.append(await run(way, count, seconds, receiver, link, talk, server_pid))
                except (RuntimeError, TimeoutError) as error:
                    bench.failed(f"{count} calls, {way}", error)
        await link.close()
    receiver.close()
    report(bench, runs)


def report(bench: Bench, runs: list[Seen]) -> None:
    """The tables and the closing line."""
    others = ["SIPp", "receiver", "server"]
    bench.table(
        "calls at once; lateness at the receiver, against each call's own 20 ms grid",
        [
            *("audio", "calls", "whole", "p50_ms", "p99_ms", "max_ms", "gaps"),
            *("first_rtp_ms_p50", "first_rtp_ms_p95", "sentences"),
        ],
        [
            [
                *(each.way, each.lateness.calls, each.whole),
                *(each.lateness.p50, each.lateness.p99, each.lateness.worst, each.gaps),
                *(statistics.median(each.first_rtp_ms), p95(each.first_rtp_ms), each.sentences),
            ]
            for each in runs
        ],
    )
    bench.table(
        "what a call costs: % of a core, and memory",
        [
            *("audio", "calls", "phone_and_media_%", "phone_%", "media_%"),
            *(f"{name}_%" for name in others),
            "kB",
        ],
        [
            [
                *(each.way, each.lateness.calls, each.cpu["phone"] + each.cpu["media"]),
                *(each.cpu["phone"], each.cpu["media"]),
                *(each.cpu.get(name, 0.0) for name in others),
                each.memory_kb,
            ]
            for each in runs
        ],
    )
    for way in WAYS:
        good = [each.lateness.calls for each in runs if each.way == way and each.good]
        bench.note(
            f"{way}: p99 within {ON_TIME_MS} ms and no gap up to {max(good, default=0)} calls"
        )
    bench.note("aims: 200 calls from cached audio, 0.4 % of a core each, first RTP within 20 ms")
    cached = [each for each in runs if each.way == WAYS[0]] or runs
    if not cached:
        return
    last = cached[-1]
    bench.figure(
        calls_ok=max((each.lateness.calls for each in cached if each.good), default=0),
        p99_ms=last.lateness.p99,
        gaps=last.gaps,
        cpu_pct_per_call=last.cpu["phone"] + last.cpu["media"],
        first_rtp_ms_p95=p95(last.first_rtp_ms),
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, help="of each run, instead of a minute")
    parser.add_argument("--calls", type=int, nargs="*", help="instead of 1 10 50 100 200")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    bench = Bench("calls", str(__doc__), parser)
    if shutil.which("sipp") is None:
        raise SystemExit("SIPp makes the calls, and is not installed: apt-get install sip-tester")
    asyncio.run(measure(bench))


if __name__ == "__main__":
    main()
