"""The AudioPacer: speech in, one frame per packet time out; its shell loads on first use."""

from typing import TYPE_CHECKING, Any

from qwen3tts_pacer.core import PacerCore
from qwen3tts_pacer.frame_queue import Dropped, DroppedContext
from qwen3tts_pacer.policy import Filling, FillingPolicy, FillingSettings
from qwen3tts_pacer.slot import Frame, Kind, Slot
from qwen3tts_pacer.states import ContextError, IllegalMove, PacerError, PacerFull, State
from qwen3tts_pacer.timeline import Span, Timeline

if TYPE_CHECKING:
    from qwen3tts_pacer.audio_pacer import AudioPacer, Outcome, PacerClosed, SinkFailed

__all__ = [
    "AudioPacer",
    "ContextError",
    "Dropped",
    "DroppedContext",
    "Filling",
    "FillingPolicy",
    "FillingSettings",
    "Frame",
    "IllegalMove",
    "Kind",
    "Outcome",
    "PacerClosed",
    "PacerCore",
    "PacerError",
    "PacerFull",
    "SinkFailed",
    "Slot",
    "Span",
    "State",
    "Timeline",
]

_SHELL = ("AudioPacer", "Outcome", "PacerClosed", "SinkFailed")


def __getattr__(name: str) -> Any:
    if name not in _SHELL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from qwen3tts_pacer import audio_pacer

    return getattr(audio_pacer, name)
