"""RTP packets (RFC 3550 section 5.1), and timestamps that wrap."""

from __future__ import annotations

import struct
from typing import NamedTuple

RTP_VERSION = 2
HEADER_BYTES = 12
"""Fixed header, without contributing sources and extension."""
HEADER = struct.Struct("!BBHII")
"""Version and flags, marker and payload type, sequence, timestamp, SSRC."""
FIRST_BYTE = RTP_VERSION << 6
MARKER = 0x80
SEQUENCE_MODULO = 1 << 16
TIMESTAMP_MODULO = 1 << 32


class RtpError(ValueError):
    """Datagram that is no RTP."""


class RtpPacket(NamedTuple):
    """RTP packet, without padding."""

    payload_type: int
    """0 to 127 (RFC 3551 section 6)."""
    sequence: int
    """16 bits, one more for each packet."""
    timestamp: int
    """32 bits, in ticks of the payload's clock."""
    ssrc: int
    """32 bits; identifies the stream."""
    payload: bytes
    marker: bool = False
    csrcs: tuple[int, ...] = ()
    """Contributing sources, at most 15."""
    extension: tuple[int, bytes] | None = None
    """The profile's 16 bits and the extension's words (section 5.3.1)."""


def parse(data: bytes | memoryview) -> RtpPacket:
    """Parse one datagram. Raises RtpError (sections 5.1, A.1)."""
    size = len(data)
    if size < HEADER_BYTES:
        raise RtpError(f"{size} bytes are too few for the 12 of an RTP header")
    first, second, sequence, timestamp, ssrc = HEADER.unpack_from(data)
    if first >> 6 != RTP_VERSION:
        raise RtpError(f"RTP version {first >> 6} instead of 2")
    if first == FIRST_BYTE:  # no padding, extension or contributing source: nearly every packet
        return RtpPacket(
            second & 0x7F, sequence, timestamp, ssrc, bytes(data[HEADER_BYTES:]), second >= MARKER
        )
    start, end = HEADER_BYTES, size
    csrcs: tuple[int, ...] = ()
    if count := first & 0x0F:
        start += 4 * count
        if start > size:
            raise RtpError(f"{count} contributing sources do not fit in {size} bytes")
        csrcs = struct.unpack_from(f"!{count}I", data, HEADER_BYTES)
    extension: tuple[int, bytes] | None = None
    if first & 0x10:
        if start + 4 > size:
            raise RtpError("the header extension is cut off")
        profile, words = struct.unpack_from("!HH", data, start)
        start += 4
        if start + 4 * words > size:
            raise RtpError(f"a header extension of {words} words does not fit in {size} bytes")
        extension = (profile, bytes(data[start : start + 4 * words]))
        start += 4 * words
    if first & 0x20:
        padding = data[size - 1] if end > start else 0
        if not 0 < padding <= end - start:
            raise RtpError(f"{padding} bytes of padding in {end - start} bytes of payload")
        end -= padding
    return RtpPacket(
        second & 0x7F,
        sequence,
        timestamp,
        ssrc,
        bytes(data[start:end]),
        second >= MARKER,
        csrcs,
        extension,
    )


def build(packet: RtpPacket, padding: int = 0) -> bytes:
    """Build one packet; ``padding`` is the bytes to add (0 to 255), the count included."""
    if not 0 <= packet.payload_type <= 0x7F:
        raise RtpError(f"payload type {packet.payload_type} is not within 0 to 127")
    if len(packet.csrcs) > 15:
        raise RtpError(f"{len(packet.csrcs)} contributing sources; at most 15 fit")
    if not 0 <= padding <= 255:
        raise RtpError(f"{padding} bytes of padding; at most 255 fit")
    first = FIRST_BYTE | len(packet.csrcs)
    parts = [struct.pack("!I", csrc % TIMESTAMP_MODULO) for csrc in packet.csrcs]
    if packet.extension is not None:
        profile, body = packet.extension
        if len(body) % 4 or len(body) > 4 * 0xFFFF:
            raise RtpError(f"a header extension of {len(body)} bytes is not whole words")
        first |= 0x10
        parts.append(struct.pack("!HH", profile & 0xFFFF, len(body) // 4) + body)
    parts.append(packet.payload)
    if padding:
        first |= 0x20
        parts.append(bytes(padding - 1) + bytes([padding]))
    header = HEADER.pack(
        first,
        packet.payload_type | (MARKER if packet.marker else 0),
        packet.sequence % SEQUENCE_MODULO,
        packet.timestamp % TIMESTAMP_MODULO,
        packet.ssrc % TIMESTAMP_MODULO,
    )
    return header + b"".join(parts)


def is_rtcp(data: bytes | memoryview) -> bool:
    """Return whether a datagram of a shared port is RTCP (RFC 5761 section 4.

    Packet types 192 to 223).
    """
    return len(data) >= 2 and data[0] >> 6 == RTP_VERSION and 192 <= data[1] <= 223


def timestamp_delta(later: int, earlier: int) -> int:
    """Return the ticks from ``earlier`` to ``later``, -2**31 to 2**31 - 1."""
    return (later - earlier + 0x8000_0000) % TIMESTAMP_MODULO - 0x8000_0000


class Unwrapper:
    """Unwraps 32-bit timestamps, each to the value nearest to the last."""

    def __init__(self) -> None:
        self._last: int | None = None

    def unwrap(self, timestamp: int) -> int:
        if self._last is None:
            self._last = timestamp
        else:
            self._last += timestamp_delta(timestamp, self._last % TIMESTAMP_MODULO)
        return self._last

    def reset(self) -> None:
        self._last = None
