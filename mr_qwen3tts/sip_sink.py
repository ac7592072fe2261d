"""The host's SIP plugin as a sink: PCMU frames, a small lead ahead of its own playing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_pacer.clock import Clock
from qwen3tts_pacer.policy import Filling

from .host import Host
from .response_sink import ResponseSink

PREBUFFER_S = 0.02
"""What the SIP plugin's sender collects before it plays the first frame of a response."""


class SipSink(ResponseSink):
    """Paces frames into ``sip_audio_out_chunk``; one per call.

    The first frame opens an audio response, and the response stays open from one utterance to the
    next: another start would throw away what the last one has not played yet. Without the services
    of newer SIP plugins a frame is all there is.
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
        """Tell that speech begins; False: there is no call."""
        return await self._host.start_response(self.context)

    async def take(self, payload: bytes) -> bool:
        """Hand one frame over; False: the caller has cut in, or there is no call."""
        return await self._host.chunk(self.context, payload)

    async def close_response(self, cut: bool) -> None:
        """Tell that speech has ended."""
        await self._host.end_response(self.context)
