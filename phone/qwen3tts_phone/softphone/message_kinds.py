"""The kinds of field that the softphone's messages have, and their bounds."""

from __future__ import annotations

from typing import Annotated

from qwen3tts_wire.fields import Flag, OneOf, Real, Text, Whole

CODECS = ("opus", "PCMU")
STATES = ("connecting", "ringing", "up", "lost", "ended")
KEYS = tuple("0123456789*#ABCD")
MAX_SDP_CHARS = 65_536
MAX_TYPED_CHARS = 4_096
"""In one ``type``; a paste is sent in several."""
MAX_SAID_CHARS = 20_000
"""In one ``say``."""
MAX_MESSAGE_CHARS = 131_072
MAX_TEXT_CHARS = 1_048_576
"""Bounds what the server itself writes."""

Id = Annotated[str, Text(1, 128, printable=True)]
Name = Annotated[str, Text(0, 4096, printable=True)]
VoiceName = Annotated[str, Text(1, 256, printable=True)]
LanguageTag = Annotated[str, Text(1, 64, printable=True)]
Sdp = Annotated[str, Text(1, MAX_SDP_CHARS)]
Prose = Annotated[str, Text(0, MAX_TEXT_CHARS)]
CodecWish = Annotated[str, OneOf(("auto", *CODECS))]
Number = Annotated[float, Real(0, 1e12)]
Time = Annotated[float, Real(-1e15, 1e15)]
Count = Annotated[int, Whole(0, 2**53)]
Yes = Annotated[bool, Flag()]
