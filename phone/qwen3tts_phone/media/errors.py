"""What can go wrong with the media process."""

from __future__ import annotations

from qwen3tts_phone.errors import CallError


class MediaLost(CallError):
    """The media process ended: all its calls are silent; start another one."""

    code = "media_lost"
    retryable = True


class MediaRefused(CallError):
    """The media process cannot do that with this leg; the message says why."""

    code = "media_refused"


class LegClosed(CallError):
    """The leg was closed; nothing can be sent or received through it."""

    code = "leg_closed"
