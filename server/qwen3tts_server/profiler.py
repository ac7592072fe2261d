"""Profiles of the event loop, by ``POST /start_profile`` and ``/stop_profile``."""

from __future__ import annotations

import asyncio
import cProfile
import io
import itertools
import pstats
import time
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse

MOST_S = 300.0
"""A profile that nobody stops stops itself: it slows everything down."""
SHOWN = 30
"""Functions in an answer."""


class Profiler:
    """One profile at a time, of the thread that runs the event loop: the server, not the engine's
    own threads and processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._running: cProfile.Profile | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        """Whether one is under way."""
        return self._running is not None

    def start(self, most_s: float = MOST_S) -> None:
        """Begin; RuntimeError if one is under way, of whatever kind."""
        if self._running is not None:
            raise RuntimeError("A profile is under way.")
        profile = cProfile.Profile()
        try:
            profile.enable()
        except ValueError as error:  # Python 3.12: another tool has the place
            raise RuntimeError("Another profiler or debugger is at work.") from error
        self._running = profile
        self._timer = asyncio.get_running_loop().call_later(most_s, self._stop_late)

    def stop(self) -> tuple[Path, str]:
        """End, write the file, and tell what took the most; RuntimeError if none is under way."""
        profile, self._running = self._running, None
        if profile is None:
            raise RuntimeError("No profile is under way.")
        profile.disable()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{time.strftime('%Y%m%dT%H%M%S')}-{next(self._numbers)}.pstats"
        path = self._folder / name
        profile.dump_stats(path)
        table = io.StringIO()
        pstats.Stats(profile, stream=table).sort_stats("cumulative").print_stats(SHOWN)
        return path, table.getvalue()

    def _stop_late(self) -> None:
        self._timer = None
        if self._running is not None:
            self.stop()


def add_routes(app: FastAPI, folder: Path) -> None:
    """``POST /start_profile`` and ``POST /stop_profile``, as vLLM has them."""
    profiler = Profiler(folder)

    @app.post("/start_profile", tags=["operations"])
    async def start_profile() -> JSONResponse:
        """Begin to write down where the event loop's time goes; it ends itself after 5 minutes."""
        return _answer(profiler.start)

    @app.post("/stop_profile", tags=["operations"])
    async def stop_profile() -> JSONResponse:
        """End the profile: the file for ``python -m pstats``, and what took the most."""

        def stop() -> dict[str, Any]:
            path, table = profiler.stop()
            return {"file": str(path), "table": table.splitlines()}

        return _answer(stop)


def _answer(act: Any) -> JSONResponse:
    try:
        told = act() or {}
    except (RuntimeError, OSError) as error:
        message = error.strerror or "" if isinstance(error, OSError) else str(error)
        told = {"message": f"{message} Nothing was changed.", "type": "invalid_request_error"}
        told |= {"param": None, "code": "profiler"}
        return JSONResponse({"error": told}, status_code=409)
    return JSONResponse({"status": "ok", **told})
