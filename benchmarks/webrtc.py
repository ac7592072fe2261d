"""Latency and loss of the voice in a browser: WebRTC beside the same sentence over SIP.

The speech server, the softphone and a headless Chromium are processes of their own; the sentence is
put into the page's box. Over SIP a phone of ours says it to another one. Measured is from the
``context.open`` at the speech server's client (the mark ``request_sent`` of the latency log) to the
first audible sample: on the wire (``first_audible_wire``), and at the listener. That of WebRTC
is behind Chromium's jitter buffer (`MediaStreamTrackProcessor`), that of SIP behind the adaptive
jitter buffer of ``call.audio(steady=True)``; neither has a sound card, which adds its own.

The softphone's clock is CLOCK_MONOTONIC of this machine. The page's is tied to it by asking the
page for its time, 30 times; the quickest answer counts, and half its round trip is the uncertainty.

*Concealed* are samples that Chromium concealed while the sentence was spoken, without those of
silence (getStats: ``concealedSamples - silentConcealedSamples``). *Jitter buffer* is
``jitterBufferDelay / jitterBufferEmittedCount`` of the same time.

    python benchmarks/webrtc.py [--quick] [--sentences N] [--rounds N]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from common import Bench

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from connection_setup import COLUMNS, TITLE, rows, setup_times
from server_process import ServerProcess
from softphone_process import SoftphoneProcess, softphone_process

from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.phone import Phone
from qwen3tts_speech.latency import Mark, UtteranceRecord, read_log
from qwen3tts_speech.link import SpeechLink
from tests.softphone.browser import AUDIBLE, Chromium, Visit, running_chromium
from tests.softphone.served import at_the_page

SENTENCE = "Good morning, how can I help you? The line is open, and I am listening to you."
PINGS = 30
WARM_SENTENCES = 2
PAUSE_S = 0.7
"""Between two sentences: the listener has silence again."""


@dataclass
class Heard:
    """One way, sentence by sentence; times in milliseconds after context.open."""

    way: str
    wire: list[float] = field(default_factory=list)
    """The first audible frame was sent."""
    ear: list[float] = field(default_factory=list)
    """Time of the first audible sample at the listener."""
    buffer_ms: list[float] = field(default_factory=list)
    """Mean wait of a sample in the jitter buffer."""
    concealed: int = 0
    """Concealed samples of all sentences."""
    samples: int = 0
    """All that were played meanwhile."""
    skipped: int = 0
    """Slots that passed unsent."""
    rate_hz: int = 48_000
    """Rate of the counted samples."""


# --- WebRTC


@dataclass(frozen=True)
class Tie:
    """The page's clock and ours."""

    offset_s: float
    """Our monotonic clock minus the page's Unix time."""
    uncertain_ms: float


async def tied(visit: Visit) -> Tie:
    """Ask the page for its time."""
    best = (float("inf"), 0.0)
    for _ in range(PINGS):
        before = time.monotonic()
        at_ms = await visit.page.evaluate("() => performance.timeOrigin + performance.now()")
        after = time.monotonic()
        best = min(best, (after - before, (before + after) / 2 - at_ms / 1000))
    return Tie(best[1], best[0] / 2 * 1000)


def newest(log: Path, count: int) -> UtteranceRecord | None:
    """The record of utterance ``count`` of the log, once it is there."""
    records = list(read_log(log)) if log.exists() else []
    return records[count - 1] if len(records) >= count else None


def spoken_before(log: Path) -> int:
    """Number of utterances so far."""
    return len(list(read_log(log))) if log.exists() else 0


async def written(log: Path, count: int) -> UtteranceRecord:
    """The same; waits for it."""
    async with asyncio.timeout(10):
        while (record := newest(log, count)) is None:  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.05)
    return record


async def counters(visit: Visit) -> dict[str, float]:
    """Counters of the audio that the page receives."""
    while not (every := await visit.stats("inbound-rtp")):  # noqa: ASYNC110 - the page's
        await asyncio.sleep(0.05)
    found = every[0]
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


async def in_the_browser(
    chromium: Chromium, softphone: SoftphoneProcess, log: Path, codec: str, count: int
) -> tuple[Heard, Tie]:
    """One call from the page, and so many sentences."""
    seen = Heard(f"WebRTC, {codec}")
    said = spoken_before(log)
    async with at_the_page(chromium, softphone.url, strict=False) as person:
        await person.call(Codec=codec)
        visit = person.visit
        tie = await tied(visit)
        for number in range(count + 1):
            await asyncio.sleep(PAUSE_S)
            await visit.listen()
            async with asyncio.timeout(10):
                before = await counters(visit)
            await person.put(SENTENCE)
            first_ms = await visit.first_sound_ms()
            await person.spoken(number + 1)
            async with asyncio.timeout(10):
                after = await counters(visit)
            record = await written(log, said + number + 1)
            if not number:
                continue  # the first one loads code and learns the line
            opened = record.marks[Mark.REQUEST_SENT]
            seen.wire.append((record.marks[Mark.FIRST_AUDIBLE_WIRE] - opened) * 1000)
            seen.ear.append((first_ms / 1000 + tie.offset_s - opened) * 1000)

            def grown(name: str, *, before: Any = before, after: Any = after) -> float:
                return float(after[name] - before[name])

            waited_s = grown("jitterBufferDelay")
            seen.buffer_ms.append(waited_s / max(1.0, grown("jitterBufferEmittedCount")) * 1000)
            seen.concealed += int(grown("concealedSamples") - grown("silentConcealedSamples"))
            seen.samples += int(grown("totalSamplesReceived"))
        lines = visit.messages("line")
        seen.skipped = int(lines[-1]["skipped"]) if lines else 0
        await person.hang_up()
    return seen, tie


