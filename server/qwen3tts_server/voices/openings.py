"""Openings that are kept ready for voices by names that only the catalogue knows."""

from __future__ import annotations

import asyncio

from qwen3tts_engine.base import Engine
from qwen3tts_engine.starter.engine import FindVoice, starters_of
from qwen3tts_server.voices.names import bare, key_of


class NamedOpenings:
    """Gives the memory of openings, where there is one, the voices of ``starters.voices``."""

    def __init__(self, inner: Engine, find_voice: FindVoice) -> None:
        """``find_voice``: the engine's id of a voice by any name, made ready."""
        self._starters = starters_of(inner)
        self._preparing: set[asyncio.Task[None]] = set()
        if self._starters is not None:
            self._starters.find_voice = find_voice

    def uploaded(self, name: str) -> None:
        """Prepare the openings of a voice that has just been uploaded, where it is named."""
        starters = self._starters
        for wanted in () if starters is None else starters.settings.voices:
            if starters is not None and key_of(bare(wanted)) == key_of(name):
                task = asyncio.create_task(starters.prepare_voice(wanted), name="prepare openings")
                self._preparing.add(task)
                task.add_done_callback(self._preparing.discard)

    def removed(self, voice_id: str) -> None:
        """Keep nothing of a voice that has been deleted."""
        if self._starters is not None:
            self._starters.forget_openings(voice_id)

    async def close(self) -> None:
        """Prepare no more."""
        preparing = set(self._preparing)
        for each in preparing:
            each.cancel()
        if preparing:
            await asyncio.wait(preparing)
