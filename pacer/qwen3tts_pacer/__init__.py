"""The AudioPacer: frames in, one per ptime out on an exact clock, and what was heard.

The pure parts are named here. `qwen3tts_pacer.audio_pacer` (the in-process shell) and
`qwen3tts_pacer.audio_pacer` need asyncio, which the media process does without, so they are imported by
their own names.
"""

from qwen3tts_pacer.core import Dropped, DroppedContext, PacerCore
from qwen3tts_pacer.policy import Filling, FillingPolicy, FillingSettings
from qwen3tts_pacer.slot import Frame, Kind, Slot
from qwen3tts_pacer.states import ContextError, IllegalMove, PacerError, PacerFull, State
from qwen3tts_pacer.timeline import Span, Timeline

__all__ = [
    "ContextError",
    "Dropped",
    "DroppedContext",
    "Filling",
    "FillingPolicy",
    "FillingSettings",
    "Frame",
    "IllegalMove",
    "Kind",
    "PacerCore",
    "PacerError",
    "PacerFull",
    "Slot",
    "Span",
    "State",
    "Timeline",
]
