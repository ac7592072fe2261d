"""The outgoing half slot by slot, on a wire that only writes down what was sent."""

from __future__ import annotations

import time
from typing import Any

from qwen3tts_pacer import Frame
from qwen3tts_pacer.memory import CallMemory, ContextTable
from qwen3tts_pacer.ring import Outbound
from qwen3tts_phone.media import rtp
from qwen3tts_phone.media.rtp import RtpPacket
from qwen3tts_phone.media.sender import Sender
from qwen3tts_phone.media.types import LegSpec, RemoteMedia

SILENCE = b"\xff" * 160
REMOTE = RemoteMedia("192.0.2.1", 4000, telephone_event_pt=101)
HELD = RemoteMedia("192.0.2.1", 4000, telephone_event_pt=101, send=False)


class Wire:
    """Stands for the sockets."""

    def __init__(self) -> None:
        self.packets: list[RtpPacket] = []
        self.error: OSError | None = None

    def sendto(self, data: bytes, address: tuple[str, int]) -> int:
        if self.error is not None:
            raise self.error
        self.packets.append(rtp.parse(data))
        return len(data)

    def target(self, address: tuple[str, int]) -> tuple[str, int]:
        return address


def frame(context: int, number: int, *, position: int = 0) -> Frame:
    """Frame ``number`` of all, at place ``position`` of its context."""
    body = b"\x01" + number.to_bytes(4, "big") + bytes(155)
    start = position * 480
    return Frame(body, b"\x02" + body[1:], b"\x03" + body[1:], context, start, start + 480)


def number_of(packet: RtpPacket) -> int | None:
    """The number of the frame in a packet; None for silence, a fade or an event."""
    if packet.payload_type == 0 and packet.payload[0] in (1, 3):
        return int.from_bytes(packet.payload[1:5], "big")
    return None


class Call:
    """A sender, the ring that feeds it, and the wire."""

    def __init__(self, remote: RemoteMedia = REMOTE, **spec: Any) -> None:
        self.memory = CallMemory.create(128, 65536, 128, 4096)
        self.out = Outbound(self.memory)
        self.wire = Wire()
        self.table = ContextTable(self.memory)
        self.sender = Sender(
            self.wire,  # type: ignore[arg-type]
            self.memory,
            LegSpec(pinned_s=0.0, **spec),
            remote,
            time.monotonic(),
        )

    def slots(self, count: int) -> list[RtpPacket]:
        """Let slots pass; what was sent in them."""
        before = len(self.wire.packets)
        for _ in range(count):
            self.sender.slot()
            self.sender.prepare()
        return self.wire.packets[before:]


def kinds(packets: list[RtpPacket]) -> list[int]:
    """First bytes: 1 frame, 2 its fade, 3 the frame faded in, 255 silence."""
    return [packet.payload[0] for packet in packets]
