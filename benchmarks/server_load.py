"""A server under open-loop load: callers who listen, cancel, read slowly, vanish; and its memory.

Utterances begin at random moments at a mean rate that does not wait for the server (60 % of what it
was seen to do before), most on standing connections, as calls are. One in ten is cancelled, one in
twenty stops reading for a while and is cut off, one in twenty vanishes without a word. Those who
listen play what comes immediately: a *gap* is sound that came 20 ms too late. *Refused* ended with
an error, *lost* did not end.

Memory is the resident memory of the server's process, with the engine in it, before and after,
each after a garbage collection and with nothing under way.

*One step*: a client vanishes in the middle of a long text; how long until the engine's place is
free, beside the time that the engine takes for a chunk. *Slow readers*: how long others wait for
their first sound while some read nothing.

*Bulk*: clients in a process of their own order long texts as MP3 over REST, one after the other; a
live call asks for short sentences and listens to a longer one. Its first sound is set beside that
of the same call alone, in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from common import Bench
from server_peers import Heard, SpeechPeer
from server_process import ServerProcess

ENGINES = ("embedded", "tiny", "piper")
SHORT = ("Yes.", "One moment.", "Good morning, this is the line.", "That works. Thank you.")
LONG = "We are happy that you called, and we will be with you in a moment. " * 20
BYTES_PER_S = 48_000
GAP_S = 0.02
QUICK_S = 4.0
"""Seconds of load, with ``--quick``."""
CALLS = 16
PATIENCE_S = 120.0
SETTINGS = {"first_message_s": 0.0, "idle_s": 0.0}
LIVE_LONG = " ".join(["We will look at your order now, and then call you back."] * 6)
BULK = (0, 8, 24)
"""Numbers of bulk clients."""
BULK_FORM = "mp3"
BULK_WARM_S = 3.0
"""Until the bulk clients are all under way."""
WARM = 64 * CALLS
"""Utterances before memory is looked at first: a connection keeps its last 64 contexts, some 6 kB
each, and is full then (not so with ``--quick``, where that counts as growth)."""


@dataclass
class Outcome:
    """Outcome of all utterances."""

    counts: Counter[str] = field(default_factory=Counter)
    first_ms: list[float] = field(default_factory=list)
    gaps: int = 0
    longest_gap_ms: float = 0.0
    listened: int = 0
    after_cancel: int = 0

    @property
    def utterances(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    @property
    def lost(self) -> int:
        """Utterances that did not end as they should."""
        return self.counts["lost"] + self.counts["timeout"]

    @property
    def refused(self) -> int:
        """Utterances that ended with an error."""
        known = {"done", "cancelled", "slow", "vanished", "lost", "timeout"}
        return sum(count for how, count in self.counts.items() if how not in known)

    def listen(self, heard: Heard) -> None:
        """Somebody listened to all of it."""
        if not heard.arrivals:
            return
        self.listened += 1
        began = heard.arrivals[0][0]
        self.first_ms.append((began - heard.asked) / 1e6)
        worst = length = 0.0
        for came, size in heard.arrivals:
            worst = max(worst, (came - began) / 1e9 - length)
            # A listener who ran dry goes on from when there is more.
            length = max(length, (came - began) / 1e9) + size / BYTES_PER_S
        if worst > GAP_S:
            self.gaps += 1
            self.longest_gap_ms = max(self.longest_gap_ms, 1000 * worst)


def percentile(values: Sequence[float], percent: int) -> float:
    """Percentile of some values; nan of none."""
    if len(values) < 2:
        return values[0] if values else float("nan")
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


class Load:
    """Many callers of one server."""

    def __init__(self, port: int, calls: Sequence[SpeechPeer], seed: int = 0) -> None:
        self._port = port
        self._calls = calls
        self._chance = random.Random(seed)
        self.outcome = Outcome()

    async def run(self, utterances: int, rate: float, *, kind: bool = True) -> None:
        """Run utterances at a mean rate a second; ``kind``: none but listeners."""
        async with asyncio.TaskGroup() as tasks:
            due = time.monotonic()
            for number in range(utterances):
                due += self._chance.expovariate(rate)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                dice = 1.0 if kind else self._chance.random()
                tasks.create_task(self._one(number, dice))

    async def _one(self, number: int, dice: float) -> None:
        text = SHORT[number % len(SHORT)]
        if dice < 0.10:
            how = await self._leaves(dice < 0.05)
        else:
            peer = self._calls[number % len(self._calls)]
            asked, heard = peer.ask(text, None, window_ms=60_000)
            if dice < 0.20:
                await asyncio.sleep(self._chance.uniform(0, 0.5))
                peer.cancel(asked)
            try:
                await asyncio.wait_for(heard.done.wait(), PATIENCE_S)
            except TimeoutError:
                heard.ended = "timeout"
            how = heard.ended or "lost"
            if how == "done":
                self.outcome.listen(heard)
        self.outcome.counts[how] += 1

    async def _leaves(self, slow: bool) -> str:
        """Somebody who reads nothing for a while, or who is gone in the middle."""
        try:
            peer = await SpeechPeer.connect(self._port)
        except ConnectionError:
            return "lost"
        peer.ask(LONG, None, window_ms=60_000)
        await asyncio.sleep(self._chance.uniform(0, 0.3))
        if slow:
            peer.pause()
            await asyncio.sleep(self._chance.uniform(0.5, 2.0))
        peer.close()
        return "slow" if slow else "vanished"


async def quiet(server: ServerProcess) -> dict[str, Any]:
    """The server's figures once nothing is under way."""
    for _ in range(1200):
        if not (await server.ask("load"))["active"]:
            break
        await asyncio.sleep(0.05)
    return await server.ask("stats")


