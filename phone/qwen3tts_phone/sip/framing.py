"""Messages on a stream, RFC 3261 section 18.3: headers to the blank line, then Content-Length."""

from __future__ import annotations

import re

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.message import MAX_HEAD_BYTES, MAX_MESSAGE_BYTES

_LENGTH = re.compile(rb"(?:^|\r\n)(?:Content-Length|l)[ \t]*:[ \t]*([^\r\n]*)", re.I)

PING = b"\r\n\r\n"
PONG = b"\r\n"
_PINGS = re.compile(rb"(?:\r\n\r\n)+")


class StreamFramer:
    """Cuts a byte stream into messages; an error is final, the connection must be closed."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._total = 0
        """Length of the message under way, once its headers are here."""
        self.pings = 0
        """Keep-alives (RFC 5626 section 3.5.1) seen and not yet answered with PONG."""

    def push(self, data: bytes) -> list[bytes]:
        """Bytes as they came; gives whole messages. Raises BadSip when the stream is unusable."""
        self.feed(data)
        messages: list[bytes] = []
        while (message := self.next()) is not None:
            messages.append(message)
        return messages

    def feed(self, data: bytes) -> None:
        """Bytes as they came; :meth:`next` gives what they hold."""
        self._buffer += data

    def next(self) -> bytes | None:
        """The next whole message, None while there is none; raises BadSip as :meth:`push`."""
        while True:
            if self._total:
                if len(self._buffer) < self._total:
                    return None
                message = bytes(self._buffer[: self._total])
                del self._buffer[: self._total]
                self._searched = self._total = 0
                return message
            self._skip_blank_lines()
            end = self._buffer.find(b"\r\n\r\n", self._searched)
            if end < 0:
                # What has come of the blank line itself does not count.
                if len(self._buffer) > MAX_HEAD_BYTES + 3:
                    raise BadSip(f"Headers on a stream are over the bound of {MAX_HEAD_BYTES}.")
                # The blank line may be cut anywhere.
                self._searched = max(0, len(self._buffer) - 3)
                return None
            self._total = end + 4 + self._body_bytes(bytes(self._buffer[:end]))

    def _skip_blank_lines(self) -> None:
        # Section 7.5: blank lines before a start line are ignored.
        if self._searched:
            return
        blank = _PINGS.match(self._buffer)
        if blank is not None:
            self.pings += blank.end() // len(PING)
            del self._buffer[: blank.end()]
        while self._buffer[:2] == PONG:
            if PING.startswith(self._buffer):
                return
            else:
                del self._buffer[:2]

    def _body_bytes(self, head: bytes) -> int:
        if len(head) > MAX_HEAD_BYTES:
            raise BadSip(f"Headers on a stream are over the bound of {MAX_HEAD_BYTES}.")
        found = {value.strip() for value in _LENGTH.findall(head)}
        if not found:
            # Section 18.3 demands it; a message without is taken to have no body.
            return 0
        text = found.pop()
        if found or not text.isdigit() or len(text) > 9:
            raise BadSip("Content-Length on a stream is not one number.")
        if int(text) + len(head) + 4 > MAX_MESSAGE_BYTES:
            raise BadSip(f"A message of {int(text)} bytes is over {MAX_MESSAGE_BYTES}.")
        return int(text)
