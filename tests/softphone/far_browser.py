"""The browser's end of a call, played by aiortc: it offers, talks, and keeps what comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from fractions import Fraction
from typing import Any

import numpy as np
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack
from aiortc.rtp import RtpPacket
from av import AudioFrame
from numpy.typing import NDArray

from qwen3tts_phone.softphone.webrtc.call import WebCall
from tests.e2e.far_ends import FRAME, Samples, Talker


class Microphone(MediaStreamTrack):
    """Frames of 20 ms as they are put in."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._frames: asyncio.Queue[Samples] = asyncio.Queue()
        self._place = 0

    def put(self, samples: Samples) -> None:
        self._frames.put_nowait(samples)

    async def recv(self) -> Any:
        if self.readyState != "live":
            raise MediaStreamError
        samples = await self._frames.get()
        # As a browser's: mono is made stereo by aiortc's encoder 3 dB below what it was.
        both = np.repeat(samples, 2).reshape(1, -1)
        frame = AudioFrame.from_ndarray(both, format="s16", layout="stereo")
        frame.sample_rate = 8000
        frame.pts, frame.time_base = self._place, Fraction(1, 8000)
        self._place += FRAME
        return frame


class FarBrowser(Talker):
    """One connection. ``call`` is the call at its other end, whose page it is as well."""

    def __init__(self, *, microphone: bool = True) -> None:
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.call: WebCall | None = None
        self.frames: list[Any] = []
        """What aiortc has decoded."""
        self.packets: list[RtpPacket] = []
        """What came, as it came."""
        self.deaf = False
        """Whether packets that come are thrown away."""
        self._microphone = Microphone()
        self._mute = False
        if microphone:
            self.connection.addTransceiver(self._microphone, "sendrecv")
        else:
            self.connection.addTransceiver("audio", "recvonly")
        self.gone = asyncio.Event()
        self._more = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self.connection.on("track", self._track)
        super().__init__()

    async def offer(self) -> str:
        await self.connection.setLocalDescription(await self.connection.createOffer())
        return self.connection.localDescription.sdp

    async def connect(self, answer: str) -> None:
        receiver = self.connection.getReceivers()[0]
        handle = receiver._handle_rtp_packet

        async def kept(packet: RtpPacket, arrival_time_ms: int) -> None:
            self.packets.append(packet)
            self._more.set()
            await handle(packet, arrival_time_ms)

        receiver._handle_rtp_packet = kept  # type: ignore[method-assign]
        await self.connection.setRemoteDescription(RTCSessionDescription(answer, "answer"))

    async def until(self, packets: int) -> None:
        """So many have come."""
        while len(self.packets) < packets:
            self._more.clear()
            await self._more.wait()

    def mute(self) -> None:
        """Nothing is sent any more, not even silence."""
        self._mute = True

    def unmute(self) -> None:
        self._mute = False

    def heard(self, first: int = 0) -> NDArray[np.int16]:
        """What aiortc has decoded from frame ``first`` on, one channel at its own rate."""
        parts = []
        for frame in self.frames[first:]:
            channels = len(frame.layout.channels)
            parts.append(frame.to_ndarray().reshape(-1, channels)[:, 0])
        return np.concatenate(parts) if parts else np.zeros(0, np.int16)

    # --- a FarEnd

    async def send(self, samples: Samples) -> None:
        if not self._mute:
            self._microphone.put(samples)

    async def press(self, keys: str) -> None:
        assert self.call is not None
        for key in keys:
            self.call.pressed(key)

    async def over(self) -> None:
        await self.gone.wait()

    async def close(self) -> None:
        await super().close()
        await self.connection.close()
        if self._reading is not None:
            self._reading.cancel()  # a connection that never was does not end its track
            await asyncio.gather(self._reading, return_exceptions=True)

    # --- inside

    def _track(self, track: MediaStreamTrack) -> None:
        self._reading = asyncio.create_task(self._read(track), name="far browser")

    async def _read(self, track: MediaStreamTrack) -> None:
        with suppress(MediaStreamError):
            while True:
                self.frames.append(await track.recv())
        self.gone.set()


@asynccontextmanager
async def far_browser(*, microphone: bool = True) -> AsyncIterator[FarBrowser]:
    far = FarBrowser(microphone=microphone)
    try:
        yield far
    finally:
        await far.close()
