"""What a call needs of the sink that its speech goes to, whatever line it is on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from qwen3tts_speech.sink import FrameSink

Tap = Callable[[bytes, float], None]
"""Takes the payload of a frame that went out, and when (seconds of the monotonic clock)."""


class CallSink(FrameSink, Protocol):
    """A `FrameSink` that also tells what has gone out, and when."""

    @property
    def last_at(self) -> float | None:
        """When the last utterance that was played to its end went out, seconds; None = none was.

        Hanging up waits a little after it, for the far end's buffer.
        """

    def tap(self, tap: Tap) -> None:
        """``tap`` is given the payload of each frame of speech that goes out from now on."""

    def untap(self, tap: Tap) -> None:
        """No more of them; harmless where it was never tapped."""

    def follow(self) -> None:
        """Give the taps what has gone out by now, where they are not told at once."""

    def gone(self) -> None:
        """The line is gone: whoever waits for the end of what is being said learns that."""
