"""Our errors in Pipecat's words, which decide whether the service is still given work."""

from __future__ import annotations

from pipecat.utils.errors import ErrorCategory

from qwen3tts_wire.errors import (
    BadRequest,
    BadText,
    ConnectionLost,
    EngineFailed,
    EngineUnavailable,
    ServerBusy,
    SpeechError,
)

CATEGORIES: tuple[tuple[type[SpeechError], ErrorCategory], ...] = (
    (BadText, ErrorCategory.APPLICATION),
    (BadRequest, ErrorCategory.INVALID_REQUEST),
    (ServerBusy, ErrorCategory.RATE_LIMIT),
    (ConnectionLost, ErrorCategory.CONNECTIVITY),
    (EngineFailed, ErrorCategory.SERVER),
    (EngineUnavailable, ErrorCategory.SERVER),
)


def category(error: SpeechError) -> ErrorCategory:
    """Pipecat's word for an error."""
    return next(
        (name for kind, name in CATEGORIES if isinstance(error, kind)), ErrorCategory.UNKNOWN
    )
