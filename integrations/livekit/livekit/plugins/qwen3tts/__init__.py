"""LiveKit Agents' text-to-speech over ``qwen3tts.speech.v1``."""

import logging

from livekit.agents import Plugin

from .output import HeardOutput
from .stream import SynthesizeStream
from .tts import TTS
from .version import __version__

__all__ = ["TTS", "HeardOutput", "SynthesizeStream", "__version__"]


class Qwen3TTSPlugin(Plugin):
    """What LiveKit lists."""

    def __init__(self) -> None:
        """Name and version."""
        super().__init__(__name__, __version__, __package__ or "", logging.getLogger(__name__))


Plugin.register_plugin(Qwen3TTSPlugin())
