"""Two replicas on a Ray of this machine: what the proxy adds, and what a caller hears of a death.

- *first sound*: from ``context.open`` to the first message of sound, on one persistent connection,
  to a plain server in a process of its own and through Ray Serve's proxy;
- *death*: some callers take sound as fast as they play it; then one replica is killed. *gap* is
  the time from the last sound received to the first of the other replica; *lost* and *twice* count
  words, by the words that were told at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from common import Bench
from server_process import ServerProcess

from qwen3tts_wire.client import Resume, SpeechClient
from qwen3tts_wire.events import Audio, Event, Resumed

ROOT = Path(__file__).resolve().parent.parent
TEXT = "One two three, four five six seven. Eight nine ten eleven twelve! " * 4
WORDS = re.findall(r"\w+", TEXT)
RATE = 24_000
START_S = 120.0
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Given here, or Ray would write one into the home folder.
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_SERVE_LOG_TO_STDERR": "0",
}


@contextlib.contextmanager
def cluster() -> Iterator[int]:
    """Ray, with two replicas of the embedded engine; the port of its proxy."""
    os.environ.update(QUIET)
    import ray
    from ray import serve

    folder = tempfile.mkdtemp(prefix="ray")
    paths = os.pathsep.join(str(ROOT / each) for each in ("server", "codecs"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    try:
        # Ray would take this machine's other address instead, and listen on all of them.
        with patch("ray._private.services.resolve_ip_for_localhost", str):
            ray.init(
                num_cpus=2,
                include_dashboard=False,
                _temp_dir=folder,
                _node_ip_address="127.0.0.1",
                object_store_memory=100 << 20,
                log_to_driver=False,
                configure_logging=False,
                runtime_env={"env_vars": {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | QUIET},
            )
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        _deploy()
        yield port
    finally:
        serve.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _deploy() -> None:
    from ray.serve.schema import ServeDeploySchema

    configuration = yaml.safe_load((ROOT / "configs" / "ray.yaml").read_text("utf-8"))
    (application,) = configuration["applications"]
    application["args"] = {"overrides": ["engine.embedded.workers=1"]}
    application["deployments"][0]["ray_actor_options"] = {"num_cpus": 0.1}
    schema = ServeDeploySchema.model_validate({"applications": [application]})
    _controller().deploy_apps(schema)
    until = time.monotonic() + START_S
    while len(_replicas()) < 2:
        if time.monotonic() > until:
            raise RuntimeError(f"Ray had not started two replicas after {START_S:g} s")
        time.sleep(0.2)


def _controller() -> Any:
    from ray.serve.context import _get_global_client

    return _get_global_client()


def _replicas() -> list[int]:
    """Process ids of the replicas that run."""
    speech = _controller().get_serve_details()["applications"].get("speech", {})
    known = speech.get("deployments", {}).get("Speech", {}).get("replicas", ())
    return [each["pid"] for each in known if each["state"].value == "RUNNING" and each.get("pid")]


async def first_sounds(url: str, rounds: int) -> list[float]:
    """Milliseconds to the first sound, of each round."""
    took = []
    async with await SpeechClient.connect(url, open_timeout=30) as client:
        for _ in range(rounds):
            begun = time.perf_counter()
            context = await client.open(window_ms=500.0)
            await context.append("Good morning.")
            await context.end()
            while not isinstance(await anext(context), Audio):
                pass
            took.append(1000 * (time.perf_counter() - begun))
            await context.cancel(0)
    return took


async def caller(url: str, begun: asyncio.Event) -> tuple[list[Resumed], list[str]]:
    """One who listens at the pace of speech; where it was resumed, and the words."""
    resume = Resume(within_s=60.0)
    async with await SpeechClient.connect(url, open_timeout=30, resume=resume) as client:
        context = await client.open(window_ms=500.0)
        await context.append(TEXT)
        await context.end()
        origin, events = None, list[Event]()
        async for event in context:
            events.append(event)
            if isinstance(event, Audio):
                origin = origin or time.perf_counter()
                ahead = origin + event.offset / RATE - time.perf_counter()
                await asyncio.sleep(max(0.0, ahead / 4))
                begun.set()
        words = [re.sub(r"\W", "", each.text) for each in context.words]
        return [each for each in events if isinstance(each, Resumed)], words


async def death(url: str, callers: int, victim: int) -> tuple[list[Resumed], int, int]:
    """Kill that replica while both have callers; resumptions, words lost and words said twice."""
    begun = [asyncio.Event() for _ in range(callers)]
    running = [asyncio.create_task(caller(url, each)) for each in begun]
    for each in begun:
        await each.wait()
    os.kill(victim, signal.SIGKILL)
    resumed: list[Resumed] = []
    lost = twice = 0
    for there, words in await asyncio.gather(*running):
        resumed += there
        lost += sum(max(0, WORDS.count(each) - words.count(each)) for each in {*WORDS})
        twice += sum(max(0, words.count(each) - WORDS.count(each)) for each in {*WORDS})
    return resumed, lost, twice


async def measure(bench: Bench, port: int) -> None:
    """All of it, through the proxy on that port."""
    rounds, callers = (40, 6) if bench.quick else (300, 12)
    url = f"ws://127.0.0.1:{port}/v1/speech"
    async with ServerProcess.running("embedded", "server") as plain:
        direct = await first_sounds(f"ws://127.0.0.1:{plain.port}/v1/speech", rounds)
    proxied = await first_sounds(url, rounds)
    rows = []
    for name, took in (("plain server", direct), ("Ray Serve", proxied)):
        cuts = statistics.quantiles(took, n=20)
        rows.append([name, statistics.median(took), cuts[18], rounds])
    bench.table("first sound", ["through", "p50 ms", "p95 ms", "rounds"], rows)
    gaps: list[float] = []
    lost = twice = 0
    dead: set[int] = set()
    for _ in range(1 if bench.quick else 5):
        while len(alive := [each for each in _replicas() if each not in dead]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        dead.add(alive[0])
        resumed, some_lost, some_twice = await death(url, callers, alive[0])
        gaps += [1000 * each.gap_s for each in resumed]
        lost, twice = lost + some_lost, twice + some_twice
    columns = ["resumed", "gap p50 ms", "gap max ms", "words lost", "words twice"]
    middle, worst = statistics.median(gaps), max(gaps)
    bench.table("a replica is killed", columns, [[len(gaps), middle, worst, lost, twice]])
    bench.figure(
        proxy_ms_p50=rows[1][1] - rows[0][1],  # type: ignore[operator]
        resumed=len(gaps),
        gap_ms_p50=middle,
        gap_ms_max=worst,
        words_lost=lost,
        words_twice=twice,
    )


def main() -> None:
    """Run it."""
    bench = Bench("scale", "Two replicas on Ray: the proxy's cost, and a replica's death")
    with cluster() as port:
        asyncio.run(measure(bench, port))


if __name__ == "__main__":
    main()
