"""What a replica makes of the controller's word."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from qwen3tts_server.ray_app import Identity, drain_when_told, leave_within
from tests.fakes import settle

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
