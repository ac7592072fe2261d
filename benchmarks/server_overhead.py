"""Overhead of the server over an engine: to the first chunk, to every chunk, in memory and work.

Two processes serve the same engine: the whole server with our own protocol, and the bare engine
behind a plain TCP socket, which writes each chunk as it comes. Lean clients in a third process
speak to both in turn. The engine works by the clock: it gives a chunk of 80 ms to all its requests
at the same step, as a batch on a GPU does, so that chunks of all contexts come together, which is
the hardest for a server. Each chunk carries the engine's own times, so the engine's share is taken
out exactly:

- *first*: from asking (open, text, end) to the first sound, without the engine's time for it;
- *chunk*: from the moment that the engine gives a chunk to its arrival.

*added* is the server's percentile less the same percentile of the bare engine. The same for the
embedded engine. Messages a second: what one core of the server carries when an engine never waits.
Memory: private memory of the process for each idle connection.

Transports: connection set-up, and from there to the first sound, with an engine whose first chunk
comes at its next step (0 to 80 ms after the request), and the same with that taken out.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from common import Bench
from server_engines import STEP_S
from server_peers import BarePeer, Heard, SpeechPeer, http_first
from server_process import ServerProcess

CONTEXTS = (1, 16, 64)
TEXT = "Good morning this is the line."
"""One clause."""
Peer = BarePeer | SpeechPeer
Speak = Callable[[str, str | None], Awaitable[Heard]]


def at(values: Sequence[float], percent: float) -> float:
    """A percentile; nan of nothing."""
    if len(values) < 2:
        return values[0] if values else float("nan")
    return statistics.quantiles(values, n=100, method="inclusive")[int(percent) - 1]


async def keep_speaking(
    speak: Speak, until: float, voice: str | None, chance: random.Random
) -> list[Heard]:
    """One utterance after the other, each begun at a moment of its own, as calls do."""
    heard: list[Heard] = []
    while time.monotonic() < until:
        await asyncio.sleep(chance.uniform(0, 2 * STEP_S))
        heard.append(await speak(TEXT, voice))
    return heard


async def round_of(peers: Sequence[Peer], contexts: int, seconds: float, voice: str | None) -> Any:
    """All contexts concurrently for a while; contexts are spread over the peers."""
    until = time.monotonic() + seconds
    speaks = itertools.islice(itertools.cycle(peers), contexts)
    rounds = await asyncio.gather(
        *(
            keep_speaking(each.speak, until, voice, random.Random(number))
            for number, each in enumerate(speaks)
        )
    )
    return list(itertools.chain.from_iterable(rounds))


class Samples:
    """Added times, in milliseconds."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.chunk: list[float] = []

    def add(self, heard: Sequence[Heard]) -> None:
        """Utterances."""
        for each in heard:
            assert each.ended == "done", each.ended
            first = each.first_added_ms()
            if first is not None:
                self.first.append(first)
            self.chunk += each.chunk_ms()


async def added(
    bench: Bench, engine: str, contexts: Sequence[int], seconds: float, voice: str | None
) -> dict[str, dict[str, float]]:
    """The table of one engine; by number of contexts what was added at p95."""
    rows: list[list[Any]] = []
    figures: dict[str, dict[str, float]] = {}
    turns = 2 if bench.quick else 4
    async with (
        ServerProcess.running(engine, "server") as server,
        ServerProcess.running(engine, "bare") as bare,
    ):
        if bench.args.profile:
            await server.ask("profile")
        for count in contexts:
            kinds = {"bare": Samples(), "server": Samples(), "server, one connection": Samples()}
            peers: dict[str, Sequence[Peer]] = {
                "bare": [await BarePeer.connect(bare.port) for _ in range(count)],
                "server": [await SpeechPeer.connect(server.port) for _ in range(count)],
                "server, one connection": [await SpeechPeer.connect(server.port)],
            }
            if count == 1:
                del kinds["server, one connection"]
            cpu: dict[str, float] = dict.fromkeys(kinds, 0.0)
            for turn in range(turns):
                # In turns, so that what else the machine does falls on all of them.
                for kind, samples in kinds.items():
                    process = bare if kind == "bare" else server
                    before = (await process.ask("stats"))["cpu_s"]
                    heard = await round_of(peers[kind], count, seconds / turns, voice)
                    cpu[kind] += (await process.ask("stats"))["cpu_s"] - before
                    if turn or bench.quick:  # the first turn warms up
                        samples.add(heard)
            for each in itertools.chain.from_iterable(peers.values()):
                each.close()
            base = kinds["bare"]
            for kind, samples in kinds.items():
                values: list[float] = []
                for mine, theirs in ((samples.first, base.first), (samples.chunk, base.chunk)):
                    values += [at(mine, 50), at(mine, 95)]
                    values += [at(mine, p) - at(theirs, p) for p in (50, 95)]
                rows.append([f"{count}: {kind}", *values, 100 * cpu[kind] / seconds])
                if kind == "server":
                    figures[str(count)] = {"first": values[3], "chunk": values[7]}
        if bench.args.profile:
            print((await server.ask("profiled"))["table"])
    columns = ["contexts: how", "first p50", "p95", "+p50", "+p95", "chunk p50", "p95"]
    bench.table(
        f"{engine}: milliseconds without the engine's own, and added to the bare engine's",
        [*columns, "+p50 ", "+p95 ", "CPU %"],
        rows,
    )
    return figures


