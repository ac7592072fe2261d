"""The application with an engine of tones that makes voices of recordings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from qwen3tts_server.ray_app import speech_application
from tests.server.voices.world import Cloner

if TYPE_CHECKING:
    from ray.serve import Application


def application(args: Mapping[str, Any]) -> Application:
    return speech_application(args, lambda _: Cloner())
