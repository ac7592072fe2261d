"""What comes and goes by INFO (RFC 6086): keys of a telephone, and anything else as it is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qwen3tts_phone.errors import BadSip

DTMF_RELAY = "application/dtmf-relay"
DTMF = "application/dtmf"
DIGITS = "0123456789*#ABCD"
MIN_DURATION_MS = 40
MAX_DURATION_MS = 5000
DEFAULT_DURATION_MS = 160
"""Where a far end says nothing (``application/dtmf``)."""

_LINE = re.compile(r"\s*(signal|duration)\s*=\s*([^\s;]{1,16})\s*", re.I)
_NUMBERED = {"10": "*", "11": "#", "12": "A", "13": "B", "14": "C", "15": "D"}
"""Events of RFC 4733 that some senders write for keys without a number."""


@dataclass(frozen=True, slots=True)
class InfoReceived:
    """The far end sent an INFO that is no key; it has been answered with 200."""

    content_type: str
    """In lower case, without parameters; empty where there is no body."""
    body: bytes


@dataclass(frozen=True, slots=True)
class DtmfInfo:
    """A key of the far end's telephone, told by INFO."""

    digit: str
    """One of ``0`` to ``9``, ``*``, ``#``, ``A`` to ``D``."""
    duration_ms: int


def read_dtmf(content_type: str, body: bytes) -> DtmfInfo:
    """The key in a body of ``application/dtmf-relay`` or ``application/dtmf``; raises BadSip."""
    text = body[:256].decode("latin-1")
    duration_ms = DEFAULT_DURATION_MS
    signal = text.strip()
    if content_type == DTMF_RELAY or "=" in text:
        found = {m[1].lower(): m[2] for line in text.splitlines() if (m := _LINE.fullmatch(line))}
        signal = found.get("signal", "")
        duration = found.get("duration", "")
        if duration.isascii() and duration.isdigit():
            duration_ms = max(1, min(int(duration), MAX_DURATION_MS))
    digit = _NUMBERED.get(signal, signal).upper()
    if len(digit) != 1 or digit not in DIGITS:
        raise BadSip("The body of the INFO names no key of a telephone.")
    return DtmfInfo(digit, duration_ms)


def dtmf_relay(digit: str, duration_ms: int) -> bytes:
    """The body of ``application/dtmf-relay`` for a key; raises ValueError."""
    digit = digit.upper()
    if len(digit) != 1 or digit not in DIGITS:
        raise ValueError(f"digit={digit!r} is not one of {DIGITS}")
    if not MIN_DURATION_MS <= duration_ms <= MAX_DURATION_MS:
        raise ValueError(
            f"duration_ms={duration_ms} is not between {MIN_DURATION_MS} and {MAX_DURATION_MS}"
        )
    return f"Signal={digit}\r\nDuration={duration_ms}\r\n".encode()
