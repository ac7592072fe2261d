"""Table of dialects: modules with ``ROUTES`` and ``add_routes``.

A dialect's section of ``server.dialects`` is read by ``Service.dialect_settings``.
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
"""In matching order: runvnc takes the paths left over."""


class Dialect(Protocol):
    ROUTES: Mapping[tuple[str, str], Role | None]
    """Role by method and path; see ``keys.RouteRoles``."""

    def add_routes(self, app: FastAPI, service: Service) -> None: ...


def dialects() -> list[Dialect]:
    return [cast(Dialect, importlib.import_module(name)) for name in DIALECTS]
