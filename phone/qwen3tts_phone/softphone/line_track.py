"""The sending end of a call in the browser: frames of the pacer, handed to aiortc as packets.

aiortc sends a packet as it is, when it has it: no clock and no encoder of its own are in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from fractions import Fraction
from typing import Any

from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from av.packet import Packet

MOST = 10
"""Packets that may wait for the sender; the oldest go first. It takes each as it comes."""


class LineTrack(MediaStreamTrack):
    """One call's.

    Args:
        frame_ticks: how far the RTP timestamp moves in a frame.
        clock_hz: rate of the RTP timestamp.
    """

    kind = "audio"

    def __init__(self, frame_ticks: int, clock_hz: int) -> None:
        super().__init__()
        self.overrun = 0
        """Packets that the sender was too slow to take."""
        self._frame_ticks = frame_ticks
        self._time_base = Fraction(1, clock_hz)
        self._timestamp = 0
        self._packets: deque[Packet[Any]] = deque()
        self._news = asyncio.Event()

    def put(self, payload: bytes, ticks: int) -> None:
        """A frame to send now; ``ticks`` is how many frames have passed since the last one."""
        self._timestamp += ticks * self._frame_ticks
        if self.readyState != "live":
            return
        packet = Packet(payload)
        packet.pts = self._timestamp
        packet.time_base = self._time_base
        self._packets.append(packet)
        if len(self._packets) > MOST:
            self._packets.popleft()
            self.overrun += 1
        self._news.set()

    async def recv(self) -> Packet[Any]:
        """The next packet, as soon as there is one. Raises MediaStreamError at the end."""
        while not self._packets:
            if self.readyState != "live":
                raise MediaStreamError
            self._news.clear()
            await self._news.wait()
        return self._packets.popleft()

    def stop(self) -> None:
        """No more packets."""
        self._packets.clear()
        super().stop()
        self._news.set()
