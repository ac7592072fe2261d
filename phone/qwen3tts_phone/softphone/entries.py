"""Records in the softphone's messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from qwen3tts_wire.fields import Flag, Many, Real, Record, Text, Whole

MAX_TEXT_CHARS = 1_048_576

Id = Annotated[str, Text(1, 128, printable=True)]
Name = Annotated[str, Text(0, 4096, printable=True)]
Prose = Annotated[str, Text(0, MAX_TEXT_CHARS)]
Number = Annotated[float, Real(0, 1e12)]
Count = Annotated[int, Whole(0, 2**53)]
Yes = Annotated[bool, Flag()]


@dataclass(frozen=True)
class VoiceEntry:
    id: Name
    name: Name
    language: Name


@dataclass(frozen=True)
class EngineEntry:
    id: Id
    name: Name
    kind: Name
    note: Prose = ""
    can_clone: Yes = False
    default_voice: Name = ""
    voices: Annotated[tuple[VoiceEntry, ...], Many(Record(VoiceEntry), 10_000)] = ()


@dataclass(frozen=True)
class CallEntry:
    id: Name
    line: Name
    direction: Name
    remote: Name
    state: Name
    """``ringing``, ``up`` or ``held``."""
    since_ms: Number
    """Duration in whole seconds, milliseconds."""
    speaking: Yes = False


@dataclass(frozen=True)
class SipEntry:
    dial: Yes = False
    listen: Yes = False
    accounts: Annotated[tuple[str, ...], Many(Text(0, 256), 1000)] = ()


@dataclass(frozen=True)
class LimitsEntry:
    text_chars: Count
    typed_chars: Count
    upload_bytes: Count
    upload_s: Number
    resume_ms: Number
    """Time for which a call outlives its page's connection."""
    calls: Count


@dataclass(frozen=True)
class IceEntry:
    """STUN or TURN server, as RTCIceServer."""

    urls: Name
    username: Name = ""
    credential: Name = field(default="", repr=False)
