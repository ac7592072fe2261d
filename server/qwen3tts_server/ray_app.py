"""Ray Serve application with draining replicas."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from qwen3tts_engine.base import Engine
from qwen3tts_server.app import create_app
from qwen3tts_server.configuration import Configuration, build_engine, load_configuration
from qwen3tts_server.logs import configure_logs
from qwen3tts_server.service import Service
from qwen3tts_settings.constraints import bounded, check_fields
from qwen3tts_wire.errors import BadRequest, EngineUnavailable

if TYPE_CHECKING:
    from ray.serve import Application


log = logging.getLogger(__name__)

STOPPING = "STOPPING"
"""``ReplicaState`` of ``ServeInstanceDetails``."""
MARGIN_S = 5.0
"""Reserve before Ray's time is over."""

USUAL_GRACE_S = 20.0
"""Ray's default ``graceful_shutdown_timeout_s``."""

Details = Mapping[str, Any]
"""``ServeInstanceDetails`` of Ray Serve's REST interface."""


@dataclass(frozen=True)
class Identity:
    application: str
    deployment: str
    replica: str


def leave_within(details: Details, me: Identity) -> float | None:
    """Return the seconds for a replica's drain; None: it stays, as an unlisted one does."""
    deployment = (
        details.get("applications", {})
        .get(me.application, {})
        .get("deployments", {})
        .get(me.deployment, {})
    )
    for each in deployment.get("replicas", ()):
        if each.get("replica_id") == me.replica and _text(each.get("state")) == STOPPING:
            config = deployment.get("deployment_config", {})
            grace_s = config.get("graceful_shutdown_timeout_s")
            return max(0.0, (USUAL_GRACE_S if grace_s is None else grace_s) - MARGIN_S)
    return None


def _text(state: Any) -> str:
    return str(getattr(state, "value", state))


async def drain_when_told(
    me: Identity,
    ask: Callable[[], Awaitable[Details]],
    drain: Callable[[float], Awaitable[None]],
    sleep: Callable[[], Awaitable[None]],
) -> None:
    silent = False
    while True:
        await sleep()
        try:
            within_s = leave_within(await ask(), me)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # Whatever Ray raises while its controller is away.
            if not silent:
                log.warning("the Ray Serve controller does not answer: %s", error)
            silent = True
            continue
        silent = False
        if within_s is not None:
            log.info("this replica is to stop; it drains within %g s", within_s)
            await drain(within_s)
            return


DEPLOYMENT = "Speech"
"""Name in ``configs/ray.yaml``."""


@dataclass(frozen=True)
class Arguments:
    config: str | None = None
    """A file of settings, as ``mr-qwen3tts serve --config`` takes; it must be on every node."""
    overrides: tuple[str, ...] = ()
    """Settings over it, as ``--set`` takes: ``server.voices.store=/mnt/voices``."""
    ask_every_s: float = bounded(0.05, 60, default=1.0)
    """Interval at which a replica polls the controller."""

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Arguments:
        known = [each.name for each in fields(cls)]
        if unknown := sorted(given.keys() - {*known}):
            raise BadRequest(
                f"The application takes no argument {', '.join(unknown)}.",
                remedy=f"Its arguments are: {', '.join(known)}.",
            )
        values = dict(given)
        overrides = values.get("overrides") or []
        if not isinstance(overrides, list) or not all(isinstance(e, str) for e in overrides):
            raise BadRequest(
                "The application's overrides are a list of texts.",
                remedy="Such as: - server.drain_timeout_s=60",
            )
        values["overrides"] = tuple(overrides)
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise BadRequest(f"The application's arguments cannot be: {error}.") from error

    def configuration(self) -> Configuration:
        return load_configuration(self.config, overrides=self.overrides)


class SpeechReplica:
    """Replica towards Ray Serve."""

    app: FastAPI
    """Set by Ray's ingress."""

    async def check_health(self) -> None:
        """Raise where Ray must replace the replica."""
        service: Service = self.app.state.service
        if not service.started:
            raise EngineUnavailable("The engine of this replica is not running.")


def replica_app(
    configuration: Configuration,
    engine: Engine,
    watch: Callable[[Service], Coroutine[Any, Any, None]] | None = None,
) -> FastAPI:
    """Return a replica's application; ``watch(service)`` runs with it."""
    app = create_app(engine, configuration.server)
    service: Service = app.state.service
    inner = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(of: FastAPI) -> AsyncIterator[Any]:
        async with inner(of) as state:
            # Without secrets, and so that two replicas can be compared.
            fields = {"hash": configuration.hash(), "settings": configuration.resolved()}
            log.info("a replica is ready", extra={"fields": fields})
            task = None if watch is None else asyncio.create_task(watch(service))
            try:
                yield state
            finally:
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])

    app.router.lifespan_context = lifespan
    return app


def application(args: Mapping[str, Any]) -> Application:
    return speech_application(args, build_engine)


def speech_application(
    args: Mapping[str, Any], engine: Callable[[Configuration], Engine]
) -> Application:
    """Return the application; ``engine`` is called in each replica.

    Raises:
        EngineUnavailable: Ray Serve is missing.
        BadRequest, BadConfiguration: invalid arguments.
    """
    try:
        from ray import serve
    except ImportError as error:
        raise EngineUnavailable(
            "Ray Serve is not installed.", remedy="Install it: pip install 'mr_qwen3tts[ray]'"
        ) from error
    arguments = Arguments.read(args)
    configuration = arguments.configuration()

    def build() -> FastAPI:
        # In the replica: its own files, and its own environment.
        mine = arguments.configuration()
        # Into the worker's log, which Ray gathers; it sets up no logger but its own.
        configure_logs(mine.logging)
        return replica_app(mine, engine(mine), lambda service: _watch(service, arguments))

    deployed = serve.deployment(
        name=DEPLOYMENT,
        # A connection is a request under way, as long as it lasts; Ray's usual 5 would be all.
        max_ongoing_requests=configuration.server.max_connections,
        graceful_shutdown_timeout_s=configuration.server.drain_timeout_s + 30,
        graceful_shutdown_wait_loop_s=0.5,
    )
    return deployed(serve.ingress(build)(SpeechReplica)).bind()


async def _watch(service: Service, arguments: Arguments) -> None:
    from ray import serve
    from ray.serve.context import _get_global_client

    context = serve.get_replica_context()
    me = Identity(context.app_name, context.deployment, context.replica_tag)

    controller = _get_global_client()._controller  # type: ignore[union-attr]

    async def ask() -> Details:
        # What ``serve status`` shows, without the dashboard that it asks.
        details: Details = await controller.get_serve_instance_details.remote()
        return details

    async def drain(within_s: float) -> None:
        await service.drain(min(within_s, service.settings.drain_timeout_s))

    await drain_when_told(me, ask, drain, lambda: asyncio.sleep(arguments.ask_every_s))
