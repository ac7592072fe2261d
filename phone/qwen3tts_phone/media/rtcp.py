"""RTCP (RFC 3550 section 6): sender and receiver reports, CNAME and BYE, as compound packets."""

from __future__ import annotations

import random
import secrets
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from qwen3tts_phone.media.receiver import Receiver
from qwen3tts_phone.media.sender import Sender

SENDER_REPORT, RECEIVER_REPORT, DESCRIPTION, BYE, APPLICATION = 200, 201, 202, 203, 204
CNAME = 1
MOST_BYTES = 1500
MOST_PACKETS = 32
NTP_EPOCH = 2_208_988_800
"""Seconds from 1900 (NTP) to 1970."""
_HEADER = struct.Struct("!BBH")
_BLOCK = struct.Struct("!IIIIII")
_SENDER = struct.Struct("!IQIII")


class RtcpError(ValueError):
    """Datagram that is no RTCP."""


class ReportBlock(NamedTuple):
    """Reception of one stream (section 6.4.1)."""

    ssrc: int
    fraction_lost: int
    """Of 256, since the last report."""
    cumulative_lost: int
    """Signed 24 bits."""
    highest_sequence: int
    jitter: int
    """Timestamp units."""
    last_report: int
    """Middle 32 bits of the NTP time of the last sender report; 0 = none."""
    delay: int
    """Since that report, in 1/65536 s."""


class SenderReport(NamedTuple):
    """Report of a sender."""

    ssrc: int
    ntp: int
    """64 bits: seconds since 1900 and their fraction."""
    timestamp: int
    """RTP timestamp of the same instant."""
    packets: int
    octets: int
    blocks: tuple[ReportBlock, ...] = ()


class ReceiverReport(NamedTuple):
    """Report of a receiver that sends nothing."""

    ssrc: int
    blocks: tuple[ReportBlock, ...] = ()


class Description(NamedTuple):
    """Canonical names of sources (section 6.5)."""

    names: tuple[tuple[int, str], ...]


class Bye(NamedTuple):
    """BYE: sources that leave (section 6.6)."""

    ssrcs: tuple[int, ...]
    reason: str = ""


Packet = SenderReport | ReceiverReport | Description | Bye


def parse(data: bytes) -> list[Packet]:
    """Parse a compound packet.

    Raises RtcpError (sections 6.1, A.2). Unused packet types are skipped.
    """
    size = len(data)
    if not 8 <= size <= MOST_BYTES or size % 4:
        raise RtcpError(f"{size} bytes cannot be RTCP: whole words, 8 to {MOST_BYTES} bytes")
    packets: list[Packet] = []
    at = 0
    count = 0
    while at < size:
        count += 1
        if count > MOST_PACKETS:
            raise RtcpError(f"more than {MOST_PACKETS} packets in one datagram")
        if size - at < 4:
            raise RtcpError(f"{size - at} bytes are left over")
        first, kind, words = _HEADER.unpack_from(data, at)
        if first >> 6 != 2:
            raise RtcpError(f"RTCP version {first >> 6} instead of 2")
        end = at + 4 + 4 * words
        if end > size:
            raise RtcpError(f"a packet of {words + 1} words does not fit in {size - at} bytes")
        body_end = end
        if first & 0x20:
            padding = data[end - 1]
            if end != size or padding % 4 or not 0 < padding <= 4 * words:
                raise RtcpError(f"{padding} bytes of padding in a packet of {words + 1} words")
            body_end -= padding
        if count == 1 and not 192 <= kind <= 223:
            raise RtcpError(f"packet type {kind} is not RTCP's")
        parsed = _parse_one(kind, first & 0x1F, data[at + 4 : body_end])
        if parsed is not None:
            packets.append(parsed)
        at = end
    return packets


