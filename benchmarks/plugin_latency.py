"""From a model's first token to the first frame at the telephony plugin, in a real MindRoot.

The host, with the plugin and two helper plugins of the tests, runs as a process of its own, and so
does the speech server. A scripted model writes a sentence, 20 ms a token; a stand-in for the
telephony plugin notes when each frame is handed over. All of them share the machine's monotonic
clock, so each turn is taken apart:

- *the words*: until the host has given the plugin the words that the speech server begins with.
  The model has to write them first, and the host passes its text on at most every 50 ms (JSON mode)
  or every 8 characters (XML mode): how long a word waits for that is shown beside it.
- *the engine*: from the first text that can be spoken to the engine's first sound.
- *ours*: all the rest. Taking the words from the host, sending them, receiving the sound, 24 to
  8 kHz, mu-law, and the wait for the next frame's time.

Beside it: the same sentence spoken only when the model has finished it, as a plugin does that takes
no partial commands. *Before the end*: the first frame came before the sentence's last token.
*Silent ticks*: the telephony plugin sends a frame every 20 ms; one for which none lay ready.

*Two commands*: a turn of two ``speak`` commands, 40 ms a token, with eSpeak NG's voice; the longest
silence that the caller hears within it, which is where the second one begins.

With ``--calls``: concurrent calls for ``--seconds``, each with sentences of its own. What each
caller heard is compared with what the engine said for this call, and the host's memory is watched.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import Bench
from server_process import ServerProcess

from qwen3tts_speech.latency import Mark, UtteranceRecord, read_log
from tests.mindroot_host.call import Visit, speaking
from tests.mindroot_host.host import Host
from tests.mindroot_host.install import main as install
from tests.mindroot_host.many import many_calls
from tests.mindroot_host.playout import TICK_S, Event, played
from tests.mindroot_host.speech_server import SpeechServer

SENTENCE = (
    "Good morning and thank you for calling us today, my name is Clara and I will be glad to help "
    "you with your booking for the weekend in Vienna."
)
"""One sentence, some 30 tokens."""
TOKEN_MS = 20
TWO_COMMANDS = (
    "The first train to Graz leaves at seven minutes past six.",
    "The second one is an hour later, and has a dining car.",
)
TWO_TOKEN_MS = 40
GAP_S = 0.1
HEARD_FRAMES = 250
"""Frames listened to of each reply, 5 s; then it is stopped."""
QUICK_FRAMES = 140
TURNS = 25
"""Turns of each agent with each engine; half as many of the agent that waits for the end."""
QUICK_TURNS = 2
ENGINES = ("embedded", "tiny")
TWO_ENGINE = "embedded"
"""Engine of the turns with two commands: the tiny checkpoint has no end of a sentence."""

MODES = ("json", "xml")
OPTIONS = {"MR_QWEN3TTS_MODE": "auto"}
AGENTS = {
    "json": OPTIONS,
    "xml": {**OPTIONS, "MR_XML_STREAMING": "1"},
    "json at the end": {**OPTIONS, "MR_QWEN3TTS_LIVE": "0"},
}
"""Each agent's own environment, in the host."""


@dataclass(frozen=True)
class Turn:
    """One reply; milliseconds."""

    total: float
    """From the model's first token to the first frame at the telephony plugin."""
    words: float
    throttle: float
    """Part of that for which the last partial's first word waited in the host."""
    engine: float
    ours: float
    before_end: bool
    silent_ticks: int


def taken_apart(
    tokens: Sequence[tuple[float, int]],
    start: int,
    events: Sequence[Event],
    record: UtteranceRecord,
) -> Turn:
    """One turn from what was noted of it; all times are of the machine's monotonic clock.

    Args:
        tokens: when the model wrote each, and its characters.
        start: where in what it wrote the sentence begins.
        events: of the telephony plugin, of this turn.
        record: the plugin's own record of the utterance.
    """
    playout = played(events)
    first_frame = playout.responses[0].first_chunk
    assert first_frame is not None
    begun = tokens[0][0]
    ready, first_pcm = record.marks[Mark.SEGMENT_READY], record.marks[Mark.FIRST_PCM]
    # The partial command with which the server had enough: the last one before it was ready.
    partials = [(at, value) for at, what, value in events if what == "partial" and at <= ready]
    given = partials[-1][0]
    before = partials[-2][1] if len(partials) > 1 else 0

    def written(count: int) -> float:
        """Time at which this part of the sentence was there."""
        length = 0
        for at, more in tokens:
            length += more
            if length >= start + count:
                return at
        return tokens[-1][0]

    engine = first_pcm - ready
    return Turn(
        total=(first_frame - begun) * 1000,
        words=(given - begun) * 1000,
        throttle=(given - written(before + 1)) * 1000,
        engine=engine * 1000,
        ours=(first_frame - given - engine) * 1000,
        before_end=first_frame < written(len(SENTENCE)),
        silent_ticks=playout.silent_ticks,
    )


