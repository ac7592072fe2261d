"""Sinks whose frames belong to responses, opened by a first frame and closed after the last one."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.clock import Clock
from qwen3tts_pacer.policy import Filling
from qwen3tts_pacer.slot import Slot
from qwen3tts_speech.sink import PacerSink

from .host import Host

log = logging.getLogger(__name__)

PTIME_MS = 20
"""Frame duration, fixed by the receiver: 160 bytes of PCMU."""


class ResponseSink(PacerSink, ABC):
    """Opens, fills and closes audio responses; subclasses deliver them.

    Args:
        context: the host's context of this call.
        payload: codec of the frames.
        lead_ms: playout lead.
        linger_ms: time a response stays open after its last frame was played.
        queued_s: receiver's buffer, seconds.
        clock: of the pacing.
        on_halted: called when a frame is refused; playback has stopped by then.
        policy: filling policy.
    """

    def __init__(
        self,
        context: Any,
        *,
        payload: Payload = PCMU,
        lead_ms: int = 60,
        linger_ms: int = 300,
        queued_s: float = 0.0,
        clock: Clock | None = None,
        on_halted: Callable[[], None] | None = None,
        policy: Filling | None = None,
    ) -> None:
        super().__init__(
            self._frame,
            silence=payload.silent_frame(PTIME_MS),
            ptime_ms=PTIME_MS,
            lead_ms=lead_ms,
            queued_s=queued_s,
            clock=clock,
            on_refused=on_halted,
            policy=policy,
        )
        self.context = context
        """Replaceable by another one of the same call."""
        self.payload = payload
        self.frames = 0
        """Frames accepted."""
        self.hold_open = False
        """Whether more follows soon."""
        self._linger_s = max(linger_ms, PTIME_MS) / 1000
        self._lock = asyncio.Lock()
        """Held while a response is opened, filled or closed."""
        self._opened = False
        self._cut = False
        """Interrupted: close before the next frame."""
        self._lingering: asyncio.Task[None] | None = None
        """Task that closes a silent response."""
        self._cutting: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def open_response(self) -> bool:
        """Open; False: no receiver."""

    @abstractmethod
    async def take(self, payload: bytes) -> bool:
        """Send a frame; False: refused."""

    @abstractmethod
    async def close_response(self, cut: bool) -> None:
        """Close; ``cut``: queued frames may be dropped."""

    @property
    def open(self) -> bool:
        return self._opened

    def interrupt(self) -> None:
        """Stop synchronously and close the response."""
        super().interrupt()
        self._cut_response()

    async def close(self) -> None:
        """Stop for good."""
        await super().close()
        async with self._lock:
            await self._shut(cut=True)
        if self._cutting:
            await asyncio.wait(self._cutting)

    # --- inside

    def _refused(self) -> None:
        self._cut_response()
        super()._refused()

    async def _frame(self, payload: bytes, slot: Slot) -> bool | None:
        before = self.interruptions
        async with self._lock:
            if self._cut:
                await self._shut(cut=True)
            if self.interruptions != before:
                return None
            if not self._opened and not await self._begin():
                return False
            if self.interruptions != before:
                return None  # interrupted while it was opened
            taken = await self.take(payload)
            self.frames += taken
            return taken

    async def _begin(self) -> bool:
        self._opened = True  # from here on an interruption has something to close
        try:
            self._opened = await self.open_response()
        except BaseException:
            self._opened = False
            raise
        if self._opened:
            self._lingering = asyncio.create_task(self._close_after_silence())
        return self._opened

    def _cut_response(self) -> None:
        if self._opened and not self._cut:
            self._cut = True
            task = asyncio.get_running_loop().create_task(self._close_cut())
            self._cutting.add(task)
            task.add_done_callback(self._cutting.discard)

    async def _close_cut(self) -> None:
        async with self._lock:
            if self._cut:
                await self._shut(cut=True)

    async def _close_after_silence(self) -> None:
        deadline = self.clock.now() + self._linger_s
        while True:
            await self.clock.sleep_until(deadline)
            async with self._lock:
                if not self._opened or self._cut:
                    return
                now, over_at = self.clock.now(), self.quiet_at + self._linger_s
                if self.hold_open or self.busy:
                    deadline = max(over_at, now + self._linger_s)
                elif now < over_at:
                    deadline = over_at
                else:
                    await self._shut(cut=False)
                    return

    async def _shut(self, *, cut: bool) -> None:
        self._cut = False
        if not self._opened:
            return
        self._opened = False
        lingering, self._lingering = self._lingering, None
        if lingering is not None and lingering is not asyncio.current_task():
            lingering.cancel()
        try:
            await self.close_response(cut)
        except Exception as error:  # what was said is said: no reason to end the call
            log.warning("a response was not closed: %r", error)
            self.error = error


PREBUFFER_S = 0.02
"""Prebuffer of the SIP plugin's sender."""


class SipSink(ResponseSink):
    """Sink of ``sip_audio_out_chunk``, one a call.

    The response stays open across utterances: another start would drop unplayed frames. Older SIP
    plugins take frames only.
    """

    def __init__(
        self,
        host: Host,
        context: Any,
        *,
        lead_ms: int = 60,
        linger_ms: int = 300,
        clock: Clock | None = None,
        on_halted: Callable[[], None] | None = None,
        policy: Filling | None = None,
    ) -> None:
        super().__init__(
            context,
            payload=PCMU,
            lead_ms=lead_ms,
            linger_ms=linger_ms,
            queued_s=PREBUFFER_S,
            clock=clock,
            on_halted=on_halted,
            policy=policy,
        )
        self._host = host

    async def open_response(self) -> bool:
        return await self._host.start_response(self.context)

    async def take(self, payload: bytes) -> bool:
        return await self._host.chunk(self.context, payload)

    async def close_response(self, cut: bool) -> None:
        await self._host.end_response(self.context)
