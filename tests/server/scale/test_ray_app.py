"""The application of a replica, and what may be said in its configuration."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from qwen3tts_server.configuration import Configuration
from qwen3tts_server.ray_app import (
    DEPLOYMENT,
    Arguments,
    Identity,
    SpeechReplica,
    drain_when_told,
    leave_within,
    replica_app,
)
from qwen3tts_server.service import Service
from qwen3tts_wire.errors import BadRequest, EngineUnavailable
from tests.engine.fake_engine import FakeEngine
from tests.fakes import settle

ROOT = Path(__file__).resolve().parents[3]
CONFIGURATION = yaml.safe_load((ROOT / "configs" / "ray.yaml").read_text("utf-8"))


def test_the_configuration_that_is_delivered_fits_the_application() -> None:
    (application,) = CONFIGURATION["applications"]
    (deployment,) = application["deployments"]
    assert application["import_path"] == "qwen3tts_server.ray_app:application"
    assert deployment["name"] == DEPLOYMENT
    server = Arguments.read(application["args"]).configuration().server
    assert server.voices.store
    assert deployment["max_ongoing_requests"] == server.max_connections
    # The server is done with its clients before Ray's time is over.
    assert deployment["graceful_shutdown_timeout_s"] >= server.drain_timeout_s + 10


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"confg": "x"}, "confg"),
        ({"overrides": "a=b"}, "list"),
        ({"ask_every_s": 0}, "ask_every_s"),
        ({"ask_every_s": "often"}, "cannot be"),
        ({"overrides": 3}, "list"),
        ({"overrides": [3]}, "list"),
        ({"config": 3, "ask_every_s": None}, "cannot be"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        Arguments.read(given)


def test_settings_come_from_the_arguments() -> None:
    read = Arguments.read({"overrides": ["server.drain_timeout_s=7"]})
    assert read.configuration().server.drain_timeout_s == 7
    assert Arguments.read({}) == Arguments()
    assert Arguments.read({"overrides": None}) == Arguments()


async def test_a_replica_serves_and_watches_as_long_as_it_lives() -> None:
    engine = FakeEngine()
    watched: list[Service] = []

    async def watch(service: Service) -> None:
        watched.append(service)
        try:
            await asyncio.Event().wait()
        finally:
            watched.clear()

    app = replica_app(Configuration(), engine, watch)
    replica = SpeechReplica()
    replica.app = app
    with pytest.raises(EngineUnavailable):
        await replica.check_health()
    async with app.router.lifespan_context(app):
        await settle()
        assert watched == [app.state.service]
        assert engine.started
        await replica.check_health()
    assert not watched
    assert not engine.started


async def test_a_replica_without_a_watch_serves_as_well() -> None:
    engine = FakeEngine()
    app = replica_app(Configuration(), engine)
    async with app.router.lifespan_context(app):
        assert engine.started


async def test_a_replica_writes_down_its_settings(caplog: pytest.LogCaptureFixture) -> None:
    configuration = Configuration()
    with caplog.at_level(logging.INFO, "qwen3tts_server.ray_app"):
        app = replica_app(configuration, FakeEngine())
        async with app.router.lifespan_context(app):
            (line,) = caplog.records
    fields = line.__dict__["fields"]
    assert fields["hash"] == configuration.hash()
    assert fields["settings"] == configuration.resolved()


ME = Identity("speech", "Speech", "abc")


def details(state: object, replica: str = "abc", grace: object = 30.0) -> dict[str, Any]:
    deployment = {
        "deployment_config": {"graceful_shutdown_timeout_s": grace},
        "replicas": [{"replica_id": "other", "state": "STOPPING"}, {"replica_id": replica}],
    }
    deployment["replicas"][1]["state"] = state  # type: ignore[index]
    return {"applications": {"speech": {"deployments": {"Speech": deployment}}}}


class State:
    """As Ray's enum has it."""

    value = "STOPPING"


@pytest.mark.parametrize(
    ("told", "within_s"),
    [
        (details("STOPPING"), 25.0),
        (details(State()), 25.0),
        (details("STOPPING", grace=2), 0.0),
        (details("STOPPING", grace=None), 15.0),
        (details("RUNNING"), None),
        (details("STOPPING", replica="third"), None),
        ({"applications": {"speech": {"deployments": {}}}}, None),
        ({}, None),
    ],
)
def test_only_a_replica_that_is_to_stop_leaves_and_before_its_time_is_over(
    told: dict[str, Any], within_s: float | None
) -> None:
    assert leave_within(told, ME) == within_s


async def test_it_asks_until_it_is_to_stop_and_drains_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[object] = [
        details("RUNNING"),
        ConnectionError("away"),
        ConnectionError("away"),
        details("RUNNING"),
        details("STOPPING"),
    ]
    drained: list[float] = []

    async def ask() -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, dict)
        return answer

    async def drain(within_s: float) -> None:
        drained.append(within_s)

    with caplog.at_level(logging.WARNING):
        await drain_when_told(ME, ask, drain, lambda: asyncio.sleep(0))
    assert drained == [25.0]
    assert not answers
    assert caplog.text.count("does not answer") == 1


async def test_it_can_be_stopped() -> None:
    async def ask() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def drain(within_s: float) -> None:
        raise AssertionError

    watching = asyncio.create_task(drain_when_told(ME, ask, drain, lambda: asyncio.sleep(0)))
    await settle()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