async def at_rest(server: ServerProcess) -> None:
    """Until the engine makes no more sound, though it may have been asked to."""
    given, same = -1, 0
    while same < 10:
        await asyncio.sleep(0.05)
        now = (await server.ask("load"))["given"]
        same = same + 1 if now == given else 0
        given = now


async def capacity(calls: Sequence[SpeechPeer], seconds: float) -> float:
    """Utterances a second when each caller asks again as soon as it is answered."""
    until, count = time.monotonic() + seconds, 0

    async def caller(peer: SpeechPeer, number: int) -> None:
        nonlocal count
        while time.monotonic() < until:
            await peer.speak(SHORT[(number + count) % len(SHORT)], None)
            count += 1

    began = time.monotonic()
    await asyncio.gather(*(caller(peer, number) for number, peer in enumerate(calls)))
    return count / (time.monotonic() - began)


async def vanishing(server: ServerProcess, times: int) -> tuple[list[float], list[float], int]:
    """Milliseconds until a vanished client's place is free.

    Also those between two chunks meanwhile, and the most chunks made without a listener.
    """
    freed: list[float] = []
    steps: list[float] = []
    wasted = 0
    for turn in range(times):
        await quiet(server)
        peer = await SpeechPeer.connect(server.port)
        # The listener seems to hear nothing yet, so that the engine does not rest.
        _, heard = peer.ask(LONG, None, window_ms=60_000, lead_ms=10_000)
        while len(heard.chunks) < 3 + turn % 3:
            await asyncio.sleep(0.002)
            if heard.ended:
                raise RuntimeError(f"a long text ended with {heard.ended}")
        given = [chunk[1] for chunk in heard.chunks]
        steps += [(b - a) / 1e6 for a, b in itertools.pairwise(given)]
        gone = time.monotonic_ns()
        peer.close()
        while True:
            load = await server.ask("load")
            if not load["active"] and not load["busy"]:
                break
            await asyncio.sleep(0.001)
        freed.append((load["now_ns"] - gone) / 1e6)
        for each in (await server.ask("stats"))["over"]:
            wasted = max(wasted, sum(at > gone for at in each["recent"]))
    return freed, steps, wasted


