"""One call's RTCP: what we tell of our stream and of theirs, and what they tell of ours."""

from __future__ import annotations

import random
import secrets
import time

from qwen3tts_phone.media import rtcp
from qwen3tts_phone.media.receiver import Receiver
from qwen3tts_phone.media.rtcp import Bye, Description, ReceiverReport, ReportBlock, SenderReport
from qwen3tts_phone.media.sender import Sender


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
        """Middle of the NTP time of their last sender report, and when it came."""

    def due(self, now: float) -> bytes | None:
        """The report to send now, or None."""
        if now < self.next_at:
            return None
        self.next_at = now + self._spread()
        return self.report(now)

    def report(self, now: float, bye: bool = False) -> bytes:
        """A compound packet: a report, the name and, at the end, a goodbye."""
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
                rtcp.ntp_time(time.time()),
                sender.timestamp_at(now),
                sender.sent - sender.sent_before & 0xFFFF_FFFF,
                sender.octets - sender.octets_before & 0xFFFF_FFFF,
                blocks,
            )
        else:
            first = ReceiverReport(sender.ssrc, blocks)
        self._sent_before = sender.sent
        packets: list[rtcp.Packet] = [first, Description(((sender.ssrc, self.cname),))]
        if bye:
            packets.append(Bye((sender.ssrc,)))
        self.sent += 1
        return rtcp.build(packets)

    def take(self, data: bytes, at: float) -> bool:
        """Read a compound packet (`RtcpError` when it is none); True = their stream ends."""
        packets = rtcp.parse(data)
        self.received += 1
        bye = False
        for packet in packets:
            if isinstance(packet, SenderReport):
                self._their_report = (rtcp.middle(packet.ntp), at)
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
        now_middle = rtcp.middle(rtcp.ntp_time(time.time()))
        round_trip = rtcp.round_trip_s(block, now_middle)
        if round_trip is not None:
            self.round_trip_s = round_trip
            self.round_trip_max_s = max(self.round_trip_max_s, round_trip)

    def _spread(self) -> float:
        """Half to one and a half of the interval, so that reports do not march in step (6.2)."""
        return self._interval * random.uniform(0.5, 1.5)
