"""What of the voice can be changed while a pipeline runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipecat.services.settings import TTSSettings
from pipecat.utils.types import NOT_GIVEN, NotGiven


@dataclass
class Qwen3TTSSettings(TTSSettings):
    """What can be changed while the pipeline runs; it holds from the next utterance on.

    Parameters:
        speed: Factor on the rate of speech, 0.5 to 2.5.
        instructions: How to speak, in words, where the voice takes that.
    """

    speed: float | NotGiven = field(default_factory=lambda: NOT_GIVEN)
    instructions: str | NotGiven | None = field(default_factory=lambda: NOT_GIVEN)
