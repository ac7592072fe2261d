"""How long a server may take: to its first sound, and from one piece of sound to the next."""

from __future__ import annotations

import asyncio

from qwen3tts_engine.upstream.faults import Stalled


class Patience:
    """Begins when it is made. A reader who does not take the sound is not counted against it."""

    def __init__(self, first_s: float, stall_s: float) -> None:
        self._first_s = first_s
        self._stall_s = stall_s
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + first_s
        self._sounded = False

    def sounded(self) -> None:
        """Sound came, and its reader has taken it."""
        self._sounded = True
        self._until = self._loop.time() + self._stall_s

    def limit(self) -> asyncio.Timeout:
        """A context that raises TimeoutError when it is over."""
        return asyncio.timeout_at(self._until)

    def over(self) -> Stalled:
        """The error for that."""
        if self._sounded:
            what = f"sent no sound for {self._stall_s:g} s in the middle of the speech"
        else:
            what = f"made no sound in {self._first_s:g} s"
        return Stalled(
            f"The upstream server {what}.",
            remedy="It may be overloaded: try again; see upstream.first_audio_s and stall_s.",
        )
