"""The table of fuzz targets, by name.

Garbage gives the typed error or a value, never anything else, in bounded time and size. The tests
replay the seeds and edge cases of all targets; ``run_atheris.py`` searches for more.
"""

from __future__ import annotations

from tests.fuzz import (
    agent,
    audio,
    dialects,
    latency,
    media,
    phone,
    plugin,
    sdp,
    server,
    sip_access,
    sip_agent,
    sip_messages,
    streams,
    voices,
    wire,
)
from tests.fuzz.target import Target

MODULES = (
    *(sip_access, media, sip_messages, sip_agent, sdp, streams, agent, latency, server, audio),
    *(phone, plugin, voices, dialects, wire),
)
TARGETS: dict[str, Target] = {
    name: target for module in MODULES for name, target in module.TARGETS.items()
}
