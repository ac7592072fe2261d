"""From a model's first token to the first frame at the telephony plugin, in a real MindRoot.

The host, with the plugin and two helper plugins of the tests, runs as a process of its own, and so
does the speech server. A scripted model writes a sentence, 20 ms a token; a stand-in for the
telephony plugin notes when each frame is handed over. All of them share the machine's monotonic
clock, so each turn is taken apart:

- *the words*: until the host has given the plugin the words that the speech server begins with.
  The model has to write them first, and the host passes its text on at most every 50 ms (JSON mode)
  or every 8 characters (XML mode); what of it is the host's delay is shown beside it.
- *the engine*: from the first text that can be spoken to the engine's first sound.
- *ours*: all the rest. Taking the words from the host, sending them, receiving the sound, 24 to
  8 kHz, mu-law, and the wait for the next frame's time.

Beside it: the same sentence spoken only when the model has finished it, as a plugin does that takes
no partial commands. *Before the end*: the first frame came before the sentence's last token.
*Silent ticks*: the telephony plugin sends a frame every 20 ms; one for which none lay ready.

With ``--calls``: so many calls at once for ``--seconds``, each with sentences of its own. What each
caller heard is compared with what the engine said for this call, and the host's memory is watched.
"""

from __future__ import annotations

import argparse
import asyncio
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
from tests.mindroot_host.host import Host, Visit, speaking
from tests.mindroot_host.install import main as install
from tests.mindroot_host.many import many_calls
from tests.mindroot_host.playout import Event, played
from tests.mindroot_host.speech_server import SpeechServer

SENTENCE = (
    "Good morning and thank you for calling us today, my name is Clara and I will be glad to help "
    "you with your booking for the weekend in Vienna"
)
"""One sentence, some 30 tokens."""
TOKEN_MS = 20
GAP_S = 0.1
"""Between two turns of a call."""
ENGINES = ("embedded", "tiny")


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
    """Of that, from the token with which the words were written to their partial command."""
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
    given, characters = max(
        (at, value) for at, what, value in events if what == "partial" and at <= ready
    )

    def written(count: int) -> float:
        length = 0
        for at, characters in tokens:
            length += characters
            if length >= start + count:
                break
        return at

    engine = first_pcm - ready
    return Turn(
        total=(first_frame - begun) * 1000,
        words=(given - begun) * 1000,
        throttle=(given - written(characters)) * 1000,
        engine=engine * 1000,
        ours=(first_frame - given - engine) * 1000,
        before_end=first_frame < written(len(SENTENCE)),
        silent_ticks=playout.silent_ticks,
    )


class Setting:
    """A host with its speech server, in a folder that is thrown away."""

    def __init__(self, folder: Path, url: str) -> None:
        self.log = folder / "latency.jsonl"
        self.host = Host.install(
            folder / "host", {"MR_QWEN3TTS_URL": url, "MR_QWEN3TTS_LATENCY_LOG": str(self.log)}
        )
        for name, environment in AGENTS.items():
            self.host.add_agent(f"bench {name}", env=environment)

    async def turns(self, admin: Visit, agent: str, count: int) -> list[Turn]:
        """So many replies, one after the other, each in a call of its own."""
        turns = []
        for _ in range(count):
            call = await admin.call(f"bench {agent}")
            call.xml = "xml" in agent
            # Turns do not begin at the same place of the host's throttle and the pacer's clock.
            await asyncio.sleep(random.uniform(0, GAP_S))
            await call.speak(SENTENCE, token_ms=TOKEN_MS)
            await call.finished()
            await call.silence()
            [model] = await call.model()
            start = 0 if call.xml else len(speaking(SENTENCE)["text"].partition(SENTENCE)[0])
            record = next(each for each in read_log(self.log) if each.call_id == call.log_id)
            turns.append(taken_apart(model["tokens"], start, await call.record(), record))
            await call.close()
        return turns


async def measured(folder: Path, engine: str, count: int) -> dict[str, list[Turn]]:
    """All agents with one engine."""
    async with ServerProcess.running(engine, "server") as server:
        setting = Setting(folder / engine, f"ws://127.0.0.1:{server.port}/v1/speech")
        try:
            async with setting.host.visit() as admin:
                await setting.turns(admin, "json", 2)  # warm: the first words load a great deal
                return {agent: await setting.turns(admin, agent, count) for agent in AGENTS}
        finally:
            setting.host.stop()


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
            "host's delay in it",
            "the engine",
            "ours",
            "before the end, %",
            "silent ticks",
        ],
        rows,
    )


async def talk(bench: Bench, folder: Path, calls: int, seconds: float) -> None:
    """Many calls at once."""
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


async def run(bench: Bench, folder: Path) -> None:
    """All of it."""
    count = 12 if bench.quick else 60
    calls = bench.args.calls
    if calls:
        await talk(bench, folder, calls, bench.args.seconds)
    ours: list[Turn] = []
    for engine in bench.args.engines:
        try:
            results = await measured(folder, engine, count)
        except Exception as error:
            bench.failed(engine, error)
            continue
        show(bench, engine, results)
        ours += [turn for agent in MODES for turn in results[agent]]
    if ours:
        bench.figure(
            ours_ms_p95=percentile([turn.ours for turn in ours], 0.95),
            first_before_end_pct=100 * statistics.fmean(turn.before_end for turn in ours),
            silent_ticks=sum(turn.silent_ticks for turn in ours),
        )


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
