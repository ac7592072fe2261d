"""Messages with a child process over its standard input and output.

Two lengths (u32, big-endian), a JSON object with ``kind`` and fields, and binary data. Never
pickles: children process strangers' data.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, NoReturn

HEAD = struct.Struct("!II")
MAX_JSON = 1 << 20
"""Bytes; the longest real one lists an engine's voices."""
MAX_DATA = 1 << 22
"""Bytes: 65 s of 16-bit sound at 32 kHz."""


class BadMessage(ValueError):
    """The bytes are not a message; the stream is unusable."""


@dataclass(frozen=True, slots=True)
class Message:
    """Kind, JSON fields and binary data."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict, repr=False)
    data: bytes = field(default=b"", repr=False)

    def encode(self) -> bytes:
        head = json.dumps({"kind": self.kind, **self.fields}).encode()
        return HEAD.pack(len(head), len(self.data)) + head + self.data


class Decoder:
    """Incremental decoder of messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def push(self, data: bytes) -> list[Message]:
        """Return the messages complete by now.

        Raises:
            BadMessage: the bytes are not a message.
        """
        buffer = self._buffer
        buffer += data
        messages = []
        at = 0
        while len(buffer) - at >= HEAD.size:
            json_bytes, data_bytes = HEAD.unpack_from(buffer, at)
            if json_bytes > MAX_JSON or data_bytes > MAX_DATA:
                raise BadMessage(f"a message of {json_bytes} and {data_bytes} bytes")
            begin = at + HEAD.size
            middle, end = begin + json_bytes, begin + json_bytes + data_bytes
            if len(buffer) < end:
                break
            messages.append(_message(bytes(buffer[begin:middle]), bytes(buffer[middle:end])))
            at = end
        del buffer[:at]
        return messages


def _message(head: bytes, data: bytes) -> Message:
    try:
        fields = json.loads(head.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise BadMessage("not JSON") from None
    if not isinstance(fields, dict) or not isinstance(kind := fields.pop("kind", None), str):
        raise BadMessage("not a JSON object with a kind")
    return Message(kind, fields, data)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
