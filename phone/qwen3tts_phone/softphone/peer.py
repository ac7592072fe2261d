"""One WebRTC connection with a browser, as the side that answers its offer (aiortc)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import replace

from aiortc import (
    RTCConfiguration,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.rtcrtptransceiver import RTCRtpTransceiver

from qwen3tts_phone.errors import BadSdp, CallError
from qwen3tts_phone.log_text import log_text
from qwen3tts_phone.softphone.line_track import LineTrack
from qwen3tts_phone.softphone.offer import RELOAD, Offer, OfferedCodec
from qwen3tts_phone.softphone.packet_receiver import PacketReceiver, Reporter
from qwen3tts_phone.softphone.remote_sound import SoundPacket
from qwen3tts_phone.softphone.settings import WebSettings
from qwen3tts_phone.softphone.web_counters import FarFigures

logger = logging.getLogger(__name__)

CLOSE_S = 5.0
"""Longest closing; it takes milliseconds."""
_COMPLETE = re.compile(r"^a=end-of-candidates[^\n]*\n?", re.MULTILINE)
_FORMATS = re.compile(r"^m=audio \d+ \S+ (\d+)", re.MULTILINE)


class Peer:
    """The connection; made by `answering`."""

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
        track: LineTrack,
        settings: WebSettings,
        *,
        take: Callable[[SoundPacket], None],
        report: Reporter,
        changed: Callable[[str], None],
    ) -> Peer:
        """Answer an offer; it connects by itself once the browser has ``answer_sdp``.

        ``changed`` is told the connection's states: ``connected``, ``failed``, ``closed``.

        Raises:
            BadSdp: the offer holds something that cannot be used.
            CallError: this machine has no address that a browser could reach.
        """
        # Without a list aiortc would ask a server of its maker's choice for our address.
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
            PacketReceiver(transceiver, take, report)
            peer = cls(connection, transceiver, codec.payload().clock_hz, changed)
            await peer._agree(offer, codec)
        except BaseException:
            await _close(connection)
            track.stop()
            raise
        return peer

    async def figures(self) -> FarFigures:
        """What has come, and what the browser's last report says."""
        packets, found = 0, FarFigures()
        for each in (await self._transceiver.sender.getStats()).values():
            if each.type == "transport":
                packets = each.packetsReceived
            elif each.type == "remote-inbound-rtp":
                found = FarFigures(
                    lost=max(0, each.packetsLost),
                    fraction_lost=each.fractionLost / 256,
                    jitter_s=each.jitter / self._clock_hz,
                    round_trip_s=each.roundTripTime,
                    reported=True,
                )
        return replace(found, packets=packets)

    async def close(self) -> None:
        """End it, and tell the browser. Harmless when it is over."""
        await _close(self._connection)

    async def _agree(self, offer: Offer, codec: OfferedCodec) -> None:
        connection = self._connection
        try:
            await connection.setRemoteDescription(RTCSessionDescription(_sdp(offer), "offer"))
            await connection.setLocalDescription(await connection.createAnswer())
        except Exception as error:  # its reader raises whatever it stumbles over
            logger.debug("an offer was not taken: %s", log_text(repr(error)))
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
    """What is answered. A browser that hides its addresses is found by its own packets (RFC 8445
    section 7.3.1.3): then its list is never complete, or aiortc would give up before they come.
    """
    return _COMPLETE.sub("", offer.sdp) if offer.hidden else offer.sdp


async def _close(connection: RTCPeerConnection) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await connection.close()
    except TimeoutError:
        logger.error("a WebRTC connection did not close within %g s", CLOSE_S)