class Setting:
    """A host, and agents for each engine: they say themselves which server speaks for them."""

    def __init__(self, folder: Path, urls: Mapping[str, str]) -> None:
        self.log = folder / "latency.jsonl"
        environment = {"MR_QWEN3TTS_LATENCY_LOG": str(self.log)}
        self.host = Host.install(folder / "host", environment)
        for engine, url in urls.items():
            for name, options in AGENTS.items():
                own = {**options, "MR_QWEN3TTS_URL": url}
                self.host.add_agent(f"{name} {engine}", env=own)

    async def turn(self, admin: Visit, agent: str, frames: int) -> Turn:
        """A reply in a call of its own, listened to for so many frames."""
        call = await admin.call(agent)
        # Turns do not begin at the same place of the host's throttle and the pacer's clock.
        await asyncio.sleep(random.uniform(0, GAP_S))
        await call.speak(SENTENCE, token_ms=TOKEN_MS)
        await call.frames(frames)
        await call.phone("cancel_and_wait")
        await call.silence()
        [model, *_] = await call.model()
        written = SENTENCE if call.xml else speaking(SENTENCE)["text"]
        start = written.index(SENTENCE)
        record = await self._record(call.log_id)
        await call.close()
        return taken_apart(model["tokens"], start, await call.record(), record)

    async def silence_ms(self, admin: Visit, agent: str) -> float:
        """The longest silence within a turn of TWO_COMMANDS."""
        call = await admin.call(agent)
        await call.speak(*TWO_COMMANDS, token_ms=TWO_TOKEN_MS)
        await call.finished()
        playout = await call.silence()
        await call.close()
        return 1000 * TICK_S * max(playout.silent_before())

    async def _record(self, log_id: str) -> UtteranceRecord:
        async with asyncio.timeout(10):
            while True:
                if self.log.exists():
                    for record in read_log(self.log):
                        if record.call_id == log_id:
                            return record
                await asyncio.sleep(0.05)


async def measured(setting: Setting, engine: str, quick: bool) -> dict[str, list[Turn]]:
    """All agents with one engine."""
    count = QUICK_TURNS if quick else TURNS
    frames = QUICK_FRAMES if quick else HEARD_FRAMES
    async with setting.host.visit() as admin:
        await setting.turn(admin, f"json {engine}", 20)  # the first words load a great deal
        return {
            agent: [
                await setting.turn(admin, f"{agent} {engine}", frames)
                for _ in range(count if agent in MODES else count // 2)
            ]
            for agent in AGENTS
        }


def percentile(values: Sequence[float], part: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(part * (len(ordered) - 1)))]


def show(bench: Bench, engine: str, results: Mapping[str, Sequence[Turn]]) -> None:
    """One table an engine."""
    rows: list[list[Any]] = []
    for agent, turns in results.items():

        def both(name: str, turns: Sequence[Turn] = turns) -> str:
            values = [getattr(turn, name) for turn in turns]
            return f"{percentile(values, 0.5):.0f} / {percentile(values, 0.95):.0f}"

        rows.append(
            [
                agent,
                len(turns),
                both("total"),
                both("words"),
                both("throttle"),
                both("engine"),
                f"{percentile([turn.ours for turn in turns], 0.5):.1f} / "
                f"{percentile([turn.ours for turn in turns], 0.95):.1f}",
                100 * statistics.fmean(turn.before_end for turn in turns),
                sum(turn.silent_ticks for turn in turns),
            ]
        )
    bench.table(
        f"{engine}: first token to first frame (ms, p50 / p95)",
        [
            "agent",
            "turns",
            "in all",
            "the words",
            "the host's wait in it",
            "the engine",
            "ours",
            "before the end, %",
            "silent ticks",
        ],
        rows,
    )


