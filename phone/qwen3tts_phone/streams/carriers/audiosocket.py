"""Asterisk AudioSocket over TCP (pure): https://docs.asterisk.org, res_audiosocket.

A message is a type (1 byte), the length of the payload (2 bytes, big-endian) and the payload.
Asterisk plays each frame on arrival and queues nothing, so this side keeps the clock.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Final

from qwen3tts_codecs.l16 import slin
from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.call.keys import KEYS
from qwen3tts_phone.streams.carriers.adapter import (
    Message,
    StreamAdapter,
    StreamAudio,
    StreamEvent,
    StreamKey,
    StreamKind,
    StreamOddity,
    StreamStarted,
    StreamStopped,
)

HANG_UP: Final = 0x00
UUID: Final = 0x01
DTMF: Final = 0x03
ERROR: Final = 0xFF
AUDIO: Final[dict[int, int]] = {
    0x10: 8000,
    0x11: 12_000,
    0x12: 16_000,
    0x13: 24_000,
    0x14: 32_000,
    0x15: 44_100,
    0x16: 48_000,
    0x17: 96_000,
    0x18: 192_000,
}
"""Types of messages with 16-bit little-endian samples, and their rates in Hz."""
TYPE_OF: Final[dict[int, int]] = {rate: kind for kind, rate in AUDIO.items()}
HEADER: Final = struct.Struct(">BH")
RATE_WAIT_S: Final = 0.25
"""Wait for inbound audio after the UUID; its rate is used, else that of the settings."""
HUNG_UP_CODE: Final = 1
"""Error code of a caller who has hung up."""


class AudioSocketAdapter(StreamAdapter):
    """Adapter of one AudioSocket; ``rate_hz`` holds until audio comes in."""

    line = "audiosocket"
    owns_clock = True
    has_clear = False
    ends_by_closing = True

    def __init__(self, rate_hz: int = 8000) -> None:
        self._payload = slin(rate_hz)
        self._payload_in = self._payload
        self._buffer = bytearray()
        self._id = ""
        self._id_at = 0.0
        self._started = False

    @property
    def payload(self) -> Payload:
        return self._payload

    @property
    def payload_in(self) -> Payload:
        return self._payload_in

    def receive(self, message: Message, now: float) -> list[StreamEvent]:
        if isinstance(message, str):
            return [StreamOddity("text")]
        self._buffer += message
        events: list[StreamEvent] = []
        buffer, at = self._buffer, 0
        while len(buffer) - at >= HEADER.size:
            kind, length = HEADER.unpack_from(buffer, at)
            if len(buffer) - at < HEADER.size + length:
                break
            at += HEADER.size
            events += self._message(kind, bytes(buffer[at : at + length]), now)
            at += length
        del buffer[:at]
        return events

    @property
    def wants_ticks(self) -> bool:
        return not self._started

    def tick(self, now: float) -> list[StreamEvent]:
        if self._id and not self._started and now - self._id_at >= RATE_WAIT_S:
            return [self._start()]
        return []

    def audio(self, payload: bytes) -> Sequence[Message]:
        return (HEADER.pack(TYPE_OF[self._payload.sample_hz], len(payload)) + payload,)

    def hang_up(self) -> Sequence[Message]:
        return (HEADER.pack(HANG_UP, 0),)

    def _message(self, kind: int, payload: bytes, now: float) -> list[StreamEvent]:
        if kind in AUDIO:
            return self._sound(AUDIO[kind], payload)
        if kind == UUID:
            return self._identify(payload, now)
        if kind == DTMF:
            digit = payload.decode("ascii", "replace").upper()
            if len(digit) != 1 or digit not in KEYS:
                return [StreamOddity("an unknown key")]
            return [StreamKey(digit)]
        if kind == HANG_UP:
            return [StreamStopped()]
        if kind == ERROR:
            code = payload[0] if payload else 0
            if code == HUNG_UP_CODE:
                return [StreamStopped("the caller has hung up")]
            return [StreamOddity(f"error {code}")]
        return [StreamOddity(f"a message of type 0x{kind:02x}")]

    def _identify(self, payload: bytes, now: float) -> list[StreamEvent]:
        if len(payload) != 16:
            return [StreamOddity("a malformed UUID")]
        if self._id:
            return [StreamOddity("a second start")]
        self._id, self._id_at = str(uuid.UUID(bytes=payload)), now
        return []

    def _sound(self, rate_hz: int, payload: bytes) -> list[StreamEvent]:
        if not self._id:
            return [StreamOddity("sound before the start")]
        events: list[StreamEvent] = []
        if rate_hz != self._payload_in.sample_hz:
            self._payload_in = slin(rate_hz)
        if not self._started:
            self._payload = self._payload_in
            events.append(self._start())
        if len(payload) % 2 or not payload:
            events.append(StreamOddity("sound that is no whole samples"))
            payload = payload[: len(payload) // 2 * 2]
        if payload:
            events.append(StreamAudio(payload, payload=self._payload_in))
        return events

    def _start(self) -> StreamStarted:
        self._started = True
        return StreamStarted(self._id, payload=self._payload, payload_in=self._payload_in)


def audiosocket() -> StreamKind:
    """Return AudioSocket at `StreamSettings.audiosocket_hz`."""
    return StreamKind("audiosocket", lambda handshake: AudioSocketAdapter())
