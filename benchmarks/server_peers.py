"""Lean clients: they note when bytes came before they look at them, and cost little themselves."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import struct
import time
from dataclasses import dataclass, field

from server_engines import stamps

HEADER_BYTES = 16
"""Before the samples of a binary message of our own protocol."""
_LENGTH = struct.Struct("<I")


@dataclass
class Heard:
    """One utterance; times are nanoseconds of the monotonic clock."""

    asked: int = field(default_factory=time.monotonic_ns)
    chunks: list[tuple[int, int, int]] = field(default_factory=list)
    """Times of each chunk: request at the engine, output of the engine, arrival."""
    arrivals: list[tuple[int, int]] = field(default_factory=list)
    """Arrival time and bytes of each message with audio."""
    ended: str | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def sound(self, data: bytes, now: int) -> None:
        """Sound came."""
        self.arrivals.append((now, len(data)))
        stamped = stamps(data)
        if stamped is not None:
            self.chunks.append((*stamped, now))

    def end(self, how: str) -> None:
        """No more of it comes."""
        if self.ended is None:
            self.ended = how
            self.done.set()

    def first_added_ms(self) -> float | None:
        """From asking to the first sound, without what the engine took for it."""
        if not self.chunks:
            return None
        begun, given, came = self.chunks[0]
        return (begun - self.asked + came - given) / 1e6

    def chunk_ms(self) -> list[float]:
        """From the engine to here, for each chunk but the first."""
        return [(came - given) / 1e6 for _, given, came in self.chunks[1:]]


class BarePeer(asyncio.Protocol):
    """One request at a time over a plain socket to the bare engine."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._heard: Heard | None = None

    @classmethod
    async def connect(cls, port: int) -> BarePeer:
        """A connection."""
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(cls, "127.0.0.1", port)
        return peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def speak(self, text: str, voice: str | None) -> Heard:
        """Ask, and wait for the end."""
        assert self._transport is not None
        line = json.dumps({"text": text, "voice": voice}).encode() + b"\n"
        self._heard = heard = Heard()
        self._transport.write(line)
        await heard.done.wait()
        return heard

    def data_received(self, data: bytes) -> None:
        """Chunks."""
        now = time.monotonic_ns()
        self._buffer += data
        while len(self._buffer) >= 4 and self._heard is not None:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if len(self._buffer) < 4 + length:
                return
            if length:
                self._heard.sound(bytes(self._buffer[4 : 4 + length]), now)
            else:
                self._heard.end("done")
            del self._buffer[: 4 + length]

    def close(self) -> None:
        """Leave."""
        if self._transport is not None:
            self._transport.abort()