async def slow_readers(server: ServerProcess, count: int, turns: int) -> list[float]:
    """First sounds of one caller, in milliseconds, while ``count`` others read nothing."""
    slow = [await SpeechPeer.connect(server.port) for _ in range(count)]
    for peer in slow:
        peer.ask(LONG, None)
        peer.pause()
    await at_rest(server)
    caller = await SpeechPeer.connect(server.port)
    first: list[float] = []
    for _ in range(turns):
        heard = await caller.speak(SHORT[0], None)
        first.append((heard.arrivals[0][0] - heard.asked) / 1e6)
    for peer in (caller, *slow):
        peer.close()
    await quiet(server)
    return first


def bulk_clients(port: int, count: int, form: str) -> None:
    """Order long texts as files until the process is ended; the body of a process of its own."""
    body = json.dumps({"input": LONG, "response_format": form}).encode()
    request = (
        b"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    ) + body

    async def client() -> None:
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            status = await reader.readline()
            if b" 200 " not in status:
                raise ConnectionError(status.decode("ascii", "replace"))
            while await reader.read(1 << 16):
                pass
            writer.close()

    async def clients() -> None:
        await asyncio.gather(*(client() for _ in range(count)))

    asyncio.run(clients())


@dataclass
class Live:
    """First sounds of a live call in milliseconds, and what its longer texts did."""

    first_ms: list[float]
    outcome: Outcome


async def live_call(server: ServerProcess, turns: int) -> Live:
    """One caller's short sentences, every fourth a text of some 20 s, with reports of playout."""
    peer = await SpeechPeer.connect(server.port)
    live = Live([], Outcome())
    for turn in range(turns):
        text = LIVE_LONG if turn % 4 == 3 else SHORT[turn % 3]
        heard = await peer.speak(text, None)
        live.outcome.counts[heard.ended or "lost"] += 1
        live.outcome.listen(heard)
        await asyncio.sleep(0.05)
    live.first_ms = live.outcome.first_ms
    peer.close()
    return live


async def beside_bulk(server: ServerProcess, counts: Sequence[int], turns: int) -> dict[int, Live]:
    """A live call beside each number of bulk clients."""
    lives: dict[int, Live] = {}
    for count in counts:
        await at_rest(server)
        context = multiprocessing.get_context("spawn")
        bulk = context.Process(
            target=bulk_clients, args=(server.port, count, BULK_FORM), daemon=True
        )
        if count:
            bulk.start()
            await asyncio.sleep(BULK_WARM_S)
            if not bulk.is_alive():
                raise RuntimeError("the bulk clients ended")
        lives[count] = await live_call(server, turns)
        if count:
            bulk.kill()
            bulk.join()
    return lives


async def one_engine(
    bench: Bench, engine: str, utterances: int, bulk_figures: dict[str, float]
) -> tuple[Outcome, float]:
    """All tables of one engine; what became of the utterances, and how memory grew in MB."""
    few = bench.quick
    async with ServerProcess.running(engine, "server", SETTINGS) as server:
        calls = [await SpeechPeer.connect(server.port) for _ in range(CALLS)]
        most = await capacity(calls, 2.0 if few else 8.0)
        rate = 0.6 * most
        if few and not bench.args.utterances:
            # On a slow machine fewer, so that it does not take longer.
            utterances = max(10, min(utterances, int(rate * QUICK_S)))
        warm = Load(server.port, calls, seed=1)
        await warm.run(min(WARM, utterances // 2), rate, kind=False)
        before = await quiet(server)
        load = Load(server.port, calls)
        began = time.monotonic()
        await load.run(utterances, rate, kind=False)
        seconds = time.monotonic() - began
        after = await quiet(server)
        outcome = load.outcome
        outcome.after_cancel = sum(each.after_cancel for each in calls)
        growth = (after["rss_kb"] - before["rss_kb"]) / 1024
        bench.table(
            f"{engine}: {utterances} utterances, {rate:.1f} a second (it did {most:.1f})",
            ["what", "value"],
            [
                *([how, count] for how, count in sorted(outcome.counts.items())),
                ["refused", outcome.refused],
                ["lost", outcome.lost],
                ["listened to its end", outcome.listened],
                ["with a gap", outcome.gaps],
                ["longest gap, ms", outcome.longest_gap_ms],
                ["first sound p50, ms", percentile(outcome.first_ms, 50)],
                ["first sound p95, ms", percentile(outcome.first_ms, 95)],
                ["frames after a cancel's answer", outcome.after_cancel],
                ["seconds", seconds],
                ["resident MB before", before["rss_kb"] / 1024],
                ["resident MB after", after["rss_kb"] / 1024],
                ["tasks before, after", f"{before['tasks']}, {after['tasks']}"],
                ["requests still with the engine", after["active"]],
            ],
        )
        for peer in calls:
            peer.close()
        freed, steps, wasted = await vanishing(server, 4 if few else 40)
        bench.table(
            f"{engine}: a client vanishes in the middle of its text",
            ["what", "p50", "p95", "max"],
            [
                ["its place is free after, ms", *_three(freed)],
                ["the engine's time for a chunk, ms", *_three(steps)],
                ["chunks made for nobody", "", "", wasted],
            ],
        )
        rows = []
        for count in (0, 4 if few else 8):
            first = await slow_readers(server, count, 5 if few else 60)
            rows.append([f"{count} read nothing", *_three(first)])
        bench.table(f"{engine}: first sound of one caller beside others, ms", _COLUMNS, rows)
        if engine == "embedded":
            bulk_figures.update(await bulk_table(bench, engine, server, 12 if few else 80))
    return outcome, growth


async def bulk_only(bench: Bench, engine: str) -> dict[str, float]:
    """The live call beside bulk clients of an engine that is measured in nothing else here."""
    async with ServerProcess.running(engine, "server", SETTINGS) as server:
        figures = await bulk_table(bench, engine, server, 5 if bench.quick else 80)
    return {f"{key}_{engine}": value for key, value in figures.items()}


async def bulk_table(
    bench: Bench, engine: str, server: ServerProcess, turns: int
) -> dict[str, float]:
    """The live call beside bulk clients; the figures of most of them."""
    lives = await beside_bulk(server, BULK, turns)
    bench.table(
        f"{engine}: a live call beside clients that order long {BULK_FORM} files: first sound, ms",
        ["bulk clients", "p50", "p95", "max", "sentences with a gap", "longest gap, ms", "lost"],
        [
            [
                count,
                *_three(live.first_ms),
                live.outcome.gaps,
                live.outcome.longest_gap_ms,
                live.outcome.lost,
            ]
            for count, live in lives.items()
        ],
    )
    alone, beside = lives[BULK[0]], lives[BULK[-1]]
    return {
        "live_first_ms_p95_alone": percentile(alone.first_ms, 95),
        "live_first_ms_p95_bulk": percentile(beside.first_ms, 95),
        "live_gaps_bulk": beside.outcome.gaps,
    }


_COLUMNS = ["others", "p50", "p95", "max"]


def _three(values: Sequence[float]) -> list[float]:
    return [percentile(values, 50), percentile(values, 95), max(values, default=float("nan"))]


async def measure(bench: Bench) -> None:
    """All tables of each engine; of piper, the one of bulk clients."""
    args = bench.args
    total = Outcome()
    growth = 0.0
    bulk: dict[str, float] = {}
    for engine in args.engines.split(","):
        quick = {"embedded": 250, "tiny": 40}.get(engine, 60)
        utterances = args.utterances or (quick if bench.quick else 10_000)
        try:
            if engine == "piper":
                bulk |= await bulk_only(bench, engine)
                continue
            outcome, grown = await one_engine(bench, engine, utterances, bulk)
        except (RuntimeError, ConnectionError, ImportError) as error:
            bench.failed(engine, error)
            continue
        total.counts += outcome.counts
        total.gaps += outcome.gaps
        total.listened += outcome.listened
        growth = max(growth, grown)
    bench.figure(
        utterances=total.utterances,
        lost=total.lost,
        refused=total.refused,
        gaps_pct=100 * total.gaps / max(1, total.listened),
        rss_growth_mb=growth,
        **bulk,
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="a server under open-loop load")
    parser.add_argument(
        "--engines", default=",".join(ENGINES), help="embedded, tiny, scripted, piper"
    )
    parser.add_argument("--utterances", type=int, default=0, help="of each engine")
    asyncio.run(measure(Bench("server_load", "", parser)))


if __name__ == "__main__":
    main()
