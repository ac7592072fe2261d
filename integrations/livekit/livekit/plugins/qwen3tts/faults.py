"""Our errors as LiveKit's, which decide whether it tries again or takes another voice."""

from __future__ import annotations

from livekit.agents import APIConnectionError, APIError, APIStatusError

from qwen3tts_wire.errors import (
    BadRequest,
    ConnectionLost,
    LimitExceeded,
    ServerBusy,
    SpeechError,
    UnknownVoice,
)

STATUS: tuple[tuple[type[SpeechError], int], ...] = (
    (UnknownVoice, 404),
    (BadRequest, 400),
    (LimitExceeded, 413),
    (ServerBusy, 503),
)
"""As the server's HTTP interface answers them; those below 500 are not tried again."""


def api_error(error: SpeechError) -> APIError:
    """LiveKit's error for ours; the text is the same."""
    if isinstance(error, ConnectionLost):
        return APIConnectionError(str(error))
    for kind, status in STATUS:
        if isinstance(error, kind):
            return APIStatusError(str(error), status_code=status)
    return APIError(str(error), retryable=error.retryable)
