"""The answer to one question: keys or speech."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from qwen3tts_wire.errors import SpeechError

WhyGathered = Literal["keys", "speech", "nothing", "not_understood", "call_over"]
"""Keys were pressed; something was said; neither in time; the recogniser failed or made no text of
what was said; the call ended."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a far end answered to :meth:`Call.ask`; true where it answered at all."""

    keys: str = field(default="", repr=False)
    """Keys that were pressed, without the one that ended them."""
    text: str = field(default="", repr=False)
    """What was said, as the recogniser has it."""
    why: WhyGathered = "nothing"
    """Why the wait ended."""
    tries: int = 1
    """How often it was asked."""
    error: SpeechError | None = None
    """What went wrong with the recognition."""

    def __bool__(self) -> bool:
        return bool(self.keys or self.text)
