"""The piece of a SIP message that a NOTIFY of a transfer holds: ``message/sipfrag`` (RFC 3420)."""

from __future__ import annotations

import re

from qwen3tts_phone.sip.message import REASONS

CONTENT_TYPE = "message/sipfrag;version=2.0"
MAX_REASON_CHARS = 100

_STATUS_LINE = re.compile(r"SIP/2\.0[ \t]+([1-6][0-9][0-9])(?:[ \t]+([^\r\n]*))?", re.I)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


def read_status(body: bytes) -> tuple[int, str] | None:
    """Status and reason phrase of the status line that it begins with, or None."""
    match = _STATUS_LINE.match(body[:512].decode("utf-8", "replace").lstrip())
    if match is None:
        return None
    status = int(match[1])
    reason = _UNPRINTABLE.sub(" ", match[2] or "").strip()[:MAX_REASON_CHARS]
    return status, reason or REASONS.get(status, "")


def write_status(status: int, reason: str = "") -> bytes:
    """A status line."""
    reason = _UNPRINTABLE.sub(" ", reason).strip()[:MAX_REASON_CHARS]
    return f"SIP/2.0 {status} {reason or REASONS.get(status, 'Answer')}\r\n".encode()
