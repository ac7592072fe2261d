"""The AudioPacer: frames in, one per ptime out on an exact clock, and what was heard.

The pure parts are named here. `qwen3tts_pacer.pacer` (the in-process shell) and
`qwen3tts_pacer.clock` need asyncio, which the media process does without, so they are imported by
their own names.
"""

from qwen3tts_pacer.core import Dropped, DroppedContext, PacerCore
from qwen3tts_pacer.errors import ContextError, IllegalMove, PacerError, PacerFull
from qwen3tts_pacer.frame import Frame, Kind, Slot
from qwen3tts_pacer.policy import Filling, FillingPolicy, FillingSettings
from qwen3tts_pacer.states import State
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