class SpeechPeer(asyncio.Protocol):
    """Our own protocol with as little as it needs (RFC 6455 section 5.2), many contexts."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.transport: asyncio.Transport | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = False
        self._count = 0
        self._contexts: dict[int, Heard] = {}
        self.lost = False
        self.after_cancel = 0
        """Frames of a context that was over."""

    @classmethod
    async def connect(cls, port: int) -> SpeechPeer:
        """A connection, once ``session.created`` is here."""
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(cls, "127.0.0.1", port)
        await peer.ready
        return peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(
            (
                "GET /v1/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                "Sec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Protocol: qwen3tts.speech.v1\r\n\r\n"
            ).encode()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone."""
        self.lost = True
        if not self.ready.done():
            self.ready.set_exception(ConnectionError("closed during the handshake"))
        for heard in self._contexts.values():
            heard.end("lost")

    # --- what is said ---

    def send(self, *messages: dict[str, object]) -> None:
        """JSON messages, in one write."""
        assert self.transport is not None
        out = bytearray()
        for message in messages:
            data = json.dumps(message).encode()
            size = len(data)
            # Masked, as a client's frames are, with a mask of zeros.
            out += bytes([0x81])
            out += bytes([0x80 | size]) if size < 126 else struct.pack(">BH", 0xFE, size)
            out += bytes(4) + data
        self.transport.write(out)

    def ask(self, text: str, voice: str | None, **options: object) -> tuple[int, Heard]:
        """Begin an utterance."""
        self._count += 1
        number, name = self._count, f"c{self._count}"
        opened = {"type": "context.open", "context_id": name, "context_no": number, **options}
        if voice is not None:
            opened["voice"] = voice
        self._contexts[number] = heard = Heard()
        self.send(
            opened,
            {"type": "text.append", "context_id": name, "text": text},
            {"type": "text.end", "context_id": name},
        )
        return number, heard

    async def speak(self, text: str, voice: str | None) -> Heard:
        """Ask, and wait for the end."""
        _, heard = self.ask(text, voice, window_ms=60_000)
        await heard.done.wait()
        return heard

    def cancel(self, number: int) -> None:
        """Say no more of it."""
        self.send({"type": "context.cancel", "context_id": f"c{number}"})

    def pause(self) -> None:
        """Read nothing more."""
        assert self.transport is not None
        self.transport.pause_reading()

    def close(self) -> None:
        """Leave without a word."""
        if self.transport is not None:
            self.transport.abort()

    # --- what is heard ---

    def data_received(self, data: bytes) -> None:
        """Frames."""
        now = time.monotonic_ns()
        buffer = self._buffer
        buffer += data
        if not self._open:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            if b" 101 " not in buffer[:16]:
                self.ready.set_exception(ConnectionError(bytes(buffer[:end]).decode()))
                return
            del buffer[: end + 4]
            self._open = True
        at = 0
        while len(buffer) - at >= 2:
            size, head = buffer[at + 1] & 0x7F, 2
            if size == 126:
                head = 4
                size = int.from_bytes(buffer[at + 2 : at + 4])
            elif size == 127:
                head = 10
                size = int.from_bytes(buffer[at + 2 : at + 10])
            if len(buffer) - at < head + size:
                break
            self._frame(buffer[at] & 0x0F, bytes(buffer[at + head : at + head + size]), now)
            at += head + size
        del buffer[:at]

    def _frame(self, opcode: int, data: bytes, now: int) -> None:
        if opcode == 2:
            number = int.from_bytes(data[4:8], "little")
            heard = self._contexts.get(number)
            if heard is None:
                self.after_cancel += 1
            else:
                heard.sound(data[HEADER_BYTES:], now)
        elif opcode == 1:
            self._text(data)
        elif opcode == 9 and self.transport is not None:
            self.transport.write(bytes([0x8A, 0x80 | len(data)]) + bytes(4) + data)

    def _text(self, data: bytes) -> None:
        if data.startswith(b'{"type":"alignment"') or data.startswith(b'{"type":"context.started'):
            return
        message = json.loads(data)
        kind = message["type"]
        if kind == "session.created":
            if not self.ready.done():
                self.ready.set_result(None)
        elif kind in ("context.done", "context.cancelled", "error"):
            name = message.get("context_id")
            heard = self._contexts.pop(int(name[1:]), None) if name else None
            if heard is not None:
                code = message["code"] if kind == "error" else kind.removeprefix("context.")
                heard.end(code)


async def http_first(
    port: int, body: dict[str, object], accept: str
) -> tuple[float, float, float | None]:
    """Times of a new HTTP connection, in milliseconds.

    To connect, from then to the first audio, and that without the engine's time.
    """
    began = time.monotonic_ns()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connected = time.monotonic_ns()
    data = json.dumps(body).encode()
    try:
        writer.write(
            (
                "POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                f"Accept: {accept}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(data)}\r\n\r\n"
            ).encode()
            + data
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head[:16]:
            raise ConnectionError(head.split(b"\r\n")[0].decode("ascii", "replace"))
        got = b""
        while not (sound := _first_sound(got)):
            more = await reader.read(1 << 16)
            if not more:
                raise ConnectionError("no sound came")
            got += more
        came = time.monotonic_ns()
        while await reader.read(1 << 16):
            pass
    finally:
        writer.close()
    stamped = stamps(sound)
    own = None if stamped is None else (stamped[0] - connected + came - stamped[1]) / 1e6
    return (connected - began) / 1e6, (came - connected) / 1e6, own


def _first_sound(got: bytes) -> bytes:
    """The samples that a body begins with, after its chunk's length or within its first event."""
    event = re.search(rb'"audio": ?"([A-Za-z0-9+/=]{64,})"', got)
    if event is not None:
        return base64.b64decode(event[1])
    _, _, sound = got.partition(b"\r\n")
    return sound if len(sound) >= 64 and not sound.startswith((b"data:", b"event:")) else b""