def _parse_one(kind: int, count: int, body: bytes) -> Packet | None:
    if kind == SENDER_REPORT:
        if len(body) < _SENDER.size + 24 * count:
            raise RtcpError(f"a sender report with {count} blocks in {len(body)} bytes")
        ssrc, ntp, timestamp, packets, octets = _SENDER.unpack_from(body)
        blocks = _blocks(body, _SENDER.size, count)
        return SenderReport(ssrc, ntp, timestamp, packets, octets, blocks)
    if kind == RECEIVER_REPORT:
        if len(body) < 4 + 24 * count:
            raise RtcpError(f"a receiver report with {count} blocks in {len(body)} bytes")
        return ReceiverReport(int.from_bytes(body[:4], "big"), _blocks(body, 4, count))
    if kind == DESCRIPTION:
        return _parse_description(body, count)
    if kind == BYE:
        if len(body) < 4 * count:
            raise RtcpError(f"{count} sources leave in {len(body)} bytes")
        rest = body[4 * count :]
        reason = rest[1 : 1 + rest[0]] if rest else b""
        return Bye(struct.unpack_from(f"!{count}I", body), reason.decode("utf-8", "replace"))
    return None


def _blocks(body: bytes, at: int, count: int) -> tuple[ReportBlock, ...]:
    blocks = []
    for index in range(count):
        ssrc, lost, highest, jitter, last, delay = _BLOCK.unpack_from(body, at + 24 * index)
        cumulative = lost & 0xFF_FFFF
        if cumulative >= 0x80_0000:
            cumulative -= 0x100_0000
        blocks.append(ReportBlock(ssrc, lost >> 24, cumulative, highest, jitter, last, delay))
    return tuple(blocks)


def _parse_description(body: bytes, count: int) -> Description:
    names = []
    at = 0
    for _ in range(count):
        if at + 4 > len(body):
            raise RtcpError(f"{count} described sources in {len(body)} bytes")
        ssrc = int.from_bytes(body[at : at + 4], "big")
        at += 4
        while True:
            if at >= len(body):
                raise RtcpError("a source's description does not end")
            item = body[at]
            if item == 0:  # ends the chunk, which is filled up to a whole word
                at += 4 - at % 4
                break
            if at + 2 > len(body) or at + 2 + body[at + 1] > len(body):
                raise RtcpError("a source's description is cut off")
            text = body[at + 2 : at + 2 + body[at + 1]]
            if item == CNAME:
                names.append((ssrc, text.decode("utf-8", "replace")))
            at += 2 + len(text)
    return Description(tuple(names))


def build(packets: Sequence[Packet]) -> bytes:
    """Build a compound packet; a report should come first (section 6.1)."""
    return b"".join(_build_one(packet) for packet in packets)


def _build_one(packet: Packet) -> bytes:
    if isinstance(packet, SenderReport):
        body = _SENDER.pack(*packet[:5]) + _build_blocks(packet.blocks)
        return _framed(SENDER_REPORT, len(packet.blocks), body)
    if isinstance(packet, ReceiverReport):
        body = struct.pack("!I", packet.ssrc) + _build_blocks(packet.blocks)
        return _framed(RECEIVER_REPORT, len(packet.blocks), body)
    if isinstance(packet, Description):
        return _framed(
            DESCRIPTION,
            len(packet.names),
            b"".join(_build_name(ssrc, name) for ssrc, name in packet.names),
        )
    body = struct.pack(f"!{len(packet.ssrcs)}I", *packet.ssrcs)
    if packet.reason:
        reason = packet.reason.encode()[:255]
        body += bytes([len(reason)]) + reason
        body += bytes(-len(body) % 4)
    return _framed(BYE, len(packet.ssrcs), body)


def _build_name(ssrc: int, name: str) -> bytes:
    text = name.encode()[:255]
    chunk = struct.pack("!IBB", ssrc, CNAME, len(text)) + text
    return chunk + bytes(4 - len(chunk) % 4)  # at least one zero ends it


def _build_blocks(blocks: Sequence[ReportBlock]) -> bytes:
    if len(blocks) > 31:
        raise RtcpError(f"{len(blocks)} report blocks; at most 31 fit")
    return b"".join(
        _BLOCK.pack(
            block.ssrc,
            block.fraction_lost << 24 | block.cumulative_lost & 0xFF_FFFF,
            block.highest_sequence,
            block.jitter,
            block.last_report,
            block.delay,
        )
        for block in blocks
    )


