"""Sinks with responses, from the first frame to after the last."""

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
"""Fixed by the receiver: 160 bytes of PCMU."""


class ResponseSink(PacerSink, ABC):
    """Opens, fills and closes responses.

    Args:
        context: the call's.
        payload: codec.
        lead_ms: playout lead.
        linger_ms: time open after the last frame.
        queued_s: receiver's buffer, seconds.
        clock: of pacing.
        on_halted: called at a refused frame, playback stopped.
        policy: of filling.
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
        self.scale(payload.name, payload.sample_hz)
        self.context = context
        """Replaceable within the call."""
        self.payload = payload
        self.frames = 0
        """Accepted frames."""
        self.hold_open = False
        """True if more follows soon."""
        self._linger_s = max(linger_ms, PTIME_MS) / 1000
        self._lock = asyncio.Lock()
        """Held by response operations."""
        self._opened = False
        self._cut = False
        """Close before the next frame."""
        self._lingering: asyncio.Task[None] | None = None
        """Closes a silent response."""
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
        """Stop synchronously and close."""
        super().interrupt()
        self._cut_response()

    async def close(self) -> None:
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
    """``sip_audio_out_chunk``, one a call.

    The response spans utterances: a start drops unplayed frames. Older plugins take frames only.
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
