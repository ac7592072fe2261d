"""Barge-in: the caller's voice silences the agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qwen3tts_phone.phone import Call
    from qwen3tts_speech.line import Utterance


NO_FRAME_S = 0.5
"""A phone that sends no frames for so long is quiet: some send none in pauses."""


class BargeIn:
    """Follows the caller's voice; at its onset the agent falls silent, with the next frame."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.stopped: set[Utterance] = set()
        """The utterances that the caller has interrupted."""
        self.quiet = asyncio.Event()
        """Set while the caller says nothing, and when the call is over."""

    async def listen(self) -> None:
        """Listen to the end of the call."""
        from qwen3tts_phone.listen import OnsetGate

        gate = OnsetGate()

        def pause() -> None:
            gate.close()
            self.quiet.set()

        loop = asyncio.get_running_loop()
        no_frame = loop.call_later(NO_FRAME_S, pause)
        try:
            async for frame in self._call.audio():
                no_frame.cancel()
                no_frame = loop.call_later(NO_FRAME_S, pause)
                if gate.push(frame.samples, frame.rate_hz):
                    self.stopped.update(self._call.interrupt())
                if gate.open:
                    self.quiet.clear()
                else:
                    self.quiet.set()
        finally:
            no_frame.cancel()
            self.quiet.set()
