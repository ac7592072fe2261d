"""Asterisk chan_websocket: audio as binary messages, control as text, JSON or plain (pure).

https://docs.asterisk.org/Configuration/Channel-Drivers/WebSocket/. Asterisk frames and times what
it receives, returns marks, and drops its queue on FLUSH_MEDIA. Formats that describe their own
frames (Opus) are passed through: then this side keeps the clock, and media commands do not exist.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from qwen3tts_codecs.g711 import PCMA, PCMU
from qwen3tts_codecs.g722 import G722
from qwen3tts_codecs.l16 import slin
from qwen3tts_codecs.opus import opus
from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.call.keys import KEYS
from qwen3tts_phone.streams.carriers.adapter import (
    Handshake,
    Message,
    StreamAudio,
    StreamEvent,
    StreamFlow,
    StreamKey,
    StreamKind,
    StreamMark,
    StreamStarted,
    StreamStopped,
)
from qwen3tts_phone.streams.carriers.messages import (
    JsonAdapter,
    clean,
    object_of,
    text,
    texts,
    whole,
)

SUBPROTOCOL: Final = "media"
MAX_MESSAGE_BYTES: Final = 65_500
"""A longer message closes the call (Asterisk's WebSocket layer)."""
FORMATS: Final[dict[str, Payload]] = {
    "ulaw": PCMU,
    "alaw": PCMA,
    "g722": G722,
    **{f"slin{hz // 1000}": slin(hz) for hz in (12_000, 16_000, 24_000, 32_000, 48_000)},
    **{f"slin{hz // 1000}": slin(hz) for hz in (44_100, 96_000, 192_000)},
    "slin": slin(8000),
    "opus": opus(),
}
"""Asterisk's names of formats. Linear samples are in the order of its machine: little-endian."""
PASSED_THROUGH: Final = ("opus",)
PTIMES_MS: Final = (10, 20, 30, 40, 60)
IGNORED: Final = ("STATUS", "QUEUE_DRAINED", "MEDIA_BUFFERING_COMPLETED")


class ChanWebSocketAdapter(JsonAdapter):
    """Adapter of a chan_websocket, opened by either side.

    MEDIA_START shows whether control messages are JSON or plain.
    """

    line = "chan_websocket"
    has_marks = True
    ends_by_closing = True

    def __init__(self) -> None:
        self._payload: Payload = PCMU
        self._json = False
        self._started = False
        self._buffers = False
        """True if Asterisk must cut our frames into its own (START_MEDIA_BUFFERING)."""

    @property
    def payload(self) -> Payload:
        return self._payload

    # --- inbound

    def receive(self, message: Message, now: float) -> list[StreamEvent]:
        if isinstance(message, bytes):
            if not self._started:
                return self._odd("sound before the start")
            if not message:
                return self._odd("sound that is empty")
            return [StreamAudio(message)]
        found = object_of(message)
        if found is not None:
            name, values = text(found, "event"), found
        else:
            name, values = _plain(message)
        if not self._started and name == "MEDIA_START":
            self._json = found is not None
        return self._event(name, values)

    def _event(self, name: str, values: dict[str, Any]) -> list[StreamEvent]:
        if name == "MEDIA_START":
            return self._start(values)
        if name == "DTMF_END":
            digit = text(values, "digit", "").upper()
            if len(digit) != 1 or digit not in KEYS:
                return self._odd("a key that no telephone has")
            return [StreamKey(digit, min(whole(values, "duration", "duration_ms") or 0, 60_000))]
        if name == "MEDIA_MARK_PROCESSED":
            return [StreamMark(text(values, "correlation_id", ""))]
        if name in ("MEDIA_XOFF", "MEDIA_XON"):
            return [StreamFlow(stop=name == "MEDIA_XOFF")]
        if name == "HANGUP":
            return [StreamStopped()]
        if name == "ERROR":
            return self._odd("an error")
        return [] if name in IGNORED else self._odd("an unknown event")

    def _start(self, values: dict[str, Any]) -> list[StreamEvent]:
        if self._started:
            return self._odd("a second start")
        name = text(values, "format").lower()
        payload = FORMATS.get(name)
        if payload is None:
            known = ", ".join(FORMATS)
            return [
                StreamStopped(f"its format {clean(name)[:20]!r} is not one of {known}", error=True)
            ]
        ptime_ms = whole(values, "ptime") or 20
        self.ptime_ms = ptime_ms if ptime_ms in PTIMES_MS else 20
        self._payload = payload
        if name in PASSED_THROUGH:
            self.owns_clock, self.has_marks, self.has_clear = True, False, False
        else:
            frame_bytes = payload.frame_bytes(self.ptime_ms)
            self._buffers = (whole(values, "optimal_frame_size") or frame_bytes) != frame_bytes
        self._started = True
        stream_id = text(values, "connection_id")
        variables = texts(values.get("channel_variables"))
        return [
            StreamStarted(
                text(values, "channel_id") or stream_id or "asterisk",
                stream_id=stream_id,
                from_uri=variables.get("CALLERID(num)", ""),
                to_uri=variables.get("CALLERID(dnid)", ""),
                display_name=variables.get("CALLERID(name)", ""),
                payload=payload,
                parameters={"channel": text(values, "channel"), **variables},
            )
        ]

    # --- outbound

    def audio(self, payload: bytes) -> Sequence[Message]:
        return tuple(
            payload[at : at + MAX_MESSAGE_BYTES]
            for at in range(0, max(1, len(payload)), MAX_MESSAGE_BYTES)
        )

    def clear(self) -> Sequence[Message]:
        """Flush the queue; that ends the buffering, which is restarted."""
        if self.owns_clock:
            return ()
        begin = (self._command("START_MEDIA_BUFFERING"),) if self._buffers else ()
        return (self._command("FLUSH_MEDIA"), *begin)

    def mark(self, name: str) -> Sequence[Message]:
        return (self._command("MARK_MEDIA", name),)

    def answer(self) -> Sequence[Message]:
        begin = (self._command("START_MEDIA_BUFFERING"),) if self._buffers else ()
        return (self._command("ANSWER"), *begin)

    def hang_up(self) -> Sequence[Message]:
        return (self._command("HANGUP"),)

    def _command(self, name: str, correlation_id: str = "") -> str:
        if not self._json:
            return f"{name} {correlation_id}".rstrip()
        command = {"command": name}
        if correlation_id:
            command["correlation_id"] = correlation_id
        return json.dumps(command)


def _plain(message: str) -> tuple[str, dict[str, Any]]:
    name, *words = message[:MAX_MESSAGE_BYTES].split() or [""]
    values: dict[str, Any] = {}
    for word in words[:64]:
        key, colon, value = word.partition(":")
        values[key if colon else ""] = value if colon else key
    return name[:40], values


def _asterisk(name: str) -> StreamKind:
    def make(handshake: Handshake) -> ChanWebSocketAdapter:
        return ChanWebSocketAdapter()

    return StreamKind(name, make, subprotocols=(SUBPROTOCOL,))


def asterisk() -> StreamKind:
    """Return Asterisk's WebSocket channels, under the path ``/asterisk``."""
    return _asterisk("asterisk")


def chan_websocket() -> StreamKind:
    """Return Asterisk's WebSocket channels, under the path ``/chan_websocket``."""
    return _asterisk("chan_websocket")
