"""The receiving end of a call in the browser: packets as they come, past aiortc's own buffer.

aiortc's receiver holds four packets before it decodes one, in a thread of its own, and 16 for good
after the first one that is lost: up to a third of a second by which a caller who cuts in would be
heard late. This one stands in its place at the DTLS transport; it also sends the reports that a
sender measures its round trip by (RFC 3550 section 6.4).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable

from aiortc.rtcrtpparameters import RTCRtpReceiveParameters
from aiortc.rtcrtptransceiver import RTCRtpTransceiver
from aiortc.rtp import AnyRtcpPacket, RtcpReceiverInfo, RtcpRrPacket, RtcpSrPacket, RtpPacket

from qwen3tts_phone.media.reception import ReportFigures
from qwen3tts_phone.softphone.remote_sound import SoundPacket

Reporter = Callable[[], tuple[int, ReportFigures] | None]
"""The stream that is listened to and how it fares since it was asked last; None = none is."""


class PacketReceiver:
    """One call's.

    Args:
        transceiver: whose receiver it takes the place of, before the connection is made.
        take: is given each packet of sound as it comes.
        report: is asked once a second or so.
    """

    def __init__(
        self,
        transceiver: RTCRtpTransceiver,
        take: Callable[[SoundPacket], None],
        report: Reporter,
    ) -> None:
        self._transceiver = transceiver
        self._take = take
        self._report = report
        self._task: asyncio.Task[None] | None = None
        self._sender_report: tuple[int, float] | None = None  # middle bits of its time, and when
        self._registered = False
        receiver = transceiver.receiver
        # The connection calls these two once it is made, and at its end.
        receiver.receive = self.receive  # type: ignore[method-assign]
        receiver.stop = self.stop  # type: ignore[method-assign]

    async def receive(self, parameters: RTCRtpReceiveParameters) -> None:
        """The connection is made: packets come from now on."""
        if self._registered:
            return
        self._registered = True
        transport = self._transceiver.receiver.transport
        transport._register_rtp_receiver(self, parameters)
        self._task = asyncio.create_task(self._run(), name="reports to the browser")

    async def stop(self) -> None:
        """No more packets. Harmless when there never were any."""
        if self._registered:
            self._transceiver.receiver.transport._unregister_rtp_receiver(self)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- what aiortc's transport calls

    async def _handle_rtp_packet(self, packet: RtpPacket, arrival_time_ms: int) -> None:
        self._take(
            SoundPacket(
                packet.ssrc,
                packet.sequence_number,
                packet.timestamp,
                packet.payload_type,
                packet.payload,
                bool(packet.marker),
            )
        )

    async def _handle_rtcp_packet(self, packet: AnyRtcpPacket) -> None:
        if isinstance(packet, RtcpSrPacket):
            middle = packet.sender_info.ntp_timestamp >> 16 & 0xFFFFFFFF
            self._sender_report = (middle, time.monotonic())

    def _handle_disconnect(self) -> None:
        """The connection is over; `stop` follows."""

    # --- inside

    async def _run(self) -> None:
        while True:
            # RFC 3550 section 6.2: spread, so that the reports of many do not come together.
            await asyncio.sleep(0.5 + random.random())
            told = self._report()
            if told is None:
                continue
            packet = RtcpRrPacket(ssrc=self._transceiver.sender._ssrc, reports=[self._block(*told)])
            with contextlib.suppress(ConnectionError):
                await self._transceiver.receiver.transport._send_rtp(bytes(packet))

    def _block(self, ssrc: int, figures: ReportFigures) -> RtcpReceiverInfo:
        last, delay = 0, 0.0
        if self._sender_report is not None:
            last, at = self._sender_report
            delay = time.monotonic() - at
        return RtcpReceiverInfo(
            ssrc=ssrc,
            fraction_lost=figures.fraction_lost,
            packets_lost=figures.cumulative_lost,
            highest_sequence=figures.highest_sequence,
            jitter=figures.jitter,
            lsr=last,
            dlsr=min(int(delay * 65536), 0xFFFFFFFF),
        )
