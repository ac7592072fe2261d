"""WebRTC connection with a browser (aiortc).

aiortc's receiver delays barge-in by up to a third of a second (four packets before it decodes one,
16 after the first loss). `RtpReceiver` replaces it, and sends receiver reports (RFC 3550 section
6.4).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from aiortc import (
    RTCConfiguration,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from aiortc.rtcrtpparameters import RTCRtpReceiveParameters
from aiortc.rtcrtptransceiver import RTCRtpTransceiver
from aiortc.rtp import AnyRtcpPacket, RtcpReceiverInfo, RtcpRrPacket, RtcpSrPacket, RtpPacket
from av.packet import Packet

from qwen3tts_phone.errors import BadSdp, CallError
from qwen3tts_phone.media.receiver import ReportFigures
from qwen3tts_phone.softphone.webrtc.media import AudioPacket
from qwen3tts_phone.softphone.webrtc.offer import RELOAD, Offer, OfferedCodec
from qwen3tts_phone.softphone.webrtc.settings import WebRtcSettings
from qwen3tts_phone.softphone.webrtc.statistics import RemoteStatistics
from qwen3tts_wire.errors import log_text

MAX_WAITING_PACKETS = 10


class PacketTrack(MediaStreamTrack):
    """Track of encoded packets, sent without aiortc's clock and encoder.

    ``frame_ticks``: RTP ticks a frame; ``clock_hz``: rate of the RTP clock.
    """

    kind = "audio"

    def __init__(self, frame_ticks: int, clock_hz: int) -> None:
        super().__init__()
        self.overrun = 0
        self._frame_ticks = frame_ticks
        self._time_base = Fraction(1, clock_hz)
        self._timestamp = 0
        self._packets: deque[Packet[Any]] = deque()
        self._news = asyncio.Event()

    def put(self, payload: bytes, ticks: int) -> None:
        self._timestamp += ticks * self._frame_ticks
        if self.readyState != "live":
            return
        packet = Packet(payload)
        packet.pts = self._timestamp
        packet.time_base = self._time_base
        self._packets.append(packet)
        if len(self._packets) > MAX_WAITING_PACKETS:
            self._packets.popleft()
            self.overrun += 1
        self._news.set()

    async def recv(self) -> Packet[Any]:
        while not self._packets:
            if self.readyState != "live":
                raise MediaStreamError
            self._news.clear()
            await self._news.wait()
        return self._packets.popleft()

    def stop(self) -> None:
        self._packets.clear()
        super().stop()
        self._news.set()


Reporter = Callable[[], tuple[int, ReportFigures] | None]


class RtpReceiver:
    """Replacement of a transceiver's receiver; ``report`` is called each second."""

    def __init__(
        self,
        transceiver: RTCRtpTransceiver,
        take: Callable[[AudioPacket], None],
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
        if self._registered:
            return
        self._registered = True
        transport = self._transceiver.receiver.transport
        transport._register_rtp_receiver(self, parameters)
        self._task = asyncio.create_task(self._run(), name="reports to the browser")

    async def stop(self) -> None:
        if self._registered:
            self._transceiver.receiver.transport._unregister_rtp_receiver(self)
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- called by aiortc's transport

    async def _handle_rtp_packet(self, packet: RtpPacket, arrival_time_ms: int) -> None:
        self._take(
            AudioPacket(
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

    def _handle_disconnect(self) -> None: ...

    async def _run(self) -> None:
        while True:
            # Randomised as in RFC 3550 section 6.2.
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


logger = logging.getLogger(__name__)

CLOSE_S = 5.0
_COMPLETE = re.compile(r"^a=end-of-candidates[^\n]*\n?", re.MULTILINE)
_FORMATS = re.compile(r"^m=audio \d+ \S+ (\d+)", re.MULTILINE)


class Peer:
    def __init__(
        self,
        connection: RTCPeerConnection,
        transceiver: RTCRtpTransceiver,
        clock_hz: int,
        changed: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._transceiver = transceiver
        self._clock_hz = clock_hz
        self._changed = changed
        self.answer_sdp = ""
        connection.on("connectionstatechange", self._state_changed)

    @classmethod
    async def answering(
        cls,
        offer: Offer,
        codec: OfferedCodec,
        track: PacketTrack,
        settings: WebRtcSettings,
        *,
        take: Callable[[AudioPacket], None],
        report: Reporter,
        changed: Callable[[str], None],
    ) -> Peer:
        """Answer an offer; it connects once the browser has ``answer_sdp``.

        ``changed`` gets the connection's states: ``connected``, ``failed``, ``closed``.

        Raises BadSdp (aiortc cannot use the offer), CallError (no address that a browser could
        reach).
        """
        # Without a list aiortc would use a public STUN server.
        servers = [
            RTCIceServer(each.url, each.username or None, each.credential or None)
            for each in settings.ice_servers
        ]
        connection = RTCPeerConnection(RTCConfiguration(iceServers=servers))
        try:
            direction = "sendrecv" if offer.sends else "sendonly"
            transceiver = connection.addTransceiver(track, direction)
            transceiver.setCodecPreferences(
                [
                    each
                    for each in RTCRtpSender.getCapabilities("audio").codecs
                    if each.mimeType.lower() == f"audio/{codec.name.lower()}"
                ]
            )
            RtpReceiver(transceiver, take, report)
            peer = cls(connection, transceiver, codec.payload().clock_hz, changed)
            await peer._agree(offer, codec)
        except BaseException:
            await _close(connection)
            track.stop()
            raise
        return peer

    async def figures(self) -> RemoteStatistics:
        packets, found = 0, RemoteStatistics()
        for each in (await self._transceiver.sender.getStats()).values():
            if each.type == "transport":
                packets = each.packetsReceived
            elif each.type == "remote-inbound-rtp":
                found = RemoteStatistics(
                    lost=max(0, each.packetsLost),
                    fraction_lost=each.fractionLost / 256,
                    jitter_s=each.jitter / self._clock_hz,
                    round_trip_s=each.roundTripTime,
                    reported=True,
                )
        return replace(found, packets=packets)

    async def close(self) -> None:
        await _close(self._connection)

    async def _agree(self, offer: Offer, codec: OfferedCodec) -> None:
        connection = self._connection
        try:
            await connection.setRemoteDescription(RTCSessionDescription(_sdp(offer), "offer"))
            await connection.setLocalDescription(await connection.createAnswer())
        except Exception as error:  # its parser raises any exception
            logger.debug("an offer was refused: %s", log_text(repr(error)))
            raise BadSdp(
                f"The browser's offer cannot be used: {type(error).__name__}.", remedy=RELOAD
            ) from error
        self.answer_sdp = connection.localDescription.sdp
        formats = _FORMATS.search(self.answer_sdp)
        if formats is None or int(formats[1]) != codec.payload_type:
            raise BadSdp("The browser's offer names a codec twice.", remedy=RELOAD)
        if "\na=candidate:" not in self.answer_sdp:
            raise CallError(
                "This machine has no network address that a browser could reach.",
                remedy="Connect it to a network: WebRTC does not use the loopback address.",
            )

    def _state_changed(self) -> None:
        self._changed(self._connection.connectionState)


def _sdp(offer: Offer) -> str:
    """Return the offer without end-of-candidates of a browser that hides its addresses.

    Its own packets reveal it (RFC 8445 section 7.3.1.3); aiortc would not wait for them.
    """
    return _COMPLETE.sub("", offer.sdp) if offer.hidden else offer.sdp


async def _close(connection: RTCPeerConnection) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await connection.close()
    except TimeoutError:
        logger.error("a WebRTC connection did not close within %g s", CLOSE_S)
