"""Errors between text and audio.

SpeechError                     base; never raised itself
├── BadRequest                  invalid request
│   ├── BadText                 text: empty, too long, not text at all
│   └── UnknownVoice            no such voice or language
├── LimitExceeded               a stated bound was reached
├── ServerBusy                  no capacity now
├── EngineFailed                the engine broke while it spoke
├── EngineUnavailable           a library, model or device is missing
├── ConnectionLost              the other end is gone
└── ProtocolError               the other end broke the protocol
"""

from __future__ import annotations

from typing import ClassVar


class SpeechError(Exception):
    """Base of all errors that a caller may see."""

    code: ClassVar[str] = "internal_error"
    """Name of the error on the wire; stable."""
    retryable: ClassVar[bool] = False
    """True if the same request may succeed later."""

    def __init__(self, message: str, *, remedy: str = "", context_id: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.context_id = context_id

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".rstrip()


class BadRequest(SpeechError):
    """The request cannot be served as it is written."""

    code = "bad_request"


class BadText(BadRequest):
    """The text is empty, too long, or holds something that is not text."""

    code = "bad_text"


class UnknownVoice(BadRequest):
    """No voice of that name or language."""

    code = "unknown_voice"


class LimitExceeded(SpeechError):
    """A stated bound was reached."""

    code = "limit_exceeded"


class ServerBusy(SpeechError):
    """No capacity now; the same request may succeed later."""

    code = "server_busy"
    retryable = True


class EngineFailed(SpeechError):
    """The engine broke while it spoke."""

    code = "engine_failed"
    retryable = True


class EngineUnavailable(SpeechError):
    """The engine cannot start: a library, a model or a device is missing."""

    code = "engine_unavailable"


class ConnectionLost(SpeechError):
    """The other end is gone, or was never there."""

    code = "connection_lost"
    retryable = True


class ProtocolError(SpeechError):
    """The other end broke the protocol."""

    code = "protocol_error"


BY_CODE: dict[str, type[SpeechError]] = {
    kind.code: kind
    for kind in (
        BadRequest,
        BadText,
        UnknownVoice,
        LimitExceeded,
        ServerBusy,
        EngineFailed,
        EngineUnavailable,
        ConnectionLost,
        ProtocolError,
    )
}
"""Every error that travels, by its code."""


def error_from_wire(
    code: str, message: str, *, remedy: str = "", context_id: str | None = None
) -> SpeechError:
    """Return the typed error for a received code; an unknown code gives the base class."""
    return BY_CODE.get(code, SpeechError)(message, remedy=remedy, context_id=context_id)


MOST_CHARS = 80
"""Characters of a name, an identifier or an address that are shown."""
MOST_SENTENCE_CHARS = 400
"""Characters that are shown of an error's sentence, which may quote what the far end said."""


def log_text(value: object, most: int = 0) -> str:
    """Return a value from the network for a log line: bounded, and on one line.

    Control characters, line ends, terminal sequences, direction marks and half surrogates are
    escaped, so that it neither fills the log nor forges a line.

    Args:
        value: a text, or an object with one, such as an error.
        most: characters shown; by default 400 of an error and 80 of anything else.
    """
    text = str(value)
    most = most or (MOST_SENTENCE_CHARS if isinstance(value, BaseException) else MOST_CHARS)
    shown = "".join(
        char
        if char.isprintable() and char != "\\"
        else char.encode("unicode_escape", "backslashreplace").decode("ascii")
        for char in text[:most]
    )
    return shown + ("…" if len(text) > most else "")
