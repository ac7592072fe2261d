"""What a session of the runvnc protocol wants done."""

from __future__ import annotations

from dataclasses import dataclass

from qwen3tts_server.dialects.runvnc_messages import Init
from qwen3tts_wire.messages import ContextOpen


@dataclass(frozen=True)
class Load:
    """Make a voice ready; answer by ``loaded`` or ``refused``."""

    init: Init


@dataclass(frozen=True)
class Start:
    """Begin to speak; answer by ``sound``, then ``ended`` or ``failed``."""

    order: ContextOpen


@dataclass(frozen=True)
class Append:
    """More text for what is being said."""

    text: str


@dataclass(frozen=True)
class End:
    """It has all its text."""


@dataclass(frozen=True)
class Stop:
    """Say no more of it, at once."""


@dataclass(frozen=True)
class Close:
    """Close the connection once everything is written."""

    code: int
    reason: str


Command = Load | Start | Append | End | Stop | Close