async def talk(bench: Bench, folder: Path, calls: int, seconds: float) -> dict[str, float]:
    """Many concurrent calls; what of it belongs to the closing line."""
    server = SpeechServer(folder / "speech")
    try:
        host = Host.install(folder / "many", {"MR_QWEN3TTS_URL": server.url})
        try:
            heard = await many_calls(host, server, calls, seconds)
        finally:
            host.stop()
    finally:
        server.kill()
    bench.table(
        f"{calls} calls for {seconds:.0f} s, each with a voice and words of its own",
        ["turns", "with other words", "silent ticks", "memory, MB", "its growth, MB"],
        [
            [
                heard.turns,
                len(heard.wrong),
                heard.silent_ticks,
                heard.resident_mb[-1],
                heard.growth_mb,
            ]
        ],
    )
    for each in heard.wrong:
        bench.note(each)
    return {
        "turns": heard.turns,
        "turns_wrong": len(heard.wrong),
        "growth_mb": heard.growth_mb,
    }


async def two_commands(bench: Bench, setting: Setting) -> dict[str, float]:
    """The table of turns with two commands; its figures."""
    count = QUICK_TURNS if bench.quick else TURNS
    async with setting.host.visit() as admin:
        silences = {
            mode: [await setting.silence_ms(admin, f"{mode} {TWO_ENGINE}") for _ in range(count)]
            for mode in MODES
        }
    bench.table(
        f"two speak commands of a turn, {TWO_TOKEN_MS} ms a token: longest silence in it, ms",
        ["agent", "turns", "p50", "max"],
        [[mode, count, percentile(each, 0.5), max(each)] for mode, each in silences.items()],
    )
    return {f"two_commands_ms_max_{mode}": max(each) for mode, each in silences.items()}


async def take_apart(
    bench: Bench, folder: Path, urls: Mapping[str, str], figures: dict[str, float]
) -> Sequence[Turn]:
    """All engines; the turns in which the plugin streamed."""
    ours: list[Turn] = []
    setting = Setting(folder, urls)
    try:
        for engine in urls:
            try:
                results = await measured(setting, engine, bench.quick)
            except Exception as error:
                bench.failed(engine, error)
                continue
            show(bench, engine, results)
            if engine == TWO_ENGINE:
                figures |= await two_commands(bench, setting)
            ours += [turn for agent in MODES for turn in results[agent]]
    finally:
        setting.host.stop()
    return ours


async def run(bench: Bench, folder: Path) -> None:
    """All of it."""
    figures: dict[str, float] = {}
    if bench.args.calls:
        figures = await talk(bench, folder, bench.args.calls, bench.args.seconds)
    ours: Sequence[Turn] = ()
    async with contextlib.AsyncExitStack() as stack:
        urls: dict[str, str] = {}
        for engine in bench.args.engines:
            try:
                server = await stack.enter_async_context(ServerProcess.running(engine, "server"))
            except Exception as error:
                bench.failed(engine, error)
            else:
                urls[engine] = f"ws://127.0.0.1:{server.port}/v1/speech"
        if urls:
            ours = await take_apart(bench, folder, urls, figures)
    if ours:
        figures = {
            "ours_ms_p95": percentile([turn.ours for turn in ours], 0.95),
            "first_before_end_pct": 100 * statistics.fmean(turn.before_end for turn in ours),
            "silent_ticks": sum(turn.silent_ticks for turn in ours),
            **figures,
        }
    bench.figure(**figures)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", nargs="*", choices=ENGINES, default=ENGINES)
    parser.add_argument(
        "--calls", type=int, default=0, choices=range(11), metavar="N", help="at most 10"
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    bench = Bench("plugin_latency", __doc__.splitlines()[0], parser)
    install()
    with tempfile.TemporaryDirectory(prefix="plugin-latency-") as folder:
        asyncio.run(run(bench, Path(folder)))


if __name__ == "__main__":
    main()
