"""The far end of a call's media, on the loopback: what a test sends and what it hears."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from qwen3tts_pacer import Frame
from qwen3tts_phone.media import rtp, srtp
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.rtp import RtpPacket
from qwen3tts_phone.media.srtp import SrtpDecryptor, SrtpEncryptor
from qwen3tts_phone.media.stats import LegStats
from qwen3tts_phone.media.types import RemoteMedia
from qwen3tts_phone.sdp.crypto import SrtpKey

SILENCE = b"\xff" * 160
HEAD, TAIL = b"\xfd", b"\xfe"
"""First byte of the faded variants of a frame."""
PATIENCE_S = 10.0
"""No wait in these tests is longer."""


class Peer:
    """A phone's RTP and RTCP sockets; with keys it encrypts (``send``) and decrypts (``hear``)."""

    def __init__(
        self, host: str = "127.0.0.1", *, send: SrtpKey | None = None, hear: SrtpKey | None = None
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.host = host
        self._rtp = socket.socket(family, socket.SOCK_DGRAM)
        self._rtcp = socket.socket(family, socket.SOCK_DGRAM)
        for sock in (self._rtp, self._rtcp):
            sock.bind((host, 0))
            sock.setblocking(False)
        self.change_keys(send, hear)
        self.port: int = self._rtp.getsockname()[1]
        self.rtcp_port: int = self._rtcp.getsockname()[1]
        self.ssrc = 0x1234
        self.sequence = 65530
        self.timestamp = 2**32 - 800
        self._leg = (host, 0)
        self._patient_until = time.monotonic() + 3 * PATIENCE_S

    def media(self, **changes: object) -> RemoteMedia:
        """What the far end agreed to."""
        fields = {"telephone_event_pt": 101, "rtcp_port": self.rtcp_port, **changes}
        return RemoteMedia(self.host, self.port, **fields)  # type: ignore[arg-type]

    def change_keys(self, send: SrtpKey | None, hear: SrtpKey | None) -> None:
        """Encrypt and decrypt with these from now on."""
        if send is not None or hear is not None:
            srtp.load()
        self._encryptor = None if send is None else SrtpEncryptor(send)
        self._decryptor = None if hear is None else SrtpDecryptor(hear)

    def dial(self, leg: MediaLeg) -> None:
        """Send to this leg from now on."""
        self._leg = (self.host, leg.local_port)

    def say(self, payload: bytes = b"\x11" * 160, *, payload_type: int = 0, **changes: int) -> None:
        """Send the next packet of the stream."""
        packet = RtpPacket(
            payload_type,
            changes.get("sequence", self.sequence),
            changes.get("timestamp", self.timestamp),
            changes.get("ssrc", self.ssrc),
            payload,
        )
        data = rtp.build(packet)
        self.raw(data if self._encryptor is None else self._encryptor.protect(data))
        self.sequence = (self.sequence + 1) % 65536
        self.timestamp = (self.timestamp + 160) % 2**32

    def raw(self, data: bytes) -> None:
        """Send any bytes to the RTP port."""
        self._rtp.sendto(data, self._leg)

    def raw_report(self, data: bytes) -> None:
        """Send any bytes to the RTCP port."""
        if self._encryptor is not None:
            data = self._encryptor.protect_rtcp(data)
        self._rtcp.sendto(data, (self._leg[0], self._leg[1] + 1))

    async def hear(self) -> RtpPacket:
        """The next packet that comes."""
        data = await self._receive(self._rtp)
        if self._decryptor is not None:
            data = self._decryptor.unprotect(data, time.monotonic()) or b""
        return rtp.parse(data)

    async def hear_many(self, count: int) -> list[RtpPacket]:
        """The next packets that come."""
        return [await self.hear() for _ in range(count)]

    async def ticks(self, count: int) -> None:
        """Let as many slots pass as packets come from now on."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._rtp.recv(4096)
        await self.hear_many(count)

    async def hear_speech(self) -> RtpPacket:
        """The next packet that is not silence."""
        while (packet := await self.hear()).payload == SILENCE:
            pass
        return packet

    async def hear_jump(self, heard: list[RtpPacket], slots: int) -> None:
        """Add what comes to ``heard``, up to the packet after a break of so many slots."""
        while len(heard) < 2 or jump(heard[-2], heard[-1]) < slots:
            heard.append(await self.hear())

    async def hear_report(self) -> bytes:
        """The next datagram on the RTCP port."""
        data = await self._receive(self._rtcp)
        if self._decryptor is not None:
            data = self._decryptor.unprotect_rtcp(data, time.monotonic()) or b""
        return data

    def hang_up(self) -> None:
        """Close the sockets: the ports refuse what comes now."""
        self._rtp.close()
        self._rtcp.close()

    async def _receive(self, sock: socket.socket) -> bytes:
        if time.monotonic() > self._patient_until:
            raise TimeoutError("packets came, but what the test waits for was not among them")
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.get_running_loop().sock_recv(sock, 4096)


def speech(count: int, *, context: int = 1, first: int = 0) -> list[Frame]:
    """Frames that can be told apart: the payload is the number, tail and head are marked."""
    frames = []
    for number in range(first, first + count):
        body = (number % 200).to_bytes(1, "big")
        tail, head = TAIL + body * 159, HEAD + body * 159
        frames.append(Frame(body * 160, tail, head, context, number * 480, number * 480 + 480))
    return frames


def jump(earlier: RtpPacket, later: RtpPacket) -> float:
    """Slots of 20 ms from one packet to another, by their timestamps."""
    return (later.timestamp - earlier.timestamp) % 2**32 / 160


def numbers(packets: Sequence[RtpPacket]) -> list[int]:
    """The numbers of the speech frames among the packets, faded in or not."""
    return [
        packet.payload[1]
        for packet in packets
        if packet.payload[:1] != TAIL and packet.payload != SILENCE
    ]


Kind = TypeVar("Kind")


async def event_of(leg: MediaLeg, kind: type[Kind]) -> Kind:
    """The next event of that kind; others before it are passed over."""
    async with asyncio.timeout(PATIENCE_S):
        async for event in leg.events:
            if isinstance(event, kind):
                return event
    raise AssertionError(f"the leg ended without {kind.__name__}")


async def until(leg: MediaLeg, holds: Callable[[LegStats], bool]) -> LegStats:
    """The first figures of which this holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds(stats := await leg.measure()):
            pass
    return stats
