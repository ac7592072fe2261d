"""What a call hears, for whoever iterates over it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from qwen3tts_phone.call_events import HeardFrame
from qwen3tts_phone.ears import Ears


class CallAudio:
    """One call's sound: ``async for frame in call.audio``, or ``call.audio(steady=True)``."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears

    def __aiter__(self) -> AsyncIterator[HeardFrame]:
        """Each frame as it comes, until the call ends."""
        return self._ears.audio()

    def __call__(self, *, steady: bool = False) -> AsyncGenerator[HeardFrame, None]:
        """The same; ``steady``: on our clock, one frame for each packet time, without holes."""
        return self._ears.audio(steady=steady)
