"""What the recogniser's process and its parent say to each other over two pipes (pure).

A message is 8 bytes (the lengths of both parts, big-endian), a JSON object, and sound.

    to the process    hear {job} + samples (int16, native, 16 kHz) · drop {job}
    from it           loading {model} · ready {load_s, model, source, languages, device,
                      dtype, threads}
                      missing {reason, remedy, package} · dropped {job} · failed {job, reason}
                      text {job, text, language, logprob, no_speech}
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

HEAD = struct.Struct("!II")
MOST_JSON = 1 << 17
"""Bytes; a piece's text is a few kilobytes."""
MOST_SOUND = 1 << 21
"""Bytes: 65 s at 16 kHz; a piece is half of that."""


class BadMessage(Exception):
    """What came is no message; whoever sent it is broken."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message."""

    type: str
    fields: dict[str, Any] = field(default_factory=dict, repr=False)
    sound: bytes = field(default=b"", repr=False)

    def encode(self) -> bytes:
        """As it goes over the pipe."""
        head = json.dumps({"type": self.type, **self.fields}).encode()
        return HEAD.pack(len(head), len(self.sound)) + head + self.sound


class Decoder:
    """Bytes to messages, however they were cut."""

    def __init__(self) -> None:
        self._data = bytearray()

    def push(self, data: bytes) -> list[Message]:
        """The messages that are complete by now; BadMessage for what is none."""
        self._data += data
        messages = []
        while len(self._data) >= HEAD.size:
            json_bytes, sound_bytes = HEAD.unpack_from(self._data)
            if json_bytes > MOST_JSON or sound_bytes > MOST_SOUND:
                raise BadMessage(f"a message of {json_bytes} and {sound_bytes} bytes")
            end = HEAD.size + json_bytes + sound_bytes
            if len(self._data) < end:
                break
            head = bytes(self._data[HEAD.size : HEAD.size + json_bytes])
            messages.append(_message(head, bytes(self._data[HEAD.size + json_bytes : end])))
            del self._data[:end]
        return messages


def _message(head: bytes, sound: bytes) -> Message:
    try:
        fields = json.loads(head)
    except (ValueError, RecursionError):
        raise BadMessage("what is no JSON") from None
    if not isinstance(fields, dict) or not isinstance(kind := fields.pop("type", None), str):
        raise BadMessage("an object without a type")
    return Message(kind, fields, sound)
