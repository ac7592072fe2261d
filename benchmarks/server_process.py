"""A server in a process of its own, and the same engine bare behind a plain TCP socket.

Started by the benchmarks (``ServerProcess``); ends when its standard input does. Each line on its
standard input is a question, each line of its output an answer in JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from server_engines import WatchedEngine, make_engine

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.wrapped import load_of
from qwen3tts_server.run import running_server, settle_heap
from qwen3tts_server.settings import ServerSettings

LENGTH = struct.Struct("<I")


class ServerProcess:
    """The benchmark's end of it.

    >>> async with ServerProcess.running("scripted", "server") as server: server.port
    """

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.port = port
        self.pid = process.pid

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls, engine: str, kind: str, settings: Mapping[str, Any] | None = None
    ) -> AsyncIterator[ServerProcess]:
        """``kind``: ``server``, ``bare``; ``settings``: of ServerSettings, plain values."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            __file__,
            *("--engine", engine, "--kind", kind, "--settings", json.dumps(dict(settings or {}))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            limit=1 << 24,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        try:
            assert process.stdout is not None
            line = await process.stdout.readline()
            if not line:
                raise RuntimeError(f"the {kind} with the engine {engine} did not start")
            yield cls(process, json.loads(line)["port"])
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), 20)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def ask(self, question: str) -> dict[str, Any]:
        """Ask the process for ``stats``, ``load`` or ``profile``.

        ``stats``: see ``_stats``; ``load``: work under way; ``profile``, later ``profiled``: a
        table of time.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(question.encode() + b"\n")
        answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return answer


def _stats(engine: WatchedEngine) -> dict[str, Any]:
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        pss = {line.split(":")[0]: line.split()[1] for line in file if ":" in line}
    return {
        "rss_kb": int(pss["Rss"]),
        "private_kb": int(pss["Private_Dirty"]),
        "cpu_s": time.process_time(),
        "active": len(engine.active),
        "finished": engine.finished,
        "over": [asdict(each) for each in engine.over],
        "tasks": len(asyncio.all_tasks()),
        "now_ns": time.monotonic_ns(),
    }


async def _answer(engine: WatchedEngine) -> None:
    """Answer the benchmark's questions until it is gone."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    profiler = None
    while question := (await reader.readline()).strip():
        answer: dict[str, Any] = {}
        if question == b"stats":
            gc.collect()
            answer = _stats(engine)
            engine.over.clear()
        elif question == b"load":
            load = load_of(engine)
            answer = {
                "active": len(engine.active),
                "busy": 0 if load is None else load.busy + load.waiting,
                "given": engine.given,
                "now_ns": time.monotonic_ns(),
            }
        elif question == b"profile":
            import cProfile

            profiler = cProfile.Profile()
            profiler.enable()
        elif question == b"profiled" and profiler is not None:
            import io
            import pstats

            profiler.disable()
            out = io.StringIO()
            pstats.Stats(profiler, stream=out).sort_stats("tottime").print_stats(45)
            answer = {"table": out.getvalue()}
        print(json.dumps(answer), flush=True)


async def _bare(engine: WatchedEngine) -> asyncio.Server:
    """One request a line of JSON; each chunk is its length and its samples; 0 is the end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled when the process ends, which asyncio else reports.
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while line := await reader.readline():
                request = SynthesisRequest(**json.loads(line))
                async with contextlib.aclosing(engine.synthesize(request)) as chunks:
                    async for chunk in chunks:
                        if chunk.pcm:
                            writer.write(LENGTH.pack(len(chunk.pcm)) + chunk.pcm)
                            await writer.drain()
                writer.write(LENGTH.pack(0))
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def _main(args: argparse.Namespace) -> None:
    engine = WatchedEngine(make_engine(args.engine), stamp=args.stamp)
    if args.kind == "bare":
        await engine.start()
        server = await _bare(engine)
        settle_heap()
        print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
        await _answer(engine)
        server.close()
        await engine.close()
        return
    settings = replace(ServerSettings(max_connections=4096), **json.loads(args.settings))
    async with running_server(engine, settings=settings) as running:
        settle_heap()
        print(json.dumps({"port": running.port}), flush=True)
        await _answer(engine)


def main() -> None:
    """The process itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="scripted")
    parser.add_argument("--kind", choices=("server", "bare"), default="server")
    parser.add_argument("--settings", default="{}")
    parser.add_argument("--no-stamp", dest="stamp", action="store_false")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