# --- SIP


async def first_audible(call: PhoneCall) -> float:
    """Playout time of a call's first audible sample, behind its jitter buffer (monotonic, s)."""
    async for frame in call.audio(steady=True):
        loud = np.flatnonzero(np.abs(frame.samples.astype(int)) >= AUDIBLE * 32767)
        if len(loud):
            return time.monotonic() + int(loud[0]) / frame.rate_hz
    raise RuntimeError("the call ended, and nothing was heard")


async def over_sip(url: str, folder: Path, count: int) -> Heard:
    """The same sentence from one phone to another."""
    seen = Heard("SIP, PCMU", rate_hz=8000)
    log = folder / "sip.jsonl"
    mute = SpeechLink("ws://127.0.0.1:1/v1/speech")
    async with (
        Phone(server_url=url, latency_log=log) as ours,
        Phone(link=mute) as theirs,
    ):
        far = await theirs.dial(ours.uri)
        call = await anext(aiter(ours))
        await call.answer()
        await far.answered()
        for number in range(count + 1):
            await asyncio.sleep(PAUSE_S)
            hearing = asyncio.create_task(first_audible(far))
            before = far.stats()
            await call.say(SENTENCE)
            heard_at = await hearing
            after = far.stats()
            record = await written(log, number + 1)
            if not number:
                continue
            opened = record.marks[Mark.REQUEST_SENT]
            seen.wire.append((record.marks[Mark.FIRST_AUDIBLE_WIRE] - opened) * 1000)
            seen.ear.append((heard_at - opened) * 1000)
            seen.concealed += (after.concealed - before.concealed) * 160
            seen.samples += (after.received - before.received) * 160
        seen.skipped = call.stats().skipped_slots
        await call.hangup()
        await far.ended()
    return seen


# --- all of it


def p95(values: list[float]) -> float:
    """95 % are not above it."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.95))]


async def measure(bench: Bench) -> None:
    """Every way, and the tables."""
    count = bench.args.sentences or (4 if bench.quick else 30)
    rounds = bench.args.rounds or (3 if bench.quick else 20)
    ways: list[Heard] = []
    ties: list[Tie] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "webrtc.jsonl"
        async with ServerProcess.running("embedded", "server") as server:
            url = f"ws://127.0.0.1:{server.port}/v1/speech"
            async with (
                softphone_process(
                    folder, "--server", url, "--latency-log", str(log), "--no-open"
                ) as softphone,
                running_chromium(folder) as chromium,
            ):
                # A browser that has just been started is busy with itself for seconds.
                await in_the_browser(chromium, softphone, log, "opus", WARM_SENTENCES)
                for codec in ("opus", "PCMU"):
                    try:
                        seen, tie = await in_the_browser(chromium, softphone, log, codec, count)
                    except Exception as error:  # the other ways are worth their rows
                        bench.failed(f"WebRTC, {codec}", error)
                        continue
                    ways.append(seen)
                    ties.append(tie)
                try:
                    ways.append(await over_sip(url, folder, count))
                except Exception as error:
                    bench.failed("SIP", error)
                async with chromium.visit(strict=False) as visit:
                    await visit.goto(f"http://127.0.0.1:{softphone.port}/static/icon.svg")
                    taken = await setup_times(url, cast(Any, softphone), rounds, visit.page)
    report(bench, ways, ties)
    bench.table(TITLE, COLUMNS, rows(taken))
    with suppress(StopIteration):
        opus = next(each for each in ways if "opus" in each.way)
        bench.figure(
            first_audible_ms_p50=round(statistics.median(opus.ear), 1),
            concealed=opus.concealed,
            jitter_buffer_ms=round(statistics.median(opus.buffer_ms), 1),
        )


def report(bench: Bench, ways: list[Heard], ties: list[Tie]) -> None:
    """The first table."""
    bench.table(
        "from context.open to the first audible sample, ms",
        [
            *("way", "sentences", "wire_p50", "ear_p50", "ear_p95", "wire_to_ear_p50"),
            *("jitter_buffer", "concealed", "concealed_%", "skipped"),
        ],
        [
            [
                *(each.way, len(each.ear), statistics.median(each.wire)),
                *(statistics.median(each.ear), p95(each.ear)),
                statistics.median(b - a for a, b in zip(each.wire, each.ear, strict=True)),
                statistics.median(each.buffer_ms) if each.buffer_ms else float("nan"),
                *(each.concealed, 100 * each.concealed / max(1, each.samples), each.skipped),
            ]
            for each in ways
        ],
    )
    for tie in ties:
        bench.note(f"the page's clock is tied to ours within {tie.uncertain_ms:.2f} ms")
    bench.note("concealed: samples at 48 kHz (Chromium) or 8 kHz (SIP) of all sentences together")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sentences", type=int, help="of each way, instead of 30")
    parser.add_argument("--rounds", type=int, help="of the connection set-up, instead of 20")
    bench = Bench("webrtc", str(__doc__), parser)
    asyncio.run(measure(bench))


if __name__ == "__main__":
    main()