def _framed(kind: int, count: int, body: bytes) -> bytes:
    return _HEADER.pack(2 << 6 | count, kind, len(body) // 4) + body


def ntp_time(unix_s: float) -> int:
    """Return the 64-bit NTP time of a wall clock time (section 4)."""
    return int((unix_s + NTP_EPOCH) * (1 << 32)) & 0xFFFF_FFFF_FFFF_FFFF


def middle(ntp: int) -> int:
    return ntp >> 16 & 0xFFFF_FFFF


def round_trip_s(block: ReportBlock, now_middle: int) -> float | None:
    """Return the round trip by a report about our stream (section 6.4.1); None = unknown."""
    if block.last_report == 0:
        return None
    ticks = (now_middle - block.last_report - block.delay) % (1 << 32)
    return ticks / 65536 if ticks < 1 << 24 else None  # beyond 256 s: a clock that went backwards


class Reporter:
    """Builds and reads reports (RFC 3550 section 6); times in seconds of CLOCK_MONOTONIC."""

    def __init__(self, sender: Sender, receiver: Receiver, interval_s: float, now: float) -> None:
        self._sender = sender
        self._receiver = receiver
        self._interval = interval_s
        # RFC 7022: a name that is random and lasts as long as the call.
        self.cname = secrets.token_urlsafe(12)
        self.next_at = now + self._spread() / 2 if interval_s else float("inf")
        self.sent = 0
        self.received = 0
        self.remote_lost = 0
        self.remote_fraction = 0
        self.remote_fraction_max = 0
        self.remote_jitter_s = 0.0
        self.round_trip_s: float | None = None
        self.round_trip_max_s = 0.0
        self._sent_before = 0
        self._their_report: tuple[int, float] | None = None
        """Middle NTP bits of their last sender report, and its arrival."""

    def due(self, now: float) -> bytes | None:
        if now < self.next_at:
            return None
        self.next_at = now + self._spread()
        return self.report(now)

    def report(self, now: float, bye: bool = False) -> bytes:
        """Return a compound packet: a report, the CNAME and, at the end, a BYE."""
        sender = self._sender
        blocks: tuple[ReportBlock, ...] = ()
        reception = self._receiver.reception
        if reception.received:
            figures = reception.report()
            last, delay = 0, 0
            if self._their_report is not None:
                last, came = self._their_report
                delay = max(0, int((now - came) * 65536)) & 0xFFFF_FFFF
            blocks = (ReportBlock(self._receiver.lock.ssrc, *figures, last, delay),)
        first: SenderReport | ReceiverReport
        if sender.sent > self._sent_before:  # section 6.4: a sender since the last report
            first = SenderReport(
                sender.ssrc,
                ntp_time(time.time()),
                sender.timestamp_at(now),
                sender.sent - sender.sent_before & 0xFFFF_FFFF,
                sender.octets - sender.octets_before & 0xFFFF_FFFF,
                blocks,
            )
        else:
            first = ReceiverReport(sender.ssrc, blocks)
        self._sent_before = sender.sent
        packets: list[Packet] = [first, Description(((sender.ssrc, self.cname),))]
        if bye:
            packets.append(Bye((sender.ssrc,)))
        self.sent += 1
        return build(packets)

    def take(self, data: bytes, at: float) -> bool:
        """Take a compound packet; return whether it is a BYE of their stream. Raises RtcpError."""
        packets = parse(data)
        self.received += 1
        bye = False
        for packet in packets:
            if isinstance(packet, SenderReport):
                self._their_report = (middle(packet.ntp), at)
            if isinstance(packet, SenderReport | ReceiverReport):
                for block in packet.blocks:
                    if block.ssrc == self._sender.ssrc:
                        self._reported(block)
            elif isinstance(packet, Bye):
                bye = bye or self._receiver.lock.ssrc in packet.ssrcs
        return bye

    def _reported(self, block: ReportBlock) -> None:
        self.remote_lost = max(0, block.cumulative_lost)
        self.remote_fraction = block.fraction_lost
        self.remote_fraction_max = max(self.remote_fraction_max, block.fraction_lost)
        self.remote_jitter_s = block.jitter / self._sender.clock_hz
        now_middle = middle(ntp_time(time.time()))
        round_trip = round_trip_s(block, now_middle)
        if round_trip is not None:
            self.round_trip_s = round_trip
            self.round_trip_max_s = max(self.round_trip_max_s, round_trip)

    def _spread(self) -> float:
        """Return 0.5 to 1.5 intervals: reports are not synchronised (RFC 3550 section 6.2)."""
        return self._interval * random.uniform(0.5, 1.5)
