"""Media path to a browser, and its watchdog."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.errors import CalleeUnreachable, CallError, StreamLost
from qwen3tts_phone.facts import EndFacts
from qwen3tts_phone.media.receiver import ReportFigures
from qwen3tts_phone.softphone.webrtc.media import AudioPacket, InboundRtp
from qwen3tts_phone.softphone.webrtc.offer import Offer, OfferedCodec
from qwen3tts_phone.softphone.webrtc.settings import WebRtcSettings
from qwen3tts_phone.softphone.webrtc.statistics import RemoteQuality

if TYPE_CHECKING:
    from qwen3tts_phone.softphone.webrtc.peer import PacketTrack, Peer


REPORTS_S = 8.0
"""Without audio from the browser, its RTCP reports are due about every five seconds (RFC 3550)."""
NETWORK = (
    "Check the network of the device that the page is on (Wi-Fi, mobile network, VPN), then call "
    "again."
)

NO_WAY = (
    "Let UDP pass between the device that the page is on and this machine: firewalls, VPNs, a "
    "guest Wi-Fi and containers without the host's network are in the way most often."
)


class TransportWatchdog:
    """Watchdog of inbound packets; seconds of the clock."""

    def __init__(self, settings: WebRtcSettings, now: float) -> None:
        self._settings = settings
        self._sound_at = self._any_at = now
        self._reported = False
        self._any_sound = False

    def sound(self, now: float) -> bool:
        """Note an audio packet; True for the first, also after a reported silence."""
        news = self._reported or not self._any_sound
        self._sound_at = self._any_at = now
        self._any_sound, self._reported = True, False
        return news

    def report(self, now: float) -> bool:
        news, self._reported = self._reported, False
        self._any_at = now
        return news

    @property
    def lost(self) -> bool:
        return self._reported

    def silent_s(self, now: float) -> float:
        return max(0.0, now - self._any_at)

    def news(self, now: float) -> float | None:
        silent_s = self.silent_s(now)
        if self._reported or silent_s < self._most_s():
            return None
        self._reported = True
        return silent_s

    def vanished(self, now: float) -> CallError | None:
        silent_s = self.silent_s(now)
        if silent_s < self._settings.vanished_s:
            return None
        return StreamLost(
            f"The connection to the browser is lost: nothing has come for {silent_s:.0f} s.",
            remedy=NETWORK,
        )

    def _most_s(self) -> float:
        short_s = self._settings.silent_s
        # Audio and RTCP that stop together mean a lost network; without audio before (a muted
        # microphone) only the reports show that the browser is there.
        alone = self._any_at - self._sound_at
        steady = self._any_sound and alone < short_s
        return short_s if steady else max(short_s, REPORTS_S)


CHECK_INTERVAL_S = 0.5
LONG_S = 8.0
"""A connection that closes after such a silence was lost, not closed by the browser."""


class TransportListener(Protocol):
    def connected(self) -> None: ...

    def audio(self, frame: HeardFrame) -> None: ...

    def silent(self, silent_s: float) -> None: ...

    def resumed(self, now: float) -> None: ...

    def ended(self, end: EndFacts, cause: str) -> None:
        """Handle the end or failure; may be called twice."""


class WebRtcTransport:
    """Media transport of one call: `open` connects, `supervise` runs to the end."""

    def __init__(
        self,
        listener: TransportListener,
        offer: Offer,
        payload: Payload,
        settings: WebRtcSettings,
        clock: Clock,
    ) -> None:
        self.inbound = InboundRtp(payload)
        self.remote = RemoteQuality()
        self.up = asyncio.Event()
        self._listener = listener
        self._offer = offer
        self._settings = settings
        self._clock = clock
        self._watch: TransportWatchdog | None = None
        self._peer: Peer | None = None
        self._gap = asyncio.Event()
        self._closed = False

    async def open(self, codec: OfferedCodec, track: PacketTrack) -> str:
        from qwen3tts_phone.softphone.webrtc.peer import Peer

        self._peer = await Peer.answering(
            self._offer,
            codec,
            track,
            self._settings,
            take=self._hear,
            report=self._reception,
            changed=self._changed,
        )
        return self._peer.answer_sdp

    @property
    def lost(self) -> bool:
        return self._watch is not None and self._watch.lost

    def silent_s(self) -> float:
        return self._watch.silent_s(self._clock.now()) if self._watch is not None else 0.0

    async def supervise(self) -> None:
        settings, clock = self._settings, self._clock
        timer = asyncio.ensure_future(clock.sleep_until(clock.now() + settings.connect_s))
        up = asyncio.ensure_future(self.up.wait())
        try:
            await asyncio.wait((timer, up), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            up.cancel()
        if self._watch is None:
            message = f"The browser was not reached within {settings.connect_s:g} s."
            error = CalleeUnreachable(message, remedy=NO_WAY, why="session")
            self._listener.ended(EndFacts(by="timeout", error=error), message)
            return
        await self._watch_packets(self._watch)

    async def play_out(self) -> None:
        while True:
            await self._gap.wait()
            self._gap.clear()
            while (deadline := self.inbound.next_deadline()) is not None:
                await self._clock.sleep_until(deadline)
                for heard in self.inbound.due(self._clock.now()):
                    self._listener.audio(heard)

    async def close(self) -> None:
        self._closed = True
        if self._peer is not None:
            await self._peer.close()

    # --- inside

    def _changed(self, state: str) -> None:
        if self._closed:
            return
        if state == "connected" and self._watch is None:
            self._watch = TransportWatchdog(self._settings, self._clock.now())
            self.up.set()
            self._listener.connected()
        elif state == "failed":
            message = "The connection to the browser failed."
            error = CalleeUnreachable(message, remedy=NO_WAY, why="session")
            self._listener.ended(EndFacts(by="error", error=error), message)
        elif state == "closed" and self.silent_s() >= LONG_S:
            message = "The connection to the browser broke off."
            lost = StreamLost(message, remedy=NETWORK)
            self._listener.ended(EndFacts(by="error", error=lost), message)
        elif state == "closed":
            self._listener.ended(EndFacts(by="remote"), "the browser hung up")

    async def _watch_packets(self, watch: TransportWatchdog) -> None:
        assert self._peer is not None
        origin, count, before = self._clock.now(), 0, 0
        while True:
            figures = await self._peer.figures()
            self.remote.add_rtcp(figures)
            now = self._clock.now()
            if figures.packets != before:
                before = figures.packets
                if watch.report(now):
                    self._listener.resumed(now)
            silent_s = watch.news(now)
            if silent_s is not None:
                self._listener.silent(silent_s)
            lost = watch.vanished(now)
            if lost is not None:
                self._listener.ended(EndFacts(by="timeout", error=lost), lost.message)
                return
            count += 1
            await self._clock.sleep_until(origin + count * CHECK_INTERVAL_S)

    def _hear(self, packet: AudioPacket) -> None:
        watch = self._watch
        if watch is None or self._closed:
            return
        now = self._clock.now()
        heard = self.inbound.take(packet, now)
        if watch.sound(now):
            self._listener.resumed(now)
        for each in heard:
            self._listener.audio(each)
        if self.inbound.next_deadline() is not None:
            self._gap.set()

    def _reception(self) -> tuple[int, ReportFigures] | None:
        ssrc = self.inbound.ssrc
        return None if ssrc is None else (ssrc, self.inbound.report())
