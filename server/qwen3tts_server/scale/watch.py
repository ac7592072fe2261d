"""A replica that learns in time that it is to stop.

Ray Serve takes a replica that is to stop out of its proxies' lists, waits for its requests to end,
and kills it when ``graceful_shutdown_timeout_s`` is over. It calls nothing in the replica before
that: a WebSocket would stay open, unaware, until it is cut without a close frame. So the replica
asks the controller what it is, and drains as soon as it is ``STOPPING``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

STOPPING = "STOPPING"
"""``ReplicaState`` of Ray Serve's ``ServeInstanceDetails``."""
MARGIN_S = 5.0
"""Before Ray's time is over all is to be said and closed."""

USUAL_GRACE_S = 20.0
"""Ray's ``graceful_shutdown_timeout_s`` where none is told."""

Details = Mapping[str, Any]
"""Ray Serve's ``ServeInstanceDetails`` as its REST interface has it."""


@dataclass(frozen=True)
class Identity:
    """Which replica this is."""

    application: str
    deployment: str
    replica: str


def leave_within(details: Details, me: Identity) -> float | None:
    """Within how many seconds that replica is to have drained; None: it is not to stop.

    A replica that the controller does not list (it has just begun, or the controller was started
    anew) goes on.
    """
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
    """Ask until this replica is to stop, then drain; ends with that.

    A controller that does not answer is asked again: replicas serve on without it.
    """
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
