"""Table of dialects: a new one is a module with ``ROUTES`` and ``add_routes``, and one line.

Its settings, where it has any, are a section of ``server.dialects`` in the configuration, which
``Service.dialect_settings`` reads into the module's own dataclass.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol, cast

from fastapi import FastAPI

from qwen3tts_server.keys import Role
from qwen3tts_server.service import Service

DIALECTS = [
    "qwen3tts_server.dialects.native.connection",
    "qwen3tts_server.dialects.openai.routes",
    "qwen3tts_server.dialects.vllm_omni.connection",
    "qwen3tts_server.dialects.runvnc.connection",
]
"""Modules, in the order in which their routes are matched: runvnc's takes every path left over."""


class Dialect(Protocol):
    """Interface of a module in the table."""

    ROUTES: Mapping[tuple[str, str], Role | None]
    """The role of each route, by method and path; see ``keys.RouteRoles``."""

    def add_routes(self, app: FastAPI, service: Service) -> None: ...


def dialects() -> list[Dialect]:
    return [cast(Dialect, importlib.import_module(name)) for name in DIALECTS]
