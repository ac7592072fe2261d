"""Messages between a program and its child process, over the child's standard input and output.

A message is the lengths of its two parts (u32, big-endian), a JSON object with its ``kind`` and
fields, and binary data, such as samples. Never pickles: children work on data of strangers.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, NoReturn

HEAD = struct.Struct("!II")
MAX_JSON = 1 << 20
"""Bytes; the longest real one lists the voices of an engine."""
MAX_DATA = 1 << 22
"""Bytes: 65 s of 16-bit sound at 32 kHz."""


class BadMessage(ValueError):
    """The bytes are not a message; nothing after them can be read."""


@dataclass(frozen=True, slots=True)
class Message:
    """A kind, fields that JSON can hold, and data."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict, repr=False)
    data: bytes = field(default=b"", repr=False)

    def encode(self) -> bytes:
        """Encode for the pipe."""
        head = json.dumps({"kind": self.kind, **self.fields}).encode()
        return HEAD.pack(len(head), len(self.data)) + head + self.data


class Decoder:
    """Incremental decoder: bytes in, messages out, however the bytes were cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def push(self, data: bytes) -> list[Message]:
        """Return the messages that are complete with ``data``.

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
