"""A Ray of this machine alone, with Serve on it, started and stopped by the tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import yaml

from qwen3tts_server.ray_app import speech_application
from tests.server.voices.world import Cloner

if TYPE_CHECKING:
    from ray.serve import Application


ROOT = Path(__file__).resolve().parents[3]
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Given here, or Ray would write one into the home folder.
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_SERVE_LOG_TO_STDERR": "0",
}
POLL_S = 0.1
"""Ray says nothing by itself: it is asked so often."""
SOCKET_PATH = 107 - len("/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store_0")
"""A folder with a longer name has no room for Ray's Unix sockets (sun_path, unix(7))."""


@dataclass
class Cluster:
    """What runs, and what a test does with it."""

    port: int
    folder: Path

    @property
    def url(self) -> str:
        """Where a SpeechClient connects."""
        return f"ws://127.0.0.1:{self.port}/v1/speech"

    @property
    def http(self) -> str:
        """Where HTTP is served."""
        return f"http://127.0.0.1:{self.port}"

    def configuration(self, replicas: int, **changes: Any) -> dict[str, Any]:
        """``configs/ray.yaml`` as a test needs it: small, quick, and in the test's own folder."""
        configuration = yaml.safe_load((ROOT / "configs" / "ray.yaml").read_text("utf-8"))
        del configuration["http_options"], configuration["proxy_location"]
        (application,) = configuration["applications"]
        application["args"] = {
            "overrides": [
                "engine.embedded.workers=1",
                "server.drain_timeout_s=2",
                f"server.voices.store={self.folder / 'voices'}",
            ],
            "ask_every_s": 0.1,
        }
        application.update(changes)
        (deployment,) = application["deployments"]
        deployment.update(
            num_replicas=replicas,
            graceful_shutdown_timeout_s=20,
            ray_actor_options={"num_cpus": 0.1},
        )
        return dict(configuration)

    def deploy(self, replicas: int, **changes: Any) -> None:
        """What ``serve deploy`` does, which asks the dashboard to do it."""
        from ray.serve.schema import ServeDeploySchema

        schema = ServeDeploySchema.model_validate(self.configuration(replicas, **changes))
        _controller().deploy_apps(schema)

    def replicas(self, state: str = "RUNNING") -> list[int]:
        """Process ids of the replicas in that state."""
        speech = _controller().get_serve_details()["applications"].get("speech", {})
        known = speech.get("deployments", {}).get("Speech", {}).get("replicas", ())
        return [each["pid"] for each in known if each["state"].value == state and each.get("pid")]

    async def until_running(self, count: int, but: Collection[int] = ()) -> list[int]:
        """Wait until just so many replicas run and none else is left; none of ``but``."""
        await until(
            lambda: (
                len(running := self.replicas()) == count
                and not {*running} & {*but}
                and not self.replicas("STOPPING")
            )
        )
        return self.replicas()

    @staticmethod
    def kill(pid: int) -> None:
        """That replica is gone, without a word."""
        os.kill(pid, signal.SIGKILL)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that Ray does."""
    async with asyncio.timeout(90):
        while not condition():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(POLL_S)


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Ray and Serve on 127.0.0.1, with nothing deployed."""
    if len(str(folder)) > SOCKET_PATH:
        with (
            tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short,
            running_cluster(Path(short)) as running,
        ):
            yield running
        return
    before = {name: os.environ.get(name) for name in QUIET}
    os.environ.update(QUIET)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
            from ray import serve

            paths = os.pathsep.join(str(each) for each in (ROOT, ROOT / "server", ROOT / "codecs"))
            # Ray would take this machine's other address instead, and listen on all of them.
            with patch("ray._private.services.resolve_ip_for_localhost", str):
                ray.init(
                    num_cpus=2,
                    include_dashboard=False,
                    _temp_dir=str(folder),
                    _node_ip_address="127.0.0.1",
                    object_store_memory=100 << 20,
                    log_to_driver=False,
                    configure_logging=False,
                    runtime_env={"env_vars": {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | QUIET},
                )
            try:
                port = _free_port()
                serve.start(http_options={"host": "127.0.0.1", "port": port})
                yield Cluster(port, folder)
            finally:
                serve.shutdown()  # type: ignore[no-untyped-call]
                ray.shutdown()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _controller() -> Any:
    from ray.serve.context import _get_global_client

    return _get_global_client()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def application(args: Mapping[str, Any]) -> Application:
    return speech_application(args, lambda _: Cloner())
