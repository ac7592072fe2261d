"""A phone's media process: replaced when it is lost, and given no more calls than it can pace."""

from __future__ import annotations

import asyncio
import logging

from qwen3tts_phone.media.admission import Pacing, PacingAdmission
from qwen3tts_phone.media.errors import MediaLost, MediaRefused
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.load import MediaLoad
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.types import LegSpec, MediaSettings

log = logging.getLogger(__name__)


class MediaKeeper:
    """Made by `start`; see `open` and `close`."""

    def __init__(self, settings: MediaSettings, process: MediaProcess) -> None:
        self.process = process
        self.pacing = PacingAdmission()
        """Whether the calls are sent in time, and another one is taken."""
        self._settings = settings
        self._replacing = asyncio.Lock()
        process.on_load = self._reported

    @classmethod
    async def start(cls, settings: MediaSettings) -> MediaKeeper:
        """Start the process; raises MediaLost."""
        return cls(settings, await MediaProcess.start(settings))

    @property
    def pid(self) -> int:
        """The process id of the one in use."""
        return self.process.pid

    @property
    def is_full(self) -> bool:
        """Whether it cannot pace another call."""
        return self.process.cause is None and not self.pacing.admits(len(self.process.legs))

    async def open(self, spec: LegSpec) -> MediaLeg:
        """Ports for one more call; a process that is lost, also meanwhile, is replaced.

        Raises:
            MediaRefused: the machine cannot pace another call.
            PortBusy: no port is free.
            MediaLost: the process has ended, and so has the one after it.
        """
        if self.is_full:
            raise MediaRefused(
                f"This machine cannot pace another call ({self.pacing.figures}).",
                remedy="Call again when fewer calls are under way, or give it more processors.",
            )
        try:
            return await (await self._running()).open(spec)
        except MediaLost:
            return await (await self._running()).open(spec)

    async def close(self) -> None:
        """Close all legs and end the process."""
        await self.process.close()

    async def _running(self) -> MediaProcess:
        if self.process.cause is None:
            return self.process
        async with self._replacing:
            if self.process.lost.is_set():  # else another call has replaced it, or it was closed
                log.error("the media process is replaced: %s", self.process.cause)
                self.process = await MediaProcess.start(self._settings)
                self.process.on_load = self._reported
            return self.process

    def _reported(self, load: MediaLoad) -> None:
        if not self.pacing.report(load):
            return
        if self.pacing.state is Pacing.FULL:
            log.warning("no further call is taken: %s", self.pacing.figures)
        else:
            log.info("calls are taken again: %s", self.pacing.figures)