async def flood(bench: Bench, seconds: float) -> float:
    """Messages that one core of the server carries in a second."""
    async with ServerProcess.running("scripted", "server") as server:
        peers = [await SpeechPeer.connect(server.port) for _ in range(16)]
        before, began = await server.ask("stats"), time.monotonic()
        heard = await round_of(peers, 16, seconds, "flood")
        wall = time.monotonic() - began
        after = await server.ask("stats")
        for each in peers:
            each.close()
    messages = sum(len(each.arrivals) for each in heard)
    core: float = messages / (after["cpu_s"] - before["cpu_s"])
    bench.table(
        "an engine that never waits, 16 connections, messages of 80 ms",
        ["what", "value"],
        [
            ["messages with sound", messages],
            ["a second, of one core of the server", core],
            ["a second by the clock (the clients work as well)", messages / wall],
            ["calls at real time that one core carries", core * STEP_S],
        ],
    )
    return core


async def memory(bench: Bench, connections: int) -> float:
    """Kilobytes of the server for one idle connection that has spoken once."""
    async with ServerProcess.running("scripted", "server") as server:
        warm = await asyncio.gather(*(SpeechPeer.connect(server.port) for _ in range(16)))
        await round_of(warm, 16, 0.1, "short")
        before = await server.ask("stats")
        peers = [await SpeechPeer.connect(server.port) for _ in range(connections)]
        opened = await server.ask("stats")
        await round_of(peers, connections, 0.01, "short")
        spoken = await server.ask("stats")
        for each in peers:
            each.close()
        await asyncio.sleep(0.5)
        closed = await server.ask("stats")
        peers = [await SpeechPeer.connect(server.port) for _ in range(connections)]
        await round_of(peers, connections, 0.01, "short")
        for each in (*warm, *peers):
            each.close()
        await asyncio.sleep(0.5)
        again = await server.ask("stats")
    rows = [
        [name, (stats["private_kb"] - before["private_kb"]) / connections]
        for name, stats in (
            ("just connected", opened),
            ("has spoken once", spoken),
            ("all closed", closed),
            ("as many came again, and closed", again),
        )
    ]
    bench.table(f"private memory, kB a connection, {connections} connections", ["when", "kB"], rows)
    return float(rows[1][1])


async def transports(bench: Bench, count: int) -> None:
    """Set-up and first sound by transport."""
    body: dict[str, object] = {
        "model": "tts-1",
        "input": TEXT,
        "voice": "short",
        "response_format": "pcm",
        "stream": True,
    }
    rows: list[list[Any]] = []

    def row(name: str, setup: list[float], first: list[float], added_ms: list[float]) -> None:
        own = [at(added_ms, 50), at(added_ms, 95)] if added_ms else ["", ""]
        rows.append([name, at(setup, 50), at(setup, 95), at(first, 50), at(first, 95), *own])

    async with (
        ServerProcess.running("scripted", "server") as server,
        ServerProcess.running("scripted", "bare") as bare,
    ):
        for name, connect, port, again in (
            ("bare engine, plain socket", BarePeer.connect, bare.port, False),
            ("persistent WebSocket", SpeechPeer.connect, server.port, False),
            ("new WebSocket", SpeechPeer.connect, server.port, True),
        ):
            setup, first, own = [], [], []
            peer: Peer | None = None
            for _ in range(count):
                if peer is None or again:
                    if peer is not None:
                        peer.close()
                    began = time.monotonic()
                    peer = await connect(port)
                    setup.append(1000 * (time.monotonic() - began))
                heard = await peer.speak(TEXT, "short")
                first.append((heard.arrivals[0][0] - heard.asked) / 1e6)
                alone = heard.first_added_ms()
                own += [] if alone is None else [alone]
            if peer is not None:
                peer.close()
            row(name, setup if again else [0.0], first, own)
        for name, fields, accept in (
            ("HTTP raw", {}, "*/*"),
            ("HTTP SSE", {"stream_format": "sse"}, "text/event-stream"),
        ):
            try:
                measured = [
                    await http_first(server.port, body | fields, accept) for _ in range(count)
                ]
            except (OSError, asyncio.IncompleteReadError) as error:
                bench.failed(name, error)
            else:
                own = [each[2] for each in measured if each[2] is not None]
                row(name, [each[0] for each in measured], [each[1] for each in measured], own)
    bench.table(
        "by transport, milliseconds, one at a time",
        [
            "transport",
            "set-up p50",
            "p95",
            "first sound p50",
            "p95 ",
            "without the engine p50",
            " p95",
        ],
        rows,
    )


async def measure(bench: Bench) -> None:
    """All tables."""
    quick = bench.quick
    figures = await added(bench, "scripted", CONTEXTS, 1.0 if quick else 24.0, "short")
    if not bench.args.profile:
        try:
            await added(bench, "embedded", (1, 16), 1.0 if quick else 12.0, None)
        except RuntimeError as error:
            bench.failed("embedded", error)
        await transports(bench, 6 if quick else 100)
        rate = await flood(bench, 1.5 if quick else 8.0)
        kilobytes = await memory(bench, 100 if quick else 500)
        sixteen = figures["16"]
        bench.figure(
            first_ms_p95_16=sixteen["first"],
            chunk_ms_p95_16=sixteen["chunk"],
            msgs_per_s=rate,
            kb_per_conn=kilobytes,
        )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="what the server adds to the bare engine")
    parser.add_argument("--profile", action="store_true", help="where the server's time goes")
    bench = Bench("server_overhead", "", parser)
    asyncio.run(measure(bench))


if __name__ == "__main__":
    main()
